"""Dates and times in tests: a person writes them as texts, and records of JSON hold numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flowql.compiler.functions.temporal import (
    date_text,
    micros_text,
    parse_date,
    parse_micros,
    parse_time,
    parse_timestamp,
    time_text,
    timestamp_text,
)
from flowql.compiler.plan.types import Kind, SqlType

_PARSE: Mapping[Kind, Callable[[str], int]] = {
    Kind.DATE: parse_date,
    Kind.TIME: parse_time,
    Kind.TIMESTAMP: parse_timestamp,
    Kind.MICROS: parse_micros,
}

_TEXT: Mapping[Kind, Callable[[int], str]] = {
    Kind.DATE: date_text,
    Kind.TIME: time_text,
    Kind.TIMESTAMP: timestamp_text,
    Kind.MICROS: micros_text,
}


def as_shown(value: Any, type_: SqlType) -> Any:
    """A value as records of JSON hold it, with its dates and times as ISO texts. A number that is none stays.

    >>> from flowql.compiler.plan.types import DATE, array
    >>> as_shown([1, "1970-01-06", None], array(DATE))
    ['1970-01-02', '1970-01-06', None]
    """
    if isinstance(value, int) and not isinstance(value, bool) and type_.kind in _TEXT:
        try:
            return _TEXT[type_.kind](value)
        except (ValueError, OverflowError):
            return value
    if isinstance(value, list) and type_.kind is Kind.ARRAY:
        return [as_shown(v, type_.element) for v in value]
    if isinstance(value, dict) and type_.kind is Kind.MAP:
        return {k: as_shown(v, type_.element) for k, v in value.items()}
    if isinstance(value, dict) and type_.kind is Kind.STRUCT:
        known = dict(type_.fields)
        return {k: as_shown(v, known[k]) if k in known else v for k, v in value.items()}
    return value


def as_declared(value: Any, type_: SqlType) -> Any:
    """A value of a row with ISO texts in columns of dates and times as JSON has them. Raises ValueError.

    >>> from flowql.compiler.plan.types import DATE, array
    >>> as_declared(["1970-01-02", 5, None], array(DATE))
    [1, 5, None]
    """
    if isinstance(value, str) and type_.kind in _PARSE:
        return _PARSE[type_.kind](value)
    if isinstance(value, list) and type_.kind is Kind.ARRAY:
        return [as_declared(v, type_.element) for v in value]
    if isinstance(value, dict) and type_.kind is Kind.MAP:
        return {k: as_declared(v, type_.element) for k, v in value.items()}
    if isinstance(value, dict) and type_.kind is Kind.STRUCT:
        known = {n.upper(): f for n, f in type_.fields}
        return {k: as_declared(v, known[k.upper()]) if k.upper() in known else v for k, v in value.items()}
    return value


def is_time(text: str, number: int) -> bool:
    """Whether a number is the date, time or timestamp that an ISO text says."""
    for parse in _PARSE.values():
        try:
            if parse(text) == number:
                return True
        except ValueError:
            continue
    return False
