"""`%load_ext flowql` and the cell magic `%%flowql [PROJECT] [>> NAME]` of IPython and Jupyter."""

from __future__ import annotations

import re
from typing import Any

from flowql.api.connection import Connection, connect
from flowql.api.result import Result

_CHANGES = re.compile(r"\s*(INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
_connections: dict[str, Connection] = {}


def load_ipython_extension(shell: Any) -> None:
    """Registers the magic; IPython calls it."""
    shell.register_magic_function(lambda line, cell: run_cell(shell.user_ns, line, cell), "cell", "flowql")


def run_cell(names: dict[str, Any], line: str, cell: str) -> Result | str | None:
    """Carries out a cell: a query's `Result`, which the notebook shows, or what a statement has changed.

    line: the project's folder (by default the current one), and `>> NAME` to keep the result under a name instead of showing it.
    """
    folder, _, kept = (part.strip() for part in line.partition(">>"))
    connection = _connections.get(folder or ".")
    if connection is None:
        connection = _connections[folder or "."] = connect(folder or ".")
    if _CHANGES.match(cell):
        rows = connection.execute(cell)
        return f"{rows:,} {'row' if rows == 1 else 'rows'} changed"
    result = connection.sql(cell)
    if not kept:
        return result
    names[kept] = result
    return None
