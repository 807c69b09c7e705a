"""The tests of a project: found, read, run and judged."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan import codec
from flowql.compiler.plan.logical import SchemaRef
from flowql.compiler.plan.topology import Plan
from flowql.compiler.schemas.ref import content_id
from flowql.config.compile import compile_sources
from flowql.config.load import shown_path
from flowql.config.project import Project
from flowql.config.texts import ProjectTexts
from flowql.testing.case import Case, Expected, Finding, Row, Verdict, as_shown, is_time
from flowql.testing.feed import Timing, records_of, timings
from flowql.testing.run import RunResults, needed, partitions_of, run
from flowql.testing.sql_form import read_sql
from flowql.testing.yaml_form import read_yaml

# --- Expected against found, in words ---

SHOWN_MAX = 12  # rows of a kind in a report
_CLOSE = 1e-9  # of sums of DOUBLE, whose last digits depend on the order of rows


def findings(expect: Sequence[Expected], state: Sequence[Expected], outcome: RunResults) -> list[Finding]:
    """The expectations that a test run does not meet."""
    found = []
    for e in expect:
        name = next((n for n in (e.name, e.name.upper(), e.name.lower()) if n in outcome.records), None)
        if name is None:
            found.append(_unknown(e, outcome.records, "result"))
            continue
        if name in outcome.views:
            found += _of_view(_typed(e, outcome.final[name]), outcome.final[name])
            continue
        table = e.order == "any" and name in outcome.final
        actual = outcome.final[name] if table else outcome.records[name]
        found += _compared(_typed(e, actual), actual)
    for e in state:
        if e.name not in outcome.state:
            found.append(_unknown(e, outcome.state, "store"))
        else:
            found += _compared(e, outcome.state[e.name])
    return found


def _typed(e: Expected, actual: Sequence[Row]) -> Expected:
    """The expectation with the types of the result, so that both show times alike."""
    types = actual[0].types if actual else {}
    return replace(e, rows=tuple(replace(r, types=types) for r in e.rows))


def _unknown(e: Expected, known: Mapping[str, Any], what: str) -> Finding:
    hint = did_you_mean(e.name, list(known)) or (f"there are {listing(sorted(known))}" if known else "")
    return Finding(f"there is no {what} `{e.name}`{'; ' + hint if hint else ''}", (), e)


def _of_view(e: Expected, actual: Sequence[Row]) -> list[Finding]:
    """The rows of a view over tables that change, as they are at the end."""
    if any(r.tombstone for r in e.rows):
        title = (
            f"{e.name} is a view over tables, which is compared by its rows at the end: leave out rows that are deleted"
        )
        return [Finding(title, (), e, tuple(actual))]
    return _as_set(e, actual)


def _compared(e: Expected, actual: Sequence[Row]) -> list[Finding]:
    return _in_order(e, actual) if e.order == "exact" else _as_set(e, actual)


def _in_order(e: Expected, actual: Sequence[Row]) -> list[Finding]:
    for n, (want, got) in enumerate(zip(e.rows, actual, strict=False)):
        if not matches(want, got):
            lines = [f"record {n + 1}", *_pair(want, got)]
            return [Finding(f"{e.name}: record {n + 1} is another", tuple(lines), e, tuple(actual))]
    if len(e.rows) == len(actual):
        return []
    extra = actual[len(e.rows) :]
    rest = [f"  - {text(r)}" for r in e.rows[len(actual) :]] or [f"  + {text(r)}" for r in extra]
    title = f"{e.name}: {len(e.rows)} records expected, {len(actual)} found"
    return [Finding(title, tuple(rest[:SHOWN_MAX]), e, tuple(actual))]


def _as_set(e: Expected, actual: Sequence[Row]) -> list[Finding]:
    missing, left = [], list(actual)
    for want in sorted(e.rows, key=lambda r: -len(r.values)):  # the most precise ones choose first
        got = next((r for r in left if matches(want, r)), None)
        if got is None:
            missing.append(want)
        else:
            left.remove(got)
    if not missing and not left:
        return []
    lines: list[str] = []
    for want in [r for r in e.rows if any(r is m for m in missing)][:SHOWN_MAX]:
        near = _nearest(want, left)
        lines += _pair(want, near) if near is not None else [f"  - {text(want)}   expected, not found"]
        left = [r for r in left if r is not near]
    lines += [f"  + {text(r)}   found, not expected" for r in left[:SHOWN_MAX]]
    title = (
        f"{e.name}: {_count(len(e.rows), 'row')} expected, {len(actual)} found, {_count(len(missing), 'row')} missing"
    )
    return [Finding(title, tuple(lines), e, tuple(actual))]


def _nearest(want: Row, left: Sequence[Row]) -> Row | None:
    """The row that agrees in most columns, if it agrees in any."""
    scored = [(sum(_same(v, _value(r, c)) for c, v in want.values.items()), -n) for n, r in enumerate(left)]
    best = max(scored, default=(0, 0))
    return left[-best[1]] if best[0] else None


def _pair(want: Row, got: Row) -> list[str]:
    """Two rows that should be the same, and the columns in which they are not."""
    wrong = [
        f"{c}: {_shown_as(want, c, v)} expected, {_found(got, c)}"
        for c, v in want.values.items()
        if not _same(v, _value(got, c)) or not _has(got, c)
    ]
    if want.tombstone != got.tombstone:
        wrong.append("a deletion expected" if want.tombstone else "a deletion found")
    if want.rowtime_ms is not None and want.rowtime_ms != got.rowtime_ms:
        wrong.append(f"ROWTIME: {want.rowtime_ms} expected, {got.rowtime_ms} found")
    return [f"  - {text(want)}", f"  + {text(got)}", f"      {'; '.join(wrong)}"]


def matches(want: Row, got: Row) -> bool:
    """Whether a row is as expected, in the columns that the expectation names."""
    if want.tombstone != got.tombstone or (want.rowtime_ms is not None and want.rowtime_ms != got.rowtime_ms):
        return False
    return all(_same(v, _value(got, c)) for c, v in want.values.items())


def _value(row: Row, column: str) -> Any:
    """By the column's name as written, else as an unquoted name."""
    return row.values.get(column, row.values.get(column.upper()))


def _has(row: Row, column: str) -> bool:
    return column in row.values or column.upper() in row.values


def _found(got: Row, column: str) -> str:
    if got.tombstone or _has(got, column):
        return f"{_shown_as(got, column, _value(got, column))} found"
    hint = did_you_mean(column.upper(), got.values)
    return f"there is no such column{'; ' + hint if hint else ''}"


def _same(want: Any, got: Any) -> bool:
    if isinstance(want, bool) or isinstance(got, bool) or want is None or got is None:
        return want is got
    if isinstance(want, dict) and isinstance(got, dict):
        return want.keys() == got.keys() and all(_same(v, got[k]) for k, v in want.items())
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(map(_same, want, got))
    if isinstance(want, float) and isinstance(got, (int, float, Decimal)):
        return math.isclose(want, got, rel_tol=_CLOSE) or (math.isnan(want) and math.isnan(got))
    if isinstance(want, (int, float, Decimal)) or isinstance(got, (int, float, Decimal)):
        try:
            return Decimal(str(want)) == Decimal(str(got))
        except InvalidOperation:
            return isinstance(want, str) and isinstance(got, int) and is_time(want, got)
    return bool(want == got)


def text(row: Row) -> str:
    """A row on a line.

    >>> text(Row({"K": 1}, tombstone=True))
    'K=1 deleted'
    """
    parts = [f"{c}={_shown_as(row, c, v)}" for c, v in row.values.items()]
    if row.rowtime_ms is not None:
        parts.append(f"ROWTIME={row.rowtime_ms}")
    return " ".join([*parts, "deleted"] if row.tombstone else parts)


def _shown_as(row: Row, column: str, value: Any) -> str:
    """A date or time as a text, as commands print it."""
    type_ = row.types.get(column) or row.types.get(column.upper())
    return _shown(value if type_ is None else as_shown(value, type_))


def _shown(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    plain = isinstance(value, str) and value and " " not in value
    return str(value) if plain else json.dumps(value, ensure_ascii=False, default=str)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


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
