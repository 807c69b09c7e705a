"""Compute every result of the quickstart with one DuckDB database over the package's CSV files, and compare.

    python pipelines/quickstart/oracle.py [--flowql PROGRAM] [--targets NAME ...] [--results FOLDER] [--only NAME ...]

Results of each target come from `flowql query`, or from FOLDER, which holds NAME.json (an array of row objects) or NAME.arrow
(an IPC file) for each result. Exits 1 when a result differs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
from data import load

PROJECT = Path(__file__).parent
KEPT = tempfile.TemporaryDirectory(prefix="flowql-oracle-")  # gone when the program ends
ASKED_AT_ONCE = 2  # commands; each is one process, which mostly computes
SHOWN = 5  # rows of each kind that a difference prints

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000

BASE = """
CREATE VIEW f AS
SELECT carrier, flight, tailnum, origin, dest, dep_delay, distance,
       epoch_ms(time_hour) AS hour_ms, epoch_ms(time_hour) + minute * 60000 AS at_ms
FROM flights;
CREATE VIEW w AS SELECT *, epoch_ms(time_hour) AS hour_ms FROM weather;
"""

# One query per result, columns named and typed as FlowQL gives them. Windows are aligned to 1970-01-01.
TABLES = {
    "DELAYS_BY_CARRIER": f"""
        SELECT carrier AS CARRIER, at_ms // {HOUR} * {HOUR} AS WINDOWSTART, at_ms // {HOUR} * {HOUR} + {HOUR} AS WINDOWEND,
               count(*) AS FLIGHTS, sum(dep_delay)::BIGINT AS TOTAL_DELAY, avg(dep_delay) AS AVG_DELAY,
               max(dep_delay) AS WORST_DELAY
        FROM f WHERE dep_delay IS NOT NULL GROUP BY ALL""",
    "DEPARTURES_BY_AIRPORT": f"""
        SELECT origin AS ORIGIN, start_ms AS WINDOWSTART, start_ms + {HOUR} AS WINDOWEND, count(*) AS SCHEDULED,
               count(*) FILTER (dep_delay IS NULL) AS CANCELLED, max(dep_delay) AS WORST_DELAY
        FROM (SELECT *, at_ms // {15 * MINUTE} * {15 * MINUTE} - unnest([0, 1, 2, 3]) * {15 * MINUTE} AS start_ms FROM f)
        GROUP BY ALL""",
    # A flight exactly one gap after the last one still belongs to the session.
    "DISRUPTIONS_BY_AIRPORT": f"""
        WITH late AS (SELECT * FROM f WHERE dep_delay IS NULL OR dep_delay > 60),
             marked AS (SELECT *, CASE WHEN at_ms - lag(at_ms) OVER o <= {HOUR} THEN 0 ELSE 1 END AS first FROM late
                        WINDOW o AS (PARTITION BY origin ORDER BY at_ms)),
             numbered AS (SELECT *, sum(first) OVER (PARTITION BY origin ORDER BY at_ms) AS session FROM marked)
        SELECT origin AS ORIGIN, min(at_ms) AS WINDOWSTART, max(at_ms) AS WINDOWEND, count(*) AS FLIGHTS,
               count(*) FILTER (dep_delay IS NULL) AS CANCELLED, max(dep_delay) AS WORST_DELAY
        FROM numbered GROUP BY origin, session""",
    "FLIGHTS_BY_MANUFACTURER": """
        SELECT p.manufacturer AS MANUFACTURER, count(*) AS FLIGHTS, sum(p.seats)::BIGINT AS SEATS,
               avg(f.dep_delay) AS AVG_DELAY
        FROM f JOIN planes p USING (tailnum) WHERE f.dep_delay IS NOT NULL GROUP BY ALL""",
    "WEATHER_IMPACT": f"""
        SELECT f.origin AS ORIGIN, at_ms // {DAY} * {DAY} AS WINDOWSTART, at_ms // {DAY} * {DAY} + {DAY} AS WINDOWEND,
               count(*) AS FLIGHTS, count(*) FILTER (w.wind_speed >= 20) AS WINDY, count(*) FILTER (w.precip > 0) AS WET,
               min(w.visib) AS LEAST_VISIBILITY, max(w.wind_speed) AS MOST_WIND, avg(f.dep_delay) AS AVG_DELAY,
               max(f.dep_delay) AS WORST_DELAY
        FROM f JOIN w USING (origin, hour_ms) WHERE f.dep_delay IS NOT NULL
        GROUP BY ALL HAVING count(*) >= 10""",
}

# Streams: the columns of key and value, all of them, one row per record.
STREAMS = {
    "FLIGHTS_ENRICHED": """
        SELECT f.tailnum AS TAILNUM, a.name AS AIRLINE, f.flight AS FLIGHT, f.origin AS ORIGIN, f.dest AS DEST,
               at_ms AS SCHED_DEP_TIME, f.dep_delay AS DEP_DELAY, f.distance AS DISTANCE, p.manufacturer AS MANUFACTURER,
               p.model AS MODEL, p.year AS BUILT, p.seats AS SEATS
        FROM f LEFT JOIN airlines a USING (carrier) JOIN planes p USING (tailnum)""",
    "FLIGHTS_WITH_WEATHER": """
        SELECT f.origin || '|' || f.hour_ms AS STATION_HOUR, f.carrier AS CARRIER, f.flight AS FLIGHT,
               f.origin AS ORIGIN, at_ms AS SCHED_DEP_TIME, f.dep_delay AS DEP_DELAY,
               w."temp" AS TEMP, w.wind_speed AS WIND_SPEED, w.precip AS PRECIP, w.visib AS VISIB
        FROM f LEFT JOIN w USING (origin, hour_ms)""",
}


def command(path: Path, *arguments: str) -> Path:
    """The file with what a `flowql` command writes to stdout. Its stderr is shown; a failure ends the comparison."""
    with path.open("wb") as out:
        done = subprocess.run(arguments, stdout=out, check=False)
    if done.returncode != 0:
        sys.exit(f"`{' '.join(arguments)}` failed with exit code {done.returncode}")
    return path


def ask(name: str, program: str, target: str) -> Path:
    """The result NAME of a target, as an Arrow stream."""
    path = Path(KEPT.name) / f"{name}-{target}.arrows"
    return command(path, program, "query", f"SELECT * FROM {name}", "-p", str(PROJECT), "-t", target, "-o", "arrow")


def got(connection: duckdb.DuckDBPyConnection, name: str, path: Path) -> str:
    """Load a result into a relation; returns the FROM item that reads it."""
    if path.suffix != ".json":
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file) if path.suffix == ".arrow" else pa.ipc.open_stream(file)
            connection.register(f"arrow_{name}", reader.read_all())
        return f"arrow_{name}"
    described = connection.execute(f"DESCRIBE expected_{name}").fetchall()
    columns = "{" + ", ".join(f"'{c[0]}': '{c[1]}'" for c in described) + "}"
    connection.execute(
        f"CREATE OR REPLACE TABLE got_{name} AS SELECT * FROM read_json(?, columns = {columns})", [str(path)]
    )
    return f"got_{name}"


def compare(connection: duckdb.DuckDBPyConnection, name: str, relation: str) -> list[str]:
    """The differences between `expected_NAME` and the result of FlowQL, as lines of text."""
    described = connection.execute(f"DESCRIBE expected_{name}").fetchall()
    # The order of additions may differ in the last bits of a DOUBLE.
    columns = ", ".join(
        f"round({c[0]}, 9) AS {c[0]}" if c[1] == "DOUBLE" else f"{c[0]}::{c[1]} AS {c[0]}" for c in described
    )
    sides = {
        "expected and not there": (f"expected_{name}", relation),
        "there and not expected": (relation, f"expected_{name}"),
    }
    lines = []
    for text, (one, other) in sides.items():
        sql = f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}"
        ((count,),) = connection.execute(f"SELECT count(*) FROM ({sql})").fetchall()
        if count:
            lines.append(f"  {count:,} rows {text}, the first of them:")
            lines += [f"    {row}" for row in connection.execute(f"{sql} ORDER BY ALL LIMIT {SHOWN}").fetchall()]
    if lines:
        lines.insert(0, f"  columns: {', '.join(c[0] for c in described)}")
    return lines


def given_file(results: Path, name: str) -> Path:
    arrow = results / f"{name}.arrow"
    return arrow if arrow.exists() else results / f"{name}.json"


def judge(connection: duckdb.DuckDBPyConnection, name: str, given: Mapping[str, Path]) -> bool:
    """Print how the results of each target compare with what is expected; whether one differs."""
    connection.execute(f"CREATE TABLE expected_{name} AS {(TABLES | STREAMS)[name]}")
    ((rows,),) = connection.execute(f"SELECT count(*) FROM expected_{name}").fetchall()
    found = {}
    for target, path in given.items():
        found[target] = compare(connection, name, got(connection, name, path))
    said = {t: "DIFFERENT" if lines else "equal" for t, lines in found.items()}
    verdict = ", ".join(f"{t} {word}" for t, word in said.items()) if len(said) > 1 else next(iter(said.values()))
    print(f"{name}: {verdict} ({rows:,} rows expected)", flush=True)
    for target, lines in found.items():
        print("\n".join([f"  {target}:", *lines] if len(found) > 1 and lines else lines), end="\n" if lines else "")
    return any(found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flowql", default=str(Path(sys.executable).parent / "flowql"), help="the flowql program")
    parser.add_argument("--targets", nargs="+", default=["default"], help="the targets to ask")
    parser.add_argument("--results", type=Path, help="folder with results to compare instead of asking flowql")
    parser.add_argument("--only", nargs="+", choices=[*TABLES, *STREAMS], help="compare only these")
    options = parser.parse_args()
    connection = duckdb.connect()
    load(connection)
    connection.execute(BASE)
    names = options.only or [*TABLES, *STREAMS]
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        if options.results is not None:
            given = {(n, "results"): pool.submit(given_file, options.results, n) for n in names}
        else:
            given = {(n, t): pool.submit(ask, n, options.flowql, t) for n in names for t in options.targets}
        different = sum(
            judge(connection, name, {t: f.result() for (n, t), f in given.items() if n == name}) for name in names
        )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
