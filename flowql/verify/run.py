"""Run a project on targets over one input, or take what they hold already, and compare every result with the first one's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from flowql.compiler.plan.logical import Scan, Sink, walk_nodes
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.config.storage import log_at
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.kafka.broker import Broker
from flowql.runtime.log.base import PRODUCE_SCHEMA, Log, Producer, TopicPartition
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.topology.query import build_inserts, ensure_topics
from flowql.server.choice import open_engine
from flowql.server.engine import Engine, Mode
from flowql.verify.leftover import records_of
from flowql.verify.match import compare_sink
from flowql.verify.report import Report
from flowql.verify.values import TOLERANCE

NO_RESULT, FAILED, SAME_TOPICS = "FQ5602", "FQ5603", "FQ5604"
FAILURES_MAX = 3  # restarts of a query after which its target has failed
_POLL_S = 0.05


class Watch(Protocol):
    """Who follows a comparison. Steps come one after the other: `begin`, then `advance` until the next `begin`."""

    def begin(self, title: str, total: int) -> None: ...

    def advance(self, n: int) -> None: ...

    def ran(self, target: str, query: Mapping[str, Any]) -> None:
        """A query has read all its input: its entry of `status`."""
        ...


@dataclass(frozen=True, slots=True)
class Side:
    """One of the targets. mode: how its engine reads the existing records."""

    name: str
    settings: Settings
    mode: Mode = "caught up"


def sinks_of(plan: Plan) -> tuple[SourceDef, ...]:
    """The sinks of a plan's queries, each once, in the order of the queries."""
    named = dict.fromkeys(q.sink for q in plan.queries)
    return tuple(s for name in named for s in [plan.source(name)] if s is not None)


def verify(
    plan: Plan, deployed: Plan, sides: Sequence[Side], folder: Path, watch: Watch, tolerance: float = TOLERANCE
) -> list[Report]:
    """Copy the input from the log of the first side, run all in fresh directories below `folder`, compare each with the first.

    deployed: what was deployed to the first side. The directories of the targets themselves are only read, and so is their
    Kafka: a side on Kafka runs on a broker of its own, which is started in its directory and goes with it.
    """
    first, now_ms = sides[0], int(time.time() * 1000)
    if first.settings.kafka is None and not first.settings.log_dir.is_dir():
        title = f"target {first.name} has no input to compare over: its log {first.settings.log_dir} is not there"
        raise CommandError(title, code=NO_RESULT, help=f"flowql topic import TOPIC FILE -t {first.name}")
    fresh = [
        replace(side, settings=_fresh(side.settings, folder / f"{n}-{side.name}")) for n, side in enumerate(sides, 1)
    ]
    for side in fresh:
        with at_hand(side) as own:
            _copy(plan, deployed, first, own, now_ms, watch)
            _run(plan, own, watch)
    return _compare_all(plan, fresh, watch, tolerance)


def _fresh(settings: Settings, data_dir: Path) -> Settings:
    """The same settings with nothing that has run. What Spark writes to an address is apart from that of the target, and removed at the end."""
    spark = settings.spark
    if spark.checkpoint:
        at = f"{spark.checkpoint.rstrip('/')}/verify-{os.urandom(4).hex()}"
        spark = replace(spark, checkpoint=at, temporary=True)
    return replace(settings, data_dir=data_dir, spark=spark)


def compare_held(plan: Plan, sides: Sequence[Side], watch: Watch, tolerance: float = TOLERANCE) -> list[Report]:
    """Compare what the logs of the sides hold with what the first one holds, without running anything."""
    for side in sides:
        if side.settings.kafka is None and not side.settings.log_dir.is_dir():
            title = f"nothing has run on target {side.name} yet"
            raise CommandError(title, code=NO_RESULT, help=f"flowql run -t {side.name} --until-caught-up")
    for side in sides[1:]:
        if _same_topics(sides[0], side):
            title = f"targets {sides[0].name} and {side.name} write into the same topics"
            raise CommandError(title, code=SAME_TOPICS, help="without --held each runs on a separate broker")
    return [_compare(plan, (sides[0], other), watch, tolerance) for other in sides[1:]]


def _same_topics(one: Side, other: Side) -> bool:
    kafka, also = one.settings.kafka, other.settings.kafka
    return kafka is not None and also is not None and kafka.bootstrap == also.bootstrap


@contextmanager
def at_hand(side: Side) -> Iterator[Side]:
    """A side in a fresh directory; one on Kafka with a broker there, running until the end of the block."""
    side.settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if side.settings.kafka is None:
        yield side
        return
    broker = Broker(side.settings.data_dir / "broker")
    try:
        running = broker.start(port=None if broker.log_file.exists() else 0)
        kafka = KafkaSettings(running.bootstrap, shared=side.settings.kafka.shared)
        yield replace(side, settings=replace(side.settings, kafka=kafka))
    finally:
        broker.stop()


def _log_of(side: Side) -> Log:
    s = side.settings
    return log_at(s.log_dir, s.kafka, s.application_id)


def _copy(plan: Plan, deployed: Plan, first: Side, fresh: Side, now_ms: int, watch: Watch) -> None:
    with closing(_log_of(first)) as origin, closing(_log_of(fresh)) as copy:
        watch.begin(f"copying the input of {first.name}", count_records(plan, origin))
        copy_inputs(plan, deployed, origin, [copy], now_ms, watch.advance)


# Running.


def _run(plan: Plan, side: Side, watch: Watch) -> None:
    """All of the input through all queries of one side. What INSERT VALUES wrote is part of the copied input."""
    engine = open_engine(side.settings, side.mode)
    try:
        engine.start()
        engine.deploy(replace(plan, inserts=(), changes=()))
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
    for query in engine.status()["queries"]:
        watch.ran(side.name, query)


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


def _compare_all(plan: Plan, fresh: Sequence[Side], watch: Watch, tolerance: float) -> list[Report]:
    reports = []
    with at_hand(fresh[0]) as first:
        for side in fresh[1:]:
            with at_hand(side) as other:
                reports.append(_compare(plan, (first, other), watch, tolerance))
    return reports


def _compare(plan: Plan, sides: tuple[Side, Side], watch: Watch, tolerance: float) -> Report:
    with closing(_log_of(sides[0])) as first, closing(_log_of(sides[1])) as second:
        sinks = sinks_of(plan)
        watch.begin(f"comparing {sides[0].name} and {sides[1].name}", len(sinks))
        reports = []
        for sink in sinks:
            _expect(sink, first, sides[0].name)
            _expect(sink, second, sides[1].name)
            reports.append(compare_sink(sink, first, second, tolerance))
            watch.advance(1)
        return Report((sides[0].name, sides[1].name), tuple(reports))


def _expect(sink: SourceDef, log: Log, target: str) -> None:
    if sink.topic not in log.admin().topics():
        title = f"target {target} has no topic {sink.topic}, which {sink.name} is written to"
        raise CommandError(title, code=NO_RESULT, help=f"flowql run -t {target} --until-caught-up")


# The same input for every target: topics that queries read and none of them writes, copied once into fresh logs.

NO_INPUT = "FQ5601"
_TRANSACTION_BYTES = 128 << 20
_ID = "flowql-verify"


def source_topics(plan: Plan) -> tuple[str, ...]:
    """Topics that come from outside."""
    specs = [n.spec for query in plan.queries for n in walk_nodes(query.logical)]
    written = {s.topic for s in specs if isinstance(s, Sink)}
    return tuple(sorted({s.topic for s in specs if isinstance(s, Scan)} - written))


def count_records(plan: Plan, log: Log) -> int:
    """How much there is to copy; offsets may have gaps, so at most that many records."""
    admin = log.admin()
    found = admin.topics()
    tps = [TopicPartition(t, p) for t in source_topics(plan) if t in found for p in range(found[t].partitions)]
    return sum(admin.end_offset(tp) - admin.begin_offset(tp) for tp in tps)


def copy_inputs(
    plan: Plan, deployed: Plan, origin: Log, copies: Sequence[Log], now_ms: int, advance: Callable[[int], None]
) -> int:
    """Write the input of a plan into logs that have none of its topics yet; returns the number of records of each.

    deployed: what runs over `origin`: what its INSERT VALUES wrote is in the topics already, those of the plan alone are
    written here, at one time for all copies. Raises CommandError when there is nothing.
    """
    topics = source_topics(plan)
    existing = origin.admin().topics()
    for log in copies:
        for topic in topics:
            if topic in existing:
                log.admin().create_topic(topic, existing[topic].partitions, existing[topic].config)
        ensure_topics(plan, log.admin())
    producers = [log.producer(_ID) for log in copies]
    for p in producers:
        p.begin()
    count = pending = 0
    for topic in topics:
        for tp, records in records_of(origin, topic):
            batch = records.select(PRODUCE_SCHEMA.names)
            for p in producers:
                p.send(tp, batch)
            count += batch.num_rows
            pending += batch.nbytes
            advance(batch.num_rows)
            if pending > _TRANSACTION_BYTES:
                for p in producers:
                    p.commit()
                    p.begin()
                pending = 0
    count += _insert(plan, deployed, copies[0], producers, now_ms)
    for p in producers:
        p.commit()
        p.close()
    if not count:
        names = ", ".join(topics) or "none"
        title = f"there is no input to compare over (source topics: {names})"
        raise CommandError(title, code=NO_INPUT, help="flowql topic import TOPIC FILE -t TARGET  (the first target)")
    return count


def _insert(plan: Plan, deployed: Plan, like: Log, producers: Sequence[Producer], now_ms: int) -> int:
    """Rows of INSERT VALUES that the copied topics do not hold."""
    copied = set(source_topics(plan))
    targets = {s.name: s.topic for s in plan.sources}
    inserts = [i for i in plan.inserts if targets[i.target] not in copied or i not in deployed.inserts]
    records = build_inserts(plan, inserts, like.admin(), now_ms)
    for tp, batch in records:
        for p in producers:
            p.send(tp, batch)
    return sum(batch.num_rows for _, batch in records)
