"""`functions.md`, and a page for each group of functions, from the function catalogue. See `generate.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping

from flowql.compiler.functions import builtin
from flowql.compiler.functions.registry import NAMES, AggregateFunction, Function, all_aggregates, all_functions
from flowql.compiler.functions.sql_try import NULL_IF_FAILED

# Page -> the modules of both dialects, and those of standard SQL.
GROUPS = {
    "Strings": (
        ("strings", "masking", "regex", "urls"),
        ("sql_strings", "sql_text_casts", "sql_format", "sql_patterns", "sql_regex_counts", "sql_regex"),
    ),
    "Numbers": (
        ("numbers",),
        ("sql_numbers", "sql_degrees", "sql_whole_numbers", "sql_bits", "sql_number_patterns"),
    ),
    "Dates and times": (
        ("dates",),
        ("sql_times", "sql_zone_functions", "sql_interval_functions", "sql_unix_time", "sql_from_char", "sql_to_char"),
    ),
    "JSON": (("json_functions",), ("sql_jsonb", "sql_jsonb_making", "sql_jsonb_order")),
    "Arrays, maps and table functions": (
        ("collections_functions", "lambdas", "table_functions"),
        ("sql_arrays", "sql_array_parts", "sql_series"),
    ),
    "Bytes, choices and attempts": (("bytes_functions", "conditional"), ("sql_bytes", "sql_byte_parts", "sql_try")),
}
# How operators are written, in the order of the page: the catalogue has other names for them.
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
# What standard SQL writes for the functions that only it has, beside those in NAMES.
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
    "sql_interval_total": "SUM(interval)",
    "sql_interval_average": "AVG(interval)",
    "sql_number_to_char": "TO_CHAR(n, 'FM990.00')",
    "sql_to_timestamp_micros": "TO_TIMESTAMP(1.000001)",
}
# Parts of others above; no query names them.
INTERNAL = {
    "sql_jsonb_equal", "sql_places", "sql_places_or_null", "sql_interval_micros", "sql_interval_kept", "sql_interval_taken",
    "sql_interval_months", "sql_interval_days", "sql_interval_rest", NULL_IF_FAILED,
}  # fmt: skip
HEAD = """\
# Functions

Function names ignore case. A function of NULL is NULL unless its description says otherwise. A value that cannot be computed, such as a
division by zero, is NULL, and the record is noted in `DEAD_LETTERS`. All examples with a result are tested.

## Size limits

A value has at most 16 MiB (FQ4072): a string counts its bytes; each element, key or field counts 16 bytes and its strings. An array has at
most 1,048,576 elements. The values that functions make of one record have at most 64 MiB together. An aggregate keeps at most 16 MiB for one
group (FQ4074). Longer arguments are refused (FQ4073):

| arguments | characters |
|---|---|
| formats of dates and numbers, and the strings that they read | 1,000 |
| strings that are cast or normalized, patterns of LIKE | 65,536 |
| JSON, URLs, replacements | 524,288 |

## Pages
"""
STANDARD_HEAD = """\
## Standard SQL

These operators differ from those above in the [standard dialect](statements.md). `WHERE`, `ON` and `HAVING` drop rows whose condition is
NULL. `NULL` is a group of `GROUP BY`. A group is deleted with its last row. Intervals exist inside expressions only: select a time, a number
(`EXTRACT(EPOCH FROM a - b)`) or a string. Statements may use `NOW()` and `CURRENT_DATE`; views only in
[conditions on the current time](statements/time-in-views.md#conditions-on-the-current-time).
"""
ONLY_STANDARD = """\
These functions are PostgreSQL's, or Flink's where PostgreSQL has none. [Functions that differ](/docs/reference/dialects.md#functions-that-differ)
compares the dialects.
"""


def pages() -> dict[str, str]:
    """The index with the operators, and the pages of the groups."""
    functions, aggregates = all_functions(), all_aggregates()
    operators = {n: f for n, f in functions.items() if not n.isupper()}
    written = OPERATORS.keys() | STANDARD.keys() | set(NAMES.values()) | INTERNAL
    assert operators.keys() == written, operators.keys() ^ written
    by_module = _by_module(functions)
    groups = {title: _group(title, by_module, *modules) for title, modules in GROUPS.items()}
    groups["Aggregates"] = _aggregates(aggregates)
    listed = sum(len(names) for names in by_module.values())
    assert listed == sum(len(by_module.get(m, ())) for both in GROUPS.values() for m in (*both[0], *both[1]))
    return {"functions.md": _index(operators, groups), **{f"functions/{_file(t)}": text for t, text in groups.items()}}


def _index(operators: Mapping[str, Function], groups: Iterable[str]) -> str:
    links = [f"- [{title}](functions/{_file(title)})" for title in groups]
    both = _rows([([_code(text)], operators[name].summary) for name, text in OPERATORS.items()])
    standard = _rows([([_code(text)], operators[name].summary) for name, text in STANDARD.items()])
    return "\n".join([HEAD, *links, "", "## Operators", "", *both, "", STANDARD_HEAD, *standard, ""])


def _file(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()) + ".md"


def _group(title: str, found: Mapping[str, list[Function]], both: tuple[str, ...], standard: tuple[str, ...]) -> str:
    lines = [f"# {title}", "", "## Both dialects", "", *_rows([_row(f, [f.name]) for m in both for f in found[m]])]
    only = sorted((f for m in standard for f in found.get(m, ())), key=lambda f: f.name)
    named = [_row(f, [w for w, n in NAMES.items() if n == f.name]) for f in only]
    return "\n".join([*lines, "", "## Standard SQL only", "", ONLY_STANDARD, *_rows(named), ""])


def _aggregates(aggregates: Mapping[str, AggregateFunction]) -> str:
    both = [_row(a, [n]) for n, a in aggregates.items() if n.isupper()]
    standard = [_row(a, [a.example.partition("(")[0]]) for n, a in sorted(aggregates.items()) if not n.isupper()]
    lines = ["# Aggregates", "", "## ksqlDB's dialect", "", *_rows(both), "", "## Standard SQL", "", *_rows(standard)]
    return "\n".join([*lines, ""])


def _by_module(functions: Mapping[str, Function]) -> dict[str, list[Function]]:
    """Module -> its functions that queries call by name: the module spells the name."""
    sources = {m.__name__.rpartition(".")[2]: inspect.getsource(m) for m in builtin.FAMILIES}
    found: dict[str, list[Function]] = {}
    for name in [*(n for n in functions if n.isupper()), *sorted(set(NAMES.values()))]:
        names = {name, *(w for w, n in NAMES.items() if n == name)}
        spelt = [
            m
            for m, text in sources.items()
            if m.startswith("sql_") != name.isupper() and any(f'"{n}"' in text for n in names)
        ]
        module = spelt[0] if spelt else "sql_jsonb"  # which makes its names of others
        found.setdefault(module, []).append(functions[name])
    return found


def _row(function: Function | AggregateFunction, names: list[str]) -> tuple[list[str], str]:
    """Code and what it means: the example, and the names that it does not begin with."""
    example = _as_written(function.example)
    return [_code(example), *(f"`{n}`" for n in names if not example.startswith(f"{n}("))], function.summary


def _rows(rows: Iterable[tuple[list[str], str]]) -> list[str]:
    """A line for each summary: several functions may have one."""
    by_summary: dict[str, list[str]] = {}
    for code, summary in rows:
        by_summary.setdefault(_without_sign(summary), []).extend(code)
    return [f"- {', '.join(dict.fromkeys(code))}: {summary}" for summary, code in by_summary.items()]


def _without_sign(summary: str) -> str:
    """The summary of an operator is the same for each of a kind."""
    return re.sub(
        r"^(The (?:unary )?operator|The comparison|The test) (?:[-+*/%=<>]+|IS (?:NOT )?NULL)(?=[.;])", r"\1", summary
    )


def _as_written(example: str) -> str:
    """An example with the names that people write."""
    written = {n: w for w, n in reversed(NAMES.items())}
    text = re.sub(r"\bsql_\w+", lambda m: written.get(m[0], m[0]), example)
    return text.replace("sql_to_bytes(", "bytea(").replace("sql_to_date(", "date(").replace("sql_to_time(", "time(")


def _code(example: str) -> str:
    """As code; the result as SQL writes it."""
    call, arrow, result = example.partition(" -> ")
    for python, sql in (("True", "TRUE"), ("False", "FALSE"), ("None", "NULL")):
        result = re.sub(rf"\b{python}\b", sql, result)
    return f"`{call + arrow + result}`"
