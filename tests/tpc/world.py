"""An instance with the tables of a benchmark and its queries as views, beside PostgreSQL with the same tables."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import flowql
from flowql.errors import CompileError
from tests.one_meaning.answers import Answer, difference, missing
from tests.one_meaning.postgres import Postgres
from tests.one_meaning.world import asked
from tests.tpc.data import Table

WAIT_S = 300.0
YAML = 'name: tpc\ndialect: standard\nsql: "*.sql"\ndefaults: {{partitions: {partitions}}}\ntargets:\n  main: {{data_dir: data, threads: 1, memory: 4 GB}}\n'
_LIMIT = re.compile(r"\bLIMIT\s+\d+\s*$", re.IGNORECASE)
_PLACE = re.compile(r"q(\d+)\.sql")


@dataclass(slots=True)
class Run:
    """together: queries of one instance. The rest is counted: queries by what became of them, comparisons, and those with rows."""

    tables: Sequence[Table]
    queries: dict[int, str]
    postgres: Postgres
    partitions: int
    together: int
    compared: int = 0
    with_rows: int = 0
    wrong: dict[int, str] = field(default_factory=dict)
    _folders: list[Path] = field(default_factory=list)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def summary(self) -> str:
        right = len(self.queries) - len(self.wrong)
        return f"{right} of {len(self.queries)} right, {self.compared} answers compared, {self.with_rows} with rows"

    def follow(self, commits: int, seed: int) -> Iterator[tuple[int, str]]:
        """The number of each query that is wrong or refused, once, and why."""
        numbers = list(self.queries)
        for at in range(0, len(numbers), self.together):
            yield from self._follow(numbers[at : at + self.together], commits, seed)

    def _follow(self, numbers: Sequence[int], commits: int, seed: int) -> Iterator[tuple[int, str]]:
        self._load_postgres()
        instance, refused = self._start(numbers)
        for n, text in refused.items():
            self.wrong[n] = text
            yield n, text
        try:
            for table in self.tables:
                for sql in table.inserts(table.rows):
                    instance.connection.execute(sql)
            for commit in range(commits + 1):
                _settle(instance)
                for n in numbers:
                    if n not in self.wrong and (text := self._compare(instance.connection, n)):
                        self.wrong[n] = f"after {commit} commits: {text}"
                        yield n, self.wrong[n]
                for table in self.tables if commit < commits else ():
                    for sql in table.changes(Random(f"{seed} {commit} {table.name}"), commit, commits):
                        self.postgres.run(sql)
                        instance.connection.execute(sql)
        finally:
            instance.stop()

    def _load_postgres(self) -> None:
        self.postgres.run("DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public")
        for table in self.tables:
            self.postgres.run(table.definition)
            for sql in table.inserts(table.rows):
                self.postgres.run(sql)
            self.postgres.run(f"CREATE INDEX ON {table.name} ({table.schema.names[0]}); ANALYZE {table.name}")

    def _start(self, numbers: Sequence[int]) -> tuple[flowql.Instance, dict[int, str]]:
        """The instance, and the queries that it refuses."""
        folder = Path(tempfile.mkdtemp(prefix="tpc-"))
        self._folders.append(folder)
        (folder / "flowql.yaml").write_text(YAML.format(partitions=self.partitions))
        (folder / "tables.sql").write_text("".join(f"{t.definition};\n" for t in self.tables))
        for n in numbers:
            (folder / f"q{n}.sql").write_text(f"CREATE VIEW q{n} AS {self.queries[n]};\n")
        refused = dict[int, str]()
        while True:
            try:
                return flowql.Instance(folder).start(), refused
            except CompileError as error:
                found = {int(m[1]): d for d in error.diagnostics if (m := _PLACE.search(d.span.path))}
                if not found or all(d.severity != "error" for d in found.values()):
                    raise
                for n, d in found.items():
                    refused[n] = f"refused: {d.code} {d.title}"
                    (folder / f"q{n}.sql").unlink(missing_ok=True)

    def _compare(self, connection: flowql.Connection, n: int) -> str:
        """How the view or the interactive query differs from PostgreSQL; empty if they do not."""
        sql = self.queries[n]
        expected = self.postgres.ask(sql)
        if expected.kind == "refused":
            return f"PostgreSQL: {expected.text}"
        self.with_rows += bool(expected.rows)
        for way, text in (("view", f"SELECT * FROM q{n}"), ("asked", sql)):
            found = asked(connection, text)
            self.compared += 1
            if found.kind != "rows":
                return f"{way}: {found.text}"
            if (kind := difference(found, expected, close=True)) and not self._is_tie(sql, found, expected):
                return f"{way}: {kind}; {_shown(found, expected)}"
        return ""

    def _is_tie(self, sql: str, found: Answer, expected: Answer) -> bool:
        """Whether a LIMIT cuts between rows of which each may stay: as many, and all of them rows of the query without it."""
        if not _LIMIT.search(sql) or len(found.rows) != len(expected.rows):
            return False
        everything = self.postgres.ask(_LIMIT.sub("", sql))
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
