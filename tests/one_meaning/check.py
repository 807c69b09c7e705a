"""A batch on all ways, and what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from flowql.compiler.analyze.joins import UNBOUNDED_JOIN
from tests.one_meaning.answers import Answer, difference
from tests.one_meaning.known import reason_of
from tests.one_meaning.postgres import Postgres, Refused
from tests.one_meaning.statements import Batch, Statement
from tests.one_meaning.world import OF_VIEWS, Answers, World, world

WAYS = (
    "view", "stream", "watermark", "asked", "asked stream", "remote", "exec", "subscribe", "test", "stopped"
)  # fmt: skip
POSTGRES, ASKED, EXEC = "postgres", "asked", "exec"
ALSO_ASKED = ("asked stream", "stopped", "remote", EXEC)
UNTYPED = (EXEC, "subscribe", "test")
CHANGED = ", after changes"
ROWS_MAX = 3
Enter = Callable[[Batch, Sequence[str], int], AbstractContextManager[World]]


@dataclass(frozen=True, slots=True)
class Difference:
    """ways: two of them. kind: the same for the same fault, mostly. right: the one that PostgreSQL agrees with. shown: both answers."""

    seed: int
    number: int
    statement: Statement
    ways: tuple[str, str]
    kind: str
    right: str
    shown: str

    @property
    def label(self) -> str:
        return f"{self.ways[0]} against {self.ways[1]}: {self.kind}"

    @property
    def known(self) -> str:
        return reason_of(self.statement.text, self.ways, self.kind, self.shown)


@dataclass(slots=True)
class Outcome:
    """What batches showed. asked, taken: statements by way; hits: statements by clause, all and those that every way takes."""

    statements: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    everywhere: int = 0  # but for joins of streams without a bound of time, which are refused on purpose
    not_empty: int = 0
    failed: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], str] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    def add(self, batch: Batch, phases: Sequence[Answers]) -> None:
        """phases: the ways that are to say the same, and those after changes."""
        first, *later = phases
        for n, statement in enumerate(batch.statements):
            found = _of_statement(first, n)
            self._count(statement, found)
            here = list(_differences(batch.seed, n, statement, found))
            told = {d.label for d in here}
            if all(a.kind != "failed" for a in found.values()):  # dead letters are counted from a start on
                for answers in later:
                    new = (
                        d
                        for d in _differences(batch.seed, n, statement, _of_statement(answers, n))
                        if d.label not in told
                    )
                    here += (replace(d, kind=d.kind + CHANGED) for d in new)
            self.differences += here

    def _count(self, statement: Statement, found: dict[str, Answer]) -> None:
        self.statements += 1
        self.hits.update(statement.labels)
        for way, answer in found.items():
            self.asked[way] += 1
            self.taken[way] += answer.kind != "refused"
            if answer.kind == "refused":
                reason = (way, answer.text[:100])
                self.refused[reason] += 1
                if len(statement.text) < len(self.examples.get(reason, statement.text + " ")):
                    self.examples[reason] = statement.text
        taken = (
            a.kind != "refused" or a.text.startswith(UNBOUNDED_JOIN) for way, a in found.items() if way != "subscribe"
        )
        self.everywhere += all(taken)
        self.not_empty += any(a.rows for a in found.values())
        self.failed += any(a.kind == "failed" for a in found.values())


def run(
    batch: Batch,
    ways: Sequence[str],
    partitions: int,
    postgres: Postgres | None,
    *,
    changes: int = 0,
    enter: Enter = world,
) -> list[Answers]:
    """The answers of all ways, and of PostgreSQL; those of tables and of streams each after a restart and so many changes."""
    with enter(batch, ways, partitions) as made:
        found = [made.ask()]
        if postgres is not None:
            _into_postgres(batch, postgres)
            found[0][POSTGRES] = _of_postgres(batch, postgres)
        if changes or EXEC in ways:
            taken, tables, streams = made.change([t.change() for t in batch.tables for _ in range(changes)])
            if postgres is not None:
                tables |= _changed(batch, taken, postgres)
            found += [tables, streams]
    return found


def _changed(batch: Batch, changes: Sequence[str], postgres: Postgres) -> Answers:
    """Its answers after these changes; none if it has not all of the rows, as the statement fails for one."""
    try:
        for sql in changes:
            postgres.run(sql)
    except Refused:
        return {}
    return {POSTGRES: _of_postgres(batch, postgres)}


def _of_postgres(batch: Batch, postgres: Postgres) -> dict[int, Answer]:
    return {n: postgres.ask(s.for_postgres) for n, s in enumerate(batch.statements)}


def _into_postgres(batch: Batch, postgres: Postgres) -> None:
    postgres.run("DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public")
    for i, table in enumerate(batch.tables):
        postgres.run(_milliseconds(table.definition()))
        for sql in batch.inserts(i):
            postgres.run(sql)


def _milliseconds(definition: str) -> str:
    """A TIMESTAMP without a number has milliseconds here and microseconds there."""
    for name in ("TIMESTAMPTZ", "TIMESTAMP"):
        definition = definition.replace(f"{name},", f"{name}(3),").replace(f"{name})", f"{name}(3))")
    return definition


def _of_statement(answers: Answers, n: int) -> dict[str, Answer]:
    return {way: of[n] for way, of in answers.items() if n in of}


def _differences(seed: int, n: int, statement: Statement, found: dict[str, Answer]) -> Iterator[Difference]:
    """Each way against the first one that takes the statement, and what is asked elsewhere against what is asked of a live instance.

    PostgreSQL, whose numbers are only close, against the first one.
    """
    ways = [w for w in found if w != POSTGRES and found[w].kind != "refused"]
    if not ways:
        return
    first, theirs = ways[0], found.get(POSTGRES)
    told = set[str]()
    for way in ways[1:]:
        than = ASKED if way in ALSO_ASKED and ASKED in ways else OF_VIEWS.get(way, first)
        kind = difference(found[than], found[way], types=way not in UNTYPED)
        if kind:
            right = "" if theirs is None or kind.startswith("types") else _right(found, than, way, theirs)
            yield Difference(seed, n, statement, (than, way), kind, right, _shown(found, than, way))
            told.add(right)
    if theirs is not None and first not in told and (kind := difference(found[first], theirs, close=True)):
        yield Difference(seed, n, statement, (first, POSTGRES), kind, POSTGRES, _shown(found, first, POSTGRES))


def _right(found: dict[str, Answer], a: str, b: str, theirs: Answer) -> str:
    if theirs.kind == "refused":
        return ""
    agreeing = [way for way in (a, b) if not difference(found[way], theirs, close=True)]
    return agreeing[0] if len(agreeing) == 1 else "both" if agreeing else "neither"


def _shown(found: dict[str, Answer], a: str, b: str) -> str:
    lines = []
    for way, other in ((a, b), (b, a)):
        answer = found[way]
        more = Counter(answer.rows) - Counter(found[other].rows)
        rows = "; ".join(map(repr, list(more.elements())[:ROWS_MAX]))
        types = "" if found[a].types == found[b].types or POSTGRES in (a, b) else f" {list(answer.types)}"
        lines.append(f"{way}: {answer.text or rows}{types}")
    return "\n".join(lines)
