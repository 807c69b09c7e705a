"""The tables of a benchmark: their rows, and changes of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

BENCHMARKS = ("tpch", "tpcds")
PACKAGES = ("duckdb==1.5.5", "duckdb-extension-tpch==1.5.5", "duckdb-extension-tpcds==1.5.5")
AT_ONCE = 500  # rows of an INSERT
HELD_BACK = 10  # one row in so many comes with the changes
GROWING_ROWS = 400  # tables with fewer rows stay as they are but for one update


@dataclass(frozen=True, slots=True)
class Table:
    """rows: those at the start. later: those that changes insert."""

    name: str
    schema: pa.Schema
    rows: list[tuple[Any, ...]]
    later: list[tuple[Any, ...]]

    @property
    def definition(self) -> str:
        return f"CREATE TABLE {self.name} ({', '.join(f'{f.name} {_type(f.type)}' for f in self.schema)})"

    @property
    def index(self) -> str:
        return self.schema.names[0]

    def begin(self, rng: Random) -> Iterator[str]:
        return self.inserts(self.rows)

    def inserts(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[str]:
        for at in range(0, len(rows), AT_ONCE):
            values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows[at : at + AT_ONCE])
            yield f"INSERT INTO {self.name} VALUES {values}"

    def changes(self, rng: Random, number: int, of: int) -> Iterator[str]:
        """What the commit of this number of so many does."""
        if len(self.rows) >= GROWING_ROWS:
            yield from self.inserts(self.later[number::of])
            key = self.schema.names[0]
            gone = rng.sample([r[0] for r in self.rows if r[0] is not None], 2)
            yield f"DELETE FROM {self.name} WHERE {key} = {literal(gone[0])}"
            yield from self._update(rng, f"{key} = {literal(gone[1])}")

    def _update(self, rng: Random, where: str) -> Iterator[str]:
        numbers = [f.name for f in self.schema if pa.types.is_decimal(f.type)]
        if numbers:
            name = rng.choice(numbers)
            yield f"UPDATE {self.name} SET {name} = {name} + {rng.choice(('1.25', '-0.5', '10'))} WHERE {where}"


def load(folder: Path, benchmark: str) -> tuple[list[Table], dict[str, str]]:
    """The tables and the queries, by number."""
    tables = [_table(path) for path in sorted((folder / benchmark).glob("*.parquet"))]
    queries = json.loads((folder / benchmark / "queries.json").read_text())
    return tables, {f"q{n}": text.strip().rstrip(";") for n, text in queries.items()}


def make(folder: Path) -> None:
    """Installs the generators beside the environment, and lets them write the rows."""
    packages = folder / "packages"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--upgrade"]
    subprocess.run([*pip, "--target", str(packages), *PACKAGES], check=True)
    script = Path(__file__).with_name("generate.py")
    subprocess.run([sys.executable, "-S", str(script), str(folder), str(packages)], check=True)


def literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case Decimal() | int() | float():
            return str(value)
    raise TypeError(value)


def _table(path: Path) -> Table:
    read = pq.read_table(path)
    rows = list(zip(*(c.to_pylist() for c in read.columns), strict=True))
    later = rows[HELD_BACK - 1 :: HELD_BACK] if len(rows) >= GROWING_ROWS else []
    gone = set(map(id, later))
    return Table(path.stem, read.schema, [r for r in rows if id(r) not in gone], later)


def _type(t: pa.DataType) -> str:
    if pa.types.is_decimal(t):
        return f"DECIMAL({t.precision}, {t.scale})"
    names = {"int32": "INT", "int64": "BIGINT", "date32[day]": "DATE", "double": "DOUBLE PRECISION"}
    return names.get(str(t), "VARCHAR")
