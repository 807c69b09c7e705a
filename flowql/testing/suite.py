"""The tests of a project: found, read, run and judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.plan import codec
from flowql.compiler.plan.logical import SchemaRef
from flowql.compiler.plan.topology import Plan
from flowql.compiler.schemas.ref import content_id
from flowql.config.compile import compile_sources
from flowql.config.load import shown_path
from flowql.config.project import Project
from flowql.config.texts import ProjectTexts
from flowql.testing.case import Case, Finding, Verdict
from flowql.testing.feed import Timing, records_of, timings
from flowql.testing.judge import findings
from flowql.testing.run import RunResults, needed, partitions_of, run
from flowql.testing.sql_form import read_sql
from flowql.testing.yaml_form import read_yaml

FOLDER = "tests"


@dataclass(frozen=True, slots=True)
class Suite:
    """A project with its tests. mistakes: of the project's own statements; tests that expect mistakes run nevertheless."""

    project: Project
    plan: Plan
    cases: tuple[Case, ...]
    places: ProjectTexts
    mistakes: tuple[Diagnostic, ...] = ()


def load(project: Project, pattern: str = "") -> Suite:
    """All tests whose name or file fits the pattern. CompileError: test files that cannot be read."""
    compiled = compile_sources(project)
    mistakes = tuple(d for d in compiled.diagnostics if d.severity == "error")
    places, cases, wrong = ProjectTexts(), list[Case](), list[Diagnostic]()
    for file in files(project):
        path, text = shown_path(file), file.read_text()
        if file.suffix == ".sql":
            found, problems = read_sql(path, text, compiled.plan, project.dialect)
        else:
            found, problems = read_yaml(path, text, places)
        cases += found
        wrong += problems
    if wrong:
        raise CompileError(*wrong)
    chosen = tuple(c for c in cases if fits(c, pattern))
    return Suite(project, without_registry(compiled.plan), chosen, places, mistakes)


def files(project: Project) -> list[Path]:
    """The test files of a project."""
    folder = project.root / FOLDER
    return sorted(f for f in folder.rglob("*") if f.suffix in (".yaml", ".yml", ".sql")) if folder.is_dir() else []


def fits(case: Case, pattern: str) -> bool:
    """Whether a pattern means a test: a part of its name or file, or a glob over either."""
    names = (case.name.lower(), case.file.lower())
    wanted = pattern.lower()
    return any(wanted in n or fnmatch(n, wanted) for n in names)


def run_all(suite: Suite, splits: int, seed: int, tell: Callable[[Verdict], None]) -> list[Verdict]:
    """Run the tests one after the other."""
    verdicts = []
    for case in suite.cases:
        verdict = judged(suite, case, splits, seed)
        tell(verdict)
        verdicts.append(verdict)
    return verdicts


def judged(suite: Suite, case: Case, splits: int, seed: int) -> Verdict:
    """Run one test under its timings, until one of them fails."""
    start = time.perf_counter()
    try:
        verdict = _judged(suite, case, splits, seed)
    except CompileError as e:
        lines = tuple(_line(d) for d in suite.places.placed(e.diagnostics))
        verdict = Verdict(case, (Finding("the statements are refused", lines),))
    return replace(verdict, seconds=time.perf_counter() - start)


def _judged(suite: Suite, case: Case, splits: int, seed: int) -> Verdict:
    plan, refused = _plan(suite, case)
    if case.error is not None:
        return Verdict(case, tuple(_error_findings(case, refused)))
    if refused:
        raise CompileError(*refused)
    plan = needed(plan, [e.name if plan.source(e.name) else e.name.upper() for e in (*case.expect, *case.state)])
    sources = records_of(_known(case, plan, suite.plan), plan, partitions_of(case, plan))
    first: RunResults | None = None
    for timing in timings(case, sources, splits, seed):
        outcome = run(case, plan, timing, [s.name for s in case.state])
        wrong = findings(case.expect, case.state, outcome)
        wrong = wrong or [Finding(f"{query} failed before the last row") for query in outcome.failed]
        if wrong:
            return Verdict(case, tuple(wrong), tuple(_hints(timing, outcome, first)))
        first = first or outcome
    return Verdict(case)


def _known(case: Case, plan: Plan, whole: Plan) -> Case:
    """Without rows for sources that the results do not depend on; an unknown name stays, so that it is reported."""
    here = {s.name for s in plan.sources}
    elsewhere = {s.name for s in whole.sources} - here
    return replace(case, given=tuple(g for g in case.given if g.source.upper() not in elsewhere))


def _plan(suite: Suite, case: Case) -> tuple[Plan, tuple[Diagnostic, ...]]:
    if case.when is None or not case.when.text.strip():
        return suite.plan, suite.mistakes
    compiled = compile_sources(replace(suite.project, sources=(*suite.project.sources, case.when)))
    return without_registry(compiled.plan), suite.places.placed(
        [d for d in compiled.diagnostics if d.severity == "error"]
    )


def _error_findings(case: Case, refused: Sequence[Diagnostic]) -> Iterator[Finding]:
    want = case.error
    assert want is not None
    if not refused:
        yield Finding(f"{want.code or 'an error'} is expected, and the statements are accepted")
        return
    fitting = [d for d in refused if not want.code or d.code == want.code]
    fitting = [d for d in fitting if want.line in (None, d.span.line) and want.column in (None, d.span.column)]
    if not any(want.text.lower() in f"{d.title} {d.label} {d.help}".lower() for d in fitting):
        at = f" at line {want.line}" if want.line else ""
        at += f", column {want.column}" if want.column else ""
        words = f" about {want.text!r}" if want.text else ""
        yield Finding(f"{want.code or 'an error'}{at}{words} is expected, and found is", tuple(map(_line, refused)))


def _line(d: Diagnostic) -> str:
    return f"  {d.code} {d.span.path}:{d.span.line}:{d.span.column} {d.title}{'; ' + d.help if d.help else ''}"


def _hints(timing: Timing, outcome: RunResults, first: RunResults | None) -> Iterator[str]:
    if first is not None:
        yield (
            f"it passes with {first.timing} and fails with {timing.name}: the result depends on how rows arrive, "
            "not only on what they are"
        )
    yield from outcome.hints


def without_registry(plan: Plan) -> Plan:
    """The same plan with schemas that are numbered by their content where a registry would number them."""
    made = codec.from_data(_detached(codec.to_data(plan)))
    assert isinstance(made, Plan)
    return made


def _detached(data: Any) -> Any:
    if isinstance(data, list):
        return [_detached(d) for d in data]
    if not isinstance(data, dict):
        return data
    if data.get("$") != "SchemaRef":
        return {k: _detached(v) for k, v in data.items()}
    ref = codec.from_data(data)
    assert isinstance(ref, SchemaRef)
    return codec.to_data(replace(ref, registry="", id=ref.id or content_id(ref)))
