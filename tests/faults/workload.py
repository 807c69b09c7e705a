"""A small real instance in a process whose disk fails: it is fed, committed, stopped, opened again, and compared with the oracle."""

from __future__ import annotations

import gc
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.deploy.engine import open_instance
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import AWAY, caught_up, source_ends
from flowql.runtime.app.status import instance_metrics, statuses
from flowql.runtime.commit import coordinator
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogError, RuntimeFailure
from flowql.runtime.events import EVENT, LOGGER
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from tests.crash.contents import DEAD_LETTERS, records_of
from tests.faults.shim import Shim

SQL = """
CREATE STREAM S (K STRING KEY, G BIGINT, V BIGINT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM BIG WITH (KAFKA_TOPIC='big') AS SELECT K, V FROM S WHERE V > 5 EMIT CHANGES;
CREATE TABLE SUMS WITH (KAFKA_TOPIC='sums') AS SELECT G, SUM(V) AS N, COUNT(*) AS C FROM S GROUP BY G EMIT CHANGES;
"""
PARTS, ROWS = 4, 12
LIFE_S = 90.0  # of a machine that is busy; else a second
TRIES = 8  # of what a user does, who does it again when it fails
FLUSH_BYTES = 1  # of redo: each commit is followed by a flush of RocksDB


@dataclass(slots=True)
class Life:
    """What became of an instance. wrong: sentences, none if all is well. starts: how often it was opened until it ran."""

    wrong: list[str] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    starts: int = 0
    broke: str = ""

    def to_data(self) -> dict[str, Any]:
        return {
            "wrong": self.wrong,
            "events": dict(self.events),
            "said": self.said,
            "trouble": self.trouble,
            "starts": self.starts,
        }


@cache
def plan() -> Plan:
    result = compile_project([SourceText("faults.sql", SQL)])
    assert result.ok, result.diagnostics
    return result.plan


def rows(part: int) -> list[tuple[str, int, int]]:
    return [(f"k{n}", n % 5, n % 11) for n in range(part * ROWS, (part + 1) * ROWS)]


class _Events(logging.Handler):
    def __init__(self, life: Life) -> None:
        super().__init__()
        self.life = life

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, EVENT)
        self.life.events[event["event"]] += 1
        if record.levelno >= logging.ERROR:
            self.life.said.append(f"{event['event']}: {record.getMessage()} {event.get('trace', '')}")


def live(folder: Path, *, threads: int = 1, between: Callable[[int], None] = lambda part: None) -> Life:
    """Until all input is processed and committed, and the instance has stopped. The input that is not in the log is appended.

    between: called after a part of the input.
    """
    life = Life()
    coordinator.REDO_FLUSH_BYTES = FLUSH_BYTES
    handler = _Events(life)
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    until = time.monotonic() + LIFE_S
    try:
        instance = _started(folder, life, threads)
        if instance is not None:
            try:
                _work(folder, instance, life, until, between)
            except LogError as error:
                life.broke = f"{type(error).__name__}: {error}"
            finally:
                _stopped(instance, life)
    finally:
        LOGGER.removeHandler(handler)
    if life.events["thread.died"] and not life.broke:
        life.wrong.append("a thread died")
    return life


def _started(folder: Path, life: Life, threads: int) -> Instance | None:
    """As a supervisor does it, again and again."""
    for _ in range(TRIES):
        life.starts += 1
        try:
            config = InstanceConfig(threads=threads, latency_target_ms=20, rows_per_run=7)
            return open_instance(folder / "log", folder / "state", config)
        except RuntimeFailure as error:
            life.said.append(f"start: {error}")
        gc.collect()  # what a failed start has left would end with its process
    life.wrong.append(f"it never starts: {life.said[-1]}")
    return None


def _work(folder: Path, instance: Instance, life: Life, until: float, between: Callable[[int], None]) -> None:
    instance.start()
    _again(life, lambda: _append(folder, None))
    _again(life, instance.resume)
    if not instance.plan.queries:
        _again(life, lambda: instance.deploy(plan()))
    for part in range(PARTS):
        _again(life, lambda part=part: _append(folder, part))  # type: ignore[misc]
        commits = instance.metrics.commits
        while instance.metrics.commits == commits and not _done(instance):
            if not _goes_on(instance, life, until):
                return
        between(part)
    while not _done(instance):
        if not _goes_on(instance, life, until):
            return


def _done(instance: Instance) -> bool:
    """Whether all is processed; a read of the log that fails in this thread says nothing of it."""
    try:
        return caught_up(instance, source_ends(instance))
    except AWAY:
        return False


def _goes_on(instance: Instance, life: Life, until: float) -> bool:
    if (blocked := instance_metrics(instance)["blocked"]) and blocked not in life.trouble:
        life.trouble.append(blocked)
    if instance.fatal is not None:
        life.broke = f"{type(instance.fatal).__name__}: {instance.fatal}"
        return False
    if time.monotonic() > until:
        life.wrong.append(f"it hangs: {statuses(instance)} {instance_metrics(instance)}")
        return False
    time.sleep(0.002)
    return True


def _again(life: Life, action: Callable[[], object]) -> None:
    for _ in range(TRIES):
        try:
            action()
            return
        except RuntimeFailure as error:
            life.said.append(f"{type(error).__name__}: {error}")
            time.sleep(0.02)
    life.wrong.append(f"it never succeeds: {life.said[-1]}")


def _append(folder: Path, part: int | None) -> None:
    """A part of the input, once, as another program does it. None: the topic."""
    log = EmbeddedLog(folder / "log")
    try:
        if "s" not in log.topics():
            log.create_topic("s", 1)
        if part is None or log.last_sequence(f"source {part}"):
            return
        records = [
            {
                "timestamp": 1_700_000_000_000 + n,
                "key": k.encode(),
                "value": json.dumps({"G": g, "V": v}).encode(),
                "headers": None,
            }
            for n, (k, g, v) in enumerate(rows(part))
        ]
        producer = log.producer(f"source {part}")
        producer.begin()
        producer.send(TopicPartition("s", 0), pa.RecordBatch.from_pylist(records, PRODUCE_SCHEMA))
        producer.commit()
        producer.close()
    finally:
        log.close()


def _stopped(instance: Instance, life: Life) -> None:
    try:
        stuck = instance.stop()
    except RuntimeFailure as error:
        life.said.append(f"stop: {error}")
    except Exception as error:
        life.wrong.append(f"stop: {type(error).__name__}: {error}")
    else:
        if stuck:
            life.wrong.append(f"threads that do not end: {stuck}")


def judge(folder: Path) -> list[str]:
    """What is wrong with the results of an instance that was given all input."""
    wrong = []
    every = [row for part in range(PARTS) for row in rows(part)]
    big = Counter((k, v) for k, _, v in every if v > 5)
    sums = {g: (sum(v for _, of, v in every if of == g), sum(of == g for _, of, _ in every)) for g in range(5)}
    instance = open_instance(folder / "log", folder / "state", InstanceConfig())
    try:
        log = instance.log
        found = Counter((r["key"].decode(), json.loads(r["value"])["V"]) for _, r in records_of(log, "big"))
        if found != big:
            wrong.append(f"big: lost {dict(big - found)}, too many {dict(found - big)}")
        last = {r["key"]: json.loads(r["value"]) for _, r in records_of(log, "sums")}
        told = sorted((v["N"], v["C"]) for v in last.values())
        if told != sorted(sums.values()):
            wrong.append(f"sums: {told} instead of {sorted(sums.values())}")
        with instance.snapshot() as snapshot:
            store = next(s.name for s in snapshot.stores() if s.name.startswith("SUMS"))
            kept = {key[0]: tuple(value[:2]) for key, value in snapshot.scan(store)}
        if kept != sums:
            wrong.append(f"the state of SUMS: {kept} instead of {sums}")
        if DEAD_LETTERS in log.admin().topics() and (letters := records_of(log, DEAD_LETTERS)):
            wrong.append(f"dead letters: {letters[:2]}")
    finally:
        instance.close()
    return wrong


def faulty_life(
    folder: Path, shim: Shim, what: str, kind: str, at: int, times: int, jumps_s: Sequence[int] = ()
) -> dict[str, Any]:
    """A life with a fault in it, and what came of it. jumps_s: by how much the wall clock is set after each part of the input."""
    jumps = dict(enumerate(jumps_s))
    shim.arm(folder / what, kind, at, times)
    wall, timer = time.time(), time.monotonic()
    life = live(folder, between=lambda part: shim.set_clock(jumps.get(part, 0)))
    met, seen = shim.met, shim.seen
    jumped_s = round(time.time() - wall - (time.monotonic() - timer))
    shim.arm(folder / what, "none", 0)
    if life.broke:
        life.wrong.append(f"it broke: {life.broke}")
    if not life.wrong:
        life.wrong += judge(folder)
    return {**life.to_data(), "met": met, "seen": seen, "jumped_s": jumped_s}
