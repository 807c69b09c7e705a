"""What a subscription tells: changes of rows, and that a result was rebuilt. Loads no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flowql.compiler.plan.topology import SourceDef

Op = Literal["insert", "put", "delete"]


@dataclass(frozen=True, slots=True)
class Change:
    """A row that came: `insert` into a stream, `put` into a table, `delete` from one (then only its key is there).

    op: insert, put or delete. rowtime_ms: its event time, ms since 1970. row: the values by column.
    """

    op: Op
    rowtime_ms: int
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was told until here is of results that are replaced; all rows of the generations that serve now follow.

    result: what rows follow from here on, with these columns. generations: of the streams that were rebuilt, by name.
    """

    generations: Mapping[str, int]
    result: SourceDef
    columns: Sequence[str]

    def __str__(self) -> str:
        rebuilt = ", ".join(f"generation {n} of {name}" for name, n in self.generations.items())
        return f"{rebuilt or 'what is read has been rebuilt'}: from here on all rows anew"
