"""Comparing an output record with what a case expects (rules of the corpus: numbers, names, windows, headers)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

DOUBLE_TOLERANCE = 1e-6


def same_value(expected: Any, actual: Any) -> bool:
    """Whether a logical value is what was expected."""
    if expected is None or actual is None:
        return expected is None and actual is None
    if isinstance(expected, dict):
        return isinstance(actual, dict) and _same_object(expected, actual)
    if isinstance(expected, list):
        return (
            isinstance(actual, list)
            and len(expected) == len(actual)
            and all(same_value(e, a) for e, a in zip(expected, actual, strict=True))
        )
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, (int, float, Decimal)) or isinstance(actual, (int, float, Decimal)):
        return _same_number(expected, actual)
    return bool(expected == actual)


def _same_object(expected: dict[str, Any], actual: dict[str, Any]) -> bool:
    if len(expected) != len(actual):
        return False
    for name, value in expected.items():
        found = name if name in actual else name.upper()
        if found not in actual or not same_value(value, actual[found]):
            return False
    return True


def _same_number(expected: Any, actual: Any) -> bool:
    try:
        e, a = Decimal(str(expected)), Decimal(str(actual))
    except ArithmeticError:
        return bool(expected == actual)
    if not (e.is_finite() and a.is_finite()):
        return str(e) == str(a)
    if isinstance(expected, int) and isinstance(actual, int):
        return expected == actual
    if e == a:
        return True
    scale = max(1, abs(float(e)))
    return abs(float(e) - float(a)) <= DOUBLE_TOLERANCE * scale


def difference(expected: dict[str, Any], actual: dict[str, Any], *, any_zero_time: bool) -> str:
    """Empty when a record is as expected, else what differs. actual: key, value, timestamp, window, headers."""
    if not same_value(expected.get("key"), actual["key"]):
        return f"key is {actual['key']!r}, expected {expected.get('key')!r}"
    window = expected.get("window")
    wanted = None if window is None else (window["type"].lower(), window["start"], window["end"])
    if wanted != actual["window"]:
        return f"window is {actual['window']}, expected {wanted}"
    if not same_value(expected.get("value"), actual["value"]):
        return f"value is {actual['value']!r}, expected {expected.get('value')!r}"
    time = expected.get("timestamp")
    if time is not None and time != actual["timestamp"] and not (any_zero_time and time == 0):
        return f"timestamp is {actual['timestamp']}, expected {time}"
    headers = [(h["KEY"], h["VALUE"]) for h in expected.get("headers", [])]
    if headers != actual["headers"]:
        return f"headers are {actual['headers']}, expected {headers}"
    return ""
