"""CREATE VIEW and CREATE TABLE ... AS of standard SQL: the same query in two forms, of which what it reads decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowql.compiler.diagnostics.diagnostic import UnsupportedError
from flowql.compiler.dialect.ast import CreateAs
from flowql.compiler.dialect.standard.tree import Query


@dataclass(frozen=True, slots=True)
class CreateView(CreateAs):
    """A view. `query` is for one over streams and tables of topics, `tree` for one over relations that change.

    columns: names of its first columns. refusal: why there is no `query` that means the same, if there is none.
    """

    tree: Query | None = None
    columns: tuple[str, ...] = ()
    refusal: UnsupportedError | None = field(default=None, compare=False)
