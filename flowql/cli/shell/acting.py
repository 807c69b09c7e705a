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
from flowql.compiler.plan.topology import Plan
from flowql.config.storage import open_log
from flowql.deploy.assertions import FAILED, failing, schemas_of
from flowql.query.errors import INVALID, QueryError

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
