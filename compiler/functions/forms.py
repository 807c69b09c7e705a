"""Casts of types that are texts of one form: JSONB and UUID (`SqlType.form`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from flowql.compiler.functions.json_values import canonical, read_json
from flowql.compiler.functions.numeric import (
    BIGINT_MAX,
    BIGINT_MIN,
    INT_MAX,
    INT_MIN,
    WIDE,
    NumericOverflow,
    fit_decimal,
)
from flowql.compiler.plan.types import JSONB, SPAN, STRING, UUID, Kind, SqlType

_UUID = re.compile(
    r"\{?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})\}?", re.IGNORECASE | re.ASCII
)
_RANGES = {Kind.INT: (INT_MIN, INT_MAX), Kind.BIGINT: (BIGINT_MIN, BIGINT_MAX)}


def uuid_text(text: str) -> str:
    """The one text of a UUID. Raises ValueError."""
    found = _UUID.fullmatch(text)
    if found is None or text.startswith("{") != text.endswith("}"):
        raise ValueError(f'invalid input syntax for type uuid: "{text}"')
    return "-".join(found.groups()).lower()


def form_caster(source: SqlType, target: SqlType) -> Callable[[Any], Any] | None:
    """The cast of non-null values where one of the types is a text of a form; None where there is none. It raises ValueError or ArithmeticError."""
    if target == STRING:
        return str if source != SPAN else None
    if source == STRING:
        return {JSONB: canonical, UUID: uuid_text}.get(target)
    if source == JSONB and (target.is_numeric or target.kind is Kind.BOOLEAN):
        return lambda text: _scalar(read_json(text), target)
    return None


def _scalar(value: Any, target: SqlType) -> Any:
    wanted = bool if target.kind is Kind.BOOLEAN else (int, Decimal)
    if not isinstance(value, wanted) or (isinstance(value, bool) and target.kind is not Kind.BOOLEAN):
        raise ValueError(f"cannot cast jsonb {kind_of(value)} to type {str(target).lower()}")
    if target.kind is Kind.BOOLEAN:
        return value
    if target.kind is Kind.DECIMAL:
        return fit_decimal(Decimal(value), target.precision, target.scale)
    if target.kind is Kind.DOUBLE:
        return float(value)
    whole = int(Decimal(value).quantize(Decimal(1), rounding=ROUND_HALF_UP, context=WIDE))
    low, high = _RANGES[target.kind]
    if not low <= whole <= high:
        raise NumericOverflow(f"{whole} is out of the range of {target}")
    return whole


def kind_of(value: Any) -> str:
    """The name of a value's type in JSONB_TYPEOF."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object" if isinstance(value, dict) else "number"
