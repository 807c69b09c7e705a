"""Which modules of a project have functions. Light: what loads them is imported when it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Modules:
    """The folder they are in, and their names."""

    root: str = ""
    names: tuple[str, ...] = ()

    def register(self) -> None:
        """Their functions as they are there now, for queries that this process runs. Raises LoadError."""
        if self.names:  # most projects have none
            from flowql.compiler.functions.registry import register
            from flowql.config.functions import load_functions

            for function in load_functions(Path(self.root), self.names).values():
                register(function, replace=True)
