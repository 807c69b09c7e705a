"""Values in Debezium's JSON as FlowQL's JSON has them: times in milliseconds, days since 1970, decimals as numbers.

What a number or text means is in the schema that a record may come with. Without one a number in a TIMESTAMP column is taken for
milliseconds, and is refused where it would be a time before 1900 or after 2200: there it may be microseconds.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Self

from flowql.compiler.functions.numeric import BIGINT_MAX, BIGINT_MIN, INT_MAX, INT_MIN, WIDE
from flowql.compiler.functions.sql_text_casts import (
    read_date,
    read_micros,
    read_microstz,
    read_time,
    read_timestamp,
    read_timestamptz,
)
from flowql.compiler.functions.temporal import DAY_MS
from flowql.compiler.plan.event_times import USUAL_TIMES
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.types import Kind
from flowql.runtime.serde.numbers import NAMED_TIMES

# Units of times of day and of moments, by the names of their schemas: how many are in a millisecond.
_PER_MS = {name: t.per_ms for name, t in NAMED_TIMES.items() if t.kind is not Kind.DATE}
_DAYS = tuple(name for name, t in NAMED_TIMES.items() if t.kind is Kind.DATE)
_DECIMAL, _ANY_SCALE = "org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal"
_FIRST_MS, _LAST_MS = USUAL_TIMES.first_ms(of_column=False), USUAL_TIMES.latest_ms
_BELOW_MS = re.compile(r"(\.\d{3})\d+")
_BELOW_US = re.compile(r"(\.\d{6})\d+")
_RANGES = {Kind.INT: (INT_MIN, INT_MAX), Kind.BIGINT: (BIGINT_MIN, BIGINT_MAX)}
_SCALE_MAX = 1_000  # beyond it a text of a few bytes would be a number of many digits


@dataclass(frozen=True, slots=True)
class Meaning:
    """A column in a schema: the name of its logical type, empty for none, and the scale of a decimal."""

    name: str = ""
    scale: int = 0

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Self:
        parameters, name = described.get("parameters"), described.get("name")
        scale = str(parameters.get("scale")) if isinstance(parameters, dict) else ""
        return cls(name if isinstance(name, str) else "", int(scale) if scale.lstrip("-").isdecimal() else 0)


Convert = Callable[[Any, Meaning | None], Any]


def converters(fields: Sequence[Field]) -> Mapping[str, Convert]:
    """By the names of columns, for those whose values may need one. They raise ValueError or ArithmeticError."""
    found: dict[str, Convert] = {}
    for f in fields:
        convert = _CONVERTERS.get(f.type.kind)
        if f.type.kind is Kind.TIMESTAMP:
            convert = partial(_ms, read=read_timestamptz if f.type.zoned else read_timestamp)
        if f.type.kind is Kind.MICROS:
            convert = partial(_us, read=read_microstz if f.type.zoned else read_micros)
        if convert is not None:
            found[f.name] = convert
    return found


def _ms(value: Any, meaning: Meaning | None, read: Callable[[str], int]) -> Any:
    """A moment in milliseconds; parts of one are cut off, toward the past."""
    if type(value) is str:
        return read(_BELOW_MS.sub(r"\1", value))
    if type(value) is not int:
        return value
    if meaning is not None and meaning.name in _DAYS:
        return value * DAY_MS
    if meaning is not None and meaning.name in _PER_MS:
        return value // _PER_MS[meaning.name]
    return usual_ms(value, "let the connector write schemas (value.converter.schemas.enable=true)")


def _us(value: Any, meaning: Meaning | None, read: Callable[[str], int]) -> Any:
    """A moment in microseconds; parts of one are cut off, toward the past. Raises ValueError for a number that may be milliseconds."""
    if type(value) is str:
        return read(_BELOW_US.sub(r"\1", value))
    if type(value) is not int:
        return value
    if meaning is not None and meaning.name in _DAYS:
        return value * DAY_MS * 1000
    if meaning is not None and meaning.name in _PER_MS:
        return value * 1000 // _PER_MS[meaning.name]
    if abs(value) < _LAST_MS:
        raise ValueError(
            f"{value} microseconds are a time near 1970. If they are milliseconds: let the connector write schemas "
            "(value.converter.schemas.enable=true), or declare the column TIMESTAMP"
        )
    return value


def usual_ms(value: int, way: str) -> int:
    """A moment in milliseconds, of which no schema says so. way: to a schema that does. Raises ValueError for what may be microseconds."""
    if not _FIRST_MS <= value < _LAST_MS:
        raise ValueError(
            f"{value} milliseconds are a time before 1900 or after 2200. If they are microseconds: {way} "
            "or milliseconds (time.precision.mode=connect), or declare the column BIGINT"
        )
    return value


def _time(value: Any, meaning: Meaning | None) -> Any:
    if type(value) is str:
        return read_time(_BELOW_MS.sub(r"\1", value))
    if type(value) is int and meaning is not None and meaning.name in _PER_MS:
        return value // _PER_MS[meaning.name]
    return value


def _day(value: Any, meaning: Meaning | None) -> Any:
    if type(value) is str:
        return read_date(value)
    if type(value) is int and meaning is not None and meaning.name in _PER_MS:
        return value // _PER_MS[meaning.name] // DAY_MS
    return value


def _truth(value: Any, _meaning: Meaning | None) -> Any:
    """MySQL's BOOLEAN is a number."""
    return bool(value) if type(value) is int and value in (0, 1) else value


def _number(value: Any, meaning: Meaning | None) -> Any:
    """Decimals as numbers. FlowQL's JSON wraps whole numbers that are too large; here they are refused."""
    if meaning is not None and meaning.name == _DECIMAL and type(value) is str:
        return unscaled_decimal(value, meaning.scale)
    if meaning is not None and meaning.name == _ANY_SCALE and isinstance(value, dict):
        unscaled, scale = value.get("value"), value.get("scale")
        if type(unscaled) is not str or type(scale) is not int:
            raise ValueError("a decimal without value and scale")
        return unscaled_decimal(unscaled, scale)
    return value


def unscaled_decimal(unscaled: str, scale: int) -> Decimal:
    """A decimal whose digits are a whole number in base64. Raises ValueError."""
    number = int.from_bytes(base64.b64decode(unscaled, validate=True), "big", signed=True)
    if abs(scale) > _SCALE_MAX:
        raise ValueError(f"a decimal of scale {scale}")
    return Decimal(number).scaleb(-scale, WIDE)


def _whole(kind: Kind) -> Convert:
    low, high = _RANGES[kind]

    def convert(value: Any, meaning: Meaning | None) -> Any:
        number = _number(value, meaning)
        if type(number) in (int, float, Decimal) and not (low <= number <= high and number == int(number)):
            raise ValueError(f"{number} is not a valid {kind.value}")
        return number

    return convert


_CONVERTERS: dict[Kind, Convert] = {
    Kind.DATE: _day,
    Kind.TIME: _time,
    Kind.BOOLEAN: _truth,
    Kind.INT: _whole(Kind.INT),
    Kind.BIGINT: _whole(Kind.BIGINT),
    Kind.DOUBLE: _number,
    Kind.DECIMAL: _number,
    Kind.STRING: _number,
}
