"""`flowql dev`: deploy at every save, and show how results change."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from watchfiles import watch

from flowql.api.deploying import deploy_request, wanted_plan
from flowql.cli.deployment import show_deployment
from flowql.cli.listening import cells_of, until_asked_to_stop
from flowql.cli.options import Scope, scoped
from flowql.cli.render import ColumnWidths, counted, note, numeric, print_text, show_diagnostics
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.config.load import find_project_file, shown_path
from flowql.config.storage import log_at
from flowql.deploy.settings import Settings, settings_of
from flowql.errors import CommandError, CompileError, RuntimeFailure, diagnostics_of
from flowql.query.change import Change
from flowql.query.tail import Tail
from flowql.runtime.log.base import Log
from flowql.server.client import Client
from flowql.server.host import Host
from flowql.server.running import connect

Files = dict[Path, tuple[int, int]]
WATCHED = {".sql", ".yaml", ".yml"}
TICK_MS, DEBOUNCE_MS = 200, 300  # how often results are looked at; saves that come together are one


@scoped("project target var")
def command(
    scope: Scope,
    prune: Annotated[bool, typer.Option("--prune", help="Remove queries that the project no longer has.")] = False,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows to show of each changed result.")] = 10,
) -> None:
    """Run the project here, and deploy at every save.

    Shows changed rows, and mistakes with their position; the last good version continues. Unaffected queries keep their
    state. Uses a running instance and leaves it running; otherwise one runs in this process, until Ctrl-C.

    With a separate target for experiments: flowql dev -t dev
    """
    root = find_project_file(scope.start).parent
    files = _files(root)
    with until_asked_to_stop() as stopped, ExitStack() as stack:
        settings = settings_of(scope.load())
        host, client = _instance(settings, stack)
        log = stack.enter_context(closing(log_at(settings.log_dir, settings.kafka, settings.application_id)))
        loop = Loop(scope, client, Results(log), prune=prune)
        loop.begin()
        for saved in _saves(root, files):
            if stopped():
                break
            if host is not None:
                host.wait(0)  # raises when the engine is broken
            if saved:
                note(f"\nsaved {', '.join(sorted(shown_path(p) for p in saved))}")
                loop.deploy()
            loop.look(rows)


def _instance(settings: Settings, stack: ExitStack) -> tuple[Host | None, Client]:
    """The one that runs, else one in this process."""
    client = connect(settings.data_dir)
    host = None
    if client is None:
        host = Host(settings)
        stack.callback(host.close)
        host.start()
        client = connect(settings.data_dir)
        assert client is not None, "it listens when it has started"
    stack.callback(client.close)
    return host, client


def _saves(root: Path, files: Files) -> Iterator[set[Path]]:
    """Files of the project that were saved since they were `files`, often none. New folders are seen as well.

    What a watch tells is when to look: what is saved between two watches, or before the first, is seen as well.
    """
    while True:
        folders = _folders(root)
        changes = watch(
            *folders,
            debounce=DEBOUNCE_MS,
            rust_timeout=TICK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
            recursive=False,  # the data directory below changes all the time
        )
        for _ in changes:
            now = _files(root)
            yield {path for path, _ in now.items() ^ files.items()}
            files = now
            if _folders(root) != folders:
                break


def _files(root: Path) -> Files:
    """The project's files as they are: when each was changed, and its size."""
    found = {}
    for folder in _folders(root):
        for path in folder.iterdir():
            with suppress(FileNotFoundError):  # gone meanwhile
                if path.suffix.lower() in WATCHED:
                    stat = path.stat()
                    found[path] = (stat.st_mtime_ns, stat.st_size)
    return found


def _folders(root: Path) -> list[Path]:
    """The project's folder and those below, without hidden ones."""
    found = [root]
    for folder in found:
        found += sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))
    return found


class Loop:
    """The actions at each save of a file, and between saves."""

    def __init__(self, scope: Scope, client: Client, results: Results, *, prune: bool) -> None:
        self._scope, self._client, self._results, self._prune = scope, client, results, prune
        self._errors: dict[str, str] = {}

    def begin(self) -> None:
        """Reads the current rows of results, then deploys the project."""
        self._results.follow(self._client.plan()[0])
        self._results.learn()
        if self.deploy():
            note("watching; save a file to change what runs, Ctrl-C ends")
        else:
            note("watching; save a file when it is right, Ctrl-C ends")

    def deploy(self) -> bool:
        """Deploy the project, or report its mistakes; then the deployed queries keep running."""
        try:
            deployed, topics = self._client.deployed()
            project = self._scope.read()
            wanted = wanted_plan(project, running=deployed.plan, topics=topics, warn=show_diagnostics)
            done = self._client.deploy(
                wanted, deploy_request(self._scope.select, project, wanted, deployed.plan, prune=self._prune)
            )
        except (CompileError, CommandError, RuntimeFailure) as error:
            show_diagnostics(diagnostics_of(error))
        else:
            show_deployment(done)
            self._results.follow(self._client.plan()[0])
            return True
        note("nothing was changed: the last good version continues")
        return False

    def look(self, rows_max: int) -> None:
        """Show rows that changed, and queries that have begun to fail."""
        for line in self._results.news(rows_max):
            print_text(line)
        for query in self._client.status()["queries"]:
            said = query["last_error"] or ""
            if said and self._errors.get(query["id"]) != said:
                note(f"{query['id']}: {said}")
            self._errors[query["id"]] = said


# Changes in the results of a project: new rows, against the known rows of their keys.

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
        yield f"{source.name}: {counted(len(found), 'row')}" + (
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
