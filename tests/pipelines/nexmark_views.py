"""`python -m tests.pipelines.nexmark_views [--events N] [--kills K]`: Nexmark as views of standard SQL, beside DuckDB.

Writes the events to a log of four partitions, runs the project until it has read them, killing the process (SIGKILL) K times on the way,
and compares the rows of each view with the same statement over the same events in DuckDB. Windows and functions that DuckDB does not have are
spelt out there.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from flowql.api.querying import answer_of
from flowql.bench.nexmark_input import rows_of, write_log
from flowql.bench.nexmark_people import SCHEMAS
from flowql.config.load import load_project
from flowql.deploy.settings import settings_of

PROJECT = Path(__file__).resolve().parents[2] / "pipelines" / "nexmark" / "views"
FLOWQL = [sys.executable, "-c", "from flowql.cli import main; main()"]
VIEW = re.compile(r"^CREATE VIEW (\w+) AS\s+(.*?);\n", re.DOTALL | re.MULTILINE)
WINDOW = re.compile(r"(?:TUMBLE|HOP)\((\w+), \"dateTime\", ([^)]*)\)")
SESSION = re.compile(r"SESSION\(TABLE (\w+) PARTITION BY (\w+), DESCRIPTOR\(\"dateTime\"\), ([^)]*)\)")
SECONDS = re.compile(r"INTERVAL '(\d+)' SECOND")
SIDE_INPUT = "CREATE TABLE side_input AS SELECT range AS key, CAST(range AS VARCHAR) AS value FROM range(10)"
PATTERNS = {"YYYY-MM-DD": "%Y-%m-%d", "HH:MI": "%I:%M", "HH24:MI": "%H:%M"}
MACROS = (
    f"to_char(t, p) AS CASE p {' '.join(f'WHEN {chr(39)}{p}{chr(39)} THEN strftime(t, {chr(39)}{d}{chr(39)})' for p, d in PATTERNS.items())} END",
    "regexp_match(s, p) AS CASE WHEN regexp_matches(s, p) THEN [regexp_extract(s, p, 1), regexp_extract(s, p, 2)] END",
)
RUN_S_MAX = 3_600.0
COMPARED_BYTES = 16 << 30


@dataclass(frozen=True, slots=True)
class Compared:
    """rows: of the view. missing, extra: how many of DuckDB's rows it does not have, and the other way."""

    view: str
    rows: int
    missing: int
    extra: int


def views() -> dict[str, str]:
    """Their queries, by name, in the order of the file."""
    return {m[1]: m[2] for m in VIEW.finditer((PROJECT / "views.sql").read_text(encoding="utf-8"))}


def for_duckdb(query: str) -> str:
    """The query as DuckDB can say it: windows as relations with their bounds."""
    return SESSION.sub(_sessions, WINDOW.sub(_windows, query))


def _windows(match: re.Match[str]) -> str:
    """Each row once for every window that it is in."""
    *slide, size = map(int, SECONDS.findall(match[2]))
    step = slide[0] if slide else size
    opens = f"time_bucket(INTERVAL '{step}' SECOND, \"dateTime\") - back * INTERVAL '{step}' SECOND"
    bounds = f"{opens} AS window_start, window_start + INTERVAL '{size}' SECOND AS window_end"
    return f"(SELECT *, {bounds} FROM {match[1]}, range({size // step}) AS r(back)) AS {match[1]}"


def _sessions(match: re.Match[str]) -> str:
    """A session begins with a row that is later than the gap behind the one before it."""
    source, key, gap = match.groups()
    begins = f'coalesce("dateTime" - lag("dateTime") OVER rows_of_key > {gap}, TRUE)'
    rows = f'SELECT *, {begins} AS begins FROM {source} WINDOW rows_of_key AS (PARTITION BY {key} ORDER BY "dateTime")'
    numbered = f'SELECT *, sum(begins::INT) OVER (PARTITION BY {key} ORDER BY "dateTime") AS number FROM ({rows})'
    bounds = f'min("dateTime") OVER session AS window_start, max("dateTime") OVER session + {gap} AS window_end'
    return f"(SELECT *, {bounds} FROM ({numbered}) WINDOW session AS (PARTITION BY {key}, number))"


def expected(events: int) -> duckdb.DuckDBPyConnection:
    """A database with the events and the views over them, as tables."""
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    for topic in SCHEMAS:
        read = rows_of(topic, events)()
        times = ", ".join(f'epoch_ms("{n}") AS "{n}"' for n in ("dateTime", "expires") if n in read.schema.names)
        db.register("events", read)
        db.execute(f"CREATE TABLE {topic} AS SELECT * REPLACE ({times}) FROM events")
        db.unregister("events")
    db.execute(SIDE_INPUT)
    for macro in MACROS:
        db.execute(f"CREATE MACRO {macro}")
    for name, query in views().items():
        db.execute(f"CREATE TABLE {name} AS {for_duckdb(query)}")
    return db


def run(folder: Path, kills: int, rng: random.Random, seconds: tuple[float, float]) -> int:
    """Until all is read; the process is killed `kills` times, after a random time between the two. How many kills hit."""
    hit = 0
    while True:
        process = subprocess.Popen([*FLOWQL, "run", "--until-caught-up", *_project(folder)], env=_environment())
        try:
            process.wait(rng.uniform(*seconds) if hit < kills else RUN_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            assert hit < kills, "the project does not catch up"
            hit += 1
            continue
        assert process.returncode == 0, f"flowql run ended with {process.returncode}"
        return hit


def compare(folder: Path, db: duckdb.DuckDBPyConnection) -> Iterator[Compared]:
    settings = settings_of(load_project(PROJECT, variables={"data": str(folder)}))
    settings = replace(settings, memory_bytes=COMPARED_BYTES)  # an answer has all rows of a view
    for name in views():
        wanted = db.sql(f"SELECT * FROM {name}").to_arrow_table()
        columns = ", ".join(f'"{n}"' for n in wanted.column_names)
        with answer_of(settings, f"SELECT {columns} FROM {name}") as answer:
            found = answer.table()
        have, want = (Counter(map(_row, zip(*t.to_pydict().values(), strict=True))) for t in (found, wanted))
        yield Compared(name, found.num_rows, (want - have).total(), (have - want).total())


def _row(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Means as numbers of nine digits: FlowQL's are DECIMALs, DuckDB's DOUBLEs."""
    return tuple(f"{float(v):.9g}" if isinstance(v, (float, Decimal)) else v for v in values)


def _project(folder: Path) -> list[str]:
    return ["--project", str(PROJECT), "--var", f"data={folder}"]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=5_000)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print(f"{options.events:,} bids, seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="flowql-nexmark-views-") as name:
        folder = Path(name)
        write_log(folder, options.events)
        begin = time.monotonic()
        hit = run(folder, options.kills, rng, (3.0, 3.0 + options.events / 20_000))
        print(f"read in {time.monotonic() - begin:.0f} s, killed {hit} times")
        wrong = 0
        for c in compare(folder, expected(options.events)):
            wrong += c.missing + c.extra
            print(f"{c.view:8}{c.rows:>10,} rows{c.missing:>10,} missing{c.extra:>10,} extra", flush=True)
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
