"""`%load_ext flowql` and the cell magic `%%flowql [PROJECT] [>> NAME]` of IPython and Jupyter."""

from __future__ import annotations

import keyword
from typing import Any

from flowql.api.connection import connect
from flowql.api.result import Result
from flowql.compiler.diagnostics.render import render
from flowql.compiler.dialect.standard.parser import verb_of
from flowql.errors import CommandError, CompileError, RuntimeFailure, diagnostics_of

_CHANGING = ("INSERT", "UPDATE", "DELETE")


def load_ipython_extension(shell: Any) -> None:
    """Registers the magic; IPython calls it."""
    shell.register_magic_function(lambda line, cell: _shown(shell, line, cell), "cell", "flowql")


def run_cell(names: dict[str, Any], line: str, cell: str) -> Result | str | None:
    """Runs a cell. Returns the `Result` of a query, which the notebook shows, or the changes of a statement.

    line: the project's folder (by default the current one), and `>> NAME` to keep the result under a name instead of showing it.
    """
    folder, keeps, kept = (part.strip() for part in line.partition(">>"))
    if keeps and (not kept.isidentifier() or keyword.iskeyword(kept)):
        raise CommandError(f"`{kept}` is not a valid name for a variable", help="%%flowql shop >> orders")
    with connect(folder or ".") as connection:  # anew: a notebook may edit the project, or change its current folder
        if verb_of(cell) in _CHANGING:
            rows = connection.execute(cell)
            return f"{rows:,} {'row' if rows == 1 else 'rows'} changed"
        result = connection.sql(cell)
    if not kept:
        return result
    names[kept] = result
    return None


def _shown(shell: Any, line: str, cell: str) -> Result | str | None:
    """As `run_cell`. A mistake fails the cell and is shown as the command line shows it: the whole cell is what was typed, so frames of
    FlowQL say nothing about it. IPython asks an exception for `_render_traceback_` before it makes a traceback of its own.
    """
    try:
        return run_cell(shell.user_ns, line, cell)
    except (CompileError, CommandError, RuntimeFailure) as error:
        message = render(diagnostics_of(error), color=shell.colors.lower() != "nocolor")
        vars(error)["_render_traceback_"] = message.splitlines
        raise
