"""Watermarks: how far the rows of sources have come in the time that one of their columns tells.

Each partition of a source has its watermark: the largest time in the records read so far, less a delay. A row whose time is before it
when it is read is *late* and left out, of every view alike, as only the order of records in their partition decides. Behind
repartitions and joins the watermark is the lowest of all partitions that rows may still come from, so no row below it is on its way.
"""

from __future__ import annotations

from dataclasses import dataclass

MARK = 4  # what a row does that is none: it carries the watermark of its sender through a repartition


@dataclass(frozen=True, slots=True)
class Watermark:
    """`WATERMARK FOR column AS column - delay`. delay: in the column's reference values (`flowql.compiler.plan.types`)."""

    column: str
    delay: int = 0


@dataclass(frozen=True, slots=True)
class Closing:
    """How values of a column follow the watermark: no row with the value v comes or goes any more once v + after <= watermark."""

    column: str
    after: int


@dataclass(frozen=True, slots=True)
class AppendOnly:
    """The rows of a source to which rows are only added, as changes. Late ones are left out. Records without a value are no rows."""

    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class EmitClosed:
    """Rows as soon as nothing about them changes any more (EMIT ON WINDOW CLOSE): when one of the columns is closed.

    A column that is NULL says nothing; a row with nothing but NULLs there is never given.
    """

    columns: tuple[Closing, ...]
