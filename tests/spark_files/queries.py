"""The project, and each of its queries in DuckDB's SQL.

Views of the oracle: a, b (streams, `ms` the row time in ms); d, e (all rows of tables); dv, ev (the versions that ever were: one per key
and sequence, a removal the least, then by values); ds, es (tables at the end).
"""

from __future__ import annotations

SOURCES = """
CREATE STREAM A (K BIGINT KEY, V BIGINT, G STRING, P DECIMAL(9, 2), T TIMESTAMP)
  WITH (KAFKA_TOPIC='a', PARTITIONS=3, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM B (K BIGINT KEY, W INT) WITH (KAFKA_TOPIC='b', PARTITIONS=3, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE D (K BIGINT PRIMARY KEY, NAME STRING, V BIGINT)
  WITH (KAFKA_TOPIC='d', PARTITIONS=3, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE E (K BIGINT PRIMARY KEY, X BIGINT) WITH (KAFKA_TOPIC='e', PARTITIONS=3, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
"""

VIEWS = """
CREATE VIEW a AS SELECT *, ROWTIME AS ms FROM read_parquet('{folder}/A/*/*.parquet', union_by_name=true);
CREATE VIEW b AS SELECT *, epoch_ms(ROWTIME) AS ms FROM read_parquet('{folder}/B/*/*.parquet');
CREATE VIEW d AS SELECT *, epoch_ms(ROWTIME) AS ms FROM read_parquet('{folder}/D/*/*.parquet') WHERE K IS NOT NULL;
CREATE VIEW e AS SELECT *, ROWTIME AS ms FROM read_parquet('{folder}/E/*/*.parquet') WHERE K IS NOT NULL;
CREATE VIEW dv AS SELECT * FROM d QUALIFY
  row_number() OVER (PARTITION BY K, ms ORDER BY OP = 'd', NAME DESC NULLS LAST, V DESC NULLS LAST) = 1;
CREATE VIEW ds AS SELECT * FROM (SELECT * FROM dv QUALIFY row_number() OVER (PARTITION BY K ORDER BY ms DESC) = 1) WHERE OP = 'u';
CREATE VIEW ev AS SELECT * FROM e QUALIFY row_number() OVER (PARTITION BY K, SEQ ORDER BY X DESC NULLS LAST, ms DESC) = 1;
CREATE VIEW es AS SELECT * FROM ev QUALIFY row_number() OVER (PARTITION BY K ORDER BY SEQ DESC) = 1;
CREATE MACRO below(ms, step) AS ms - ((ms % step) + step) % step;
"""

_SESSIONS = """
WITH r AS (SELECT *, ms - lag(ms) OVER (PARTITION BY K ORDER BY ms) AS apart FROM a WHERE K IS NOT NULL),
  s AS (SELECT *, count(*) FILTER (apart > 3000) OVER (PARTITION BY K ORDER BY ms RANGE UNBOUNDED PRECEDING) AS n FROM r)
"""
_HOPS = """(SELECT *, unnest(generate_series(-3, 0)) AS back FROM a WHERE G IS NOT NULL)"""

# Name -> (statements, DuckDB's query for its result). Columns in the order of the result.
QUERIES: dict[str, tuple[str, str]] = {
    "PROJECTED": (
        "CREATE STREAM PROJECTED AS SELECT K, V * 2 + 1 AS V2, G, CAST(P AS STRING) AS P, T FROM A WHERE V <> 3 OR G = 'é';",
        "SELECT K, V * 2 + 1, G, CAST(P AS VARCHAR), T, ms FROM a WHERE V <> 3 OR G = 'é'",
    ),
    "REKEYED": (
        "CREATE STREAM REKEYED AS SELECT V, K, G FROM A PARTITION BY V;",
        "SELECT V, K, G, ms FROM a",
    ),
    "EXPLODED": (
        "CREATE STREAM EXPLODED AS SELECT K, EXPLODE(ARRAY[V, V + 1]) AS X, EXPLODE(ARRAY[G]) AS Y FROM A;",
        "SELECT K, V, G, ms FROM a UNION ALL SELECT K, V + 1, NULL, ms FROM a",
    ),
    "GROUPED": (
        """CREATE TABLE GROUPED AS SELECT K, COUNT(*) AS N, COUNT(V) AS NV, SUM(V) AS S, AVG(V) AS M, MIN(G) AS L, MAX(P) AS H,
          LATEST_BY_OFFSET(G) AS LAST, EARLIEST_BY_OFFSET(V) AS FIRST FROM A GROUP BY K;""",
        """SELECT K, count(*), count(V), coalesce(sum(V), 0), coalesce(avg(V), 0), min(G), max(P),
          first(G ORDER BY ms DESC, G DESC, V DESC NULLS LAST) FILTER (G IS NOT NULL),
          first(V ORDER BY ms, G NULLS FIRST, V) FILTER (V IS NOT NULL) FROM a WHERE K IS NOT NULL GROUP BY K""",
    ),
    "ADDED": (
        """CREATE TABLE ADDED AS SELECT K, SUM(CAST(P AS DOUBLE) / 7) AS S, AVG(CAST(V AS DOUBLE) / 3) AS M FROM A
          WINDOW TUMBLING (SIZE 20 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY K;""",
        """SELECT K, below(ms, 20000) AS s, s + 20000, coalesce(sum(P::DOUBLE / 7 ORDER BY ms, P), 0),
          coalesce(sum(V::DOUBLE / 3 ORDER BY ms, V) / count(V), 0) FROM a WHERE K IS NOT NULL GROUP BY ALL""",
    ),
    "HAVING_SOME": (
        """CREATE TABLE HAVING_SOME WITH (KEY_FORMAT='JSON') AS SELECT G, V % 2 AS ODD, COUNT(*) AS N FROM A
          GROUP BY G, V % 2 HAVING COUNT(*) > 1;""",
        "SELECT G, V % 2, count(*) FROM a WHERE G IS NOT NULL AND V IS NOT NULL GROUP BY ALL HAVING count(*) > 1",
    ),
    "TUMBLING": (
        "CREATE TABLE TUMBLING AS SELECT K, COUNT(*) AS N, SUM(V) AS S FROM A WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY K;",
        "SELECT K, below(ms, 10000) AS s, s + 10000, count(*), coalesce(sum(V), 0) FROM a WHERE K IS NOT NULL GROUP BY ALL",
    ),
    "HOPPING": (
        "CREATE TABLE HOPPING AS SELECT G, COUNT(*) AS N FROM A WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 4 SECONDS, GRACE PERIOD 1 SECOND) GROUP BY G;",
        # No window reaches over 1970.
        f"""SELECT G, below(ms, 4000) + back * 4000 AS s, s + 10000, count(*) FROM {_HOPS}
          WHERE s + 10000 > ms AND (s >= 0 OR s + 10000 <= 0) GROUP BY ALL""",
    ),
    "CUMULATING": (
        """CREATE TABLE CUMULATING WITH (VALUE_FORMAT='AVRO') AS SELECT K, COUNT(*) AS N FROM A
          WINDOW CUMULATING (SIZE 12 SECONDS, ADVANCE BY 4 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY K;""",
        """SELECT K, below(ms, 12000) AS s, s + step * 4000 AS e, count(*) FROM (SELECT *, unnest([1, 2, 3]) AS step FROM a)
          WHERE K IS NOT NULL AND e > ms GROUP BY ALL""",
    ),
    "SESSION": (
        """CREATE TABLE SESSION AS SELECT K, COUNT(*) AS N, MAX(V) AS H, LATEST_BY_OFFSET(G) AS LAST, SUM(CAST(P AS DOUBLE) / 7) AS S FROM A
          WINDOW SESSION (3 SECONDS) GROUP BY K;""",
        f"""{_SESSIONS} SELECT K, min(ms), max(ms), count(*), max(V), first(G ORDER BY ms DESC, G DESC) FILTER (G IS NOT NULL),
          coalesce(sum(P::DOUBLE / 7 ORDER BY ms, P), 0) FROM s GROUP BY K, n""",
    ),
    "SESSION_OF_ALL": (
        "CREATE TABLE SESSION_OF_ALL AS SELECT 7 AS ONE, COUNT(*) AS N, MIN(V) AS L FROM A WINDOW SESSION (2 SECONDS) GROUP BY 7;",
        """SELECT 7, min(ms), max(ms), count(*), min(V) FROM (SELECT *, count(*) FILTER (apart > 2000) OVER (ORDER BY ms RANGE UNBOUNDED PRECEDING)
          AS n FROM (SELECT *, ms - lag(ms) OVER (ORDER BY ms) AS apart FROM a)) GROUP BY n""",
    ),
    "LONG_SESSIONS": (
        """CREATE TABLE LASTING AS SELECT K, COUNT(*) AS N, WINDOWEND - WINDOWSTART AS LASTED FROM A WINDOW SESSION (3 SECONDS) GROUP BY K;
          CREATE TABLE LONG_SESSIONS AS SELECT K, N FROM LASTING WHERE LASTED > 1500;""",
        f"{_SESSIONS} SELECT K, min(ms), max(ms), count(*) FROM s GROUP BY K, n HAVING max(ms) - min(ms) > 1500",
    ),
    "WITH_TABLE": (
        "CREATE STREAM WITH_TABLE AS SELECT A.K AS K, A.V AS V, NAME FROM A LEFT JOIN D ON A.K = D.K;",
        """SELECT a.K, a.V, CASE WHEN OP = 'u' THEN NAME END, a.ms FROM a ASOF LEFT JOIN dv ON a.K = dv.K AND a.ms >= dv.ms
          WHERE a.K IS NOT NULL""",
    ),
    "IN_TABLE": (
        "CREATE STREAM IN_TABLE AS SELECT A.V AS ID, A.K AS K, NAME FROM A JOIN D ON A.V = D.K WHERE D.V <> 2;",
        """SELECT a.V, a.K, NAME, a.ms FROM a ASOF JOIN dv ON a.V = dv.K AND a.ms >= dv.ms
          WHERE OP = 'u' AND dv.V <> 2""",
    ),
    "PAIRS": (
        "CREATE STREAM PAIRS AS SELECT A.K AS K, V, W FROM A JOIN B WITHIN (4 SECONDS, 1 SECOND) GRACE PERIOD 0 SECONDS ON A.K = B.K;",
        "SELECT a.K, V, W, greatest(a.ms, b.ms) FROM a JOIN b ON a.K = b.K AND b.ms BETWEEN a.ms - 4000 AND a.ms + 1000",
    ),
    "LEFT_PAIRS": (
        "CREATE STREAM LEFT_PAIRS AS SELECT A.K AS K, V, W FROM A LEFT JOIN B WITHIN 1 SECOND GRACE PERIOD 2 SECONDS ON A.K = B.K;",
        """SELECT a.K, V, W, greatest(a.ms, b.ms) FROM a LEFT JOIN b ON a.K = b.K AND b.ms BETWEEN a.ms - 1000 AND a.ms + 1000
          WHERE a.K IS NOT NULL""",
    ),
    "ALL_PAIRS": (
        "CREATE STREAM ALL_PAIRS AS SELECT ROWKEY, V, W FROM A FULL OUTER JOIN B WITHIN 500 MILLISECONDS GRACE PERIOD 2 SECONDS ON A.K = B.K;",
        """SELECT coalesce(a.K, b.K), V, W, greatest(a.ms, b.ms) FROM (FROM a WHERE K IS NOT NULL) a
          FULL JOIN (FROM b WHERE K IS NOT NULL) b ON a.K = b.K AND b.ms BETWEEN a.ms - 500 AND a.ms + 500""",
    ),
    "BIG": (
        "CREATE TABLE BIG AS SELECT K, NAME FROM D WHERE V > 1;",
        "SELECT K, NAME FROM ds WHERE V > 1",
    ),
    "BESIDE": (
        "CREATE TABLE BESIDE AS SELECT D.K AS K, NAME, X FROM D LEFT JOIN E ON D.K = E.K;",
        "SELECT ds.K, NAME, X FROM ds LEFT JOIN es ON ds.K = es.K",
    ),
    "BOTH": (
        "CREATE TABLE BOTH AS SELECT ROWKEY, NAME, X FROM BIG FULL OUTER JOIN E ON BIG.K = E.K;",
        "SELECT coalesce(g.K, es.K), NAME, X FROM (FROM ds WHERE V > 1) g FULL JOIN es ON g.K = es.K",
    ),
    "NAMED": (
        "CREATE TABLE NAMED AS SELECT D.K AS K, NAME, X FROM D JOIN E ON D.V = E.K;",
        "SELECT ds.K, NAME, X FROM ds JOIN es ON ds.V = es.K",
    ),
    "MEMBERS": (
        "CREATE TABLE MEMBERS AS SELECT V, COUNT(*) AS N, SUM(K) AS S FROM D GROUP BY V;",
        """SELECT g.V, count(ds.K), coalesce(sum(ds.K), 0) FROM (SELECT DISTINCT V FROM dv WHERE OP = 'u' AND V IS NOT NULL) g
          LEFT JOIN ds ON ds.V = g.V GROUP BY g.V""",
    ),
    "MERGED": (
        """CREATE STREAM MERGED AS SELECT K, V AS X FROM A WHERE V > 2;
          INSERT INTO MERGED SELECT K, CAST(W AS BIGINT) AS X FROM B;""",
        "SELECT K, V, ms FROM a WHERE V > 2 UNION ALL SELECT K, W, ms FROM b",
    ),
    "MERGED_COUNTS": (
        """CREATE TABLE MERGED_COUNTS AS SELECT X, COUNT(*) AS N FROM MERGED WINDOW TUMBLING (SIZE 8 SECONDS, GRACE PERIOD 0 SECONDS)
          GROUP BY X EMIT FINAL;""",
        """SELECT x, below(ms, 8000) AS s, s + 8000, count(*) FROM
          (SELECT V AS x, ms FROM a WHERE V > 2 UNION ALL SELECT W, ms FROM b) WHERE x IS NOT NULL GROUP BY ALL""",
    ),
    "MOST": (
        """CREATE STREAM COUNTED (X BIGINT KEY, N BIGINT)
          WITH (KAFKA_TOPIC='MERGED_COUNTS', VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='8 SECONDS');
          CREATE TABLE MOST AS SELECT WINDOWSTART AS OPENS, MAX(STRUCT(N := N, X := X))->X AS X, MAX(N) AS N FROM COUNTED GROUP BY WINDOWSTART;""",
        """SELECT s, first(x ORDER BY n DESC, x DESC), max(n) FROM (SELECT x, below(ms, 8000) AS s, count(*) AS n FROM
          (SELECT V AS x, ms FROM a WHERE V > 2 UNION ALL SELECT W, ms FROM b) WHERE x IS NOT NULL GROUP BY ALL) GROUP BY s""",
    ),
}
PROJECT = SOURCES + "\n".join(sql for sql, _ in QUERIES.values())
