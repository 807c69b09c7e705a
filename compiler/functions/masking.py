"""MASK and its kin: texts with their characters hidden by class."""

from __future__ import annotations

import unicodedata

from flowql.compiler.functions.bounds import check_bytes
from flowql.compiler.functions.registry import Reference, scalar, takes
from flowql.compiler.plan.types import INT, STRING


def mask(s: str, upper: str | None, lower: str | None, digit: str | None, other: str | None) -> str:
    """Each character replaced by that of its class; a NULL replacement keeps the class as it is."""
    check_bytes(len(s) * max(len(r or "") for r in (upper, lower, digit, other)))
    return "".join(_mask_one(c, upper, lower, digit, other) for c in s)


def _mask_one(c: str, upper: str | None, lower: str | None, digit: str | None, other: str | None) -> str:
    category = unicodedata.category(c)
    if category == "Lu":
        replacement = upper
    elif category == "Ll":
        replacement = lower
    else:
        replacement = digit if category == "Nd" else other
    return c if replacement is None else replacement


def _masker(upper: str, lower: str, digit: str, other: str) -> Reference:
    return lambda s, u=upper, low=lower, d=digit, o=other: None if s is None else mask(s, u, low, d, o)


def _partial_mask(keep: str) -> Reference:
    """MASK_LEFT and its kin: `n` characters masked or kept at one end."""

    def run(s: str | None, n: int | None, *characters: str | None) -> str | None:
        if s is None or n is None:
            return None
        if n < 0:
            raise ValueError(f"the number of characters must not be negative, got {n}")
        u, low, d, o = characters or ("X", "x", "n", "-")
        cut = min(n, len(s)) if keep in ("right", "left") else max(len(s) - n, 0)
        head, tail = s[:cut], s[cut:]
        if keep in ("right", "right_kept"):
            return mask(head, u, low, d, o) + tail
        return head + mask(tail, u, low, d, o)

    return run


_FOUR = (STRING, STRING, STRING, STRING)
scalar(
    "MASK",
    takes(STRING, gives=STRING),
    takes(STRING, *_FOUR, gives=STRING),
    by=_masker("X", "x", "n", "-"),
    null_propagating=False,
)
for _name, _keep in (
    ("MASK_LEFT", "right"),
    ("MASK_RIGHT", "left_kept"),
    ("MASK_KEEP_LEFT", "left"),
    ("MASK_KEEP_RIGHT", "right_kept"),
):
    scalar(
        _name,
        takes(STRING, INT, gives=STRING),
        takes(STRING, INT, *_FOUR, gives=STRING),
        by=_partial_mask(_keep),
        null_propagating=False,
    )
