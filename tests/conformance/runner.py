"""Running one case and judging it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from flowql.compiler.diagnostics.diagnostic import CompileError, ParseError, UnsupportedError
from flowql.compiler.diagnostics.render import render
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session
from flowql.compiler.plan.topology import Plan, SourceDef
from tests.conformance.case_engine import CaseEngine, NotSupported, QueryFailed, Shape, input_record, output_record
from tests.conformance.compare import difference
from tests.conformance.final import different_stream, different_table
from tests.conformance.functions import registered
from tests.conformance.registry import CaseRegistry

TIMEOUT_S = 10
Case = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """A judged case. kind: positive or error. reason is empty when it passed. unsupported: what the engine cannot run."""

    id: str
    kind: str
    reason: str
    post: str | None = None  # None: nothing to check
    unsupported: str = ""

    @property
    def passed(self) -> bool:
        return not self.reason


class TimedOut(BaseException):
    """A case took too long."""


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def alarm(number: int, frame: FrameType | None) -> None:
        raise TimedOut

    before = signal.signal(signal.SIGALRM, alarm)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_case(
    case: Case, shape: Shape | None = None, *, world: CaseEngine | None = None, timeout_s: int = TIMEOUT_S
) -> Result:
    """Run and judge a case in a fresh world: the given one, which must be new, or one on the runtime."""
    kind = "error" if "error" in case else "positive"
    try:
        with time_limit(timeout_s), registered(case.get("needs_test_functions", [])):
            reason, post = _judge(case, world or CaseEngine(shape or Shape()))
    except TimedOut:
        reason, post = f"took more than {timeout_s} s", None
    except NotSupported as error:
        return Result(case["id"], kind, f"not supported: {error}", None, str(error))
    except Exception as error:  # a crash is a failed case, with its reason
        reason, post = f"{type(error).__name__}: {error}", None
    return Result(case["id"], kind, reason, post)


def _judge(case: Case, world: CaseEngine) -> tuple[str, str | None]:
    several = world.shape.partitions
    partitions = {t["name"]: several if several > 1 else t.get("partitions", 1) for t in case.get("topics", [])}
    session = Session(properties=case.get("properties", {}), topic_partitions=partitions, registry=CaseRegistry(case))
    error = case.get("error")
    statements = case["statements"]
    for n, text in enumerate(statements):
        last = n == len(statements) - 1
        try:
            results = session.execute(SourceText("case.sql", text))
        except CompileError as raised:
            if error is None or error["kind"] == "runtime" or not last:
                return "; ".join(d.title for d in raised.diagnostics), None
            return _judge_error(raised, error), None
        for r in results:
            for row in r.rows:
                world.insert(session.plan, row)
    if error is not None and error["kind"] != "runtime":
        return "the last statement was accepted", None
    plan = session.plan
    try:
        _process(case, plan, world)
    except QueryFailed as failed:
        return ("" if error is not None else str(failed)), None
    if error is not None:  # of one record of theirs all processing ends, ours makes it a dead letter
        return ("" if world.letters else "processing did not fail"), None
    return _compare(case, plan, world), judge_post(case, plan)


def _judge_error(raised: CompileError, error: dict[str, Any]) -> str:
    if isinstance(raised, UnsupportedError) or any(d.unsupported for d in raised.diagnostics):
        return f"not supported: {raised}"
    if error["kind"] == "parse" and not isinstance(raised, ParseError):
        return f"not refused by the parser: {raised}"
    names = error.get("name_any_of") or []
    message = render(raised.diagnostics).lower()
    if names and not any(n.lower() in message for n in names):
        return f"names none of {names}: {raised}"
    return ""


def _process(case: Case, plan: Plan, world: CaseEngine) -> None:
    inputs = [(r["topic"], input_record(r, source_over(plan, r["topic"]))) for r in case.get("inputs", [])]
    for topic, record in inputs:
        world.add(topic, [record])
    for query in plan.queries:
        world.run(query, plan, inputs)


def source_over(plan: Plan, topic: str) -> SourceDef | None:
    """The source that says how records of a topic are written; the one that writes it comes first."""
    over = [s for s in plan.sources if s.topic == topic]
    return next((s for s in over if s.query is not None), over[0] if over else None)


def _compare(case: Case, plan: Plan, world: CaseEngine) -> str:
    expected: dict[str, list[dict[str, Any]]] = {}
    for record in case.get("outputs", []):
        expected.setdefault(record["topic"], []).append(record)
    for topic, records in expected.items():
        source = source_over(plan, topic)
        if source is None:
            return f"no source over topic {topic}"
        actual = [output_record(r, source) for r in world.topics.get(topic, [])]
        if world.final:
            reason = _final(records, actual, source, any_zero_time=not case.get("inputs"))
            if reason:
                return f"{topic}: {reason}"
            continue
        if len(actual) != len(records):
            return f"{topic}: {len(actual)} records, expected {len(records)}"
        for i, (e, a) in enumerate(zip(records, actual, strict=True)):
            reason = difference(e, a, any_zero_time=not case.get("inputs"))
            if reason:
                return f"{topic}[{i}]: {reason}"
    return ""


def _final(
    records: list[dict[str, Any]], actual: list[dict[str, Any]], source: SourceDef, *, any_zero_time: bool
) -> str:
    if source.kind == "table":
        return different_table(records, actual)
    return different_stream(records, actual, any_zero_time=any_zero_time)


def judge_post(case: Case, plan: Plan) -> str | None:
    """Catalogue entries that must exist afterwards; None when the case names none."""
    wanted = case.get("post", {}).get("sources")
    if not wanted:
        return None
    for w in wanted:
        s = plan.source(w["name"])
        if s is None:
            return f"no source {w['name']}"
        if s.kind != w.get("type", s.kind).lower():
            return f"{w['name']} is a {s.kind}"
        if "schema" in w and _columns(s) != _normal(w["schema"]):
            return f"{w['name']} has columns {_columns(s)}, expected {_normal(w['schema'])}"
        for side, fmt in (("valueFormat", s.value_format.name), ("keyFormat", s.key_format.name)):
            f = w.get(side)
            name = f.get("format") if isinstance(f, dict) else f
            if name and name.upper() != fmt and s.schema.key:
                return f"{w['name']}: {side} is {fmt}, expected {name}"
    return ""


def _columns(source: SourceDef) -> str:
    shown = [
        f"{f.name} {f.type}{' KEY' if f.role == 'key' else ''}" for f in source.schema if f.role in ("key", "value")
    ]
    return _normal(", ".join(shown))


def _normal(columns: str) -> str:
    text = (
        columns.upper()
        .replace("`", "")
        .replace("INTEGER", "INT")
        .replace("VARCHAR", "STRING")
        .replace("PRIMARY KEY", "KEY")
    )
    return "".join(text.split())
