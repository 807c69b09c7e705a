"""Functions in FROM that read files of the machine where a statement runs."""

from __future__ import annotations

from flowql.compiler.dialect.standard.tree import Query, TableFunction
from flowql.compiler.dialect.walks import walk

FILE_FUNCTIONS = frozenset({"READ_CSV", "READ_PARQUET", "READ_JSON"})


def reads_files(query: Query) -> bool:
    """Whether a query reads a file, at any depth."""
    return any(isinstance(n, TableFunction) and n.call.name[-1].upper() in FILE_FUNCTIONS for n in walk(query))
