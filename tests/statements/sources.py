"""What the statements are about: types, streams and tables, and statements over them that are right or nearly so."""

from __future__ import annotations

from pathlib import Path

from flowql.compiler.diagnostics.codes import code_pages

SOURCES = """
CREATE TYPE point AS STRUCT<x INT, y DOUBLE>;
CREATE STREAM s (k INT KEY, v BIGINT, d DECIMAL(9, 2), t STRING, ts TIMESTAMP, l ARRAY<INT>, m MAP<STRING, DOUBLE>, p point,
  b BOOLEAN, f DOUBLE, y BYTES, day DATE, at TIME) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', TIMESTAMP='ts');
CREATE STREAM r (k INT KEY, w STRING) WITH (KAFKA_TOPIC='r', FORMAT='AVRO');
CREATE TABLE c (k INT PRIMARY KEY, name STRING) WITH (KAFKA_TOPIC='c', VALUE_FORMAT='PROTOBUF');
CREATE TABLE w (k INT PRIMARY KEY, n BIGINT) WITH (KAFKA_TOPIC='w', VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOUR');
"""
QUERIES = [
    "CREATE STREAM a AS SELECT k, v + d * 2 AS x, p->x AS px, m['a'] AS ma, l[1] AS l1 FROM s WHERE v BETWEEN 1 AND 5;",
    "CREATE TABLE a WITH (VALUE_FORMAT='AVRO') AS SELECT t, COUNT(*) AS n, TOPK(v, 3) AS top FROM s WINDOW HOPPING (SIZE 1 HOUR, "
    "ADVANCE BY 5 MINUTES, GRACE PERIOD 1 MINUTE) GROUP BY t HAVING COUNT(*) > 1 EMIT FINAL;",
    "CREATE STREAM a AS SELECT s.k, w, v FROM s LEFT JOIN r WITHIN (1 HOUR, 5 MINUTES) GRACE PERIOD 1 DAY ON s.k = r.k AND v > 1;",
    "CREATE STREAM a AS SELECT s.k, name FROM s JOIN c ON s.k = c.k PARTITION BY name;",
    "CREATE STREAM a AS SELECT k, TRANSFORM(m, (a, b) => UCASE(a), (a, b) => b + 1) AS f, EXPLODE(l) AS e FROM s;",
    "CREATE TABLE a AS SELECT k, window_start, SUM(v) AS n FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR, "
    "INTERVAL '1' DAY)) GROUP BY k, window_start, window_end;",
    "CREATE STREAM a AS SELECT k, CASE WHEN v IN (1, 2) THEN 'x' WHEN t LIKE 'a%' THEN t ELSE NULL END AS c FROM s;",
    "INSERT INTO s (k, v, ROWTIME) VALUES (1, 2, 3);",
    "INSERT INTO r SELECT k, CAST(v AS STRING) AS w FROM s EMIT CHANGES;",
    "DROP STREAM IF EXISTS s DELETE TOPIC;",
    "SET 'ksql.functions.collect_list.limit' = '3';",
]  # fmt: skip


def written() -> list[str]:
    """Those above, of the examples, and of the error pages: right ones and wrong ones."""
    root = Path(__file__).parents[2]
    examples = [p.read_text() for d in ("pipelines", "flowql/bench") for p in (root / d).glob("**/*.sql")]
    single = [s + ";" for text in examples for s in text.split(";") if s.strip()]
    pages = [e for page in code_pages().values() for e in (page.wrong, page.right) if e]
    return [*QUERIES, *single, *pages]
