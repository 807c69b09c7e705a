"""CREATE VIEW, and CREATE STREAM and CREATE TABLE ... AS of standard SQL."""

from __future__ import annotations

from dataclasses import dataclass

from flowql.compiler.dialect.ast import CreateAs
from flowql.compiler.dialect.standard.tree import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView(CreateAs):
    """A view; of the kind "stream" it has to be one. columns: names of its first columns."""

    tree: Query
    columns: tuple[str, ...] = ()
