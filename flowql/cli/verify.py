"""`flowql verify`: the project on two targets, with the same results."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from flowql.api.deploying import wanted_plan
from flowql.cli.options import Scope, scoped
from flowql.cli.progress import progress
from flowql.cli.render import counted, json_value, note, print_json, print_rows, print_text, show_diagnostics
from flowql.cli.status import lost_text
from flowql.compiler.plan.topology import Plan
from flowql.config.load import shown_path
from flowql.deploy.selection import select
from flowql.deploy.settings import settings_of
from flowql.server.choice import at_rest
from flowql.verify.report import MISSING, Report, Row, RowDifference, SinkReport
from flowql.verify.run import Side, compare_held, verify
from flowql.verify.values import TOLERANCE


@scoped("project select output var")
def command(
    scope: Scope,
    targets: Annotated[
        str, typer.Option("--targets", help="Targets of flowql.yaml, compared with the first.", metavar="A,B")
    ],
    held: Annotated[bool, typer.Option("--held", help="Compare existing results, without a run.")] = False,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Maximum relative difference between DOUBLEs.", min=0.0)
    ] = TOLERANCE,
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Run in this new folder and keep it.", show_default=False)
    ] = None,
) -> None:
    """Compare the results of targets over the same input.

    Copies the input topics from the first target's log and runs all targets in new directories, those on Kafka on a
    separate local broker. Compares each with the first: tables by final rows, streams as multisets of (key, value,
    time). Exit code 1 if something differs.
    """
    names = _names(targets)
    scope = replace(scope, target=names[0], several=True)
    sides = [_side(scope, name) for name in names]
    plan, deployed = _plans(scope, sides[0])
    with ExitStack() as stack:
        bar = Bar(stack)
        if held:
            reports = compare_held(plan, sides, bar, tolerance)
        else:
            folder = stack.enter_context(_folder(sides[0].settings.data_dir, keep))
            reports = verify(plan, deployed, sides, folder, bar, tolerance)
    if scope.as_json:
        print_json(_document(reports))
    else:
        show_all(reports)
    if not all(report.equal for report in reports):
        raise typer.Exit(1)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if len(names) < 2 or not all(names) or len(set(names)) < len(names):
        raise typer.BadParameter(f"--targets takes targets that differ, as in  --targets default,spark, not {text!r}")
    return names


def _document(reports: Sequence[Report]) -> dict[str, Any]:
    """The comparison of two targets; with more, of each with the first."""
    if len(reports) == 1:
        return reports[0].to_data()
    compared = [{"targets": list(report.targets), **report.to_data()} for report in reports]
    return {"equal": all(report.equal for report in reports), "comparisons": compared}


def _side(scope: Scope, target: str) -> Side:
    project = replace(scope, target=target).load()
    settings = settings_of(project)
    return Side(target, settings, "bounded" if settings.engine == "spark" else "caught up")


def _plans(scope: Scope, first: Side) -> tuple[Plan, Plan]:
    """The plan to run, with the names that the first target has given, and the plan deployed there."""
    deployed, topics = at_rest(first.settings).deployed()
    wanted = wanted_plan(scope.read(), running=deployed.plan, topics=topics, warn=show_diagnostics)
    return select(wanted, scope.select), deployed.serving


@contextmanager
def _folder(beside: Path, keep: Path | None) -> Iterator[Path]:
    """Where the targets run: on the disk of the first one, removed at the end unless it is to be kept."""
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep.resolve()
        note(f"kept in {shown_path(keep.resolve())}")
        return
    beside.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="verify-", dir=beside.parent))
    try:
        yield made
    finally:
        shutil.rmtree(made)


class Bar:
    """Progress of a comparison, one bar per step."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._step = stack.enter_context(ExitStack())

    def begin(self, title: str, total: int) -> None:
        self._step.close()
        self._advance = self._step.enter_context(progress(title, total))

    def advance(self, n: int) -> None:
        self._advance(n)

    def ran(self, target: str, query: Mapping[str, Any]) -> None:
        """Writes the rows that one side did not use to stderr, beside its progress bar."""
        if lost := lost_text(query):
            note(f"{target}: {query['id']}: {lost}")


# The report as text.


def show_all(reports: Sequence[Report]) -> None:
    """Each with the first target, a blank line between."""
    for n, report in enumerate(reports):
        if n:
            print_text("")
        show(report)


def show(report: Report) -> None:
    """A line per result, and under it the first rows that differ."""
    rows = [(s.name, s.kind, s.rows, s.missing, s.extra, s.different, _verdict(s)) for s in report.sinks]
    print_rows(("result", "kind", "rows", "missing", "extra", "different", ""), rows)
    for sink in report.sinks:
        if not sink.equal:
            print_text("\n" + "\n".join(_diff(sink, report.targets)))
    n = sum(not s.equal for s in report.sinks)
    first, second = report.targets
    equal = f"{first} and {second} are equal: {counted(len(report.sinks), 'result')}"
    print_text("\n" + (equal if not n else f"{first} and {second} differ in {n} of {len(report.sinks)} results"))


def _verdict(sink: SinkReport) -> str:
    return "equal" if sink.equal else "DIFFERENT"


def _diff(sink: SinkReport, targets: tuple[str, str]) -> list[str]:
    width = max(map(len, targets))
    counts = [
        (sink.missing, f"only in {targets[0]}"),
        (sink.extra, f"only in {targets[1]}"),
        (sink.different, "with other values"),
    ]
    said = ", ".join(f"{counted(n, 'row')} {what}" for n, what in counts if n)
    lines = [f"{sink.name}: {said}; the first of them:"]
    for example in sink.examples:
        lines.append("  " + _shown(example.key))
        if example.first is not None and example.second is not None:
            lines += _columns(example, targets)
        else:
            for name, row in zip(targets, (example.first, example.second), strict=True):
                lines.append(f"    {name:<{width}}  {_shown(row) if row is not None else '(no such row)'}")
    return lines


def _columns(example: RowDifference, targets: tuple[str, str]) -> list[str]:
    """Two rows that resemble each other, column by column: only where they differ."""
    first, second = example.first or {}, example.second or {}
    names = example.columns or tuple(dict.fromkeys((*first, *second)))
    values = [(_value(first.get(n, MISSING)), _value(second.get(n, MISSING))) for n in names]
    wide, left = max(map(len, names), default=0), max((len(v) for v, _ in values), default=0)
    return [
        f"    {name:<{wide}}  {targets[0]} {one:<{left}}  {targets[1]} {two}"
        for name, (one, two) in zip(names, values, strict=True)
    ]


def _shown(row: Row) -> str:
    return "  ".join(f"{name}={_value(value)}" for name, value in row.items()) or "(no columns)"


def _value(value: Any) -> str:
    if value is None:
        return "NULL"
    return repr(value) if value is MISSING or isinstance(value, str) else str(json_value(value))
