"""Random tables and the statements that change them, as SQL that the product and DuckDB read alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

# SQL's name of each type. Names of columns are the same in every table, so that NATURAL and USING find them.
SQL_TYPES = {
    "int": "INT",
    "bigint": "BIGINT",
    "double": "DOUBLE PRECISION",
    "decimal": "DECIMAL(10, 2)",
    "text": "VARCHAR",
    "bool": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "micros": "TIMESTAMP(6)",
}
COLUMNS = {
    "a": "int",
    "b": "bigint",
    "c": "text",
    "d": "double",
    "e": "decimal",
    "f": "bool",
    "g": "date",
    "h": "timestamp",
    "i": "int",
    "m": "micros",
}
_TEXTS = ("a", "b", "ab", "", "B", "é", "a b", "%")
_NULLS = 0.15
ROWS_MAX = 14


@dataclass(frozen=True, slots=True)
class Column:
    """A column. type: a key of `SQL_TYPES`, or `approximate` or `list` for a value that nothing else may be computed from."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or a view. rows: about how many it has. key: the columns of its PRIMARY KEY."""

    name: str
    columns: tuple[Column, ...]
    rows: float
    key: tuple[str, ...] = ()
    is_table: bool = False

    @property
    def exact(self) -> bool:
        return all(c.type in SQL_TYPES for c in self.columns)


def literal(rng: Random, type_: str, values: int) -> str:
    """A constant, of so many different ones."""
    n = rng.randrange(values)
    match type_:
        case "int":
            return str(n - 1)
        case "bigint":
            return str(n - 1 if rng.random() < 0.8 else (n - 1) * 10**12)
        case "double":
            return f"CAST({(n - 2) * 0.25} AS DOUBLE PRECISION)"
        case "decimal":
            return f"CAST({(n - 2) * 11 / 100:.2f} AS DECIMAL(10, 2))"
        case "text":
            return f"'{_TEXTS[n % len(_TEXTS)]}'"
        case "bool":
            return rng.choice(("TRUE", "FALSE"))
        case "date":
            return f"DATE '2024-02-{27 + n % 3}'" if n < 3 else f"DATE '2024-03-{n % 28 + 1:02d}'"
        case "micros":
            second = ("", ".25", ".250001", ".249999")[n % 4]
            return f"CAST(TIMESTAMP '2024-02-{27 + n % 3} {n % 24:02d}:00:00{second}' AS TIMESTAMP(6))"
    return f"TIMESTAMP '2024-02-{27 + n % 3} {n % 24:02d}:00:00{'.25' if n % 2 else ''}'"


class Table:
    """A table of one's own and its next statements. values: how many different ones there are of each type. appends: it is APPEND ONLY."""

    types: Mapping[str, str] = SQL_TYPES
    columns: Mapping[str, str] = COLUMNS

    def __init__(self, name: str, rng: Random, *, appends: bool = False) -> None:
        self._rng, self._appends = rng, appends
        self._values = rng.choice((2, 3, 5, 12))
        chosen = rng.sample(list(self.columns), rng.randint(3, 5))
        if "a" not in chosen and "b" not in chosen:
            chosen[0] = "a"
        columns = [Column(n, self.columns[n]) for n in chosen]
        keyed = rng.random()
        self._next = 0
        if keyed < 0.5:
            columns.insert(rng.choice((0, len(columns))), Column("id", "int"))
            key: tuple[str, ...] = ("id",)
            if keyed < 0.12:
                key = tuple(rng.sample(("id", columns[1].name if columns[0].name == "id" else columns[0].name), 2))
        else:
            key = ()
        self.relation = Relation(name, tuple(columns), 10.0, key, is_table=True)
        self._rows = 0

    def definition(self, *, promised: bool = True) -> str:
        """promised: with what rows of it there may be, its PRIMARY KEY and APPEND ONLY."""
        r = self.relation
        columns = [f"{c.name} {self.types[c.type]}" for c in r.columns]
        if promised and r.key:
            columns.append(f"PRIMARY KEY ({', '.join(r.key)})")
        return f"CREATE TABLE {r.name} ({', '.join(columns)}){' APPEND ONLY' if promised and self._appends else ''}"

    def change(self) -> str:
        """The next statement."""
        if self._appends:
            return self.insert(self._rng.choice((1, 1, 2, 5)) if self._rows < ROWS_MAX else 1)
        kind = self._rng.choices(("insert", "update", "delete"), (5, 3, 2.5))[0]
        if kind == "insert" and self._rows < ROWS_MAX:
            return self.insert(self._rng.choice((1, 1, 2, 5)))
        return self._update() if kind == "update" else self._delete()

    def insert(self, n: int) -> str:
        self._rows += n
        columns = list(self.relation.columns)
        if self._rng.random() < 0.3:
            self._rng.shuffle(columns)
        rows = [f"({', '.join(self._value(c) for c in columns)})" for _ in range(n)]
        if not self.relation.key and self._rng.random() < 0.2:
            rows += rows[:1]
        names = f" ({', '.join(c.name for c in columns)})"
        return f"INSERT INTO {self.relation.name}{names} VALUES {', '.join(rows)}"

    def _value(self, c: Column) -> str:
        if c.name == "id":
            self._next += 1
            return str(self._next)
        if c.name not in self.relation.key and self._rng.random() < _NULLS:
            return "NULL"
        return self.literal(c.type)

    def literal(self, type_: str) -> str:
        return literal(self._rng, type_, self._values)

    def _update(self) -> str:
        free = [c for c in self.relation.columns if c.name not in self.relation.key]
        chosen = self._rng.sample(free, self._rng.randint(1, min(2, len(free))))
        sets = ", ".join(f"{c.name} = {self._changed(c)}" for c in chosen)
        return f"UPDATE {self.relation.name} SET {sets}{self._where(0.1)}"

    def _changed(self, c: Column) -> str:
        if c.type in ("int", "bigint") and self._rng.random() < 0.4:
            return f"{c.name} + 1"
        others = [o.name for o in self.relation.columns if o.type == c.type and o != c]
        if others and self._rng.random() < 0.2:
            return self._rng.choice(others)
        return self._value(c)

    def _delete(self) -> str:
        where = self._where(0.06)
        self._rows = 0 if not where else max(self._rows - 2, 0)
        return f"DELETE FROM {self.relation.name}{where}"

    def _where(self, without: float) -> str:
        rng = self._rng
        if rng.random() < without:
            return ""
        if "id" in self.relation.key and rng.random() < 0.5 and self._next:
            return f" WHERE id {rng.choice(('=', '=', '='))} {rng.randint(max(1, self._next - 8), self._next)}"
        c = rng.choice([c for c in self.relation.columns if c.name != "id"])
        if rng.random() < 0.2:
            return f" WHERE {c.name} IS NULL"
        return f" WHERE {c.name} = {self.literal(c.type)}"
