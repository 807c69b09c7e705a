"""Comparing what a run ends in, for engines that do not emit every update: a table by its last record per key and window, a
stream as a multiset of records."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tests.conformance.compare import difference

Expected = dict[str, Any]


def different_table(expected: list[Expected], actual: list[Expected]) -> str:
    """Empty when every key ends with the same value. A key that ends without a value may as well not be there."""
    e, a = _last(expected), _last(actual)
    for key, record in e.items():
        if key not in a:
            if record.get("value") is None:
                continue
            return f"no record of key {key}"
        reason = difference({k: v for k, v in record.items() if k != "timestamp"}, a[key], any_zero_time=True)
        if reason:
            return reason
    extra = [k for k in a if k not in e and a[k]["value"] is not None]
    return f"unexpected keys {extra[:3]}" if extra else ""


def different_stream(expected: list[Expected], actual: list[Expected], *, any_zero_time: bool) -> str:
    """Empty when both are the same records, times and headers included, in whatever order."""
    left = list(actual)
    for record in expected:
        reasons = [difference(record, other, any_zero_time=any_zero_time) for other in left]
        if "" not in reasons:
            # The one that agrees longest: key, window, value, time and headers are compared in this order.
            near = max(reasons, key=_depth, default=f"{len(actual)} records, expected {len(expected)}")
            return f"no such record ({near})"
        del left[reasons.index("")]
    return f"{len(actual)} records, expected {len(expected)}" if left else ""


def _depth(reason: str) -> int:
    return ("key", "window", "value", "timestamp", "headers").index(reason.split(" ", 1)[0])


def _last(records: list[Expected]) -> dict[str, Expected]:
    out = {}
    for r in records:
        window = r.get("window")
        if isinstance(window, dict):
            window = (window["type"].lower(), window["start"], window["end"])
        out[f"{_comparable(r.get('key'))!r} {window}"] = r
    return out


def _comparable(key: Any) -> Any:
    """A key in one spelling: numbers as floats, names in upper case."""
    if isinstance(key, dict):
        return sorted((k.upper(), _comparable(v)) for k, v in key.items())
    if isinstance(key, list):
        return [_comparable(v) for v in key]
    return float(key) if isinstance(key, (int, Decimal)) and not isinstance(key, bool) else key
