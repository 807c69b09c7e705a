"""Random tables and their changes, for plans and for DuckDB alike."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from flowql.compiler.plan.logical import Node, Scan
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, SqlType, arrow_type, decimal
from flowql.compiler.plan.watermarks import AppendOnly
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Row
from tests.incremental.deployed import JSON, Piece

COLUMNS: dict[str, SqlType] = {
    "k": INT,
    "s": STRING,
    "b": BOOLEAN,
    "n": BIGINT,
    "d": DOUBLE,
    "m": decimal(10, 2),
}
_TEXTS = ("", "a", "b", "ab", "a\0", "é", "z")


@dataclass
class Table:
    """A table with an own name for each column (`t_k`), keyed by `t_id`. values: how many different ones there are of each kind.

    appends: its rows only come.
    """

    name: str
    rng: random.Random
    values: int = 4
    appends: bool = False
    rows: dict[int, Row] = field(default_factory=dict)
    clock: int = 0
    _next: int = 0

    @property
    def columns(self) -> dict[str, SqlType]:
        return {f"{self.name}_{c}": t for c, t in COLUMNS.items()}

    def node(self) -> Node:
        """Its scan: the row identity, then all columns (the identity's among them)."""
        identity = Field(f"__{self.name}", BIGINT, "key")
        fields = [Field(f"{self.name}_id", BIGINT), *(Field(c, t) for c, t in self.columns.items())]
        scan = Node(Scan(self.name, self.name, "table", JSON, JSON), (), Schema((identity, *fields)), "retract")
        return Node(AppendOnly(), (scan,), scan.schema, "retract") if self.appends else scan

    def changes(self, n: int) -> list[Piece]:
        """Random ones, applied. An update may change nothing, and a key may come back."""
        found: list[Piece] = []
        for _ in range(n):
            kind = self.rng.choices(("insert", "update", "delete"), (5, 4, 3))[0]
            self.clock += self.rng.randint(0, 3)
            if self.appends:
                self._set(found, self._next, self._row(self._next))
                self._next += 1
            elif kind == "insert" or not self.rows:
                key = self.rng.randint(0, self._next)
                if key in self.rows:
                    key = self._next
                self._next = max(self._next, key + 1)
                self._set(found, key, self._row(key))
            else:
                key = self.rng.choice(list(self.rows))
                self._set(found, key, None if kind == "delete" else self._row(key))
        return found

    def clear(self) -> list[Piece]:
        """Delete every row that may leave."""
        found: list[Piece] = []
        if self.appends:
            return found
        for key in list(self.rows):
            self._set(found, key, None)
        return found

    def arrow(self) -> pa.Table:
        names = [f"{self.name}_id", *self.columns]
        types = [pa.int64(), *(arrow_type(t) for t in self.columns.values())]
        rows = list(self.rows.values())
        arrays = [pa.array([r[i + 1] for r in rows], t) for i, t in enumerate(types)]
        return pa.Table.from_arrays(arrays, names=names)

    def _set(self, found: list[Piece], key: int, row: Row | None) -> None:
        old = self.rows.pop(key, None)
        if row is not None:
            self.rows[key] = row
        if old is not None and row is not None:
            found += [(UPDATE_BEFORE, old, self.clock), (UPDATE_AFTER, row, self.clock)]
        elif row is not None:
            found.append((INSERT, row, self.clock))
        elif old is not None:
            found.append((DELETE, old, self.clock))

    def _row(self, key: int) -> Row:
        return (key, key, *(self._value(t) for t in COLUMNS.values()))

    def _value(self, t: SqlType) -> Any:
        rng = self.rng
        if rng.random() < 0.12:
            return None
        n = rng.randint(0, self.values - 1)
        match t:
            case _ if t == BOOLEAN:
                return rng.random() < 0.5
            case _ if t == STRING:
                return _TEXTS[n % len(_TEXTS)] + (str(n) if n >= len(_TEXTS) else "")
            case _ if t == DOUBLE:
                return (n - 2) * 0.25
            case _ if t.precision:
                return (Decimal(n) - 2).scaleb(-1).quantize(Decimal("0.01"))
        return n - 1
