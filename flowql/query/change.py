"""The events of a subscription: changes of rows, and that a result was rebuilt. Loads no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from flowql.compiler.plan.topology import SourceDef

Op = Literal["insert", "put", "delete"]


@dataclass(frozen=True, slots=True)
class Change:
    """A changed row: `insert` into a stream, `put` into a table, `delete` from a table (only the key).

    rowtime_ms: event time, ms since 1970. row: values by column.
    """

    op: Op
    rowtime_ms: int
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A rebuild replaced the results of earlier changes; all rows of the serving generations follow.

    result, columns: of the following rows. generations: of the rebuilt streams, by name.
    """

    generations: Mapping[str, int]
    result: SourceDef
    columns: Sequence[str]

    def __str__(self) -> str:
        rebuilt = ", ".join(f"generation {n} of {name}" for name, n in self.generations.items())
        return f"{rebuilt or 'an input has been rebuilt'}: all rows follow again"
