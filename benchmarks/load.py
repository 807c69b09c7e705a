"""Seconds and processor time of loading tables with the columns and row counts of TPC-H from files, as `flowql import --table` does.

    python -m benchmarks.load [--scale 0.05] [--format parquet csv] [--json FILE]

The values are random. No view reads the tables; a table whose key has two columns checks it against its topic.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

import duckdb

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.query.changing import carry_out
from flowql.query.local_tables import LocalTables
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.topology.query import ensure_sources
from flowql.topics.table_load import LocalFiles

# Per table: rows at scale 1, the key, and each column with its type and its value in DuckDB; i: the number of the row.
Columns = dict[str, tuple[str, str]]
_MONEY, _DAY = (
    ("DECIMAL(15, 2)", "(random() * 10000)::DECIMAL(15, 2)"),
    ("DATE", "DATE '1992-01-01' + (random() * 2500)::INT"),
)
_TEXT = ("TEXT", "'carefully final ' || md5(i::TEXT)")
TABLES: dict[str, tuple[int, str, Columns]] = {
    "supplier": (10_000, "id", {"id": ("BIGINT", "i"), "name": _TEXT, "address": _TEXT, "nation": ("INT", "i % 25"), "phone": _TEXT, "balance": _MONEY, "comment": _TEXT}),
    "part": (200_000, "id", {"id": ("BIGINT", "i"), "name": _TEXT, "mfgr": _TEXT, "brand": _TEXT, "kind": _TEXT, "size": ("INT", "i % 50"), "container": _TEXT, "price": _MONEY, "comment": _TEXT}),
    "partsupp": (800_000, "part, supplier", {"part": ("BIGINT", "i // 4"), "supplier": ("BIGINT", "i % 4"), "available": ("INT", "i % 9999"), "cost": _MONEY, "comment": _TEXT}),
    "customer": (150_000, "id", {"id": ("BIGINT", "i"), "name": _TEXT, "address": _TEXT, "nation": ("INT", "i % 25"), "phone": _TEXT, "balance": _MONEY, "segment": _TEXT, "comment": _TEXT}),
    "orders": (1_500_000, "id", {"id": ("BIGINT", "i"), "customer": ("BIGINT", "i % 7500"), "status": ("TEXT", "'F'"), "total": _MONEY, "day": _DAY, "priority": ("TEXT", "'5-LOW'"), "clerk": _TEXT, "ship": ("INT", "0"), "comment": _TEXT}),
    "lineitem": (6_000_000, "ord, line", {"ord": ("BIGINT", "i // 4"), "line": ("INT", "i % 4"), "part": ("BIGINT", "i % 10000"), "supplier": ("BIGINT", "i % 500"), "quantity": _MONEY, "price": _MONEY, "discount": _MONEY, "tax": _MONEY, "flag": ("TEXT", "'N'"), "status": ("TEXT", "'O'"), "shipped": _DAY, "committed": _DAY, "received": _DAY, "instruct": ("TEXT", "'TAKE BACK RETURN'"), "mode": ("TEXT", "'TRUCK'"), "comment": _TEXT}),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one table. cpu_s: of the process."""

    format: str
    table: str
    rows: int
    wall_s: float
    cpu_s: float


def write_files(folder: Path, scale: float, form: str) -> dict[str, int]:
    """Rows per table."""
    counts = {table: round(rows * scale) for table, (rows, _, _) in TABLES.items()}
    with duckdb.connect() as database:
        for table, (_, _, columns) in TABLES.items():
            values = ", ".join(f"({value}) AS {name}" for name, (_, value) in columns.items())
            query = f"SELECT {values} FROM range({counts[table]}) AS t(i)"
            header = ", HEADER" if form == "csv" else ""
            database.execute(f"COPY ({query}) TO '{folder / table}.{form}' (FORMAT {form}{header})")
    return counts


def measure(scale: float, form: str) -> list[Figures]:
    declared = [
        f"CREATE TABLE {table} ({', '.join(f'{n} {t}' for n, (t, _) in columns.items())}, PRIMARY KEY ({key}));"
        for table, (_, key, columns) in TABLES.items()
    ]
    plan = compile_project([SourceText("load.sql", "\n".join(declared))], dialect="standard").plan
    found: list[Figures] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        counts = write_files(folder, scale, form)
        with closing(EmbeddedLog(folder / "log")) as log:
            ensure_sources(plan, log.admin())
        with closing(LocalTables(lambda: EmbeddedLog(folder / "log"), "bench", "load")) as tables:
            for table, rows in counts.items():
                statement = f"COPY {table} FROM '{folder / table}.{form}' WITH (HEADER)"
                began, cpu = time.perf_counter(), time.process_time()
                (done,) = carry_out(
                    statement, plan.sources, tables.writers(), _unasked, "bench", dialect="standard", variables={}, files=LocalFiles()
                )  # fmt: skip
                assert done.rows == rows
                took, used = time.perf_counter() - began, time.process_time() - cpu
                found.append(Figures(form, table, rows, round(took, 2), round(used, 2)))
    return found


def _unasked(sql: str) -> NoReturn:
    raise AssertionError(f"no statement has a query: {sql}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.05)
    parser.add_argument("--format", nargs="+", choices=["parquet", "csv"], default=["parquet", "csv"])
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    figures = [f for form in chosen.format for f in measure(chosen.scale, form)]
    for f in figures:
        print(f"{f.format:8}{f.table:10}{f.rows:10,} rows {f.wall_s:7.2f} s {f.cpu_s:7.2f} s CPU")
    for form in chosen.format:
        of = [f for f in figures if f.format == form]
        wall_s, cpu_s = sum(f.wall_s for f in of), sum(f.cpu_s for f in of)
        print(f"{form:8}{'all':10}{sum(f.rows for f in of):10,} rows {wall_s:7.2f} s {cpu_s:7.2f} s CPU")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([asdict(f) for f in figures], indent=1))


if __name__ == "__main__":
    main()
