"""One seed as streams: the same rows as files that come in two portions, and what DuckDB says of those that were not late.

`flowql run -t spark --until-caught-up` reads each file as a micro-batch of its own into the topic of its source. The offsets there are the
order in which rows were read; the row's values are those of the file, by a number that each row has. Of that order DuckDB knows
the stream time of every row (the greatest time before it in its partition), so which rows are late and how often.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import orjson
import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.runtime.batch import DELETE
from flowql.runtime.log.base import EARLIEST, Log, RawBatch, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.spark.engine.instance import SparkInstance
from flowql.runtime.spark.files_decode import topic_rows
from flowql.runtime.spark.files_sink import whole_schema
from flowql.runtime.spark.settings import SparkSettings, TopicFiles
from tests.spark_files import data
from tests.spark_files.queries import SOURCES

if TYPE_CHECKING:
    from tests.spark_files.data import Row

GAP_MS, GRACE_MS = 3000, 2000
DAYS_3_MS = 3 * 86_400_000
NUMBER = "N"  # of a row among all rows of its source
RUNS = ((0,), (1, 2))  # the portions that are there when Spark looks for files
SCHEMAS = {n: pa.schema([*s, pa.field(NUMBER, pa.int64())]) for n, s in data.SCHEMAS.items()}
STREAM_SOURCES = SOURCES.replace("K BIGINT KEY,", "K BIGINT KEY, N BIGINT,")
STREAM_SOURCES = STREAM_SOURCES.replace("K BIGINT PRIMARY KEY,", "K BIGINT PRIMARY KEY, N BIGINT,")

ORDER = ("N", "part", "off", "phase")
Ends = dict[tuple[str, int], int]  # of each partition, the offset behind its last record
# oa, ob, ...: of each source the number, partition (part), offset and portion of its rows in the topic. pos: their place in the task that reads both sides.
VIEWS = """
CREATE VIEW a AS SELECT f.*, ROWTIME AS ms, part, off, phase FROM read_parquet('{folder}/A/*/*.parquet', union_by_name=true) f JOIN oa USING (N);
CREATE VIEW b AS SELECT f.*, epoch_ms(ROWTIME) AS ms, part, off, phase FROM read_parquet('{folder}/B/*/*.parquet') f JOIN ob USING (N);
CREATE VIEW d AS SELECT f.*, epoch_ms(ROWTIME) AS ms, part, off, phase FROM read_parquet('{folder}/D/*/*.parquet') f JOIN od USING (N);
CREATE VIEW e AS SELECT f.*, ROWTIME AS ms, part, off, phase FROM read_parquet('{folder}/E/*/*.parquet') f JOIN oe USING (N);
CREATE VIEW ds AS SELECT * FROM (SELECT * FROM d QUALIFY row_number() OVER (PARTITION BY K ORDER BY off DESC) = 1) WHERE OP = 'u';
CREATE VIEW es AS SELECT * FROM e QUALIFY row_number() OVER (PARTITION BY K ORDER BY off DESC) = 1;
CREATE MACRO below(ms, step) AS ms - ((ms % step) + step) % step;
CREATE VIEW timed AS SELECT *, max(ms) OVER (PARTITION BY part ORDER BY off ROWS UNBOUNDED PRECEDING) AS now FROM a WHERE K IS NOT NULL;
CREATE VIEW tumbling AS SELECT *, below(ms, 10000) AS s, s + 10000 AS e, s + 10000 <= now AS late FROM timed;
CREATE VIEW hopping AS SELECT *, below(ms, 4000) + back * 4000 AS s, s + 10000 AS e, s + 11000 <= now AS late
  FROM (SELECT *, unnest(generate_series(-3, 0)) AS back FROM timed) WHERE s + 10000 > ms AND (s >= 0 OR s + 10000 <= 0);
CREATE VIEW cumulating AS SELECT *, below(ms, 12000) AS s, s + step * 4000 AS e, s + step * 4000 + 1000 <= now AS late
  FROM (SELECT *, unnest([1, 2, 3]) AS step FROM timed) WHERE s + step * 4000 > ms;
CREATE VIEW sessions AS SELECT a.*, session FROM a JOIN in_session USING (N);
CREATE VIEW merged AS SELECT *, row_number() OVER (PARTITION BY part ORDER BY phase, reached, side, off) AS pos FROM (
  SELECT 'd' AS side, N, part, off, phase, max(ms) OVER (PARTITION BY part, phase ORDER BY off) AS reached FROM d
  UNION ALL SELECT 's', N, part, off, phase, max(ms) OVER (PARTITION BY part, phase ORDER BY off) FROM a);
CREATE VIEW placed_a AS SELECT a.*, pos FROM a JOIN merged m ON m.side = 's' AND m.N = a.N WHERE K IS NOT NULL;
CREATE VIEW placed_d AS SELECT d.*, pos FROM d JOIN merged m ON m.side = 'd' AND m.N = d.N;
"""

# Name -> (statements, DuckDB's query for the result, and for how many rows are late).
QUERIES: dict[str, tuple[str, str, str]] = {
    "PROJECTED": (
        "CREATE STREAM PROJECTED AS SELECT K, V * 2 + 1 AS V2, G, CAST(P AS STRING) AS P, T FROM A WHERE V <> 3 OR G = 'é';",
        "SELECT K, V * 2 + 1, G, CAST(P AS VARCHAR), T, ms FROM a WHERE V <> 3 OR G = 'é'",
        "",
    ),
    "REKEYED": ("CREATE STREAM REKEYED AS SELECT V, K, G FROM A PARTITION BY V;", "SELECT V, K, G, ms FROM a", ""),
    "EXPLODED": (
        "CREATE STREAM EXPLODED AS SELECT K, EXPLODE(ARRAY[V, V + 1]) AS X, EXPLODE(ARRAY[G]) AS Y FROM A;",
        "SELECT K, V, G, ms FROM a UNION ALL SELECT K, V + 1, NULL, ms FROM a",
        "",
    ),
    "MERGED": (
        """CREATE STREAM MERGED AS SELECT K, V AS X FROM A WHERE V > 2;
          INSERT INTO MERGED SELECT K, CAST(W AS BIGINT) AS X FROM B;""",
        "SELECT K, V, ms FROM a WHERE V > 2 UNION ALL SELECT K, W, ms FROM b",
        "",
    ),
    "GROUPED": (
        """CREATE TABLE GROUPED AS SELECT K, COUNT(*) AS C, SUM(V) AS S, MIN(G) AS L, MAX(P) AS H,
          LATEST_BY_OFFSET(G) AS LAST, EARLIEST_BY_OFFSET(V) AS FIRST FROM A GROUP BY K;""",
        """SELECT K, count(*), coalesce(sum(V), 0), min(G), max(P), last(G ORDER BY off) FILTER (G IS NOT NULL),
          first(V ORDER BY off) FILTER (V IS NOT NULL) FROM a WHERE K IS NOT NULL GROUP BY K""",
        "",
    ),
    "HAVING_SOME": (
        """CREATE TABLE HAVING_SOME WITH (KEY_FORMAT='JSON') AS SELECT G, V % 2 AS ODD, COUNT(*) AS C FROM A
          GROUP BY G, V % 2 HAVING COUNT(*) > 1;""",
        "SELECT G, V % 2, count(*) FROM a WHERE G IS NOT NULL AND V IS NOT NULL GROUP BY ALL HAVING count(*) > 1",
        "",
    ),
    "TUMBLING": (
        "CREATE TABLE TUMBLING AS SELECT K, COUNT(*) AS C, SUM(V) AS S FROM A WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY K;",
        "SELECT K, s, e, count(*), coalesce(sum(V), 0) FROM tumbling WHERE NOT late GROUP BY ALL",
        "SELECT count(*) FROM tumbling WHERE late",
    ),
    "HOPPING": (
        "CREATE TABLE HOPPING AS SELECT K, COUNT(*) AS C FROM A WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 4 SECONDS, GRACE PERIOD 1 SECOND) GROUP BY K;",
        "SELECT K, s, e, count(*) FROM hopping WHERE NOT late GROUP BY ALL",
        "SELECT count(*) FROM hopping WHERE late",
    ),
    "CUMULATING": (
        """CREATE TABLE CUMULATING WITH (VALUE_FORMAT='AVRO') AS SELECT K, COUNT(*) AS C FROM A
          WINDOW CUMULATING (SIZE 12 SECONDS, ADVANCE BY 4 SECONDS, GRACE PERIOD 1 SECOND) GROUP BY K;""",
        "SELECT K, s, e, count(*) FROM cumulating WHERE NOT late GROUP BY ALL",
        "SELECT count(*) FROM cumulating WHERE late",
    ),
    "SESSION": (
        f"""CREATE TABLE SESSION AS SELECT K, COUNT(*) AS C, MAX(V) AS H FROM A
          WINDOW SESSION ({GAP_MS // 1000} SECONDS, GRACE PERIOD {GRACE_MS // 1000} SECONDS) GROUP BY K;""",
        "SELECT K, min(ms), max(ms), count(*), max(V) FROM sessions WHERE session IS NOT NULL GROUP BY K, session",
        "SELECT count(*) FROM sessions WHERE session IS NULL",
    ),
    "WITH_TABLE": (
        "CREATE STREAM WITH_TABLE AS SELECT A.K AS K, A.V AS V, NAME FROM A LEFT JOIN D ON A.K = D.K;",
        """SELECT a.K, a.V, CASE WHEN OP = 'u' THEN NAME END, a.ms FROM placed_a a
          ASOF LEFT JOIN placed_d d ON a.K = d.K AND a.pos >= d.pos""",
        "",
    ),
    "PAIRS": (
        "CREATE STREAM PAIRS AS SELECT A.K AS K, V, W FROM A JOIN B WITHIN (4 SECONDS, 1 SECOND) GRACE PERIOD 1 DAY ON A.K = B.K;",
        "SELECT a.K, V, W, greatest(a.ms, b.ms) FROM a JOIN b ON a.K = b.K AND b.ms BETWEEN a.ms - 4000 AND a.ms + 1000",
        "",
    ),
    "EVERY_PAIR": (
        "CREATE STREAM EVERY_PAIR AS SELECT A.K AS K, V, W FROM A JOIN B WITHIN 110000 DAYS ON A.K = B.K WHERE W <> 3;",
        "SELECT a.K, V, W, greatest(a.ms, b.ms) FROM a JOIN b ON a.K = b.K WHERE W <> 3",
        "",
    ),
    "ALL_PAIRS": (  # the last rows of a partition are days behind the others, and close what those began
        "CREATE STREAM ALL_PAIRS AS SELECT ROWKEY, V, W FROM A FULL OUTER JOIN B WITHIN 500 MILLISECONDS GRACE PERIOD 1 DAY ON A.K = B.K;",
        f"""SELECT coalesce(a.K, b.K), V, W, greatest(a.ms, b.ms) FROM (FROM a WHERE K IS NOT NULL) a
          FULL JOIN (FROM b WHERE K IS NOT NULL) b ON a.K = b.K AND b.ms BETWEEN a.ms - 500 AND a.ms + 500
          WHERE (a.K IS NOT NULL AND b.K IS NOT NULL) OR coalesce(a.ms, b.ms) < (SELECT max(ms) FROM a) - {DAYS_3_MS // 2}""",
        "",
    ),
    "BIG": ("CREATE TABLE BIG AS SELECT K, NAME FROM D WHERE V > 1;", "SELECT K, NAME FROM ds WHERE V > 1", ""),
    "BESIDE": (
        "CREATE TABLE BESIDE AS SELECT D.K AS K, NAME, X FROM D LEFT JOIN E ON D.K = E.K;",
        "SELECT ds.K, NAME, X FROM ds LEFT JOIN es ON ds.K = es.K",
        "",
    ),
    "NAMED": (
        "CREATE TABLE NAMED AS SELECT D.K AS K, NAME, X FROM D JOIN E ON D.V = E.K;",
        "SELECT ds.K, NAME, X FROM ds JOIN es ON ds.V = es.K",
        "",
    ),
    "MEMBERS": (
        "CREATE TABLE MEMBERS AS SELECT V, COUNT(*) AS C, SUM(K) AS S FROM D GROUP BY V;",
        """SELECT g.V, count(ds.K), coalesce(sum(ds.K), 0) FROM (SELECT DISTINCT V FROM d WHERE OP = 'u' AND V IS NOT NULL) g
          LEFT JOIN ds ON ds.V = g.V GROUP BY g.V""",
        "",
    ),
}
DRAWN = 7  # queries of a seed: each is a stream of its own, whose start takes seconds


@cache
def stream_plan(names: tuple[str, ...] = tuple(QUERIES)) -> Plan:
    project = STREAM_SOURCES + "\n".join(QUERIES[name][0] for name in names)
    compiled = compile_project([SourceText("project.sql", project)])
    assert compiled.ok, compiled.diagnostics
    return compiled.plan


def _drawn(r: random.Random) -> tuple[str, ...]:
    """Some queries, of which one or more have rows that are late."""
    windowed = r.choice([name for name, (_, _, late) in QUERIES.items() if late])
    return (windowed, *r.sample([name for name in QUERIES if name != windowed], DRAWN - 1))


def stream_differences(folder: Path, seed: int, base: SparkSettings) -> Iterator[str]:
    """What a run over the files of a seed and DuckDB say differently: texts. base: settings of the Spark that runs already."""
    r = random.Random(f"streams {seed}")
    portions, drawn = _portions(r), _drawn(r)
    plan = stream_plan(drawn)
    files = {n.lower(): TopicFiles("parquet", str(folder / n), {"maxFilesPerTrigger": "1"}) for n in SCHEMAS}
    files["d"] = TopicFiles("parquet", str(folder / "D"), {"maxFilesPerTrigger": "1"}, delete_when="OP = 'd'")
    settings = SparkSettings(master=base.master, conf=base.conf, shuffle_partitions=2, files=files)
    ends: list[Ends] = []
    for run in RUNS:
        for n in run:
            for name, part in portions[n].items():
                data.write_files(r, folder / name, SCHEMAS[name], part, prefix=f"{n}-")
            _age(r, folder, n)
        told = _run(folder, settings, plan)
        with closing(EmbeddedLog(folder / "log")) as log:
            ends.append(_ends(log))
    with closing(EmbeddedLog(folder / "log")) as log:
        database = _database(log, folder, ends)
        found = {name: _result(log, name) for name in drawn}
    for name in (n for n in SCHEMAS if f"FILES_{n.lower()}" in told):
        keyed = "WHERE K IS NOT NULL" if name in "DE" else ""
        sql = f"SELECT count(*), (SELECT count(*) FROM {name}) FROM read_parquet('{folder}/{name}/*/*.parquet') {keyed}"
        rows, read = database.sql(sql).fetchall()[0]
        if rows != read:
            yield f"seed {seed}: of {rows} rows of {name} in files {read} are in its topic"
    for name in drawn:
        _, sql, late = QUERIES[name]
        expected = Counter(database.sql(sql).fetchall())
        if not expected:
            yield f"seed {seed}: {name}: DuckDB gives no rows, so nothing was compared"
        if found[name] != expected:
            more, fewer = found[name] - expected, expected - found[name]
            one, other = (sorted(x.elements(), key=repr)[:5] for x in (more, fewer))
            yield f"seed {seed}: {name}: Spark alone {one}, DuckDB alone {other}"
        yield from _late(seed, name, told, database, late)


def _run(folder: Path, settings: SparkSettings, plan: Plan) -> dict[str, dict[str, Any]]:
    """`flowql run --until-caught-up`; what it tells of each query."""
    instance = SparkInstance(folder / "log", folder / "state", settings, "streams", mode="caught up")
    try:
        instance.start()
        instance.deploy(plan)
        instance.run_until_caught_up()
        told = {q["id"]: q for q in instance.status()["queries"]}
    finally:
        instance.stop()
    return told


def _late(
    seed: int, name: str, told: dict[str, dict[str, Any]], database: duckdb.DuckDBPyConnection, sql: str
) -> Iterator[str]:
    (query,) = [q for q in told.values() if q["id"].startswith(("CSAS_", "CTAS_")) and q["id"][5:] == name]
    late = database.sql(sql).fetchall()[0][0] if sql else 0
    if sql and not late:
        yield f"seed {seed}: {name}: no row was late, so nothing was shown"
    if query["late_records"] != late:
        yield f"seed {seed}: {name}: the run counts {query['late_records']} late rows, DuckDB {late}"


def _portions(r: random.Random) -> list[dict[str, list[Row]]]:
    """The rows of a seed in two portions, and a third: a row of each key of both streams, days behind all others, and last rows of tables."""
    rows = {name: [dict(row) for row in found] for name, found in data.rows_of(r, 120).items()}
    first = {name: found[: len(found) // 2] for name, found in rows.items()}
    second = {name: found[len(found) // 2 :] for name, found in rows.items()}
    last = max(row["ROWTIME"] for row in rows["A"]) + DAYS_3_MS
    keys = {row["K"] for name in ("A", "B") for row in rows[name] if row["K"] is not None}
    closing: dict[str, list[Row]] = {
        "A": [{**rows["A"][0], "K": key, "ROWTIME": last} for key in sorted(keys)],
        "B": [{**rows["B"][0], "K": key, "ROWTIME": data.zoned(last)} for key in sorted(keys)],
        # The last rows of these keys, whatever came before: one that names a row of E, and one whose V is more than 1.
        "D": [{**rows["D"][0], "K": k, "V": v, "OP": "u", "ROWTIME": data.naive(last)} for k, v in ((2, 0), (3, 3))],
        "E": [{**rows["E"][0], "K": key, "ROWTIME": last} for key in (0, 1)],
    }
    portions = [first, second, closing]
    numbers: Counter[str] = Counter()
    for portion in portions:
        for name, found in portion.items():
            for row in found:
                row[NUMBER] = numbers[name] = numbers[name] + 1
    return portions


def _age(r: random.Random, folder: Path, portion: int) -> None:
    """Spark reads files in the order in which they were last changed: those of a portion at random, behind those of earlier ones."""
    files = sorted(folder.glob(f"*/*/{portion}-*.parquet"))
    r.shuffle(files)
    for i, file in enumerate(files):
        at = 1_700_000_000 + 10_000 * portion + i
        os.utime(file, (at, at))


def _read(log: Log, topic: str) -> Iterator[RawBatch]:
    info = log.admin().topics().get(topic)  # none of a source that no drawn query reads
    for p in range(info.partitions if info is not None else 0):
        reader = log.reader(TopicPartition(topic, p), EARLIEST)
        while (batch := reader.read(100_000, 1 << 30)) is not None:
            yield batch


def _ends(log: Log) -> Ends:
    return {(t, b.tp.partition): b.next_offset for t in ("a", "b", "d", "e") for b in _read(log, t)}


def _database(log: Log, folder: Path, ends: list[Ends]) -> duckdb.DuckDBPyConnection:
    """DuckDB over the files, with the order in which their rows were read."""
    database, removed = duckdb.connect(), _removed(folder)
    for name in SCHEMAS:
        topic = name.lower()
        rows: list[tuple[int | None, ...]] = []
        for raw in _read(log, topic):
            for record in raw.records.to_pylist():
                phase = sum(record["offset"] >= e.get((topic, raw.tp.partition), 0) for e in ends[:-1])
                rows.append((_number(record, removed), raw.tp.partition, record["offset"], phase))
        assert len({number for number, *_ in rows}) == len(rows), f"rows of {name} were read twice"
        columns = zip(*rows, strict=True) if rows else [()] * 4
        table = pa.table({n: pa.array(c, pa.int64()) for n, c in zip(ORDER, columns, strict=True)})
        database.register(f"o{topic}_arrow", table)
        database.execute(f"CREATE TABLE o{topic} AS SELECT * FROM o{topic}_arrow")
    for view in filter(str.strip, VIEWS.format(folder=folder).split(";")):
        if "VIEW sessions" in view:
            database.execute("CREATE TABLE in_session (N BIGINT, session BIGINT)")
            rows = _sessions(database.sql("SELECT N, K, ms, now FROM timed ORDER BY part, off").fetchall())
            database.executemany("INSERT INTO in_session VALUES (?, ?)", rows)
        database.execute(view)
    return database


def _removed(folder: Path) -> dict[tuple[int, int], list[int]]:
    """Numbers of the rows that remove a key, by key and time: their records carry no more, and any of the same is as good."""
    sql = f"SELECT K, epoch_ms(ROWTIME), list(N) FROM read_parquet('{folder}/D/*/*.parquet') WHERE OP = 'd' AND K IS NOT NULL GROUP BY ALL"
    return {(key, ms): numbers for key, ms, numbers in duckdb.sql(sql).fetchall()}


def _number(record: dict[str, Any], removed: dict[tuple[int, int], list[int]]) -> int:
    """The number of the row that a record was made of."""
    if record["value"] is None:
        return removed[int.from_bytes(record["key"], "big"), record["timestamp"]].pop()
    return int(orjson.loads(record["value"])[NUMBER])


def _sessions(rows: list[tuple[int, int, int, int]]) -> list[tuple[int, int | None]]:
    """The session of each row (number, key, time, stream time), in the order read; None for a row that is late.

    A session is closed when stream time is more than gap and grace behind its end, and takes no row any more. A row that would make a closed one is late.
    """
    kept: dict[int, list[tuple[int, int, list[int]]]] = {}
    late: list[int] = []
    for number, key, ms, now in rows:
        closed = now - GAP_MS - GRACE_MS
        known = kept.setdefault(key, [])
        met = [s for s in known if s[1] >= closed and s[0] - GAP_MS <= ms <= s[1] + GAP_MS]
        start, end = min([ms, *(s[0] for s in met)]), max([ms, *(s[1] for s in met)])
        if end < closed:
            late.append(number)
            continue
        kept[key] = [s for s in known if s not in met]
        kept[key].append((start, end, [number, *(n for s in met for n in s[2])]))
    every = [s for found in kept.values() for s in found]
    return [(n, i) for i, s in enumerate(every) for n in s[2]] + [(n, None) for n in late]


def _result(log: Log, name: str) -> Counter[tuple[Any, ...]]:
    """The rows of a result's topic: all of a stream with their times, of a table the last of each key."""
    source = stream_plan().source(name)
    assert source is not None
    schema = whole_schema(source)
    found: Counter[tuple[Any, ...]] = Counter()
    last: dict[bytes, tuple[Any, ...] | None] = {}
    for raw in _read(log, source.topic):
        batch, keys = topic_rows(source, schema, raw), raw.records.column("key").to_pylist()
        columns = [c.to_pylist() for c in batch.arrow().columns]
        for i, at in enumerate(batch.seq.tolist()):
            row = tuple(c[i] for c in columns)
            if source.kind == "stream":
                found[(*row, int(batch.rowtime[i]))] += 1
            else:
                last[keys[at]] = None if batch.op[i] == DELETE else row
    return found + Counter(row for row in last.values() if row is not None)
