"""`types.md`, from the types and what is known of their casts. See `generate.py`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from flowql.compiler.analyze.bind import Binder
from flowql.compiler.analyze.certain_failures import refuse_failing
from flowql.compiler.analyze.scope import Scope
from flowql.compiler.catalog.catalog import EMPTY
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.parser import parse_expression
from flowql.compiler.functions import builtin
from flowql.compiler.functions.casts import can_cast, caster
from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.plan import types as t
from flowql.compiler.plan.types import SqlType, arrow_type, duckdb_type, spark_type
from flowql.compiler.schemas import avro

assert builtin.FAMILIES  # fills the catalogue that the examples call
TYPES: tuple[tuple[SqlType, str, str], ...] = (  # type, what it holds, how JSON holds it
    (t.BOOLEAN, "TRUE or FALSE", "`true`, `false`"),
    (t.INT, "whole numbers of 32 bits; also written INTEGER", "a number"),
    (t.BIGINT, "whole numbers of 64 bits", "a number"),
    (t.DOUBLE, "floating point numbers of 64 bits", "a number"),
    (
        t.decimal(8, 2),
        "numbers with 8 digits, 2 of them after the point; at most 38 digits",
        "a number, or a numeric string",
    ),
    (t.STRING, "characters; also written VARCHAR", "a string"),
    (t.BYTES, "bytes", "a base64 string"),
    (t.DATE, "a day", "days since 1970-01-01"),
    (t.TIME, "a time of day, in milliseconds", "milliseconds since midnight"),
    (t.TIMESTAMP, "a point in time, in milliseconds, UTC", "milliseconds since 1970"),
    (t.MICROS, "a point in time, in microseconds, UTC; in `dialect: standard`", "microseconds since 1970"),
    (t.array(t.INT), "values of one type, in order", "an array"),
    (t.map_of(t.STRING, t.INT), "values by key", "an object"),
    (t.struct(("A", t.INT), ("B", t.STRING)), "fields, each with its type", "an object"),
)
LITERALS: tuple[str, ...] = (
    "TRUE", "42", "2147483648", "1.50", "1.5E0", "'it''s'", "NULL IS NULL",
    "DATE '2025-03-01'", "TIME '14:30:00'", "TIMESTAMP '2025-03-01T14:30:00'", "TO_BYTES('flow', 'utf8')",
    "ARRAY[1, NULL, 3]", "ARRAY[1, 2.5]", "MAP('a' := 1, 'b' := 2)", "STRUCT(name := 'ann', age := 42)",
)  # fmt: skip
ACCESS: tuple[str, ...] = (
    "ARRAY[10, 20, 30][1]", "ARRAY[10, 20, 30][-1]", "ARRAY[10, 20][9]", "MAP('a' := 1)['a']", "MAP('a' := 1)['z']",
    "STRUCT(name := 'ann')->name", "STRUCT(at := STRUCT(city := 'Oslo'))->at->city",
)  # fmt: skip
NUMBERS: tuple[str, ...] = (
    "7 / 2", "7 / 2.0", "7 / 2E0", "2147483647 + 1", "CAST(2147483647 AS BIGINT) + 1", "1.10 + 2", "1.10 * 1.10", "1 / 0",
    "1 = 1.0", "0.1 + 0.2 = 0.3",
)  # fmt: skip
CASTS: tuple[str, ...] = (
    "CAST('42' AS INT)", "CAST(' 42 ' AS INT)", "CAST('x' AS INT)", "CAST(2.9 AS INT)", "CAST(-2.9E0 AS INT)", "CAST('yes' AS BOOLEAN)",
    "CAST(1.005 AS DECIMAL(4, 2))", "CAST(12345.6 AS DECIMAL(4, 2))", "CAST('2025-03-01' AS DATE)",
    "CAST(DATE '2025-03-01' AS TIMESTAMP)", "CAST(TIMESTAMP '2025-03-01T14:30:00' AS TIME)",
    "CAST(ARRAY['1', '2'] AS ARRAY<INT>)", "CAST(MAP('a' := 1) AS MAP<STRING, STRING>)", "CAST(STRUCT(a := 1) AS STRUCT<a STRING, b INT>)",
)  # fmt: skip
HEAD = """\
# Types

NULL is a value of every type. Type names ignore case. `CREATE TYPE address AS STRUCT<city STRING, street STRING>` names a type. All examples
are tested.
"""


def pages() -> dict[str, str]:
    return {"types.md": _text()}


def _text() -> str:
    """The whole page."""
    return "\n".join(
        [
            HEAD,
            _table(("type", "holds", "in JSON"), [(f"`{s}`", holds, in_json) for s, holds, in_json in TYPES]),
            "## In other systems\n",
            "The types of columns in state and interactive queries (Arrow, DuckDB), on Spark, and in Avro:\n",
            _table(("type", "Arrow", "DuckDB", "Spark", "Avro"), [_elsewhere(s) for s, _, _ in TYPES]),
            "## Literals\n",
            _examples(LITERALS),
            "A number with a point is a DECIMAL, and one with an exponent is a DOUBLE. Elements of an array and values of a map have one\n"
            "type, to which literals adapt. `INTERVAL '5' MINUTES` is a duration, for windows of standard SQL.\n",
            "## Parts\n",
            _examples(ACCESS),
            "## Arithmetic\n",
            "Numbers widen from INT to BIGINT to DECIMAL to DOUBLE.\n",
            _examples(NUMBERS),
            "## Casts\n",
            "`CAST(value AS type)` of an invalid value is NULL, and the record is noted in `DEAD_LETTERS`. An invalid constant, and `n / 0`, are\n"
            "refused.\n",
            _examples(CASTS),
            "Allowed casts, from the type of the row to that of the column:\n",
            _cast_table(),
        ]
    )


def _elsewhere(s: SqlType) -> tuple[str, ...]:
    one = t.struct(("C", s))
    schema = json.loads(avro.schema_text(one, wrapped=True, name="r"))["fields"][0]["type"][1]
    named = schema if isinstance(schema, str) else schema.get("logicalType") or schema["type"]
    return (f"`{s}`", *(_code(str(x)) for x in (arrow_type(s), duckdb_type(s), spark_type(s), named)))


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _examples(texts: Sequence[str]) -> str:
    return _table(("written", "type", "value"), [_example(text) for text in texts])


def _example(text: str) -> tuple[str, str, str]:
    """The expression, its type, and its value as a text of SQL shows it, or the code it is refused with."""
    expr = Binder(Scope((), ()), EMPTY, "SELECT").bind(parse_expression(SourceText("", text)))
    try:
        refuse_failing([expr])
    except CompileError as error:
        return f"`{text}`", f"`{expr.type}`", f"refused: {error.diagnostics[0].code}"
    (value,) = compile_row([expr], [], on_error=lambda _i, _e: None)(())
    shown = "NULL"
    if value is not None:
        shown = value.hex() if isinstance(value, bytes) else str(caster(expr.type, t.STRING)(value))
    return f"`{text}`", f"`{expr.type}`", f"`{shown}`"


def _cast_table() -> str:
    kinds = [s for s, _, _ in TYPES if not s.args and not s.fields]
    rows = [(f"`{a.kind.value}`", *("yes" if a != b and can_cast(a, b) else "" for b in kinds)) for a in kinds]
    return _table(("", *(b.kind.value for b in kinds)), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(c.replace('|', chr(92) + '|') for c in r)} |" for r in rows)]) + "\n"
