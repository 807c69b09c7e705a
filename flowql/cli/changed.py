"""What changed in the results of a project: rows as they come, against what was known of their keys."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flowql.cli.aligned import ColumnWidths, numeric
from flowql.cli.listening import cells_of
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.query.change import Change
from flowql.query.tail import Tail
from flowql.runtime.log.base import Log

KNOWN_MAX = 100_000  # keys of a table whose rows are remembered; of more, every row that comes counts as changed
QUIET_S, WAIT_S = 0.3, 2.0  # rows are shown when no more come, or after a while
Key = tuple[Any, ...]


@dataclass(slots=True)
class Result:
    """One result. known: the rows of a table by key. pending: what came and was not shown, by key (of a stream: by number)."""

    tail: Tail
    known: dict[Key, Mapping[str, Any]] = field(default_factory=dict)
    pending: dict[Key, tuple[str, Change]] = field(default_factory=dict)
    count: int = 0
    came_s: float = 0.0
    began_s: float = 0.0

    def take(self, now_s: float) -> None:
        """Read the current rows."""
        for _, changes in self.tail.poll():
            for change in changes:
                self._take(change, now_s)

    def _take(self, change: Change, now_s: float) -> None:
        if change.op == "insert":
            self.count += 1
            self._keep((self.count,), "new", change, now_s)
            return
        key = tuple(map(repr, (change.row[k] for k in self.tail.keys)))
        before = self.known.get(key)
        if change.op == "delete":
            self.known.pop(key, None)
            if before is not None:
                self._keep(key, "gone", change, now_s)
        elif before != change.row:
            if before is not None or len(self.known) < KNOWN_MAX:
                self.known[key] = change.row
            self._keep(key, "new" if before is None else "changed", change, now_s)

    def _keep(self, key: Key, word: str, change: Change, now_s: float) -> None:
        first, _ = self.pending.get(key, (word, change))
        self.began_s = now_s if not self.pending else self.began_s
        self.came_s = now_s
        if first == "new" and word == "gone":
            del self.pending[key]
            return
        self.pending[key] = ("new" if first == "new" else word, change)

    def due(self, now_s: float) -> bool:
        return bool(self.pending) and (now_s - self.came_s > QUIET_S or now_s - self.began_s > WAIT_S)

    def lines(self, rows_max: int) -> Iterator[str]:
        """The newest of the rows since the last call."""
        found = list(self.pending.values())
        self.pending.clear()
        source, shown = self.tail.source, found[-rows_max:]
        table = source.kind == "table"
        yield f"{source.name}: {len(found):,} {'row' if len(found) == 1 else 'rows'}" + (
            f", the last {rows_max} of them" if len(found) > rows_max else ""
        )
        names = self.tail.schema.names
        cells = [[*([word] if table else []), *cells_of(change, names)] for word, change in shown]
        numbers = [numeric(change.row.get(n) for _, change in shown) for n in names]
        layout = ColumnWidths([*([""] if table else []), *names], [*([False] if table else []), *numbers])
        for row in cells:
            layout.fit(row)
        yield "  " + layout.line([*([""] if table else []), *names])
        for row in cells:
            yield from (f"  {line}" for line in layout.lines(row))


class Results:
    """The results of a plan that runs. The log is only read."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._of: dict[str, Result] = {}

    def follow(self, plan: Plan) -> None:
        """These results from now on: those known before from where they were, new ones from their beginning."""
        wanted = {s.name: s for s in plan.sources if s.query is not None}
        topics = self._log.admin().topics()
        self._of = {n: self._result(s) for n, s in wanted.items() if s.topic in topics}

    def _result(self, source: SourceDef) -> Result:
        found = self._of.get(source.name)
        if found is None or found.tail.source.topic != source.topic:
            return Result(Tail(source, self._log))
        if found.tail.source != source:
            found.tail.declare(source)
        return found

    def learn(self) -> None:
        """Takes all present rows as known, so that only later ones are shown."""
        for result in self._of.values():
            result.take(0.0)
            result.pending.clear()

    def news(self, rows_max: int) -> Iterator[str]:
        """Lines about what has come and is complete enough to be shown."""
        now_s = time.monotonic()
        for result in list(self._of.values()):
            result.take(now_s)
            if result.due(now_s):
                yield from result.lines(rows_max)
