"""Where the instance of a target is: on this machine, where commands also work without it, or behind the URL of the target.

Commands ask a `Place` and do not know which of both it is.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from flowql.cli.listening import Changes
from flowql.config.project import Project
from flowql.config.sections import RemoteSettings
from flowql.deploy.settings import Settings, settings_of
from flowql.query.change import Change, Rebuilt
from flowql.query.options import QUERY_DEFAULTS, QueryOptions
from flowql.runtime.config import LetterRetention
from flowql.server.running import connect, connect_past_freeze, connect_running, process_of

if TYPE_CHECKING:
    from flowql.cli.options import Scope
    from flowql.compiler.driver import PushQuery
    from flowql.compiler.plan.deployed import Deployed as Record
    from flowql.compiler.plan.deployed import Entry
    from flowql.compiler.plan.topology import SourceDef
    from flowql.deploy.assertions import Topics
    from flowql.query.answer import Answer, Done
    from flowql.query.dead_letters import Letter
    from flowql.query.push import Start
    from flowql.runtime.log.base import TopicInfo
    from flowql.server.client import Calls
    from flowql.server.following import Deployed
    from flowql.server.logs import Wanted
    from flowql.server.remote_client import RemoteClient, Told

LogLine = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Here:
    """A directory of this machine, with or without a running instance. Methods raise CommandError, and the errors of the instance."""

    project: Project
    settings: Settings

    def connect(self) -> Calls | None:
        """The running instance; close it. None if none runs here."""
        return connect(self.settings.data_dir)

    def connect_past_freeze(self) -> Calls | None:
        """As `connect`. A frozen instance of this machine is started again first."""
        return connect_past_freeze(self.settings.data_dir)

    def running(self) -> Calls:
        """As `connect`. CommandError if none runs."""
        return connect_running(self.settings.data_dir)

    def is_there(self) -> bool:
        """False if the instance has certainly stopped."""
        return process_of(self.settings.data_dir) is not None

    def described(self) -> str:
        """Which instance answers, in some words."""
        process = process_of(self.settings.data_dir)
        return f"process {process.pid}" if process else "no instance is running: answers are of its last commit"

    def compiled(self, text: str, there: Deployed) -> PushQuery:
        """The push query that a text asks for."""
        from flowql.server.following import compile_text

        return compile_text(text, there, self.settings, self.project)

    def deployed(self) -> Deployed:
        """The serving plan; QueryError if nothing was ever deployed."""
        from flowql.server.following import deployed

        return deployed(self.settings)

    def history(self, *, plans: bool) -> tuple[list[Entry], Record]:
        """The last deployments, with their plans where asked for, and what is on record."""
        from flowql.api.deploying import history

        return history(self.settings, plans=plans)

    def topics(self) -> None:
        """The reader of the target's topics, for ASSERT. None if ASSERT reads the project's log."""
        return None

    def answer(self, sql: str, options: QueryOptions = QUERY_DEFAULTS) -> AbstractContextManager[Answer]:
        from flowql.api.querying import answer_of

        return answer_of(self.settings, sql, options)

    def execute(self, statements: str, *, one_returns: bool = False) -> list[Done]:
        from flowql.api.changing import execute
        from flowql.cli.progress import progress

        shown = partial(progress, in_bytes=True)
        return execute(self.project, self.settings, statements, one_returns=one_returns, progress=shown)

    @contextmanager
    def changes(self, what: str, start: Start, limit: int | None, stopped: Callable[[], bool]) -> Iterator[Changes]:
        from flowql.server.following import follow

        with closing(
            follow(lambda there: self.compiled(what, there), self.settings, self.deployed(), start, limit, stopped)
        ) as following:
            yield following

    @contextmanager
    def records(self, topic: str, *, beginning: bool) -> Iterator[Iterator[list[bytes]]]:
        """Yields new records of a topic as lines of JSON. An empty list says that none has arrived; the caller then waits before it asks again."""
        from flowql.config.storage import open_log
        from flowql.topics.codecs import RecordReader, source_over
        from flowql.topics.records import json_lines, read_records, start_of

        with closing(open_log(self.project)) as log:
            positions = start_of(log, topic, beginning=beginning)
            reader = RecordReader(source_over(self.deployed().plan, topic))
            found = read_records(log, positions, None)
            yield ([] if batch is None else list(json_lines(batch, reader)) for batch in found)

    def letters(self, sql: str) -> list[Letter]:
        """Open dead letters. sql: the columns that are needed."""
        from flowql.config.storage import log_at
        from flowql.query.dead_letters import letters_in
        from flowql.runtime.log.repairs import Repairs

        s, plan = self.settings, self.deployed().plan
        with closing(log_at(s.log_dir, s.kafka, s.application_id)) as log:
            repairs = Repairs(log, s.application_id)
        with self.answer(sql, QueryOptions("duckdb")) as answer:
            return letters_in(answer.table(), plan, repairs)

    def retention(self) -> LetterRetention:
        """How long dead letters are kept."""
        return self.settings.dead_letters

    def whole(self, letters: Sequence[Letter]) -> list[Letter]:
        """With the records that some of them only name."""
        from flowql.config.storage import open_log
        from flowql.query.dead_letters import is_whole, with_records

        if all(is_whole(x) for x in letters):
            return list(letters)
        with closing(open_log(self.project)) as log:
            return with_records(letters, log, self.settings.application_id)

    def log(self, wanted: Wanted, lines: int) -> tuple[list[LogLine], Callable[[], list[LogLine]]]:
        """The last lines, and what gives the lines that have come since."""
        from flowql.server.logs import LogReader, parsed  # loads the plan

        reader = LogReader(self.settings.data_dir)

        def chosen(found: Sequence[str] | Iterator[str]) -> Iterator[LogLine]:
            return (line for line in map(parsed, found) if wanted(line))

        return list(deque(chosen(reader.older()), maxlen=lines)), lambda: list(chosen(reader.newer()))


class There:
    """An instance at a URL, with the methods of `Here`."""

    def __init__(self, project: Project, remote: RemoteSettings) -> None:
        self.project, self._remote = project, remote

    def _open(self) -> RemoteClient:
        from flowql.runtime.secret import revealed
        from flowql.server.remote_client import RemoteClient  # Arrow: 0.2 s

        return RemoteClient(self._remote.url, revealed(self._remote.token), self._remote.certificate or None)

    def connect(self) -> Calls | None:
        return self._open()

    def connect_past_freeze(self) -> Calls | None:
        return self._open()

    def running(self) -> Calls:
        return self._open()

    def is_there(self) -> bool:
        return True

    def described(self) -> str:
        return f"the instance at {self._remote.url}"

    def compiled(self, text: str, there: Deployed) -> PushQuery:
        from flowql.config.compile import functions_of
        from flowql.server.following import compile_with

        functions, _ = functions_of(self.project)
        return compile_with(text, there, self.project.name, self.project.dialect, functions)

    def deployed(self) -> Deployed:
        from flowql.server.following import Deployed

        with closing(self._open()) as client:
            plan, topics = client.plan()
        return Deployed(plan, topics, live=True)

    def history(self, *, plans: bool) -> tuple[list[Entry], Record]:
        with closing(self._open()) as client:
            return client.deployments(plans=plans), client.deployed()[0]

    def topics(self) -> Topics:
        def there() -> Mapping[str, TopicInfo]:
            with closing(self._open()) as client:
                return client.topics()

        return there

    @contextmanager
    def answer(self, sql: str, options: QueryOptions = QUERY_DEFAULTS) -> Iterator[Answer]:
        with closing(self._open()) as client, client.answer(sql, options) as answer:
            yield answer

    def execute(self, statements: str, *, one_returns: bool = False) -> list[Done]:
        with closing(self._open()) as client:
            return client.statements(statements, self.project.variables, one_returns=one_returns)

    @contextmanager
    def changes(self, what: str, start: Start, limit: int | None, stopped: Callable[[], bool]) -> Iterator[Changes]:
        with closing(self._open()) as client, closing(client.changes(what, start, limit)) as told:
            yield Heard.of(told, stopped)

    @contextmanager
    def records(self, topic: str, *, beginning: bool) -> Iterator[Iterator[list[bytes]]]:
        def polled(client: RemoteClient) -> Iterator[list[bytes]]:
            asked: dict[str, str | int] = {"start": "earliest" if beginning else "latest", "limit": MANY_RECORDS}
            while True:
                found, position = client.records(topic, asked)
                asked = {"after": position, "limit": MANY_RECORDS}
                yield [line + b"\n" for line in found]

        with closing(self._open()) as client:
            yield polled(client)

    def letters(self, sql: str) -> list[Letter]:
        with closing(self._open()) as client:
            return client.letters()

    def retention(self) -> LetterRetention:
        with closing(self._open()) as client:
            return LetterRetention(**client.status()["instance"]["dead_letters_kept"])

    def whole(self, letters: Sequence[Letter]) -> list[Letter]:
        return list(letters)

    def log(self, wanted: Wanted, lines: int) -> tuple[list[LogLine], Callable[[], list[LogLine]]]:
        client = self._open()
        asked = {"level": wanted.level, **({"query": wanted.query} if wanted.query else {})}
        found, position = client.log_lines({**asked, "lines": lines})

        def newer() -> list[LogLine]:
            nonlocal position
            came, position = client.log_lines({**asked, "lines": MANY_LINES, "after": position})
            return came

        return found, newer


Place = Here | There


def place_of(project: Project) -> Place:
    """Connects to an instance at a URL, and looks at nothing yet on this machine."""
    remote = project.target.remote
    return Here(project, settings_of(project)) if remote is None else There(project, remote)


MANY_LINES, MANY_RECORDS = 10_000, 1_000  # the most that an instance sends at once


@dataclass(slots=True)
class Heard:
    """A subscription at a URL. Iterate it once."""

    columns: Sequence[str]
    result: SourceDef
    stopped: Callable[[], bool]
    told: Told
    rows: int = 0
    why: str = ""
    live: bool = True
    is_ready: bool = True
    _ended: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(cls, told: Told, stopped: Callable[[], bool]) -> Heard:
        begun = next(told.frames())
        assert not isinstance(begun, Rebuilt), "the first frame is the beginning"
        return cls(begun.columns, begun.result, stopped, told)

    def __iter__(self) -> Iterator[list[Change] | Rebuilt]:
        from flowql.query.arrow_changes import as_reference

        threading.Thread(target=self._watch, daemon=True).start()
        yield []
        try:
            for found in self.told.frames():
                if isinstance(found, Rebuilt):
                    self.result = found.result
                    yield found
                    continue
                changes = as_reference(found, self.result.schema)
                self.rows += len(changes)
                yield changes
        finally:
            self._ended.set()

    def _watch(self) -> None:
        """Breaks the connection off once it is asked to stop: a thread that waits for the instance does not look."""
        while not self._ended.wait(0.1):
            if self.stopped():
                self.told.close()
                return


# --- The running instance of a project, for verbs that need one ---


@contextmanager
def live_client(scope: Scope) -> Iterator[Calls]:
    """Raises CommandError when nothing runs."""
    client = place_of(scope.load()).running()
    try:
        yield client
    finally:
        client.close()
