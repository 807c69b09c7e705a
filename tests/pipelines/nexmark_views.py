"""`python -m tests.pipelines.nexmark_views [--events N] [--kills K]`: Nexmark as views of standard SQL, beside DuckDB.

Writes the events to a log of four partitions, runs the project until it has read them, killing the process (SIGKILL) K times on the way,
and compares the rows of each view with the same statement over the same events in DuckDB. Windows, which DuckDB has no function for, are
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
WINDOW = re.compile(r"(TUMBLE|HOP)\((\w+), \"dateTime\", ([^)]*)\)")
SECONDS = re.compile(r"INTERVAL '(\d+)' SECOND")
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
    """Windows as DuckDB can say them: each row once for every window that it is in."""

    def spelt(match: re.Match[str]) -> str:
        *slide, size = map(int, SECONDS.findall(match[3]))
        step = slide[0] if slide else size
        opens = f"time_bucket(INTERVAL '{step}' SECOND, \"dateTime\") - back * INTERVAL '{step}' SECOND"
        return f"(SELECT *, {opens} AS window_start FROM {match[2]}, range({size // step}) AS r(back))"

    return WINDOW.sub(spelt, query)


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
