"""Functions in interactive queries that DuckDB does not have, or understands otherwise: those of standard SQL, and ksqlDB's of patterns.

Some are macros of DuckDB's SQL; the others are the references of the catalogue, as functions of Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions import builtin as _builtin  # noqa: F401 - fills the function catalogue
from flowql.compiler.functions.dialects import function_name
from flowql.compiler.functions.pattern_calls import PatternFunction, function_over_columns
from flowql.compiler.functions.registry import QueryFailure, Reference, lookup
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.functions.sql_format import formatted
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    INT,
    JSONB,
    MICROS,
    MICROSTZ,
    STRING,
    TIMESTAMPTZ,
    Kind,
    SqlType,
    array,
)
from flowql.query import json_macros, standard_times
from flowql.query.duckdb_values import shown, type_named, value_of
from flowql.runtime.batch import to_arrow, to_python

REPLACED, MATCHES, PART = "flowql_replaced", "flowql_matches", "flowql_part"
READ_DATE, READ_MOMENT = "sql_to_date_by", "sql_to_timestamp_by"
TEXT, SHOWN, FORMATTED, ANY_CHAR = "flowql_text", "flowql_shown", "flowql_format", "flowql_to_char"
SIMILAR, EXTRACTED, EXTRACTED_ALL, SPLIT = "flowql_similar", "flowql_extract", "flowql_extract_all", "flowql_split"
_LETTERS = {
    "j": JSONB,
    "a": array(STRING),
    "t": BOOLEAN,
    "s": STRING,
    "i": INT,
    "l": BIGINT,
    "d": DOUBLE,
    "b": BYTES,
    "z": TIMESTAMPTZ,
    "u": MICROSTZ,
}
# Functions that DuckDB has, too, and understands otherwise.
_NAMES = {
    REPLACED: "regexp_replace",
    MATCHES: "regexp_like",
    PART: "substring",
    SIMILAR: "similar",
    EXTRACTED: "regexp_extract",
    EXTRACTED_ALL: "regexp_extract_all",
    SPLIT: "regexp_split_to_array",
    standard_times.MADE_IN_ZONE: "make_timestamptz",
}
# Types of the arguments of each form, a letter for each.
_REFERENCES: Mapping[str, str] = {
    "initcap": "s", "quote_literal": "s", "quote_ident": "s", "normalize": "s ss", "to_number": "ss",
    "regexp_match": "ss sss", "regexp_count": "ss ssi ssis", "regexp_substr": "ss ssi ssii ssiis ssiisi",
    "regexp_instr": "ss ssi ssii ssiii ssiiis ssiiisi", "width_bucket": "dddi", "to_oct": "l", "crc32": "b", "sha224": "b",
    "sha384": "b", "sha512": "b", "get_byte": "bi", "set_byte": "bii", "convert_from": "bs", "convert_to": "ss",
    **{f"{name}d": "d" for name in ("sin", "cos", "tan", "cot", "asin", "acos", "atan")}, "atan2d": "dd", "erf": "d", "erfc": "d", REPLACED: "sss ssss",
    MATCHES: "ss sss", PART: "ss", SIMILAR: "ss sss", EXTRACTED: "ss ssi", EXTRACTED_ALL: "ssi", SPLIT: "ss sss", READ_DATE: "ss", READ_MOMENT: "ss", standard_times.MADE_IN_ZONE: "iiiiids", standard_times.TRUNCATED_IN: "sus", **json_macros.REFERENCES,
}  # fmt: skip
# Functions of ksqlDB's dialect that DuckDB has with other arguments, or another syntax of patterns.
_KSQL: Mapping[str, str] = {
    "regexp_extract": "ss ssi", "regexp_extract_all": "ss ssi", "regexp_replace": "sss", "regexp_split_to_array": "ss", "regexp_like": "ss",
}  # fmt: skip
_NESTED = "(typeof(x) LIKE '%[]' OR regexp_matches(typeof(x), '^(STRUCT|TUPLE)[(]'))"
_OTHERWISE = "typeof(x) IN ('DOUBLE', 'FLOAT', 'BLOB', 'INTERVAL', 'TIMESTAMP_MS')"
_DIMENSION = "n = 1 AND len(a) > 0"
# Name -> bodies, one for each number of arguments.
_MACROS: Mapping[str, Sequence[str]] = {
    TEXT: (
        f"(x) AS CASE WHEN {_NESTED} THEN flowql_written(CAST(to_json(x) AS VARCHAR), typeof(x)) "
        f"WHEN {_OTHERWISE} THEN flowql_written(CAST(x AS VARCHAR), typeof(x)) ELSE CAST(x AS VARCHAR) END",
    ),
    SHOWN: (f"(x) AS CASE WHEN typeof(x) = 'BOOLEAN' THEN left(CAST(x AS VARCHAR), 1) ELSE {TEXT}(x) END",),
    ANY_CHAR: ("(x, pattern) AS flowql_pattern(CAST(x AS VARCHAR), typeof(x), pattern)",),
    "div": ("(a, b) AS CAST(flowql_quotient(CAST(a AS VARCHAR), CAST(b AS VARCHAR)) AS DECIMAL(38, 0))",),
    "quote_nullable": ("(s) AS coalesce(quote_literal(s), 'NULL')",),
    "make_interval": (
        "(years := 0, months := 0, weeks := 0, days := 0, hours := 0, mins := 0, secs := 0) AS to_years(years) + to_months(months) + "
        "to_weeks(weeks) + to_days(days) + to_hours(hours) + to_minutes(mins) + to_microseconds(CAST(secs * 1000000 AS BIGINT))",
    ),
    "date_bin": ("(stride, t, origin) AS time_bucket(CAST(stride AS INTERVAL), t, origin)",),
    "every": ("(b) AS bool_and(b)",),
    "array_remove": ("(a, v) AS list_filter(a, lambda e: e IS DISTINCT FROM v)",),
    "array_replace": ("(a, v, w) AS list_transform(a, lambda e: CASE WHEN e IS NOT DISTINCT FROM v THEN w ELSE e END)",),
    "array_positions": ("(a, v) AS list_filter(range(1, len(a) + 1), lambda i: a[i] IS NOT DISTINCT FROM v)",),
    "array_length": (f"(a, n) AS CASE WHEN {_DIMENSION} THEN len(a) END",),
    "array_upper": (f"(a, n) AS CASE WHEN {_DIMENSION} THEN len(a) END",),
    "array_lower": (f"(a, n) AS CASE WHEN {_DIMENSION} THEN 1 END",),
    "trim_array": (
        "(a, n) AS CASE WHEN n BETWEEN 0 AND len(a) THEN a[1:len(a) - n] "
        "WHEN n IS NOT NULL AND a IS NOT NULL THEN error('number of elements to trim must be between 0 and the length') END",
    ),
    "array_to_string": (
        "(a, d) AS CASE WHEN a IS NOT NULL AND d IS NOT NULL THEN coalesce("
        f"list_aggregate(list_transform(a, lambda e: {SHOWN}(e)), 'string_agg', d), '') END",
        "(a, d, n) AS CASE WHEN a IS NOT NULL AND d IS NOT NULL THEN coalesce("
        f"list_aggregate(list_transform(a, lambda e: coalesce({SHOWN}(e), n)), 'string_agg', d), '') END",
    ),
    "string_to_array": (
        "(s, d) AS CASE WHEN s IS NULL THEN NULL WHEN s = '' THEN [] WHEN d IS NULL THEN string_split(s, '') "
        "WHEN d = '' THEN [s] ELSE string_split(s, d) END",
        "(s, d, n) AS list_transform(string_to_array(s, d), lambda e: nullif(e, n))",
    ),
    "flowql_holds": ("(a, b) AS list_has_all(a, b) AND list_count(b) = len(b)",),
    **json_macros.MACROS,
    **standard_times.MACROS,
}  # fmt: skip
# A macro is text: one that names an argument several times would have an argument with such a macro in it planned as often, and so on. Where they are
# nested, those outside are called by their names with this suffix, which name each argument once.
ONCE = "_once"
SEPARATOR = "d"  # a parameter that DuckDB takes as a constant alone
_WORD = re.compile(r"\w+")
_PARAMETERS = re.compile(r"\(([a-z, ]*)\) AS ")
# Macros and functions that a macro calls.
_CALLED: Mapping[str, Sequence[str]] = {
    TEXT: ("flowql_written",), SHOWN: (TEXT,), ANY_CHAR: ("flowql_pattern",), "div": ("flowql_quotient",),
    "quote_nullable": ("quote_literal",), "array_to_string": (SHOWN,), **json_macros.CALLED, **standard_times.CALLED,
}  # fmt: skip


def _parameters(body: str) -> list[str]:
    found = _PARAMETERS.match(body)
    return found[1].split(", ") if found else []


REPEATING = frozenset(
    name
    for name, bodies in _MACROS.items()
    if any(_WORD.findall(body).count(p) > 2 for body in bodies for p in _parameters(body))
)


def _once(name: str, body: str) -> str:
    """The body of a macro that calls `name` with its arguments computed."""
    parameters = _parameters(body)
    packed = ", ".join(f"{p} := {p}" for p in parameters if p != SEPARATOR)
    called = ", ".join(p if p == SEPARATOR else f"v.{p}" for p in parameters)
    return f"({', '.join(parameters)}) AS list_transform([struct_pack({packed})], lambda v: {name}({called}))[1]"


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function of Python that DuckDB calls over columns. by: over the values of a row. over: over columns, if it has such a meaning."""

    key: str
    args: tuple[SqlType, ...]
    result: SqlType
    by: Reference
    null_propagating: bool = True
    over: PatternFunction | None = None

    def call(self, columns: Sequence[pa.Array]) -> pa.Array:
        with suppress(ValueError):  # the rows tell which one is too large
            if self.over is not None and not pc.any(self.over.failed(columns)).as_py():
                return self.over.column(columns)
        rows = zip(*(to_python(c, t) for c, t in zip(columns, self.args, strict=True)), strict=True)
        return to_arrow([self._value(row) for row in rows], self.result)

    def _value(self, row: Sequence[Any]) -> Any:
        if self.null_propagating and any(v is None for v in row):
            return None
        try:
            return self.by(*row)
        except (ArithmeticError, LookupError, ValueError) as error:
            raise QueryFailure(str(error)) from error


@dataclass(frozen=True, slots=True)
class Offer:
    """What makes a function callable: functions of Python, and statements that follow them."""

    functions: Sequence[PythonFunction]
    macros: Sequence[str]


def _pattern(text: str, of: str, pattern: str) -> str:
    """TO_CHAR of a value that DuckDB writes so."""
    t = type_named(of)
    t = MICROS if t.kind is Kind.DATE else t
    name = "sql_number_to_char" if t.is_numeric else "to_char"
    return str(_resolved(name, (t, STRING))[1](value_of(text, "TIMESTAMP" if of == "DATE" else of), pattern))


def _quotient(a: str, b: str) -> str:
    return str(_resolved("div", (_NUMBER, _NUMBER))[1](Decimal(a), Decimal(b)))


_NUMBER = type_named("DECIMAL(38, 10)")
_OWN: Mapping[str, PythonFunction] = {
    f.key: f
    for f in (
        PythonFunction("flowql_written", (STRING, STRING), STRING, shown),
        PythonFunction("flowql_pattern", (STRING, STRING, STRING), STRING, _pattern),
        PythonFunction("flowql_quotient", (STRING, STRING), STRING, _quotient),
        *(
            PythonFunction(key, args, result, by)
            for key, args, result, by in (*json_macros.FUNCTIONS, *standard_times.FUNCTIONS)
        ),
        PythonFunction(
            FORMATTED,
            (STRING, array(STRING)),
            STRING,
            lambda text, values: formatted(text, *values),
            null_propagating=False,
        ),
    )
}


def _resolved(name: str, types: tuple[SqlType, ...], *, standard: bool = True) -> tuple[Resolution, Reference, bool]:
    function = lookup(function_name(name.upper(), standard=standard)) or lookup(name)
    assert function is not None, name
    try:
        resolution = function.resolve(types)
    except FunctionTypeError as error:
        raise QueryFailure(str(error)) from error
    return resolution, function.reference(resolution), function.null_propagating


def ksql_offers(names: frozenset[str]) -> Iterator[tuple[str, Offer]]:
    """As `offers`, for ksqlDB's dialect."""
    for name in sorted(names & _KSQL.keys()):
        yield name, _of_reference(name, _KSQL[name], standard=False)


def offers(names: frozenset[str]) -> Iterator[tuple[str, Offer]]:
    """Of the functions with these folded names those that DuckDB must be given, with what they call first."""
    for name in sorted(names):
        if name in _OWN:
            yield name, Offer((_OWN[name],), ())
        elif name in _REFERENCES:
            yield name, _of_reference(name, _REFERENCES[name])
        elif name in _MACROS:
            yield from offers(frozenset(_CALLED.get(name, ())))
            yield name, Offer((), (f"CREATE OR REPLACE MACRO {name}{', '.join(_MACROS[name])}",))
        elif (known := name.removesuffix(ONCE)) in REPEATING:
            yield from offers(frozenset((known,)))
            bodies = [_once(known, body) for body in _MACROS[known]]
            yield name, Offer((), (f"CREATE OR REPLACE MACRO {name}{', '.join(bodies)}",))


def _over(name: str, r: Resolution, *, standard: bool) -> PatternFunction | None:
    known = f"{function_name(name.upper(), standard=standard)}{'_by' if name == 'substring' else ''}"
    return function_over_columns(known, len(r.args))


def _as_given(parameter: str, t: SqlType) -> str:
    """An argument in the type in which functions of Python take it."""
    if t == JSONB:
        return f"CAST({parameter} AS VARCHAR)"
    return f"CAST({parameter} AS TIMESTAMP)" if t.zoned else parameter


def _as_shown(call: str, t: SqlType) -> str:
    """A call of a function of Python, which gives texts and times of no zone, as DuckDB's JSON and moments where they are."""
    if t.zoned:
        return f"CAST({call} AS TIMESTAMP WITH TIME ZONE)"
    of = t.element if t.kind is Kind.ARRAY else t
    return f"CAST({call} AS JSON{'[]' if of is not t else ''})" if of == JSONB else call


def _of_reference(name: str, forms: str, *, standard: bool = True) -> Offer:
    functions, bodies, known = [], [], _NAMES.get(name, name)
    for form in forms.split():
        r, by, null_propagating = _resolved(known, tuple(_LETTERS[letter] for letter in form), standard=standard)
        key = f"flowql_{name}_{len(form)}"
        over = _over(known, r, standard=standard)
        functions.append(PythonFunction(key, r.args, r.result, by, null_propagating, over))
        parameters = [f"a{i}" for i in range(len(form))]
        given = ", ".join(_as_given(p, t) for p, t in zip(parameters, r.args, strict=True))
        call = f"{key}({given})"
        bodies.append(f"({', '.join(parameters)}) AS {_as_shown(call, r.result)}")
    return Offer(functions, (f"CREATE OR REPLACE MACRO {name}{', '.join(bodies)}",))
