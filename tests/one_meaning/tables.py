"""Random tables of all types, with values at the edges of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

from tests.standard_views import tables
from tests.standard_views.tables import COLUMNS, SQL_TYPES, Column, Relation, Table

TYPES = SQL_TYPES | {"timestamptz": "TIMESTAMPTZ", "ints": "INT[]", "texts": "TEXT[]", "jsonb": "JSONB"}
EDGES = {
    "int": ("2147483647", "-2147483648", "0"),
    "bigint": ("9223372036854775807", "-9223372036854775808", "9007199254740993"),
    "double": tuple(
        f"CAST('{n}' AS DOUBLE PRECISION)"
        for n in ("NaN", "-0.0", "0.0", "Infinity", "-Infinity", "1e300", "5e-324", "0.1", "2.5", "3.5", "-2.5")
    ),
    "decimal": tuple(f"CAST({n} AS DECIMAL(10, 2))" for n in ("99999999.99", "-99999999.99", "0.005", "2.50", "-0.01")),
    "text": tuple(f"'{t}'" for t in ("ß", "İ", "😀", "é", "  a ", "a_b%", "Ǆ", "NULL", "\t", "a''b", "zß")),
    "date": tuple(f"DATE '{d}'" for d in ("1969-12-31", "1900-02-28", "2024-02-29", "9999-12-31", "0001-01-01")),
    "timestamp": tuple(
        f"TIMESTAMP '{t}'"
        for t in (
            "1969-12-31 23:59:59.999", "2024-03-31 02:30:00", "2024-10-27 02:30:00", "1900-01-01 00:00:00.001",
            "2024-11-03 01:30:00", "1583-01-01 00:00:00",
        )
    ),
    "micros": tuple(
        f"CAST('{t}' AS TIMESTAMP(6))" for t in ("1969-12-31 23:59:59.999999", "2024-03-31 02:30:00.000001")
    ),
    "timestamptz": tuple(
        f"TIMESTAMPTZ '{t}'"
        for t in ("1969-12-31 23:59:59.999+00", "2024-03-31 00:59:59.5+00", "2024-10-27 02:30:00+02", "1900-01-01 00:00:00+00")
    ),
    "ints": ("CAST('{}' AS INT[])", "ARRAY[NULL, 1]", "ARRAY[2147483647]"),
    "texts": ("CAST('{}' AS TEXT[])", "ARRAY['a', NULL]", "ARRAY['', '{\"']"),
    "jsonb": ("'null'::jsonb", "'[]'::jsonb", "'{}'::jsonb", "'1.50'::jsonb", "'\"é\"'::jsonb", "'[1, \"a\", null, {\"a\": 2}]'::jsonb"),
}  # fmt: skip
# What the assignment to a column of this type takes, as PostgreSQL has it: numbers are rounded, and texts are read.
LOOSE = {
    "int": ("2.7", "2.5", "-2.5", "'7'", "3", "'-12'", "CAST(1.5 AS DOUBLE PRECISION)"),
    "bigint": ("2.5", "-0.5", "'9223372036854775807'", "3000000000", "CAST(2.5 AS DOUBLE PRECISION)"),
    "double": ("1", "1.1", "'2.5'", "'-Infinity'", "9007199254740993"),
    "decimal": ("1.005", "-1.005", "'2.345'", "7", "1e2"),
    "text": ("'a'", "'  b '", "''"),
    "bool": ("'t'", "'false'", "TRUE", "'on'"),
    "date": ("'2024-02-29'", "TIMESTAMP '2024-02-28 23:59:59'"),
    "timestamp": ("'2024-02-29'", "'2024-02-29 01:02:03.5'", "DATE '1969-12-31'"),
}
SUMMED = tuple(f"CAST({n} AS DOUBLE PRECISION)" for n in ("1e16", "-1e16", "1e16", "-1e16", "1", "0.1", "0.3", "-3"))
_START, _STEP = datetime(2024, 3, 30, 20), timedelta(hours=1)
KEYLESS = ("ints", "texts", "jsonb", "double")
WIDE = {"z": "timestamptz", "n": "ints", "o": "texts", "j": "jsonb"}


def literal(rng: Random, type_: str, values: int, edges: float = 0.1) -> str:
    """A constant, now and then one at an edge of its type."""
    if type_ in EDGES and rng.random() < edges:
        return rng.choice(EDGES[type_])
    n = rng.randrange(values)
    match type_:
        case "double" if n % 2:  # no sum of them is exact
            return f"CAST({n / 10} AS DOUBLE PRECISION)"
        case "double" if rng.random() < 0.5:  # rounded up, down, away from zero or to the even number
            return f"CAST({rng.choice('+-')}{n}.5 AS DOUBLE PRECISION)"
        case "text" if rng.random() < 0.15:
            return tables.literal(rng, type_, values).upper()
        case "timestamptz":
            return f"TIMESTAMPTZ '2024-02-{27 + n % 3} {n % 24:02d}:00:00{('', '.25')[n % 2]}+0{n % 3}'"
        case "ints":
            return f"ARRAY[{', '.join(str(i - 1) for i in range(n % 3 + 1))}]"
        case "texts":
            return f"ARRAY[{', '.join(tables.literal(rng, 'text', values) for _ in range(n % 3 + 1))}]"
        case "jsonb":
            return (
                f'\'{{"a": {(n - 1, 1.5, "true", "null", chr(34) + "x" + chr(34))[n % 5]}, "b": [{n}, "y"]}}\'::jsonb'
            )
    return tables.literal(rng, type_, values)


class WideTable(Table):
    """A table whose rows streams may have as well. Its last column, ts, is what a watermark follows: the rows are in its order."""

    types = TYPES
    columns = COLUMNS | WIDE

    def __init__(self, name: str, rng: Random) -> None:
        super().__init__(name, rng)
        self.edges = rng.choice((0.0, 0.05, 0.15))
        columns, key = self.relation.columns, self.relation.key
        if any(c.type in KEYLESS for c in columns if c.name in key):
            key = ("id",)
        self.relation = replace(self.relation, columns=(*columns, Column("ts", "timestamp")), key=key)

    def literal(self, type_: str) -> str:
        return literal(self._rng, type_, self._values, self.edges)

    def rows(self, n: int) -> list[tuple[str, ...]]:
        *columns, _ = self.relation.columns
        return [(*map(self._value, columns), f"TIMESTAMP '{_START + i * _STEP}'") for i in range(n)]

    def named(self, name: str, kind: str, partitions: int) -> str:
        """The definition of a stream, or of a stream with a watermark, of the same columns."""
        columns = [f"{c.name} {_in_stream(c)}" for c in self.relation.columns]
        if kind == "watermark":
            columns += ["WATERMARK FOR ts AS ts - INTERVAL '1' HOUR"]
        topic = f"KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON', PARTITIONS={partitions}"
        return f"CREATE STREAM {name} ({', '.join(columns)}) WITH ({topic})"


class LooseTable(WideTable):
    """A table whose rows are written with values of other types than its columns have, one statement for each row."""

    def __init__(self, name: str, rng: Random) -> None:
        super().__init__(name, rng)
        columns = tuple(Column(f"x_{t}", t) for t in LOOSE)
        self.relation = Relation(name, (*columns, Column("ts", "timestamp")), 10.0, (), is_table=True)

    def _value(self, c: Column) -> str:
        return self._rng.choice((*LOOSE[c.type], "NULL"))


class SumsTable(WideTable):
    """A table of doubles whose sum is another one in another order."""

    def __init__(self, name: str, rng: Random) -> None:
        super().__init__(name, rng)
        columns = (Column("id", "int"), Column("g", "int"), Column("x", "double"), Column("ts", "timestamp"))
        self.relation = Relation(name, columns, 10.0, (), is_table=True)

    def _value(self, c: Column) -> str:
        return self._rng.choice(SUMMED) if c.type == "double" else str(self._rng.randrange(3))


def _in_stream(c: Column) -> str:
    return "VARCHAR" if c.type == "jsonb" else TYPES[c.type]


def cast_back(name: str, columns: tuple[Column, ...]) -> str:
    """A stream as a relation of the table's types: a topic holds JSONB as a text."""
    if all(c.type != "jsonb" for c in columns):
        return name
    items = ", ".join(f"CAST({c.name} AS JSONB) AS {c.name}" if c.type == "jsonb" else c.name for c in columns)
    return f"(SELECT {items} FROM {name})"
