"""JSON as PostgreSQL's JSONB keeps it: texts of one form.

Keys stand by length and then by their bytes, the last of equal ones wins, `, ` and `: ` separate. Numbers are exact, written without exponent and
with all digits that they were given: 1.10 and 1.1 are equal values of different texts, which `equality_text` makes one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

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

_DIGITS_MAX = 1_000  # of a number, before or behind the point


def read_json(text: str) -> Any:
    """None, bool, int, Decimal, str, list or dict. Raises ValueError."""
    try:
        found = json.loads(text, parse_float=_decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"invalid input syntax for type json: {text[:100]!r}") from error
    _check_texts(text, found)
    return found


def _decimal(text: str) -> Decimal:
    value = Decimal(text)
    if value and abs(value.adjusted()) > _DIGITS_MAX:
        raise ValueError("a number has too many digits")
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _check_texts(text: str, found: Any) -> None:
    """Characters that no text has: they are written as escapes only."""
    if "\\u" not in text:
        return
    made = json.dumps(found, ensure_ascii=False, default=str)
    if "\\u0000" in made:
        raise ValueError("unsupported Unicode escape sequence: \\u0000 cannot be in a string")
    try:
        made.encode()
    except UnicodeEncodeError as error:
        raise ValueError("a Unicode escape sequence is half of a pair") from error


def write_json(value: Any) -> str:
    """The one text of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {write_json(value[k])}" for k in keys_of(value))
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(write_json, value)) + "]"
    return number_text(value)


def number_text(value: int | Decimal) -> str:
    """All digits; zero has no sign.

    >>> [number_text(Decimal(text)) for text in ("1.10", "1.50e1", "1e2", "-0.0", "0e5")]
    ['1.10', '15.0', '100', '0.0', '0']
    """
    if isinstance(value, int):
        return str(value)
    exponent = value.as_tuple().exponent
    if not value:
        return f"{0:.{max(0, -int(exponent))}f}"
    return f"{value:f}"


def equality_text(text: str) -> str:
    """The one text of all values that are equal to that of a text: numbers without zeros at the end of a fraction.

    >>> equality_text('{"a": [1.10, 2.0]}')
    '{"a": [1.1, 2]}'
    """
    return write_json(_equal(read_json(text))) if "." in text else text


def _equal(value: Any) -> Any:
    if isinstance(value, Decimal):
        return value.quantize(Decimal(1)) if value == value.to_integral_value() else value.normalize()
    if isinstance(value, dict):
        return {k: _equal(v) for k, v in value.items()}
    return [_equal(v) for v in value] if isinstance(value, list) else value


def keys_of(value: dict[str, Any]) -> list[str]:
    """The keys of an object in their order."""
    encoded = sorted((k.encode() for k in value), key=lambda k: (len(k), k))
    return [k.decode() for k in encoded]


def canonical(text: str) -> str:
    """The one text of the value that a text is. Raises ValueError."""
    return write_json(read_json(text))


def shown(value: Any) -> str | None:
    """A value as a text: of a text its characters, of null nothing."""
    return value if value is None or isinstance(value, str) else write_json(value)


# --- Casts of types that are texts of one form: JSONB and UUID (`SqlType.form`) ---

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
