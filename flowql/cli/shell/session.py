"""One statement after the other: what kind it is, who answers it, and how the answer is written."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from flowql.cli.listening import until_asked_to_stop, write_changes
from flowql.cli.names import Names
from flowql.cli.options import Output
from flowql.cli.place import Place
from flowql.cli.query import say_apart
from flowql.cli.render import counted, note, plain, print_rows, record_lines
from flowql.cli.results import answer_lines, done_line, python_rows, write_answer
from flowql.cli.shell import show
from flowql.cli.shell.split import blanked, split, without_comments
from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.standard.parser import verb_of
from flowql.compiler.plan.topology import Plan
from flowql.config.storage import open_log
from flowql.deploy.assertions import FAILED, failing, schemas_of
from flowql.query.answer import Answer
from flowql.query.errors import INVALID, REFUSED, QueryError
from flowql.server.following import Deployed
from flowql.server.undeployed import telling_undeployed

if TYPE_CHECKING:
    from flowql.query.push import Start

# --- Statements of the shell that do something: PRINT, PAUSE, RESUME, ASSERT, RUN SCRIPT, DEFINE ---

_WAIT_S = 0.05
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def print_topic(place: Place, topic: str, *, beginning: bool, limit: int | None, every: int) -> None:
    """PRINT: records as they come, one JSON object per line, until Ctrl-C or `limit` of them. every: the n-th alone."""
    seen = shown = 0
    with until_asked_to_stop() as stopped, place.records(topic, beginning=beginning) as found:
        for lines in found:
            if not lines:
                sys.stdout.flush()
                time.sleep(_WAIT_S)
            for line in lines:
                if seen % every == 0 and shown != limit:
                    sys.stdout.write(line.decode())
                    shown += 1
                seen += 1
            if stopped() or shown == limit:
                break
    sys.stdout.flush()


def hold(place: Place, queries: list[str], *, paused: bool) -> None:
    """PAUSE and RESUME of a running instance."""
    with closing(place.running()) as client:
        done = client.pause(queries, paused=paused)
    note(f"{'paused' if paused else 'resumed'} {', '.join(done)}")


def check(place: Place, plan: Plan, text: str) -> None:
    """ASSERT TOPIC or SCHEMA. Raises CompileError when it does not hold in its time."""
    from flowql.compiler.driver import compile_project  # loads the parser, which other statements do without

    compiled = compile_project([SourceText("", text)])
    if not compiled.ok:
        raise CompileError(*compiled.diagnostics)
    with ExitStack() as stack:
        topics = place.topics() or stack.enter_context(closing(open_log(place.project))).admin().topics
        wrong = failing(compiled.assertions, topics, schemas_of(place.project, plan))
    if wrong:
        raise CompileError(
            *(Diagnostic(FAILED, title, a.span, "does not hold", help=help_) for a, title, help_ in wrong)
        )
    note("it holds")


def script(path: Path) -> str:
    """The text of a file of statements."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise QueryError(f"{path} cannot be read: {reason}", code=INVALID) from None


def with_variables(text: str, variables: Mapping[str, str]) -> str:
    """The statement with `${name}` replaced; undefined variables stay."""
    known = {n.upper(): v for n, v in variables.items()}
    return _VARIABLE.sub(lambda m: known.get(m[1].upper(), m[0]), text) if "${" in text else text


HELP = """\
SELECT ...;                  query tables, streams and stores (DuckDB's SQL), as of one commit
INSERT ...;  UPDATE ...;  DELETE ...;      change rows of tables, each statement as one transaction; RETURNING shows them
SELECT ... EMIT CHANGES;     new rows as they are committed (FlowQL's SQL), until Ctrl-C
SHOW STREAMS | TABLES | QUERIES | TOPICS | FUNCTIONS | TYPES | VARIABLES | PROPERTIES;
DESCRIBE NAME;   DESCRIBE STREAMS;   DESCRIBE FUNCTION NAME;   EXPLAIN QUERY;   EXPLAIN CREATE ...;
PRINT TOPIC FROM BEGINNING LIMIT 3;   ASSERT TOPIC NAME WITH (PARTITIONS=3);
PAUSE QUERY;   RESUME QUERY;   RUN SCRIPT 'FILE';   DEFINE NAME = 'VALUE';   ${NAME}
SET 'auto.offset.reset' = 'earliest';      push queries start at the earliest record (latest: from now on)
\\d            list everything       \\d NAME      its columns, the query that writes it, its readers
\\ds  \\dt      streams, tables       \\df TEXT     functions with TEXT in their name
\\x            a line per value, for wide rows: on, off
\\timing       how long each statement took: on, off
\\q            leave (or Ctrl-D)
Statements end with a semicolon and may have several lines. Ctrl-C discards the current input, or ends a push query."""
OFFSET_RESET = "auto.offset.reset"
_PUSH = re.compile(r"\bEMIT\s+(CHANGES|FINAL)\b", re.IGNORECASE)
_NAME = r"[`\"]?(?P<name>[\w-]+)[`\"]?"
_PRINT = (
    r"PRINT\s+[`'\"]?(?P<name>[\w.-]+)[`'\"]?(?P<beginning>\s+FROM\s+BEGINNING)?"
    r"(\s+(INTERVAL|SAMPLE)\s+(?P<every>\d+))?(\s+LIMIT\s+(?P<limit>\d+))?"
)
_DEPTH_MAX = 20  # of scripts that run scripts
_CHANGING = ("INSERT", "UPDATE", "DELETE")
_WRITING = (
    *("ALTER", "ATTACH", "CALL", "COPY", "CREATE", "DROP", "INSTALL", "LOAD", "MERGE"),
    *("TERMINATE", "TRUNCATE", "USE"),
)


class Quit(Exception):
    """The person wants to leave."""


@dataclass(slots=True)
class Manner:
    """How answers are shown. interactive: a person watches, so long answers are paged and rows counted."""

    output: Output = Output.TABLE
    interactive: bool = False
    expanded: bool = False
    timing: bool = False
    start: Start = "latest"


class Session:
    """Answers statements of one target. Raises CompileError, CommandError, RuntimeFailure or Quit."""

    def __init__(self, place: Place, manner: Manner) -> None:
        self.place, self.project, self.manner = place, place.project, manner
        self.there: Deployed = place.deployed()
        self.names = Names.of(self.there.plan, self.there.topics)
        self.variables: dict[str, str] = dict(place.project.variables)
        self._depth = 0
        self._rules: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], None]], ...] = tuple(
            (re.compile(pattern + r"\s*\Z", re.IGNORECASE | re.DOTALL), method)
            for pattern, method in (
                (r"(LIST|SHOW)\s+(?P<all>ALL\s+)?(?P<what>STREAMS|TABLES|QUERIES|TOPICS)(\s+EXTENDED)?", self._list),
                (r"(LIST|SHOW)\s+FUNCTIONS", lambda _: self._rows(show.functions())),
                (r"(LIST|SHOW)\s+PROPERTIES", lambda _: self._properties()),
                (r"(LIST|SHOW)\s+TYPES", lambda _: self._types()),
                (r"(LIST|SHOW)\s+VARIABLES", lambda _: self._rows(show.pairs("variable", self.variables))),
                (r"(LIST|SHOW)\s+((SOURCE|SINK)\s+)?CONNECTORS", lambda _: self._rows(show.connectors())),
                (r"(LIST|SHOW)\s+CONNECTOR\s+PLUGINS", lambda _: self._rows(show.connectors())),
                (r"DESCRIBE\s+(?P<what>STREAMS|TABLES)(\s+EXTENDED)?", self._describe_all),
                (rf"DESCRIBE\s+CONNECTOR\s+{_NAME}", lambda _: self._rows(show.connectors())),
                (rf"DESCRIBE\s+FUNCTION\s+{_NAME}", lambda m: self._text(show.function(m["name"]))),
                (rf"DESCRIBE\s+(EXTENDED\s+)?{_NAME}(\s+EXTENDED)?", self._describe),
                (rf"EXPLAIN\s+{_NAME}", lambda m: self._text(show.explain(self.there.plan, m["name"]))),
                (r"EXPLAIN\s+(?P<query>SELECT\b.*\bEMIT\s+(CHANGES|FINAL)\b.*)", self._explain_push),
                (r"EXPLAIN\s+CREATE\b.*?\bAS\s+(?P<query>SELECT\b.*)", self._explain_push),
                (r"EXPLAIN\s+INSERT\s+INTO\b.*?(?P<query>SELECT\b.*)", self._explain_push),
                (_PRINT, self._print),
                (rf"(?P<verb>PAUSE|RESUME)\s+(QUERY\s+)?{_NAME}", self._hold),
                (r"(?P<text>ASSERT\b.*)", lambda m: check(self.place, self.there.plan, m["text"])),
                (r"RUN\s+SCRIPT\s+'(?P<file>[^']*)'", self._script),
                (r"(DEFINE|UNDEFINE)\s+(?P<name>\w+)(\s*=\s*'(?P<value>(?:[^']|'')*)')?", self._define),
                (r"SET\s+'(?P<name>[^']*)'\s*=\s*'(?P<value>[^']*)'", self._set),
                (r"UNSET\s+'(?P<name>[^']*)'", self._set),
                (r"\\d", lambda _: self._rows(show.relations(self.there.plan))),
                (r"\\ds", lambda _: self._rows(show.relations(self.there.plan, "stream"))),
                (r"\\dt", lambda _: self._rows(show.relations(self.there.plan, "table"))),
                (rf"\\d[st]?\s+{_NAME}", self._describe),
                (r"\\df(\s+(?P<name>\w+))?", lambda m: self._rows(show.functions(m["name"] or ""))),
                (r"\\x", lambda _: self._toggle("expanded")),
                (r"\\timing", lambda _: self._toggle("timing")),
                (r"\\\?|\\h(elp)?|HELP|\?", lambda _: self._text(HELP)),
                (r"\\q(uit)?|QUIT|EXIT", lambda _: self._quit()),
            )
        )

    def run(self, statement: str) -> None:
        """Answer one statement, without its semicolon."""
        began = time.perf_counter()
        self._answer(without_comments(statement).rstrip())
        if self.manner.timing:
            note(f"{(time.perf_counter() - began) * 1000:,.1f} ms")

    def refresh(self) -> None:
        """Reads the deployed plan, which may have changed since the last statement."""
        self.there = self.place.deployed()
        self.names = Names.of(self.there.plan, self.there.topics)

    def _answer(self, text: str) -> None:
        text = with_variables(text, self.variables)
        for pattern, method in self._rules:
            match = pattern.match(text)
            if match is not None:
                self.refresh()
                method(match)
                return
        first = re.match(r"\\?\w*|.", text, re.DOTALL)
        word = first.group().upper() if first is not None else ""
        if word.startswith("\\"):
            raise QueryError(f"there is no command {text.split()[0]}", code=INVALID, help="\\?  lists the commands")
        if (verb_of(text) if word == "WITH" else word) in _CHANGING:
            self._change(text)
            return
        if word in _WRITING:
            raise _changes_something(word)
        if _PUSH.search(blanked(text)):
            self._push(text)
        else:
            self._pull(text)

    # Queries of the current state, and subscriptions to changes.

    def _pull(self, text: str) -> None:
        with self.place.answer(text) as answer:
            say_apart(answer)
            self._write(answer)

    def _write(self, answer: Answer) -> None:
        if self.manner.output is not Output.TABLE:
            write_answer(answer, self.manner.output)
            return
        page(self._lines(answer), paging=self.manner.interactive)

    def _change(self, text: str) -> None:
        """INSERT, UPDATE, DELETE."""
        for done in self.place.execute(text):
            if done.returned is not None:
                self._write(Answer.of(done.returned))
            note(done_line(done))

    def _lines(self, answer: Answer) -> Iterator[str]:
        count = 0

        def rows() -> Iterator[list[str]]:
            nonlocal count
            for row in python_rows(answer.batches):
                count += 1
                yield [plain(v) for v in row]

        if self.manner.expanded:
            yield from record_lines(answer.schema.names, rows())
        else:
            yield from answer_lines(answer.schema, rows())
        if self.manner.interactive:
            yield f"({counted(count, 'row')})"

    def _push(self, text: str) -> None:
        with until_asked_to_stop() as stopped, self.place.changes(text, self.manner.start, None, stopped) as changes:
            write_changes(changes, as_json=self.manner.output is Output.JSON)

    # Interactive queries about the catalogue.

    def _list(self, match: re.Match[str]) -> None:
        plan, what = self.there.plan, match["what"].upper()
        if what == "TOPICS":
            self._rows(show.topics(plan, self.there.topics, internal=match["all"] is not None))
        elif what == "QUERIES":
            self._rows(show.queries(plan, self._status()))
        else:
            self._rows(show.relations(plan, what[:-1].lower()))

    def _status(self) -> Mapping[str, object]:
        client = self.place.connect()
        if client is None:
            return {}
        with closing(client):
            return client.status()

    def _describe(self, match: re.Match[str]) -> None:
        with telling_undeployed(str(self.project.root)):
            found = show.describe(self.there.plan, match["name"])
        self._rows(found)

    def _describe_all(self, match: re.Match[str]) -> None:
        for source in self.there.plan.listed:
            if source.kind == match["what"].lower()[:-1]:
                self._rows(show.describe(self.there.plan, source.name))

    def _types(self) -> None:
        from flowql.config.compile import compile_sources  # the compiler: 0.5 s

        self._rows(show.types(compile_sources(self.project).catalog.types))

    def _explain_push(self, match: re.Match[str]) -> None:
        query = self.place.compiled(match["query"], self.there)
        self._text(show.explain_push(query.plan.queries[0]))

    # Statements that change something.

    def _print(self, match: re.Match[str]) -> None:
        limit, every = match["limit"], match["every"]
        print_topic(
            self.place,
            match["name"],
            beginning=match["beginning"] is not None,
            limit=int(limit) if limit else None,
            every=max(int(every or 1), 1),
        )

    def _hold(self, match: re.Match[str]) -> None:
        named = [q.id for q in self.there.plan.queries] if match["name"].upper() == "ALL" else [match["name"]]
        hold(self.place, named, paused=match["verb"].upper() == "PAUSE")

    def _script(self, match: re.Match[str]) -> None:
        if self._depth >= _DEPTH_MAX:
            raise QueryError("scripts run each other in a cycle", code=INVALID)
        whole, rest = split(script(Path(match["file"])))
        self._depth += 1
        try:
            for statement in [*whole, *([rest] if rest else [])]:
                self.run(statement)
        finally:
            self._depth -= 1

    def _define(self, match: re.Match[str]) -> None:
        name, value = match["name"], match["value"]
        for known in [v for v in self.variables if v.upper() == name.upper()]:
            del self.variables[known]
        if value is not None:
            self.variables[name] = value.replace("''", "'")

    # Settings.

    def _set(self, match: re.Match[str]) -> None:
        name, value = match["name"], match.groupdict().get("value", "latest")
        if name.removeprefix("ksql.streams.") != OFFSET_RESET:
            raise QueryError(
                f"`{name}` means nothing in the shell", code=INVALID, help=f"SET '{OFFSET_RESET}' = 'earliest'"
            )
        if value not in ("earliest", "latest"):
            raise QueryError(f"`{name}` is earliest or latest, not {value}", code=INVALID)
        self.manner.start = "earliest" if value == "earliest" else "latest"

    def _properties(self) -> None:
        self._rows(show.pairs("property", {**self.project.properties, OFFSET_RESET: self.manner.start}))

    def _toggle(self, what: str) -> None:
        now = not getattr(self.manner, what)
        setattr(self.manner, what, now)
        note(f"{what} is {'on' if now else 'off'}")

    def _quit(self) -> None:
        raise Quit

    # Output.

    def _rows(self, found: show.Rows) -> None:
        if self.manner.output is not Output.TABLE:
            print_rows(found.columns, found.rows, output=self.manner.output.value)
            return
        page(self._shown(found), paging=self.manner.interactive)

    def _shown(self, found: show.Rows) -> Iterator[str]:
        cells = [[plain(v) for v in row] for row in found.rows]
        yield from found.head.splitlines()
        if self.manner.expanded:
            yield from record_lines(found.columns, cells)
        else:
            yield from show.lines(found.columns, cells, found.rows)
        yield from found.foot.splitlines()

    def _text(self, text: str) -> None:
        page(text.splitlines(), paging=self.manner.interactive)


def _changes_something(word: str) -> QueryError:
    title = f"{word} would change something, and the shell only asks"
    if word == "TERMINATE":
        return QueryError(title, code=REFUSED, help="take it out of the project's files, then:  flowql deploy --prune")
    return QueryError(title, code=REFUSED, help="write it into the project's files, then:  flowql deploy")


# Lines on the screen: as they are when they fit, else through a pager.

DEFAULT = "less -S"  # a row stays a line; arrows go to the side


def page(lines: Iterable[str], *, paging: bool) -> None:
    """Write lines to stdout; through $PAGER when they are more, or longer, than the terminal shows and `paging` is on."""
    waiting = iter(lines)
    width, height = shutil.get_terminal_size()
    head = list(islice(waiting, height)) if paging else []
    command = shlex.split(os.environ.get("PAGER") or DEFAULT)
    fits = len(head) < height - 1 and all(len(line) <= width for line in head)
    if not paging or fits or not command or shutil.which(command[0]) is None:
        sys.stdout.writelines(f"{line}\n" for line in chain(head, waiting))
        sys.stdout.flush()
        return
    _through(command, chain(head, waiting))


def _through(command: list[str], lines: Iterator[str]) -> None:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, encoding="utf-8")
    assert process.stdin is not None
    try:
        process.stdin.writelines(f"{line}\n" for line in lines)
        process.stdin.close()
    except (BrokenPipeError, KeyboardInterrupt):  # seen enough
        pass
    finally:
        while True:
            try:
                process.wait()
                break
            except KeyboardInterrupt:  # it is the pager's
                continue
