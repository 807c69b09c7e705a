"""`flowql test`: does the project do what its tests say?"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.progress import progress
from flowql.cli.render import note, print_json, print_text
from flowql.errors import CommandError


@scoped("project target output var")
def command(
    scope: Scope,
    pattern: Annotated[str, typer.Argument(help="Only tests whose name or file contains this.")] = "",
    update: Annotated[bool, typer.Option("--update", help="Write the actual rows into the failed tests.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write a JUnit report.", metavar="FILE")] = None,
    splits: Annotated[int, typer.Option(min=0, help="Random splits of the rows into batches, per test.")] = 3,
    seed: Annotated[int | None, typer.Option(help="Seed of the splits, printed by failed tests.")] = None,
    create: Annotated[str | None, typer.Option(help="Write a test of this query instead.", metavar="QUERY")] = None,
    from_topic: Annotated[str | None, typer.Option("--from", help="Topic of its rows.", metavar="TOPIC")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Number of rows.")] = 10,
) -> None:
    """Run the tests in folder `tests`, in memory, in milliseconds.

    Each test runs several times, with its rows one by one, all at once and in random batches.

    With a report for a build server: flowql test delays --junit report.xml

    From real records: flowql test --create DELAYS --from flights > tests/delays.yaml
    """
    if create is not None:
        _create(scope, create, from_topic, rows)
        return
    from flowql.testing import report, suite
    from flowql.testing.create import update as rewrite

    found = suite.load(scope.load(), pattern)
    if not found.cases:
        where = found.project.root / suite.FOLDER
        title = f"no test fits `{pattern}`" if pattern else f"there are no tests in {where}"
        raise CommandError(
            title, code="FQ5070", help="write one, or make one:  flowql test --create QUERY --from TOPIC"
        )
    seed = random.randrange(1 << 20) if seed is None else seed
    start = time.perf_counter()
    with progress("tests", len(found.cases)) as advance:
        verdicts = suite.run_all(found, splits, seed, lambda _: advance(1))
    seconds = time.perf_counter() - start
    if junit is not None:
        junit.write_text(report.junit(verdicts, found.project.name))
    if scope.as_json:
        print_json(report.document(verdicts))
    else:
        for v in verdicts:
            if not v.passed:
                print_text("\n".join(report.lines_of(v)) + "\n")
        print_text(report.summary(verdicts, seconds))
    if update:
        for file, n in rewrite(verdicts).items():
            note(f"{file}: {n} expectation{'s' * (n > 1)} rewritten; look at the difference before you keep it")
    elif not all(v.passed for v in verdicts):
        sys.stdout.flush()
        raise typer.Exit(1)


def _create(scope: Scope, query: str, topic: str | None, rows: int) -> None:
    from flowql.runtime.log.embedded.log import EmbeddedLog
    from flowql.testing.create import create

    if topic is None:
        raise typer.BadParameter("--create needs --from TOPIC")
    project, compiled = scope.compile()
    log = EmbeddedLog(project.target.log_dir)
    print_text(create(compiled.plan, log, query, topic, rows))
