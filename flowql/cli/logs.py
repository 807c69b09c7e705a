"""`flowql logs`: what happened in the instance."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.place import LogLine, place_of
from flowql.cli.render import note, print_text
from flowql.config.sections import LogLevel
from flowql.server.logs import Wanted

LOOK_S = 0.2
_KNOWN = ("time", "level", "event", "query", "task", "message", "trace")


@scoped("project target output var")
def command(
    scope: Scope,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until Ctrl-C.")] = False,
    query: Annotated[str, typer.Option("--query", help="Only this query.", metavar="QUERY")] = "",
    level: Annotated[LogLevel, typer.Option("--level", help="This level and more serious ones.")] = "debug",
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Maximum number of existing lines.")] = 100,
) -> None:
    """Show the instance's log.

    The log is JSON lines in the target's directory, at most 50 MB; -o json prints them unchanged. The target's
    `log_level` sets what is logged.

    Examples:  flowql logs --level warning

               flowql logs -f --query CTAS_ORDERS
    """
    place = place_of(scope.load())
    found, newer = place.log(Wanted(level, query), lines)
    if not found and not follow:
        note("nothing is logged")
    _show(found, as_json=scope.as_json)
    while follow:
        sys.stdout.flush()  # a pipe would keep lines back until many have come
        time.sleep(LOOK_S)
        _show(newer(), as_json=scope.as_json)


def _show(lines: Sequence[LogLine], *, as_json: bool) -> None:
    for line in lines:
        print_text(json.dumps(line, ensure_ascii=False) if as_json else text_of(line))


def text_of(line: dict[str, Any]) -> str:
    """A line for a person.

    >>> text_of(
    ...     {
    ...         "time": "2026-01-02T03:04:05.678Z",
    ...         "level": "warning",
    ...         "event": "query.failed",
    ...         "query": "Q",
    ...         "task": "Q/0_1",
    ...         "message": "no luck",
    ...         "retry_ms": 500,
    ...     }
    ... )
    '2026-01-02 03:04:05.678 WARNING query.failed      Q/0_1  no luck  retry_ms=500'
    """
    at = str(line.get("time", "")).replace("T", " ").rstrip("Z")
    head = f"{at} {str(line.get('level', '')).upper():7} {line.get('event', ''):17}"
    rest = [str(line.get("task") or line.get("query") or ""), str(line.get("message", ""))]
    rest += [f"{k}={v}" for k, v in line.items() if k not in _KNOWN and v is not None]
    shown = "  ".join([f"{head} {rest[0]}".rstrip(), *(r for r in rest[1:] if r)])
    return f"{shown}\n{line['trace'].rstrip()}" if line.get("trace") else shown
