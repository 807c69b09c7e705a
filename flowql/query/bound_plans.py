"""Interactive queries of standard SQL that were read and bound before, by their text: parsing, binding and rendering a look-up takes about 1 ms.

A deployment needs no word with this cache: a plan is used only where the query's relations have the columns and keys, and its functions of the project are
those, with which it was bound. A statement that asks for the present moment is parsed once and bound each time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowql.query.statement import Statement

if TYPE_CHECKING:
    from flowql.compiler.analyze.relations.asked import Readable
    from flowql.compiler.dialect.standard import tree as t

ENTRIES_MAX = 512
BYTES_MAX = 8 << 20
# The size of a tree and a plan, by the characters of the text and of DuckDB's statement (measured: 7 to 37 of each).
_BYTES_OF_ENTRY, _BYTES_OF_CHAR = 8 << 10, 40


@dataclass(frozen=True, slots=True)
class BoundPlan:
    """statement: bound with these relations, by their names in FROM, and with these versions of functions."""

    readable: Mapping[str, Readable]
    functions: tuple[str, ...]
    statement: Statement


@dataclass(frozen=True, slots=True)
class KnownQuery:
    """tree: without `head`, which is EXPLAIN or empty. tables, functions: those that it names. plan: None if it is to be bound each time."""

    tree: t.Query
    head: str
    tables: tuple[str, ...]
    functions: frozenset[str]
    plan: BoundPlan | None = None


class BoundPlans:
    """The queries asked last, within a number and a size. Any thread."""

    def __init__(self, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._entries_max, self._bytes_max = entries_max, bytes_max
        self._known: OrderedDict[str, tuple[KnownQuery, int]] = OrderedDict()
        self._lock = threading.Lock()  # guards what is known and its size
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def get(self, text: str) -> KnownQuery | None:
        with self._lock:
            found = self._known.get(text)
            if found is None:
                return None
            self._known.move_to_end(text)
            return found[0]

    def keep(self, text: str, query: KnownQuery) -> None:
        """In place of what is known of this text."""
        chars = len(text) + (len(query.plan.statement.sql) if query.plan is not None else 0)
        size = _BYTES_OF_ENTRY + _BYTES_OF_CHAR * chars
        with self._lock:
            self._forget(text)
            if size > self._bytes_max // 8:  # one query is not to push out all others
                return
            self._known[text] = query, size
            self.bytes += size
            while len(self._known) > self._entries_max or self.bytes > self._bytes_max:
                self._forget(next(iter(self._known)))

    def _forget(self, text: str) -> None:
        known = self._known.pop(text, None)
        self.bytes -= known[1] if known is not None else 0
