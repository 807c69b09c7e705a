"""A batch in an instance in memory that is stepped in this thread. It has the operators of a deployed one, but no files, ports and waits, so it runs many
more statements in the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from flowql.query.relations import answered_schema
from flowql.query.session import evaluate
from tests.one_meaning.answers import Answer, of_table
from tests.one_meaning.stages import on_stages
from tests.one_meaning.statements import Batch
from tests.one_meaning.world import OF_VIEWS, Answers, World, asked, attempt
from tests.slt.session import DATABASE, Shape, SqlSession

WAYS = ("view", "stream", "watermark", "asked", "asked stream", "exec", *OF_VIEWS)  # that it has


@dataclass(frozen=True, slots=True)
class _Table:
    table: pa.Table

    def arrow(self) -> pa.Table:
        return self.table


@dataclass(frozen=True, slots=True)
class _Connection:
    """A session with the methods of a connection. The caller settles it before a query."""

    session: SqlSession

    def sql(self, sql: str) -> _Table:
        return _Table(evaluate(sql, self.session.commit, DATABASE))

    def execute(self, sql: str) -> None:
        self.session.carry_out(sql)


class SteppedWorld(World):
    """See the module. ways: others than `WAYS` are left out."""

    def __init__(self, batch: Batch, ways: Sequence[str], partitions: int) -> None:
        super().__init__(batch, [way for way in ways if way in WAYS], partitions)
        self._session = SqlSession(Shape(partitions=partitions))
        self._were_late = set[str]()
        self._texts: dict[str, str] = {}  # definitions by name that are not deployed

    @property
    def _connection(self) -> _Connection:
        return _Connection(self._session)

    def _begin(self) -> None:
        refused = self._session.define(list(self._sources()))
        assert not any(refused), f"seed {self.batch.seed}: {refused}"

    def _write(self, name: str, definition: str) -> None:
        self._texts[name] = definition

    def _deploy_what_is_taken(self) -> None:
        for name, error in zip(self._texts, self._session.define(list(self._texts.values())), strict=True):
            if error is not None:
                way, n = self._views.pop(name)
                found = attempt(partial(_raise, error))
                assert found is not None
                self.answers[way][n] = found
        self._texts.clear()

    def settle(self) -> None:
        self._session.settle()

    def ask(self) -> Answers:
        answers = self._ask_views(self.answers)
        for way, prefix in (("asked", ""), ("asked stream", "s")):
            if way in self.ways:
                self._ask_all(answers[way], self._connection, prefix)
        for way, of in OF_VIEWS.items():
            if way in self.ways:
                answers[way] = self._on_stages(of)
        self._session.restart()
        return answers

    def _on_stages(self, way: str) -> dict[int, Answer]:
        found = {name: (n, self.answers[way][n]) for name, (of, n) in self._views.items() if of == way}
        queries = {q.sink: q for q in self._session.plan.queries}
        return {
            n: on_stages(self._session.plan, self._session.log, queries[name], answer)
            for name, (n, answer) in found.items()
            if answer.kind != "refused"
        }

    def _contents(self, names: Sequence[str]) -> Iterator[tuple[str, Answer]]:
        """The rows of tables are read as they are kept; those of streams are asked."""
        tables = [n for n in names if self._session.is_table(n)]
        yield from ((n, of_table(self._as_answered(n, t))) for n, t in self._session.contents(tables).items())
        yield from ((n, asked(self._connection, f"SELECT * FROM {n}")) for n in names if n not in tables)

    def _as_answered(self, view: str, table: pa.Table) -> pa.Table:
        source = self._session.plan.source(view)
        assert source is not None
        types = answered_schema(source.schema)
        return table.cast(pa.schema([types.field(n) for n in table.column_names]))

    def _executor(self) -> AbstractContextManager[_Connection]:
        return nullcontext(self._connection)

    def _failing(self) -> Mapping[str, str]:
        return {view: f"{n} dead letters" for view, (n, _) in self._session.counts().items() if n}

    def _late(self) -> set[str]:
        """Also before a restart, which begins to count anew."""
        self._were_late |= {view for view, (_, late) in self._session.counts().items() if late}
        return self._were_late

    def stop(self) -> None:
        self._session.close()


def _raise(error: Exception) -> None:
    raise error


@contextmanager
def stepped(batch: Batch, ways: Sequence[str], partitions: int) -> Iterator[World]:
    made = SteppedWorld(batch, ways, partitions)
    try:
        made.start()
        yield made
    finally:
        made.stop()
