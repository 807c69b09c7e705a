"""Statements of the shell that do something: PRINT, PAUSE, RESUME, ASSERT, RUN SCRIPT, DEFINE."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from flowql.cli.listening import until_asked_to_stop
from flowql.cli.place import Place
from flowql.cli.render import note
from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.topology import Plan
from flowql.config.project import Project
from flowql.config.storage import open_log
from flowql.deploy.assertions import FAILED, failing, schemas_of
from flowql.query.errors import INVALID, UNKNOWN, QueryError
from flowql.runtime.log.base import TopicPartition
from flowql.topics.codecs import RecordReader, source_over
from flowql.topics.records import json_lines, read_records

_WAIT_S = 0.05
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def print_topic(project: Project, plan: Plan, topic: str, *, beginning: bool, limit: int | None, every: int) -> None:
    """PRINT: records as they come, one JSON object per line, until Ctrl-C or `limit` of them. every: the n-th alone."""
    with closing(open_log(project)) as log:
        topics = log.admin().topics()
        if topic not in topics:
            hint = did_you_mean(topic, topics) or "SHOW TOPICS;"
            raise QueryError(f"there is no topic {topic}", code=UNKNOWN, help=hint)
        tps = [TopicPartition(topic, p) for p in range(topics[topic].partitions)]
        positions = {tp: log.admin().begin_offset(tp) if beginning else log.admin().end_offset(tp) for tp in tps}
        reader, seen, shown = RecordReader(source_over(plan, topic)), 0, 0
        with until_asked_to_stop() as stopped:
            for batch in read_records(log, positions, None):
                if batch is None:
                    sys.stdout.flush()
                    time.sleep(_WAIT_S)
                for line in json_lines(batch, reader) if batch is not None else ():
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
