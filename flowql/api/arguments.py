"""Checks of arguments of the Python API. An argument of a wrong type raises an error that names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_STARTS = ("latest", "earliest")
TIMES_MAX = 100


def text(value: Any, name: str) -> str:
    """Returns a string. Raises TypeError for other types."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is a string, not {type(value).__name__}")
    return value


def texts(value: str | Sequence[str], name: str) -> tuple[str, ...]:
    """Returns a tuple of strings; a single string gives a tuple of one. Raises TypeError."""
    return (value,) if isinstance(value, str) else tuple(text(v, f"each of {name}") for v in value)


def times(value: int, name: str) -> int:
    """Returns a number of repetitions, from 0 to 100. Raises TypeError, ValueError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
    if not 0 <= value <= TIMES_MAX:
        raise ValueError(f"{name} is from 0 to {TIMES_MAX}, not {value}")
    return value


def variables_of(value: Mapping[str, str]) -> dict[str, str]:
    """Returns a dict from strings to strings. Raises TypeError for other types."""
    if not isinstance(value, Mapping):
        raise TypeError(f"variables is a dict of strings, not {type(value).__name__}")
    return {text(k, "the name of a variable"): text(v, f"the variable {k}") for k, v in value.items()}


def check_following(start: Any, limit: Any) -> None:
    """Checks arguments of `subscribe`. Raises ValueError, TypeError."""
    if start not in _STARTS:
        raise ValueError(f"start is {' or '.join(map(repr, _STARTS))}, not {start!r}")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise TypeError(f"limit is a whole number, not {type(limit).__name__}")
    if limit is not None and limit < 0:
        raise ValueError(f"limit is a number of changes, not {limit}")
