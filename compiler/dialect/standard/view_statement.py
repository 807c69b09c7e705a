"""CREATE VIEW, and CREATE STREAM and CREATE TABLE ... AS of standard SQL."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowql.compiler.diagnostics.diagnostic import UnsupportedError
from flowql.compiler.dialect.ast import CreateAs
from flowql.compiler.dialect.standard.tree import Query


@dataclass(frozen=True, slots=True)
class CreateView(CreateAs):
    """A view, or (is_view false) a stream or table, whose `query` says the same in the words of ksqlDB where they can; refusal: why not.

    columns: names of its first columns.
    """

    is_view: bool = False
    tree: Query | None = None
    columns: tuple[str, ...] = ()
    refusal: UnsupportedError | None = field(default=None, compare=False)
