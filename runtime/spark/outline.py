"""Frames without Spark: what has a form over frames, and what is refused, is known before a session is there."""

from __future__ import annotations

from typing import Any


class Outline:
    """Stands for a DataFrame, or a column of one: whatever is asked of it gives it again. Nothing can be read from it."""

    def __getattr__(self, _name: str) -> Outline:
        return self

    def __call__(self, *_given: Any, **_named: Any) -> Outline:
        return self

    def __getitem__(self, _name: Any) -> Outline:
        return self

    def __and__(self, _other: Any) -> Outline:
        return self

    __or__ = __ge__ = __le__ = __add__ = __sub__ = __and__

    def __eq__(self, _other: object) -> Any:
        return self

    __hash__ = None  # type: ignore[assignment]


OUTLINE: Any = Outline()


def functions(frame: Any) -> Any:
    """`pyspark.sql.functions`, or what stands for it where a frame is an outline."""
    if isinstance(frame, Outline):
        return OUTLINE
    from pyspark.sql import functions as F

    return F
