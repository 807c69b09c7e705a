"""`functions.md`, from the function catalogue. See `generate.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from types import ModuleType

from flowql.compiler.functions import builtin
from flowql.compiler.functions.registry import NAMES, AggregateFunction, Function, all_aggregates, all_functions
from flowql.compiler.functions.sql_try import NULL_IF_FAILED

TITLES = {
    "strings": "Text",
    "masking": "Masking",
    "regex": "Regular expressions",
    "numbers": "Numbers",
    "dates": "Dates and times",
    "json_functions": "JSON",
    "collections_functions": "Arrays and maps",
    "lambdas": "Lambdas",
    "bytes_functions": "Bytes",
    "urls": "URLs",
    "conditional": "Choices",
    "table_functions": "Table functions",
}
# How operators are written, in the order of the page; the catalogue knows them by names of its own.
OPERATORS = {
    "add": "a + b", "sub": "a - b", "mul": "a * b", "div": "a / b", "mod": "a % b", "neg": "-a",
    "eq": "a = b", "ne": "a <> b", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b",
    "is_null": "a IS NULL", "is_not_null": "a IS NOT NULL",
    "is_distinct": "a IS DISTINCT FROM b", "is_not_distinct": "a IS NOT DISTINCT FROM b",
    "between": "a BETWEEN b AND c", "not_between": "a NOT BETWEEN b AND c",
    "like": "a LIKE 'b%'", "not_like": "a NOT LIKE 'b%'", "in": "a IN (b, c)", "not_in": "a NOT IN (b, c)",
    "and": "a AND b", "or": "a OR b", "not": "NOT a", "case": "CASE WHEN a THEN b ELSE c END",
    "cast": "CAST(a AS type)", "array": "ARRAY[a, b]", "map": "MAP(a := b)", "struct": "STRUCT(a := b)",
    "subscript": "a[b]", "field": "a->b",
}  # fmt: skip
# What means something else in the standard dialect: functions of their own, under the names that plans show.
STANDARD = {
    **{
        f"sql_{name}": OPERATORS[name]
        for name in ("eq", "ne", "lt", "le", "gt", "ge", "in", "add", "sub", "mul", "div", "mod", "neg")
    },
    "sql_concat": "a || b",
    "sql_to_int": "CAST(a AS INT)",
    "sql_to_bigint": "CAST(a AS BIGINT)",
    "sql_to_boolean": "CAST(a AS BOOLEAN)",
    "sql_to_timestamp": "CAST(a AS TIMESTAMP)",
    "sql_to_text": "CAST(a AS VARCHAR)",
    "sql_to_date": "CAST(a AS DATE)",
    "sql_to_timestamptz": "CAST(a AS TIMESTAMPTZ)",
    "sql_to_micros": "CAST(a AS TIMESTAMP(6))",
    "sql_to_microstz": "CAST(a AS TIMESTAMPTZ(6))",
    "sql_rounded_moment": "CAST(a AS TIMESTAMP(0))",
    "sql_to_time": "CAST(a AS TIME)",
    "sql_to_double": "CAST(a AS DOUBLE PRECISION)",
    "sql_to_bytes": "CAST(a AS BYTEA)",
    "sql_to_array": "CAST(a AS INT[])",
    "sql_to_nested": "CAST(a AS DATE[])",
    "sql_in_range": "CAST(a AS SMALLINT)",
    "sql_date_trunc_in": "DATE_TRUNC(a, b, zone)",
    "sql_interval": "INTERVAL '1' DAY",
    "sql_series": "FROM generate_series(1, n)",
    "sql_single_row": "(SELECT x FROM t)",
    "sql_jsonb_equal": "j = k",
    "sql_places": "FROM UNNEST(a)",
    "sql_places_or_null": "LEFT JOIN UNNEST(a)",
    "sql_interval_micros": "INTERVAL '1' DAY = a",
    "sql_interval_kept": "a column of type INTERVAL",
    "sql_interval_taken": "a column of type INTERVAL",
    **{f"sql_interval_{part}": "SUM(interval)" for part in ("months", "days", "rest", "total")},
    "sql_interval_average": "AVG(interval)",
    "sql_number_to_char": "TO_CHAR(n, 'FM990.00')",
    "sql_to_timestamp_micros": "TO_TIMESTAMP(1.000001)",
}
STANDARD_HEAD = """\
Unquoted names fold to lower case in the [standard dialect](statements.md), and what follows means there what it means in SQL: a plan calls
it by a name of its own. Conditions that are unknown (NULL) are no reason to keep a row, in `WHERE`, `ON` and `HAVING`. `NULL` is a group
of `GROUP BY`, and a group whose last row is deleted is deleted.
"""
STANDARD_FUNCTIONS = """\
These functions are PostgreSQL's, or Flink's where PostgreSQL has none, and only standard SQL has them, or has them with this meaning; those of the other sections can be called as
well. Functions that differ between systems: [dialects.md](dialects.md#functions-that-differ). Regular expressions are PostgreSQL's, those of `REGEXP_EXTRACT` and `REGEXP_EXTRACT_ALL` Java's: see [patterns](dialects.md#patterns). Intervals are
inside expressions only: what is selected or grouped by is a moment, a number (`EXTRACT(EPOCH FROM a - b)`) or a text. `NOW()` and
`CURRENT_DATE` are for statements, and for [conditions on the present moment](statements.md#conditions-on-the-present-moment) of views.
"""
HEAD = """\
# Functions

The functions and operators of FlowQL. This page is written by `docs/reference/generate.py` from the catalogue; a test
runs every example that shows a result.

Names can be typed in lower case. Unless its text says otherwise, a function of NULL is NULL. A value that cannot be
computed (a division by zero, a text that is no date) is NULL, and the record is noted in `DEAD_LETTERS`.

A value has at most 16 MiB (FQ4072): a string counts its bytes, and each element, key or field of another value counts 16 bytes and
its strings. An array has at most 1,048,576 elements. The values that functions make of one record have at most 64 MiB together.
Some functions limit their arguments (FQ4073): formats of dates and numbers and the strings that they read have at most 1,000
characters, JSON, URLs and replacements at most 524,288, and strings that are cast to another type or normalized and patterns of LIKE at most 65,536. An aggregate keeps at most 16 MiB of
one group (FQ4074).
"""


def pages() -> dict[str, str]:
    return {"functions.md": _text()}


def _text() -> str:
    """The whole page."""
    functions = all_functions()
    named = {n: f for n, f in functions.items() if n.isupper()}
    families: dict[str, list[Function]] = {family: [] for family in TITLES}
    for name, function in named.items():
        families[_family(name)].append(function)
    aggregates = all_aggregates()
    titles = ["Operators", *TITLES.values(), "Aggregates", "Standard SQL"]
    parts = [HEAD, " · ".join(f"[{t}](#{t.lower().replace(' ', '-')})" for t in titles) + "\n"]
    operators = {n: f for n, f in functions.items() if not n.isupper()}
    written = (
        OPERATORS.keys() | STANDARD.keys() | set(NAMES.values()) | {NULL_IF_FAILED}
    )  # no query can name the last one
    assert operators.keys() == written, operators.keys() ^ written
    lines = ["## Operators", "", "| written | what it gives |", "|---|---|"]
    lines += [f"| {_code(text)} | {_cell(operators[name].summary)} |" for name, text in OPERATORS.items()]
    parts.append("\n".join(lines) + "\n")
    parts += [_section(TITLES[family], members) for family, members in families.items()]
    parts.append(_section("Aggregates", [a for n, a in aggregates.items() if n.isupper()]))
    parts.append(_standard(operators, aggregates))
    return "\n".join(parts)


def _standard(operators: Mapping[str, Function], aggregates: Mapping[str, AggregateFunction]) -> str:
    lower = sorted(n for n in aggregates if not n.isupper())
    lines = ["## Standard SQL", "", STANDARD_HEAD, "| written | in plans | what it gives |", "|---|---|---|"]
    lines += [f"| {_code(text)} | `{name}` | {_cell(operators[name].summary)} |" for name, text in STANDARD.items()]
    lines += [f"| {_code(aggregates[n].example)} | `{n}` | {_cell(aggregates[n].summary)} |" for n in lower]
    lines += ["", STANDARD_FUNCTIONS, "| function | what it gives | example |", "|---|---|---|"]
    for name in sorted(set(NAMES.values())):
        names = ", ".join(f"`{w}`" for w, n in NAMES.items() if n == name)
        example = _code(_as_written(operators[name].example))
        lines.append(f"| {names} | {_cell(operators[name].summary)} | {example} |")
    return "\n".join(lines) + "\n"


def _as_written(example: str) -> str:
    """An example with the names that people write."""
    written = {n: w for w, n in reversed(NAMES.items())}
    text = re.sub(r"\bsql_\w+", lambda m: written.get(m[0], m[0]), example)
    return text.replace("sql_to_bytes(", "bytea(").replace("sql_to_date(", "date(").replace("sql_to_time(", "time(")


def _family(name: str) -> str:
    """The module that defines a function: the one that spells its name."""
    modules = [(m.__name__.rpartition(".")[2], m) for m in builtin.FAMILIES]
    found = [n for n, m in modules if not n.startswith("sql_") and f'"{name}"' in _source(m)]
    assert len(found) == 1, f"{name} is spelt in {found}"
    return found[0]


def _source(module: ModuleType) -> str:
    return inspect.getsource(module)


def _section(title: str, functions: list[Function] | list[AggregateFunction]) -> str:
    lines = [f"## {title}", "", "| function | what it gives | example |", "|---|---|---|"]
    lines += [f"| `{f.name}` | {_cell(f.summary)} | {_code(f.example)} |" for f in functions]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _code(example: str) -> str:
    """As code in a cell of a table; the result as SQL writes it."""
    call, arrow, result = example.partition(" -> ")
    for python, sql in (("True", "TRUE"), ("False", "FALSE"), ("None", "NULL")):
        result = re.sub(rf"\b{python}\b", sql, result)
    return f"`{_cell(call + arrow + result)}`"
