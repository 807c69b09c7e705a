"""Run a project on two targets over one input, or take what both hold already, and compare every result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from compiler.plan.topology import Plan, SourceDef
from flowql.deploy.settings import UNSUPPORTED_TARGET, Settings
from flowql.errors import CommandError
from flowql.server.choice import open_engine
from flowql.server.engine import Engine, Mode
from flowql.verify.inputs import copy_inputs, count_records
from flowql.verify.match import compare_sink
from flowql.verify.report import Report
from flowql.verify.values import TOLERANCE
from runtime.log.base import Log
from runtime.log.embedded.log import EmbeddedLog

NO_RESULT, FAILED = "FQ5602", "FQ5603"
FAILURES_MAX = 3  # restarts of a query after which its target has failed
_POLL_S = 0.05


class Watch(Protocol):
    """Who follows a comparison. Steps come one after the other: `begin`, then `advance` until the next `begin`."""

    def begin(self, title: str, total: int) -> None: ...

    def advance(self, n: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two targets. mode: how its engine reads what there is."""

    name: str
    settings: Settings
    mode: Mode = "caught up"


def sinks_of(plan: Plan) -> tuple[SourceDef, ...]:
    """What the queries of a plan write, each once, in its order."""
    named = dict.fromkeys(q.sink for q in plan.queries)
    return tuple(s for name in named for s in [plan.source(name)] if s is not None)


def _refuse_kafka(sides: Sequence[Side]) -> None:
    """A fresh directory is no fresh log there: a comparison would write into the topics of what runs."""
    for side in sides:
        if side.settings.kafka is not None:
            title = f"target {side.name} has log kafka, which cannot be compared yet"
            raise CommandError(title, code=UNSUPPORTED_TARGET, help="compare targets with log: embedded")


def verify(
    plan: Plan, deployed: Plan, sides: tuple[Side, Side], folder: Path, watch: Watch, tolerance: float = TOLERANCE
) -> Report:
    """Copy the input from the log of the first side, run both in fresh directories below `folder`, compare.

    deployed: what was deployed to the first side. The directories of the targets themselves are only read.
    """
    _refuse_kafka(sides)
    fresh = [
        replace(side, settings=replace(side.settings, data_dir=folder / f"{n}-{side.name}"))
        for n, side in enumerate(sides, 1)
    ]
    _copy(plan, deployed, sides[0], fresh, watch)
    for side in fresh:
        _run(plan, side, watch)
    return _compare(plan, (fresh[0], fresh[1]), (sides[0].name, sides[1].name), watch, tolerance)


def compare_held(plan: Plan, sides: tuple[Side, Side], watch: Watch, tolerance: float = TOLERANCE) -> Report:
    """Compare what the logs of both sides hold, without running anything."""
    _refuse_kafka(sides)
    for side in sides:
        if not side.settings.log_dir.is_dir():
            title = f"nothing has run on target {side.name} yet"
            raise CommandError(title, code=NO_RESULT, help=f"flowql run -t {side.name} --until-caught-up")
    return _compare(plan, sides, (sides[0].name, sides[1].name), watch, tolerance)


def _copy(plan: Plan, deployed: Plan, first: Side, fresh: Sequence[Side], watch: Watch) -> None:
    if not first.settings.log_dir.is_dir():
        title = f"target {first.name} has no input to compare over: its log {first.settings.log_dir} is not there"
        help_ = f"flowql topic import TOPIC FILE -t {first.name}"
        raise CommandError(title, code=NO_RESULT, help=help_)
    logs: list[EmbeddedLog] = []
    try:
        origin = EmbeddedLog(first.settings.log_dir)
        logs.append(origin)
        for side in fresh:
            side.settings.data_dir.mkdir(parents=True)
            logs.append(EmbeddedLog(side.settings.log_dir))
        watch.begin(f"copying the input of {first.name}", count_records(plan, origin))
        copy_inputs(plan, deployed, origin, logs[1:], int(time.time() * 1000), watch.advance)
    finally:
        for log in logs:
            log.close()


# Running.


def _run(plan: Plan, side: Side, watch: Watch) -> None:
    """All of the input through all queries of one side. What INSERT VALUES wrote is part of the copied input."""
    engine = open_engine(side.settings, side.mode)
    try:
        engine.start()
        engine.deploy(replace(plan, inserts=()))
        done = engine.catch_up()
        _follow(engine, side, done, watch)
    finally:
        engine.stop()


def _follow(engine: Engine, side: Side, done: Callable[[], bool], watch: Watch) -> None:
    left = _lag(engine)
    watch.begin(f"running on {side.name}", left)
    while not done():
        if engine.fatal is not None:
            raise CommandError(f"target {side.name}: {type(engine.fatal).__name__}: {engine.fatal}", code=FAILED)
        _check(engine, side, stuck=FAILURES_MAX)
        time.sleep(_POLL_S)
        now = _lag(engine)
        watch.advance(left - now)
        left = now
    _check(engine, side, stuck=None)


def _lag(engine: Engine) -> int:
    return sum(int(q["lag"] or 0) for q in engine.status()["queries"])


def _check(engine: Engine, side: Side, *, stuck: int | None) -> None:
    """A query that cannot go on makes a comparison worthless. stuck: failures after which it is given up."""
    bad = [
        q
        for q in engine.status()["queries"]
        if q["state"] == "error" or (stuck is not None and q["errors"] >= stuck and q["lag"])
    ]
    if bad:
        title = "; ".join(f"{q['id']} on target {side.name} fails: {q['last_error']}" for q in bad)
        raise CommandError(title, code=FAILED)


# Comparing.


def _compare(plan: Plan, sides: tuple[Side, Side], names: tuple[str, str], watch: Watch, tolerance: float) -> Report:
    first, second = (EmbeddedLog(side.settings.log_dir) for side in sides)
    try:
        sinks = sinks_of(plan)
        watch.begin("comparing", len(sinks))
        reports = []
        for sink in sinks:
            _expect(sink, first, names[0])
            _expect(sink, second, names[1])
            reports.append(compare_sink(sink, first, second, tolerance))
            watch.advance(1)
        return Report(names, tuple(reports))
    finally:
        first.close()
        second.close()


def _expect(sink: SourceDef, log: Log, target: str) -> None:
    if sink.topic not in log.admin().topics():
        title = f"target {target} has no topic {sink.topic}, which {sink.name} is written to"
        raise CommandError(title, code=NO_RESULT, help=f"flowql run -t {target} --until-caught-up")
