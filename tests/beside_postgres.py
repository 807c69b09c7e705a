"""Named queries as views of instances and as interactive queries, beside PostgreSQL with the same tables, after every commit of changes."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

import flowql
from flowql.errors import CompileError
from tests.one_meaning.answers import Answer, difference, missing
from tests.one_meaning.world import asked

WAIT_S = 300.0
YAML = 'name: beside_postgres\ndialect: standard\nsql: "*.sql"\ndefaults: {{partitions: {partitions}}}\ntargets:\n  main: {{data_dir: data, threads: 1, memory: 4 GB}}\n'
_LIMIT = re.compile(r"\bLIMIT\s+\d+\s*$", re.IGNORECASE)


class Table(Protocol):
    """index: a column that PostgreSQL finds rows by, or nothing if its key does."""

    @property
    def name(self) -> str: ...
    @property
    def definition(self) -> str: ...
    @property
    def index(self) -> str: ...
    def begin(self, rng: Random) -> Iterator[str]:
        """The statements that insert the first rows."""

    def changes(self, rng: Random, number: int, of: int) -> Iterator[str]:
        """The statements of the commit of this number of so many."""


class Oracle(Protocol):
    """Where the right answers come from: PostgreSQL, or what it answered before."""

    def run(self, sql: str) -> object: ...
    def ask(self, sql: str) -> Answer: ...


@dataclass(slots=True)
class Run:
    """together: queries of one instance. The rest is counted: queries by what became of them, comparisons, and those with rows.

    A query may read others by their names; they come before it. wrong: queries with the reason.
    """

    tables: Sequence[Table]
    queries: Mapping[str, str]
    oracle: Oracle
    partitions: int
    together: int
    compared: int = 0
    with_rows: set[str] = field(default_factory=set)
    wrong: dict[str, str] = field(default_factory=dict)
    _folders: list[Path] = field(default_factory=list)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def summary(self, chosen: Sequence[str]) -> str:
        counts = Counter(self.wrong[n].split(" ")[0].rstrip(":") for n in chosen if n in self.wrong)
        others = "".join(f", {counts[k]} {k}" for k in ("refused", "wrong", "internal", "PostgreSQL") if counts[k])
        right = len(chosen) - counts.total()
        return f"{right} of {len(chosen)} right{others}, {self.compared} answers compared, {len(self.with_rows)} queries with rows"

    def follow(self, chosen: Sequence[str], commits: int, seed: int) -> Iterator[tuple[str, str]]:
        """The name of each query that is wrong or refused, once, and why."""
        for at in range(0, len(chosen), self.together):
            yield from self._follow(chosen[at : at + self.together], commits, seed)

    def _follow(self, names: Sequence[str], commits: int, seed: int) -> Iterator[tuple[str, str]]:
        needed = self.needed(names)
        first = [sql for t in self.tables for sql in t.begin(Random(f"{seed} {t.name}"))]
        self._load_oracle(needed, first)
        instance, refused = self._start(needed)
        for n, text in refused.items():
            if self.wrong.setdefault(n, text) is text and n in names:
                yield n, text
        try:
            for sql in first:
                instance.connection.execute(sql)
            for commit in range(commits + 1):
                _settle(instance)
                for n in names:
                    if n not in self.wrong and (text := self._compare(instance.connection, n)):
                        self.wrong[n] = f"{text} (after {commit} commits)"
                        yield n, self.wrong[n]
                for table in self.tables if commit < commits else ():
                    for sql in table.changes(Random(f"{seed} {commit} {table.name}"), commit, commits):
                        self.oracle.run(sql)
                        instance.connection.execute(sql)
        finally:
            instance.stop()

    def needed(self, names: Sequence[str]) -> list[str]:
        """These queries and all that they read, in the order of all queries."""
        needed, rest = set[str](), list(names)
        while rest:
            if (name := rest.pop()) not in needed:
                needed.add(name)
                rest += self.queries.keys() & set(re.findall(r"\w+", self.queries[name])) - {name}
        return [n for n in self.queries if n in needed]

    def _load_oracle(self, needed: Sequence[str], first: Sequence[str]) -> None:
        self.oracle.run("DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public")
        for table in self.tables:
            self.oracle.run(table.definition)
        for sql in first:
            self.oracle.run(sql)
        for table in self.tables:
            self.oracle.run(
                f"CREATE INDEX ON {table.name} ({table.index}); ANALYZE {table.name}" if table.index else ""
            )
        read = {n for q in needed for n in set(re.findall(r"\w+", self.queries[q])) - {q}}
        for n in needed:
            if n in read:
                self.oracle.run(f"CREATE VIEW {n} AS {self.queries[n]}")

    def _start(self, names: Sequence[str]) -> tuple[flowql.Instance, dict[str, str]]:
        """The instance, and the queries that it refuses."""
        folder = Path(tempfile.mkdtemp(prefix="beside-postgres-"))
        self._folders.append(folder)
        (folder / "flowql.yaml").write_text(YAML.format(partitions=self.partitions))
        (folder / "tables.sql").write_text("".join(f"{t.definition};\n" for t in self.tables))
        for n in names:
            (folder / f"{n}.sql").write_text(f"CREATE VIEW {n} AS {self.queries[n]};\n")
        refused = dict[str, str]()
        while True:
            try:
                return flowql.Instance(folder).start(), refused
            except CompileError as error:
                errors = [d for d in error.diagnostics if d.severity == "error"]
                found = {stem: d for d in errors if (stem := Path(d.span.path).stem) in names}
                if not found:
                    raise
                for n, d in found.items():
                    refused[n] = f"refused: {d.code} {d.title}"
                    (folder / f"{n}.sql").unlink(missing_ok=True)

    def _compare(self, connection: flowql.Connection, n: str) -> str:
        """How the view or the interactive query differs from the oracle; empty if they do not."""
        sql = self.queries[n]
        expected = self.oracle.ask(sql)
        if expected.kind == "refused":
            return f"PostgreSQL: {expected.text}"
        if expected.rows:
            self.with_rows.add(n)
        for way, text in (("view", f"SELECT * FROM {n}"), ("asked", sql)):
            try:
                found = asked(connection, text)
            except Exception as error:  # an error that is not one of the product's
                return f"internal, {way}: {type(error).__name__}: {error}"
            self.compared += 1
            if found.kind != "rows":
                return f"{'wrong' if found.kind == 'failed' else found.kind}, {way}: {found.text}"
            if (kind := difference(found, expected, close=True)) and not self._is_tie(sql, found, expected):
                return f"wrong, {way}: {kind}; {_shown(found, expected)}"
        return ""

    def _is_tie(self, sql: str, found: Answer, expected: Answer) -> bool:
        """Whether a LIMIT cuts between rows of which each may stay: as many, and all of them rows of the query without it."""
        if not _LIMIT.search(sql) or len(found.rows) != len(expected.rows):
            return False
        everything = self.oracle.ask(_LIMIT.sub("", sql))
        rest = list((Counter(found.rows) - Counter(everything.rows)).elements())
        return not rest and len(everything.rows) > len(expected.rows)


def _settle(instance: flowql.Instance) -> None:
    """Waits until every view has all rows."""
    assert instance._host is not None
    caught_up = instance._host.engine.catch_up()
    limit_s = time.monotonic() + WAIT_S
    while not caught_up():
        instance.check()
        assert time.monotonic() < limit_s, "the views do not catch up"
        time.sleep(0.01)


def _shown(found: Answer, expected: Answer) -> str:
    ours, theirs = missing(found.rows, expected.rows, close=True)
    return f"{len(found.rows)} rows {ours[:1]} against {len(expected.rows)} rows {theirs[:1]}"
