"""`functions.md`, and a page for each group of functions, from the function catalogue. See `generate.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping

from flowql.compiler.functions import builtin
from flowql.compiler.functions.descriptions import descriptions
from flowql.compiler.functions.registry import (
    AGGREGATE_NAMES,
    NAMES,
    AggregateFunction,
    Function,
    all_aggregates,
    all_functions,
)
from flowql.compiler.functions.sql_comparison import NULL_IF_FAILED

# Page -> the modules of both dialects, and those of standard SQL.
GROUPS = {
    "Strings": (
        ("strings", "regex"),
        ("sql_strings", "sql_text_casts", "sql_regex"),
    ),
    "Numbers": (
        ("numbers",),
        ("sql_numbers", "sql_number_patterns"),
    ),
    "Dates and times": (
        ("dates",),
        ("sql_times", "sql_zone_functions", "sql_interval_functions", "sql_from_char", "sql_to_char"),
    ),
    "JSON": (("json_functions",), ("sql_jsonb", "sql_jsonb_making")),
    "Arrays, maps and table functions": (
        ("collections_functions", "constructors"),
        ("sql_array_parts",),
    ),
    "Bytes, choices and attempts": (("bytes_functions", "logic"), ("sql_bytes", "sql_comparison")),
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
# Calls in standard SQL that no view can contain.
UNTYPED = {
    "sql_series": "FROM generate_series(1, n)",
    "sql_single_row": "(SELECT x FROM t)",
    "sql_interval_total": "SUM(interval)",
    "sql_interval_average": "AVG(interval)",
    "sql_now": "NOW()",
    "sql_localtimestamp": "LOCALTIMESTAMP",
    "sql_current_date": "CURRENT_DATE",
}
# Parts of other functions: plans call them.
PARTS = {"sql_jsonb_order", "sql_ddsketch_value", "sql_jsonb_of_entries", "sql_jsonb_records"}
# Parts of others above; no query names them.
INTERNAL = {
    "sql_jsonb_equal", "sql_places", "sql_places_or_null", "sql_interval_micros", "sql_interval_kept", "sql_interval_taken",
    "sql_interval_months", "sql_to_interval", "sql_interval_days", "sql_interval_rest", "sql_real", NULL_IF_FAILED,
}  # fmt: skip
HEAD = """\
# Functions

Function names ignore case. A function of NULL is NULL unless its description says otherwise. A value that cannot be computed, such as a
division by zero, is NULL, and the record is noted in `DEAD_LETTERS`. All examples with a result are tested. Functions of standard SQL are
PostgreSQL's, or Flink's where PostgreSQL has none. [Functions that differ](dialects.md#functions-that-differ) compares the dialects.

## Size limits

[Limits](limits.md#values-and-records) has the sizes of values. These arguments are refused if they are longer (FQ4073):

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
NULL. Statements may use `NOW()` and `CURRENT_DATE`; views only in
[conditions on the current time](statements/time-in-views.md#conditions-on-the-current-time).
"""

MORE_AGGREGATES = """\
## Standard SQL

`ARRAY_AGG`, `STRING_AGG`, `FIRST_VALUE`, `PERCENTILE_CONT` and others are in [Groups and sets](/docs/reference/statements/views.md#groups-and-sets).
"""


def pages() -> dict[str, str]:
    """The index with the operators, and the pages of the groups."""
    functions, aggregates = all_functions(), all_aggregates()
    operators = {n: f for n, f in functions.items() if not n.isupper()}
    standard = [f for n, f in operators.items() if n not in OPERATORS.keys() | set(NAMES.values()) | INTERNAL]
    assert OPERATORS.keys() | INTERNAL <= operators.keys()
    by_module = _by_module(functions)
    groups = {title: _group(title, by_module, *modules) for title, modules in GROUPS.items()}
    groups["Aggregates"] = _aggregates(aggregates)
    listed = sum(len(names) for names in by_module.values())
    assert listed == sum(len(by_module.get(m, ())) for both in GROUPS.values() for m in (*both[0], *both[1]))
    links = [f"- [{title}](functions/{_file(title)})" for title in groups]
    both = _rows(([f"`{text}`"], descriptions()[name].summary) for name, text in OPERATORS.items())
    index = [
        HEAD,
        *links,
        "",
        "## Operators",
        "",
        *both,
        "",
        STANDARD_HEAD,
        *_rows(_row(f, []) for f in sorted(standard, key=lambda f: descriptions()[f.name].example.startswith("CAST"))),
    ]
    return {"functions.md": "\n".join([*index, ""]), **{f"functions/{_file(t)}": text for t, text in groups.items()}}


def _file(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()) + ".md"


def _group(title: str, found: Mapping[str, list[Function]], ksql: tuple[str, ...], standard: tuple[str, ...]) -> str:
    """Functions of both dialects: standard SQL describes them in the same words, or does not replace them."""
    own = {f.name: f for m in ksql for f in found[m]}
    only = sorted((f for m in standard for f in found.get(m, ()) if f.name not in PARTS), key=lambda f: f.name)
    both = {f.name for f in own.values() if f.name not in NAMES}
    both |= {n for f in only for n in _names(f) if n in own and descriptions()[n] == descriptions()[f.name]}
    parts = {
        "## Both dialects\n": [_row(f, [n]) for n, f in own.items() if n in both],
        "## ksqlDB's dialect\n": [_row(f, [n]) for n, f in own.items() if n not in both],
        "## Standard SQL\n": [_row(f, _names(f)) for f in only if not both.intersection(_names(f))],
    }
    return "\n".join(
        [f"# {title}\n", *(line for head, rows in parts.items() if rows for line in (head, *_rows(rows), ""))]
    )


def _names(function: Function) -> list[str]:
    """The names of a function in standard SQL."""
    return [written for written, name in NAMES.items() if name == function.name]


def _aggregates(aggregates: Mapping[str, AggregateFunction]) -> str:
    """Names that standard SQL writes for other aggregates, such as EVERY, stand beside these."""
    written: dict[str, list[str]] = {}
    for name, found in AGGREGATE_NAMES.items():
        written.setdefault(found, []).append(name)
    parts = {
        "## Both dialects\n": [(n, a) for n, a in aggregates.items() if n in written and n.isupper()],
        "## ksqlDB's dialect\n": [(n, a) for n, a in aggregates.items() if n not in written],
        MORE_AGGREGATES: [(n, a) for n, a in sorted(aggregates.items()) if not n.isupper()],
    }
    rows = {head: [_row(a, written.get(n, [n])) for n, a in listed] for head, listed in parts.items()}
    return "\n".join(["# Aggregates\n", *(line for head, of in rows.items() for line in (head, *_rows(of), ""))])


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
        module = name if name in spelt else spelt[0] if spelt else "sql_jsonb"  # which makes its names of others
        found.setdefault(module, []).append(functions[name])
    return found


def _row(function: Function | AggregateFunction, names: list[str]) -> tuple[list[str], str]:
    """Code and its meaning: a name that the example calls within another function, the example, other names; an operator has no name."""
    example = _code(UNTYPED.get(function.name, descriptions()[function.name].example))
    others = [n for n in names if not re.match(rf"`{n}\b", example)] if re.match(r"`\w+\(", example) else []
    inner = [n for n in others if re.search(rf"\b{n}\(", example)]
    code = [f"`{n}`" for n in inner], [f"`{n}`" for n in others if n not in inner]
    return [*code[0], example, *code[1]], descriptions()[function.name].summary


def _rows(rows: Iterable[tuple[list[str], str]]) -> list[str]:
    """A line for each summary: several functions may have one."""
    by_summary: dict[str, list[str]] = {}
    for code, summary in rows:
        by_summary.setdefault(summary, []).extend(code)
    return [f"- {', '.join(dict.fromkeys(code))}: {summary}" for summary, code in by_summary.items()]


def _code(example: str) -> str:
    """As code; the result as SQL writes it."""
    call, arrow, result = example.rpartition(" -> ")
    result = re.sub(r"Decimal\('(.*)'\)", r"\1", result)
    for python, sql in (("True", "TRUE"), ("False", "FALSE"), ("None", "NULL")):
        result = re.sub(rf"\b{python}\b", sql, result)
    return f"`{call + arrow + result}`"
