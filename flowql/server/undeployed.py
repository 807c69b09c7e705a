"""Streams and tables that the project declares and the instance does not have yet: "there is no such table" would be half of the truth."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowql.errors import CommandError, CompileError, RuntimeFailure
from flowql.query.errors import UNKNOWN, QueryError

_UNKNOWN = re.compile(r"there is no [a-z, ]+ or [a-z]+ (?P<name>\S+)")


@contextmanager
def telling_undeployed(project_dir: str) -> Iterator[None]:
    """A QueryError about an unknown name says where the project declares that name, if it does. project_dir: the project's folder, or empty."""
    try:
        yield
    except CommandError as error:
        found = _UNKNOWN.fullmatch(error.title) if error.code == UNKNOWN and project_dir else None
        place = None if found is None else _declared(found["name"], Path(project_dir))
        if found is None or place is None:
            raise
        title = f"{found['name']} is declared in {place} and not deployed yet"
        raise QueryError(title, code=UNKNOWN, help="flowql deploy", span=error.span) from error


def _declared(name: str, folder: Path) -> str | None:
    """The file and line of the statement that makes a stream or table; the project's file for a query that is no statement."""
    from flowql.compiler.diagnostics.source import SourceText
    from flowql.config.compile import compile_sources  # the compiler: 0.5 s, for an error only
    from flowql.config.load import read_project, shown_path

    try:
        project = read_project(folder)
        sources = compile_sources(project).plan.sources
    except (CompileError, RuntimeFailure):  # the project cannot be read as it is now
        return None
    made = next((s for s in sources if s.name.casefold() == name.casefold()), None)
    if made is None:
        return None
    for file in project.sources:
        if isinstance(file, SourceText) and made.statement and (at := file.text.find(made.statement)) >= 0:
            return f"{file.path}:{file.line_offset + file.text.count(chr(10), 0, at) + 1}"
    return shown_path(project.file)
