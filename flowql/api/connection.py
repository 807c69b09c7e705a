"""A project from Python: its results, changes, topics and deployments."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pyarrow as pa

from flowql.api.asking import asking
from flowql.api.changes import Subscription
from flowql.api.changing import execute
from flowql.api.deploying import Document, asked_of, carry_out, history, rolled_back, wanted_plan
from flowql.api.following import Deployed, Following, compile_text, deployed, refuse_silence
from flowql.api.producing import RowWriter
from flowql.api.result import Result
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.deployed import Deployed as Record
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.config.compile import compile_sources
from flowql.config.load import load_project, read_project
from flowql.config.project import Project
from flowql.config.storage import open_log
from flowql.deploy.asked import Asked
from flowql.deploy.history import to_data
from flowql.deploy.selection import find_query
from flowql.deploy.settings import Settings, settings_of
from flowql.errors import CommandError
from flowql.query.errors import UNKNOWN
from flowql.runtime.log.base import Log, Producer, TopicPartition
from flowql.runtime.output.partitioner import split
from flowql.server.choice import at_rest
from flowql.server.client import connect as find_instance
from flowql.topics.records import partitions_of

_NO_VARIABLES: Mapping[str, str] = {}
_NUMBERS = count()
Warn = Callable[[Sequence[Diagnostic]], None]


def connect(
    project: str | Path = ".", *, target: str | None = None, variables: Mapping[str, str] = _NO_VARIABLES
) -> Connection:
    """A project: its running instance where there is one, else what its directory holds.

    project: a folder in the project, or its `flowql.yaml`. Raises ProjectError with all mistakes of the file.

        >>> with flowql.connect("pipelines/quickstart") as project:  # doctest: +SKIP
        ...     delays = project.sql("SELECT CARRIER, AVG(DELAY) AS MEAN FROM DELAYS GROUP BY CARRIER").df()
    """
    return Connection(Path(project), target, variables)


class Connection:
    """A project's results, changes, topics and deployments. Any thread may use it; close it, or use it in a `with`.

    `title`, `code` and `help` of a CommandError say what is wrong and what to do.
    """

    def __init__(self, start: Path, target: str | None, variables: Mapping[str, str]) -> None:
        self._start, self._target, self._variables = start, target, dict(variables)
        self._project = load_project(start, target=target, variables=variables)
        self._settings = settings_of(self._project)
        self._lock = threading.Lock()  # guards the four below
        self._declared: Plan | None = None  # what the project's files declare, as of `connect` or the last `deploy`
        self._log: Log | None = None
        self._producer: Producer | None = None
        self._sent = 0

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._producer is not None:
                self._producer.close()
            if self._log is not None:
                self._log.close()
            self._producer = self._log = None

    @property
    def project(self) -> Project:
        return self._project

    @property
    def settings(self) -> Settings:
        """Of its target."""
        return self._settings

    def sql(self, query: str) -> Result:
        """The answer to one SELECT, WITH, DESCRIBE, EXPLAIN or SHOW, as of one commit.

        Raises QueryError for what is not SQL, is about something that is not there, or needs more than questions may take.
        """
        with asking(self._settings, query) as answer:
            return Result(answer.table())

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """The answer in pieces as they are computed, for one that is too large for memory. Close the iterator to end it early."""
        with asking(self._settings, query) as answer:
            yield from answer.batches

    def execute(self, statements: str) -> int:
        """INSERT, UPDATE and DELETE, each as one transaction; the number of rows that were changed.

        Statements before one that fails stay done. Raises CompileError before anything is done, CommandError, RuntimeFailure.
        """
        return sum(rows for _, _, rows in execute(self._project, self._settings, statements))

    def subscribe(
        self, what: str, *, start: Literal["latest", "earliest"] = "latest", limit: int | None = None
    ) -> Subscription:
        """New rows of a stream, changes of a table, or rows of `SELECT ... EMIT CHANGES`, as they are committed.

        start: where to start reading streams. limit: end after so many changes. Computed in this process from the log.
        Raises QueryError, also if no instance runs that could bring anything new.
        """
        there = deployed(self._settings)
        anew = partial(self._compiled, what)
        query = anew(there)
        refuse_silence(there, start)
        closed = threading.Event()
        limits = [n for n in (limit, query.limit) if n is not None]
        following = Following(query, self._settings, there, start, anew, min(limits, default=None), closed.is_set)
        return Subscription(following, closed)

    def produce(self, name: str, rows: Any, *, timestamp: str | None = None) -> int:
        """Write rows to the topic of a stream or table in one transaction; their number. The topic is created if missing.

        rows: dicts, or an Arrow table, a pandas or polars frame, or anything with Arrow's C stream. Columns are found whatever their
        case; missing ones are NULL. timestamp: the column with the event time; by default the column that the source declares, else the
        present. In a table a row with nothing but its key deletes the row.
        Raises CommandError, and writes nothing, if a row cannot be written.
        """
        plan = self._plan()
        source = _source(name, plan)
        records = [r for r in RowWriter(source).records(rows, timestamp) if r.num_rows]
        with self._lock:
            log = self._opened()
            wanted = partitions_of(source.topic, plan, log, self._project.partitions)
            partitions = log.admin().create_topic(source.topic, wanted).partitions
            if self._producer is None:
                self._producer = log.producer(f"flowql-python-{os.getpid()}-{next(_NUMBERS)}")
            self._write(self._producer, source.topic, partitions, records)
        return sum(r.num_rows for r in records)

    def deploy(
        self,
        *,
        select: Sequence[str] = (),
        prune: bool = False,
        rebuild: bool = False,
        full_refresh: Sequence[str] = (),
        forward: bool = False,
        shadow: bool = False,
        accept_history: bool = False,
        dry_run: bool = False,
        warn: Warn | None = None,
    ) -> Document:
        """Deploy the project to its instance, which is started if none runs; the document that `flowql deploy -o json` prints.

        The options are those of `flowql deploy`. Files are read anew. warn: receives the compiler's warnings. Returns as soon as every
        query runs; `status` says how far what is rebuilt has come. Raises CompileError with all mistakes, CommandError.
        """
        project = read_project(self._start, target=self._target, variables=self._variables)

        def decided(record: Record, topics: Mapping[str, int]) -> tuple[Plan, Asked]:
            wanted = wanted_plan(project, running=record.plan, topics=topics, warn=warn or (lambda _: None))
            asked = asked_of(select, project, wanted, record.plan, prune=prune, rebuild=rebuild)
            refresh = tuple(find_query(wanted, n).id for n in full_refresh)
            about = replace(asked.about, how="deploy from Python")
            asked = replace(asked, refresh=refresh, about=about, forward=forward, shadow=shadow)
            return wanted, replace(asked, accept_history=accept_history, dry_run=dry_run)

        done = self._carried_out(decided)
        if not dry_run:
            with self._lock:
                self._project, self._declared = project, None
        return done

    def rollback(
        self,
        number: int | None = None,
        *,
        shadow: bool = False,
        accept_history: bool = False,
        dry_run: bool = False,
    ) -> Document:
        """Deploy the plan of an earlier deployment, as `flowql deploy --rollback` does; the document that it prints. Files stay as they are.

        number: of `deployments`; None for the one before. Raises CommandError.
        """

        def decided(_: Record, _topics: Mapping[str, int]) -> tuple[Plan, Asked]:
            wanted, asked = rolled_back(self._settings, number)
            return wanted, replace(asked, shadow=shadow, accept_history=accept_history, dry_run=dry_run)

        return self._carried_out(decided)

    def deployments(self) -> list[Document]:
        """What `flowql deployments -o json` prints: the last 50 deployments, oldest first."""
        entries, record = history(self._settings)
        return [to_data(entry, entries, record) for entry in entries]

    def _carried_out(self, decided: Callable[[Record, Mapping[str, int]], tuple[Plan, Asked]]) -> Document:
        """decided: of what is on record, and the partitions of topics."""
        client = find_instance(self._settings.data_dir)
        try:
            record, topics = at_rest(self._settings).deployed() if client is None else client.deployed()
            client, done = carry_out(client, self._settings, record, topics, *decided(record, topics))
        finally:
            if client is not None:
                client.close()
        return done

    def status(self) -> Document:
        """What `flowql status -o json` prints: of the running instance, or of what its directory holds."""
        client = find_instance(self._settings.data_dir)
        if client is None:
            return at_rest(self._settings).status()
        with closing(client):
            return client.status()

    def stop(self) -> bool:
        """Ends the running instance after a commit. False if none runs."""
        client = find_instance(self._settings.data_dir)
        if client is None:
            return False
        with closing(client):
            client.stop()
        return True

    def _compiled(self, what: str, there: Deployed) -> Any:
        return compile_text(what, there, self._settings, self._project)

    def _plan(self) -> Plan:
        with self._lock:
            if self._declared is None:
                self._declared = compile_sources(self._project).plan
            return self._declared

    def _opened(self) -> Log:
        if self._log is None:
            self._log = open_log(self._project)
        return self._log

    def _write(self, producer: Producer, topic: str, partitions: int, records: Sequence[pa.RecordBatch]) -> None:
        producer.begin()
        try:
            producer.expect_partitions(topic, partitions)
            for batch in records:
                self._sent += 1  # records without a key: a batch goes to one partition, the next to another
                for partition, part in split(batch, partitions, self._sent % partitions):
                    producer.send(TopicPartition(topic, partition), part)
        except BaseException:
            producer.abort()
            raise
        producer.commit()


def _source(name: str, plan: Plan) -> SourceDef:
    """Whatever the case of the name."""
    sources = {s.name: s for s in plan.sources}
    found = sources.get(name) or next((s for n, s in sources.items() if n.casefold() == name.casefold()), None)
    if found is None:
        hint = did_you_mean(name, sources) or f"there are {listing(sources)}"
        raise CommandError(f"there is no stream or table {name}", code=UNKNOWN, help=hint)
    return found
