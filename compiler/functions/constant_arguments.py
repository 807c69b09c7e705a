"""Arguments that, given as constants, make a call fail for every row, whatever its other arguments are.

`REGEXP_LIKE(name, '(')` has a pattern that no row can be matched with. Each entry is a check that raises where the reference would raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flowql.compiler.functions import regex, sql_from_char, sql_number_patterns, sql_regex, sql_to_char
from flowql.compiler.functions.dates import INTERVAL_FUNCTIONS, unit_ms
from flowql.compiler.functions.java_time import parts_of
from flowql.compiler.functions.json_functions import path_of
from flowql.compiler.functions.patterns.like import like_pattern
from flowql.compiler.functions.sql_times import truncation
from flowql.compiler.functions.sql_zones import zone_given, zone_named
from flowql.compiler.functions.temporal import zone_of

Check = Callable[[Any], object]


def _divisor(v: Any) -> None:
    """A division of doubles by zero has a result."""
    if not isinstance(v, float) and not v:
        raise ZeroDivisionError("division by zero")


def _sql_divisor(v: Any) -> None:
    if not v:
        raise ZeroDivisionError("division by zero")


def _pattern_or_place(v: Any) -> None:
    if isinstance(v, str):
        sql_regex.taking_program(v)


def _zone_or_interval(v: Any) -> None:
    if isinstance(v, str):
        zone_named(v)


_BY_PATTERN = ("FORMAT_TIMESTAMP", "TIMESTAMPTOSTRING", "PARSE_TIMESTAMP", "STRINGTOTIMESTAMP")
_BY_DATE_PATTERN = ("FORMAT_DATE", "DATETOSTRING", "PARSE_DATE", "STRINGTODATE", "FORMAT_TIME", "PARSE_TIME")
_POSIX = (
    "sql_regexp_match", "sql_regexp_replace", "sql_regexp_split_to_array", "sql_regexp_count", "sql_regexp_instr", "sql_regexp_substr"
)  # fmt: skip
_NONE: Mapping[int, Check] = {}
_CHECKS: dict[str, Mapping[int, Check]] = {
    "div": {1: _divisor},
    "mod": {1: _divisor},
    "sql_div": {1: _sql_divisor},
    "sql_mod": {1: _sql_divisor},
    "sql_date_trunc": {0: truncation},
    "sql_date_trunc_in": {0: truncation, 2: zone_named},
    "sql_timezone": {0: _zone_or_interval},
    "sql_make_timestamptz": {6: zone_given},
    "sql_to_char": {1: sql_to_char.parts_of},
    **{key: {1: sql_from_char.readable} for key in ("sql_to_date_by", "sql_to_timestamp_by")},
    **{key: {1: sql_number_patterns.number_pattern} for key in ("sql_number_to_char", "sql_to_number")},
    **{key: {1: sql_regex.taking_program} for key in _POSIX},
    "sql_regexp_like": {1: sql_regex.asking_program},
    "sql_substring": {1: _pattern_or_place},
    **{key: {1: regex.java_program} for key in ("sql_regexp_extract", "sql_regexp_extract_all")},
    **{key: {1: parts_of} for key in ("sql_from_unixtime", "sql_unix_timestamp")},
    "REGEXP_EXTRACT": {0: regex.java_program},
    "REGEXP_EXTRACT_ALL": {0: regex.java_program},
    "REGEXP_REPLACE": {1: regex.java_program},
    "REGEXP_SPLIT_TO_ARRAY": {1: regex.java_program},
    "REGEXP_LIKE": {1: regex.java_program},
    "EXTRACTJSONFIELD": {1: path_of},
    "CONVERT_TZ": {1: zone_of, 2: zone_of},
    **{key: {1: parts_of, 2: zone_of} for key in _BY_PATTERN},
    **{key: {1: parts_of} for key in _BY_DATE_PATTERN},
    **{key: {0: unit_ms} for key in INTERVAL_FUNCTIONS},
}


def checks_of(name: str, count: int) -> Mapping[int, Check]:
    """Position of an argument -> its check, for a call of `name` with so many arguments."""
    if name == "sql_similar" and count == 2:
        return {1: sql_regex.similar}
    if name in ("like", "not_like", "sql_ilike") and count == 2:  # with ESCAPE the pattern depends on another argument
        return {1: like_pattern}
    return _CHECKS.get(name, _NONE)
