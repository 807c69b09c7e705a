"""`${NAME}` and `${NAME:-default}` in project files."""

from __future__ import annotations

import re
from collections.abc import Mapping

from flowql.config.texts import Taken

_REFERENCE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class Variables:
    """Values of variables: `--var` beats `vars` of the file, which beat the environment. Names ignore case, but for the environment's."""

    def __init__(self, given: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._given = {k.upper(): v for k, v in given.items()}
        self._file: dict[str, str] = {}
        self._environment = environment

    def define(self, name: str, value: str) -> None:
        """Add one of the file's own."""
        self._file[name.upper()] = value

    def get(self, name: str) -> str | None:
        for known in (self._given, self._file):
            if name.upper() in known:
                return known[name.upper()]
        return self._environment.get(name)

    def names(self) -> list[str]:
        return [*self._given, *self._file]

    def for_sql(self, text: str) -> dict[str, str]:
        """The variables that the SQL parser needs for this text, without names that the text defines itself (DEFINE)."""
        named = {m[1]: self.get(m[1]) for m in _REFERENCE.finditer(text)}
        values = {n: v for n in self.names() if (v := self.get(n)) is not None}
        return values | {n.upper(): v for n, v in named.items() if v is not None}

    def expand(self, taken: Taken, *, defaults_only: bool = False) -> tuple[Taken, list[tuple[str, int, int]]]:
        """The text with values in place of references, and the undefined ones as (name, start, end) offsets in the file.

        defaults_only: leave `${NAME}` to the SQL parser, which knows DEFINE.
        """
        if "${" not in taken.text:
            return taken, []
        parts: list[str] = []
        offsets: list[int] = []
        undefined: list[tuple[str, int, int]] = []
        at = 0
        for m in _REFERENCE.finditer(taken.text):
            if defaults_only and m[2] is None:
                continue
            parts.append(taken.text[at : m.start()])
            offsets.extend(taken.offsets[at : m.start()])
            value = self.get(m[1])
            if value is None:
                value = m[2]
            if value is None:
                undefined.append((m[1], taken.offsets[m.start()], taken.offsets[m.end() - 1] + 1))
                value = ""
            parts.append(value)
            offsets.extend([taken.offsets[m.start()]] * len(value))
            at = m.end()
        parts.append(taken.text[at:])
        offsets.extend(taken.offsets[at:])
        return Taken("".join(parts), offsets), undefined
