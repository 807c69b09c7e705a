"""Answers that several readers get: equal queries that wait at the same time are computed once.
An answer that depends on a commit alone is kept until the next commit.

The commit of an answer is taken after all who get it have asked, so each of them sees what was committed before. One group of equal queries is
computed at a time. Those that are asked meanwhile are the next group. While continuous queries have to wait for interactive ones, groups begin
later (`Share.wait_s`) and so become larger.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Hashable
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from flowql.query.answer import Answer, Begun
from flowql.query.errors import QueryError, broken_off
from flowql.query.pace import Share

BYTES_MAX = 1 << 20  # of an answer that several get; a longer one is computed for each
KEPT_MAX, KEPT_BYTES = 256, 8 << 20  # answers that are kept, and their rows
_LOOK_S = 0.5  # how often a reader that waits looks whether it is to end
_CALLED = re.compile(r"([\w\"]*)\s*\(")
_CHANGING = re.compile(
    r"/\*|--|\bsample\b|\btablesample\b|\bcurrent_|\blocaltime", re.I
)  # comments may stand before a bracket
# Words that stand before a bracket, and table functions that give the same each time.
_OTHERS = frozenset((
    "", "ALL", "AND", "ANY", "AS", "BY", "CAST", "EXISTS", "FILTER", "FROM", "GENERATE_SERIES", "IN", "LATERAL", "NOT", "ON", "OR", "OVER", "RANGE",
    "SELECT", "SETS", "SOME", "UNNEST", "USING", "VALUES", "WHERE",
))  # fmt: skip


class SharedKey(NamedTuple):
    """Equal queries of readers that may see the same."""

    sql: str
    language: str
    reader: Hashable
    allow_standby: bool = False


@dataclass(slots=True, eq=False)
class _Group:
    """Readers that get one answer. The first of them computes it. table: the answer. is_long: it has more than `BYTES_MAX`."""

    readers: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    table: pa.Table | None = None
    is_long: bool = False
    error: QueryError | None = None


class _Reader:
    """One that waits. Any thread may call `break_off`."""

    def __init__(self) -> None:
        self.is_broken_off = False

    def break_off(self) -> None:
        self.is_broken_off = True

    def wait(self, event: threading.Event, seconds: float | None = None) -> None:
        """Until the event, or for so long. Raises QueryError."""
        left = seconds
        while left is None or left > 0:
            if event.wait(_LOOK_S if left is None else min(left, _LOOK_S)):
                break
            if self.is_broken_off:
                raise broken_off()
            left = None if left is None else left - _LOOK_S
        if self.is_broken_off:
            raise broken_off()


class SharedAnswers:
    """The groups of all queries of a process. Any thread."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._lock = threading.Lock()  # guards the groups, and how many readers one has
        self._waiting = dict[Hashable, _Group]()
        self._running = dict[Hashable, _Group]()
        self._kept, self._kept_bytes, self._kept_of = dict[Hashable, pa.Table](), 0, -1  # answers as of one commit

    @property
    def waiting(self) -> int:
        """How many readers wait for their query to begin."""
        with self._lock:
            return sum(g.readers for g in self._waiting.values())

    def kept(self, key: Hashable, commit: int) -> Answer | None:
        """An answer that depends on this commit alone, if it is known."""
        with self._lock:
            found = self._kept.get(key) if self._kept_of == commit else None
        return None if found is None else Answer.of(found)

    def get(
        self,
        key: Hashable,
        compute: Callable[[Begun], Answer],
        begun: Begun,
        as_of: Callable[[], int | None] = lambda: None,
    ) -> Answer:
        """The answer. key: equal where the rights and the text are. compute: takes the newest commit and answers. begun: as of `session.answer`.
        as_of: gives the commit that a computed answer depends on alone, or None if there is no such commit.
        """
        reader = _Reader()
        begun(reader.break_off)
        while True:
            with self._lock:
                group, before = self._waiting.get(key), self._running.get(key)
                leads = group is None
                group = self._waiting.setdefault(key, _Group())
                group.readers += 1
            if leads:
                return self._lead(key, group, before, partial(compute, begun), reader, as_of)
            try:
                reader.wait(group.done)
            except QueryError:
                with self._lock:
                    group.readers -= 1
                raise
            if group.error is not None:
                raise group.error
            if group.table is not None:
                return Answer.of(group.table)
            if group.is_long:
                return compute(begun)
            # The client of the one that would have computed it has left.

    def _lead(
        self,
        key: Hashable,
        group: _Group,
        before: _Group | None,
        compute: Callable[[], Answer],
        reader: _Reader,
        as_of: Callable[[], int | None],
    ) -> Answer:
        try:
            self._begin(key, group, before, reader)
            answer = compute()
            commit = as_of()
            answer = self._shared(group, answer, is_kept=commit is not None)
            if commit is not None and group.table is not None:
                self._keep(key, commit, group.table)
            return answer
        except QueryError as error:
            group.error = None if reader.is_broken_off else error
            raise
        finally:
            with self._lock:
                if self._running.get(key) is group:
                    del self._running[key]
            group.done.set()

    def _keep(self, key: Hashable, commit: int, table: pa.Table) -> None:
        with self._lock:
            if commit > self._kept_of:
                self._kept, self._kept_bytes, self._kept_of = {}, 0, commit
            fits = len(self._kept) < KEPT_MAX and self._kept_bytes + table.nbytes <= KEPT_BYTES
            if commit == self._kept_of and key not in self._kept and fits:
                self._kept[key] = table
                self._kept_bytes += table.nbytes

    def _begin(self, key: Hashable, group: _Group, before: _Group | None, reader: _Reader) -> None:
        """From now on readers are of the next group."""
        try:
            if before is not None:
                reader.wait(before.done)
            reader.wait(threading.Event(), self._share.wait_s())
        except QueryError:
            with self._lock:
                del self._waiting[key]
            raise
        with self._lock:
            del self._waiting[key]
            self._running[key] = group

    def _shared(self, group: _Group, answer: Answer, *, is_kept: bool) -> Answer:
        """The answer for the first reader; that of the others is noted."""
        with self._lock:
            if group.readers == 1 and not is_kept:
                return answer
        first, size = list[pa.RecordBatch](), 0
        for batch in answer.batches:
            first.append(batch)
            size += batch.nbytes
            if size > BYTES_MAX:
                group.is_long = True
                return Answer(answer.schema, _rest(first, answer))
        group.table = pa.Table.from_batches(first, answer.schema)
        return Answer.of(group.table)


def _rest(first: list[pa.RecordBatch], answer: Answer) -> Generator[pa.RecordBatch]:
    with closing(answer):
        yield from chain(first, answer.batches)


@lru_cache(512)
def is_repeatable(sql: str) -> bool:
    """Whether it calls only functions that are known to give the same for the same rows. Others, such as RANDOM, are called for each reader."""
    from flowql.compiler.functions import builtin as _builtin  # noqa: F401 - fills the function catalogue
    from flowql.compiler.functions.registry import lookup, lookup_aggregate, registered_of_project

    if _CHANGING.search(sql):
        return False
    for name in map(str.upper, _CALLED.findall(sql)):
        function = lookup(name)
        is_known = lookup_aggregate(name) is not None if function is None else function.deterministic
        if registered_of_project(name) or not (name in _OTHERS or is_known):
            return False
    return True
