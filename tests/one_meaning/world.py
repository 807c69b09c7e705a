"""A project with many statements as views, and the ways on which they are answered."""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any, Protocol
from unittest.mock import patch

import pyarrow as pa

import flowql
from flowql.errors import CommandError, CompileError, RuntimeFailure
from flowql.query import database
from tests.one_meaning.answers import Answer, of_table, of_values
from tests.one_meaning.statements import Batch, Statement
from tests.one_meaning.tested import tested

PREFIXES = {"view": "", "stream": "s", "watermark": "w"}  # of the relations that views of a way read
OF_VIEWS = {
    "spark": "view",
    "spark stream": "stream",
    "spark watermark": "watermark",
}  # Spark's ways, of views of these
WAIT_S = 120.0
SUBSCRIBED_S = 20.0  # until a subscription has the rows that it is to have; a machine that is at work may be slow
STOPPED_EVERY, SUBSCRIBED_EVERY = 10, 3  # statements; each of a stopped instance opens its directory
# Batches: in these, child processes answer interactive queries whose values have no bound, as always outside tests; in others the instance does, with
# the same code. On a machine that is at work a child process waits for most of the time.
CHILDREN_EVERY = 5
TOKEN = "one-meaning-one-token"
LATE = "TIMESTAMP '2024-03-30 10:00:00'"  # before all other times of ts, by more than the delay of the watermark
ROWTIME = "ROWTIME"  # a column that `SELECT *` of a view has only where the view is a stream
YAML = """name: meaning
dialect: standard
sql: "*.sql"
defaults: {{partitions: {partitions}}}
targets:
  main: {{data_dir: data, threads: 1, api: {{port: {port}, token: {token}}}}}
"""
_FAILURES = re.compile(r"FQ40|FQ41|.*(Out of Range|Conversion|Invalid Input) Error")  # of errors about a value of a row
_PLACE = re.compile(r"(\w+_\d+)\.sql")
Answers = dict[str, dict[int, Answer]]  # by way and statement


class Asked(Protocol):
    def arrow(self) -> pa.Table: ...


class Asker(Protocol):
    """The methods of a connection that ways use."""

    def sql(self, query: str) -> Asked: ...

    def execute(self, statements: str) -> Any: ...


class World(ABC):
    """A batch in an instance. ways: that are asked."""

    def __init__(self, batch: Batch, ways: Sequence[str], partitions: int) -> None:
        self.batch, self.ways, self.partitions = batch, ways, partitions
        self.answers: Answers = {way: {} for way in ways}
        self._views: dict[str, tuple[str, int]] = {}  # way and statement of each view that is deployed
        self._copies: dict[int, str] = {}  # what `exec` carries out, by statement

    @property
    @abstractmethod
    def _connection(self) -> Asker: ...

    @abstractmethod
    def _begin(self) -> None:
        """Defines what statements read."""

    @abstractmethod
    def _write(self, name: str, definition: str) -> None:
        """Writes a view or a table, to be deployed."""

    @abstractmethod
    def _deploy_what_is_taken(self) -> None: ...

    @abstractmethod
    def settle(self) -> None:
        """Waits until every view has all rows."""

    @abstractmethod
    def ask(self) -> Answers:
        """The answers of all ways. The instance is stopped then."""

    @abstractmethod
    def _contents(self, names: Sequence[str]) -> Iterator[tuple[str, Answer]]:
        """The rows of views."""

    @abstractmethod
    def _failing(self) -> Mapping[str, str]:
        """The views for which a row failed."""

    @abstractmethod
    def _late(self) -> set[str]:
        """The views that have left out rows, and counted them: a join of streams keeps the last day (docs/reference/dialects.md)."""

    @abstractmethod
    def _executor(self) -> AbstractContextManager[Asker]:
        """A connection for many statements."""

    def start(self) -> None:
        """Deploys every view that is not refused, and writes the rows."""
        self._begin()
        for way in self.ways:
            if way in PREFIXES:
                for n, statement in enumerate(self.batch.statements):
                    self._views[f"{way}_{n}"] = (way, n)
                    self._write(f"{way}_{n}", f"CREATE VIEW {way}_{n} AS {self.text(way, statement)}")
        self._deploy_what_is_taken()
        self._insert()
        self.settle()

    def text(self, way: str, statement: Statement) -> str:
        prefix = PREFIXES.get(way, "")
        return statement.over(prefix, self.batch.relations) if prefix else statement.over_tables

    def _sources(self) -> Iterator[str]:
        for table in self.batch.tables:
            yield table.definition()
            for way, prefix in PREFIXES.items():
                if prefix and way in self.ways:
                    yield table.named(prefix + table.relation.name, way, self.partitions)

    def _insert(self) -> None:
        inserts = [sql for i in range(len(self.batch.tables)) for sql in self.batch.inserts(i)]
        prefixes = [prefix for way, prefix in PREFIXES.items() if not prefix or way in self.ways]
        self._connection.execute(";\n".join(_into(sql, prefix) for prefix in prefixes for sql in inserts))

    def _ask_views(self, answers: Answers) -> Answers:
        failing, late = self._failing(), self._late()
        for name, answer in self._contents([name for name, (way, _) in self._views.items() if way != "exec"]):
            way, n = self._views[name]
            if way == "stream" and name in late:
                answer = Answer("refused", text="FQ0000 rows came after the RETENTION of a join")
            answers[way][n] = Answer("failed", text=failing[name]) if name in failing else answer
        return answers

    def _ask_all(self, answers: dict[int, Answer], connection: Asker, prefix: str, every: int = 1) -> None:
        for n, statement in list(enumerate(self.batch.statements))[::every]:
            text = statement.over(prefix, self.batch.relations) if prefix else statement.over_tables
            answers[n] = asked(connection, text)

    def change(self, changes: Sequence[str]) -> tuple[list[str], Answers, Answers]:
        """Starts the instance again, copies the results by `exec`, and carries out these statements: those that it took, and the answers of tables and of
        streams.

        Rows that are late come to streams with a watermark of one partition, where it is known which ones are.
        """
        self._write_tables()
        self._deploy_what_is_taken()
        self._copy({n: sql for n, sql in self._copies.items() if n not in self.answers["exec"]})
        with self._executor() as connection:
            taken = [sql for sql in changes if not attempt(partial(connection.execute, sql))]
        if "watermark" in self.ways and self.partitions == 1:
            self._insert_late()
        self.settle()
        views = self._ask_views({way: {} for way in PREFIXES})
        tables = {"view": views["view"], **({"asked": {}} if "asked" in self.ways else {})}
        if "asked" in self.ways:
            self._ask_all(tables["asked"], self._connection, "")
        return taken, tables, {way: views[way] for way in ("stream", "watermark") if way in self.ways}

    def _insert_late(self) -> None:
        for table, rows in zip(self.batch.tables, self.batch.rows, strict=True):
            columns = [c.name for c in table.relation.columns]
            late = ", ".join(f"({', '.join([*r[:-1], LATE])})" for r in rows[:3])
            sql = f"INSERT INTO w{table.relation.name} ({', '.join(columns)}) VALUES {late.replace('::jsonb', '')}"
            self._connection.execute(sql)

    def _write_tables(self) -> None:
        """A table for the rows of each statement whose columns have types that a table has."""
        for n in range(len(self.batch.statements)) if "exec" in self.ways else ():
            types = self._types_of(n)
            if types is not None:
                columns = ", ".join(f"c{i} {t}" for i, t in enumerate(types))
                names = ", ".join(f"c{i}" for i in range(len(types)))
                name = f"exec_{n}"
                self._views[name] = ("exec", n)
                self._write(name, f"CREATE TABLE {name} ({columns})")
                self._copies[n] = f"INSERT INTO {name} ({names}) {self.text('view', self.batch.statements[n])}"

    def _copy(self, statements: Mapping[int, str]) -> None:
        """Carries out statements together; where that fails, which undoes none of those before, halves of them over again."""
        if not statements:
            return
        found = attempt(lambda: self._connection.execute(";\n".join(statements.values())))
        if found is None or len(statements) == 1:
            for n in statements:
                self.answers["exec"][n] = found or asked(self._connection, f"SELECT * FROM exec_{n}")
            return
        self._connection.execute(";\n".join(f"DELETE FROM exec_{n}" for n in statements))
        items = list(statements.items())
        for half in (items[: len(items) // 2], items[len(items) // 2 :]):
            self._copy(dict(half))

    def _types_of(self, n: int) -> list[str] | None:
        for way in ("view", "asked"):
            if (answer := self.answers.get(way, {}).get(n)) is not None and answer.kind == "rows":
                return list(map(sql_type, answer.types))
        return None

    @abstractmethod
    def stop(self) -> None: ...


class Deployed(World):
    """A folder with its instance, which runs as users run it."""

    def __init__(self, folder: Path, batch: Batch, ways: Sequence[str], partitions: int) -> None:
        super().__init__(batch, ways, partitions)
        self.folder = folder
        self._instance: flowql.Instance | None = None
        self._port = free_port()

    @property
    def _connection(self) -> flowql.Connection:
        assert self._instance is not None
        return self._instance.connection

    def _begin(self) -> None:
        (self.folder / "flowql.yaml").write_text(YAML.format(partitions=self.partitions, port=self._port, token=TOKEN))
        (self.folder / "sources.sql").write_text(";\n".join(self._sources()) + ";\n")

    def _write(self, name: str, definition: str) -> None:
        (self.folder / f"{name}.sql").write_text(f"{definition};\n")

    def _deploy_what_is_taken(self) -> None:
        while True:
            try:
                self._instance = flowql.Instance(self.folder).start()
                return
            except CompileError as error:
                self._take_out(error)

    def _take_out(self, error: CompileError) -> None:
        found = {m[1]: d for d in error.diagnostics if d.severity == "error" and (m := _PLACE.search(d.span.path))}
        if not found:
            raise error
        for name, d in found.items():
            way, n = self._views.pop(name)
            self.answers[way][n] = Answer("refused", text=f"{d.code} {d.title}")
            (self.folder / f"{name}.sql").unlink()

    def settle(self) -> None:
        assert self._instance is not None
        assert self._instance._host is not None
        caught_up = self._instance._host.engine.catch_up()
        limit_s = time.monotonic() + WAIT_S
        while not caught_up():
            self._instance.check()
            assert time.monotonic() < limit_s, f"seed {self.batch.seed}: the views do not catch up"
            time.sleep(0.01)

    def ask(self) -> Answers:
        """The answers of a live instance, and then those of the directory of a stopped one."""
        answers = self._ask_views(self.answers)
        for way, connection in self._askers():
            self._ask_all(answers[way], connection, "s" if way == "asked stream" else "")
        if "subscribe" in self.ways:
            for n, statement in list(enumerate(self.batch.statements))[::SUBSCRIBED_EVERY]:
                answers["subscribe"][n] = self._subscribed(n, statement)
        if "test" in self.ways:
            self._test(answers)
        self.stop()
        if "stopped" in self.ways:
            with flowql.connect(self.folder) as connection:
                self._ask_all(answers["stopped"], connection, "", STOPPED_EVERY)
        return answers

    def _contents(self, names: Sequence[str]) -> Iterator[tuple[str, Answer]]:
        for name in names:
            yield name, asked(self._connection, f"SELECT * FROM {name}")

    def _askers(self) -> Iterator[tuple[str, flowql.Connection]]:
        for way in ("asked", "asked stream"):
            if way in self.ways:
                yield way, self._connection
        if "remote" in self.ways:
            with self._remote() as connection:
                yield "remote", connection

    def _executor(self) -> flowql.Connection:
        """The remote connection, which does not read the plan for each statement."""
        return self._remote()

    def _remote(self) -> flowql.Connection:
        return flowql.connect(f"http://127.0.0.1:{self._port}", token=TOKEN)

    def _subscribed(self, n: int, statement: Statement) -> Answer:
        """As a push query over streams, whose rows are as many as those of the view over streams."""
        view = self.answers["stream"].get(n)
        if view is None or view.kind != "rows" or not view.rows:
            return Answer("refused", text="FQ0000 no view over streams has rows")
        return followed(self._connection, f"{statement.over('s', self.batch.relations)} EMIT CHANGES", view)

    def _test(self, answers: Answers) -> None:
        """In a project of its own: `flowql test` runs all queries of one."""
        found = {f"view_{n}": a for n, a in answers["view"].items() if a.kind == "rows" and a.rows}
        inserts = [sql for i in range(len(self.batch.tables)) for sql in self.batch.inserts(i)]
        folder = self.folder / "tested"
        folder.mkdir()
        for name in ("flowql.yaml", "sources.sql", *(f"{view}.sql" for view in found)):
            shutil.copy(self.folder / name, folder)
        for name, answer in tested(folder, inserts, found).items():
            answers["test"][self._views[name][1]] = answer

    def _failing(self) -> Mapping[str, str]:
        queries = self._connection.status()["queries"]
        return {
            q["id"].split("_", 1)[1]: f"{q['dead_letters']} dead letters, {q['errors']} errors"
            for q in queries
            if q["dead_letters"] or q["errors"]
        }

    def _late(self) -> set[str]:
        return {q["id"].split("_", 1)[1] for q in self._connection.status()["queries"] if q["late_records"]}

    def stop(self) -> None:
        if self._instance is not None:
            self._instance.stop()
            self._instance = None


def _into(insert: str, prefix: str) -> str:
    """The same rows for a stream, whose JSONB is a text."""
    return insert.replace("INTO ", f"INTO {prefix}", 1).replace("::jsonb", "") if prefix else insert


def asked(connection: Asker, sql: str) -> Answer:
    """The answer to one statement."""
    table = list[pa.Table]()
    found = attempt(lambda: table.append(connection.sql(sql).arrow()))
    return found or of_table(table[0].drop_columns([ROWTIME] if ROWTIME in table[0].column_names else []))


def followed(connection: flowql.Connection, sql: str, view: Answer) -> Answer:
    """The rows of a push query, up to those of the view. The changes of a table are no rows to be compared.

    The first changes of a table may only add rows: after rows that differ, changes that remove some are waited for.
    """
    changes = list[Any]()

    def follow() -> None:
        with connection.subscribe(sql, start="earliest", limit=len(view.rows) + 1) as subscription:
            timer = Timer(SUBSCRIBED_S, subscription.close)
            timer.start()
            for change in subscription:
                changes.append(change)
                if change.op != "insert" or Counter(_rows(changes).rows) == Counter(view.rows):
                    break
            timer.cancel()

    found = attempt(follow)
    if found is None and any(c.op != "insert" for c in changes):
        found = Answer("refused", text="FQ0000 the result is a table")
    return found or _rows(changes)


def _rows(changes: Sequence[Any]) -> Answer:
    return of_values([list(c.row.values()) for c in changes])


def attempt(act: Callable[[], Any]) -> Answer | None:
    try:
        act()
    except CompileError as error:
        return Answer("refused", text=f"{error.diagnostics[0].code} {error.diagnostics[0].title}")
    except (CommandError, RuntimeFailure) as error:
        text = f"{error.code} {error}"
        return Answer("failed" if _FAILURES.match(text) else "refused", text=text)
    return None


def sql_type(arrow: str) -> str:
    """SQL's name of a type that Arrow calls so."""
    if arrow.startswith("list<"):
        return f"{sql_type(arrow.split(': ', 1)[1].removesuffix('>').removesuffix(' not null'))}[]"
    if arrow.startswith("decimal128"):
        return f"DECIMAL{arrow.removeprefix('decimal128')}"
    if arrow.startswith("timestamp"):
        digits = "(6)" if "[us" in arrow else ""
        return f"TIMESTAMPTZ{digits}" if "tz=" in arrow else f"TIMESTAMP{digits}"
    names = {"int32": "INT", "int64": "BIGINT", "double": "DOUBLE PRECISION", "bool": "BOOLEAN", "date32[day]": "DATE"}
    return names.get(arrow, "VARCHAR")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def world(batch: Batch, ways: Sequence[str], partitions: int) -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="one-meaning-"))
    made = Deployed(folder, batch, ways, partitions)
    with nullcontext() if batch.seed % CHILDREN_EVERY == 0 else patch.object(database, "QueryPool", lambda _: None):
        try:
            made.start()
            yield made
        finally:
            made.stop()
            shutil.rmtree(folder, ignore_errors=True)
