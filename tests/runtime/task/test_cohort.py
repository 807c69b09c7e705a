"""Joint micro-batches: each task has the results, the state and the dead letters that it has when it is processed alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from flowql.runtime.app import beat_file
from flowql.runtime.app.progress import query_status
from flowql.runtime.batch import Batch
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.encode import Encoder
from flowql.runtime.operators.projections import ProjectionChain
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.task_state import ManagedTask
from flowql.runtime.task.cohort import INPUTS_MAX, Cohort
from flowql.runtime.task.program import JointPart, Output
from flowql.runtime.task.task import Task, not_noted
from flowql.runtime.topology.program import TaskProgram
from tests.runtime.app.harness import InstanceHarness, Sent

SQL = """
CREATE STREAM S (K BIGINT KEY, G BIGINT, V BIGINT, AT BIGINT)
  WITH (KAFKA_TOPIC = 's', KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON', PARTITIONS = 6, TIMESTAMP = 'AT');
CREATE TABLE COUNTS WITH (KAFKA_TOPIC = 'counts', KEY_FORMAT = 'KAFKA') AS
  SELECT G, COUNT(*) AS N, SUM(V) AS T FROM S
  WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 2 SECONDS, GRACE PERIOD 1 SECONDS) GROUP BY G EMIT FINAL;
CREATE STREAM CLOSED (G BIGINT KEY, N BIGINT)
  WITH (KAFKA_TOPIC = 'counts', VALUE_FORMAT = 'JSON', WINDOW_TYPE = 'HOPPING', WINDOW_SIZE = '10 SECONDS');
CREATE TABLE MOST WITH (KAFKA_TOPIC = 'most') AS
  SELECT WINDOWSTART AS OPENS, MAX(STRUCT(N := N, G := G))->G AS G, MAX(N) AS N FROM CLOSED GROUP BY WINDOWSTART EMIT CHANGES;
CREATE TABLE SUMS WITH (KAFKA_TOPIC = 'sums') AS
  SELECT G, COUNT(*) AS N, LATEST_BY_OFFSET(K) AS K, 100 / SUM(V) AS D FROM S WHERE V <> 5 GROUP BY G EMIT CHANGES;
CREATE STREAM MOVED WITH (KAFKA_TOPIC = 'moved') AS SELECT V, K, G, 10 / G AS D FROM S PARTITION BY V EMIT CHANGES;
CREATE STREAM ONCE (K BIGINT KEY, G BIGINT)
  WITH (KAFKA_TOPIC = 'once', KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON', PARTITIONS = 6);
CREATE TABLE ONLY WITH (KAFKA_TOPIC = 'only') AS SELECT G, COUNT(*) AS N FROM ONCE GROUP BY G EMIT CHANGES;
CREATE STREAM PLAIN WITH (KAFKA_TOPIC = 'plain') AS SELECT K, V, 10 / V AS D FROM S WHERE G > 2 EMIT CHANGES;
"""
WHOLE = 1 << 40  # a budget for all that waits


def rows(rnd: random.Random, n: int, at: int = 1_000_000) -> list[Sent]:
    """Rows out of order, some of them late or without a key; zeros that fail, and records that cannot be read."""
    found: list[Sent] = []
    for _ in range(n):
        at += rnd.choice([0, 40, 300])
        value: Any = {"G": rnd.choice([0, 1, 2, 3, 4, 5, None]), "V": rnd.choice([*range(-3, 9), None]), "AT": at}
        value["AT"] -= rnd.choice([0, 0, 0, 700, 15_000])
        bad = rnd.random() < 0.03
        found.append((rnd.choice([*range(40), None]), b'{"G": ' if bad else value, at))
    return found


def send(world: InstanceHarness, sent: Sequence[Sent]) -> None:
    """To both topics. Rows without a key go to all partitions in turn."""
    with_key = [row for row in sent if row[0] is not None]
    for topic in ("s", "once"):
        world.send(topic, with_key)
        world.producer.begin()
        for n, row in enumerate(row for row in sent if row[0] is None):
            world.producer.send(TopicPartition(topic, n % 6), world.encode([row]))
        world.producer.commit()


class Buffered:
    """An instance whose inputs are full, and whose tasks only the test processes."""

    def __init__(self, sent: Sequence[Sent], **config: Any) -> None:
        self.world = InstanceHarness(SQL, **config)
        for query in self.world.instance.queries:
            self.world.instance.manager.hold(query)
        send(self.world, sent)
        self.rounds()

    def rounds(self) -> None:
        assert self.world.driver is not None
        for _ in range(5):
            self.world.driver.round()

    def run(self, process: Callable[[list[Task]], object]) -> list[Any]:
        """Sub-topology after sub-topology, so that the rows of all arrive at the next one. What each has done."""
        done = []
        for name, query in self.world.instance.queries.items():
            for number in range(len(query.plan.subtopologies)):
                tasks = [t for t in query.built.tasks if t.id.subtopology == number]
                process(tasks)
                done.append((name, number, self.state(tasks)))
        return done

    def state(self, tasks: Sequence[Task]) -> Any:
        instance = self.world.instance
        channels = [c for t in tasks for c in t.downstream.channels]
        return (
            {str(t.id): t.state.metadata for t in tasks},
            {
                (t.id, name): sorted(store.scan(), key=repr)
                for t in tasks
                if isinstance(t.state, ManagedTask)
                for name, store in t.state.stores.items()
            },
            {(c.topic, c.partition, c.source): [row for b in c.queue for row in _rows(b)] for c in channels},
            {
                tp: [r for out in parts for r in out.records.to_pylist()]
                for tp, parts in instance.collector._buffers.items()
            },
            {
                q: (m.late_records, m.dead_letters, m.records_in, m.records_out)
                for q, m in instance.metrics.queries.items()
            },
        )


def _rows(batch: Any) -> list[Any]:
    origins = [None if batch.origins is None else batch.origins.of(n) for n in range(len(batch))]
    return list(zip(batch.rows(), batch.rowtime.tolist(), batch.op.tolist(), origins, strict=True))


def alone(tasks: list[Task]) -> None:
    for task in tasks:
        task.process(WHOLE)


def jointly(tasks: list[Task]) -> None:
    while Cohort(tasks, tasks[0]._clock).process(WHOLE, not_noted):
        pass


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks each joint micro-batch has; one that fails fails the test."""
    found: list[int] = []
    execute = TaskProgram.execute_jointly

    def execute_jointly(self: TaskProgram, parts: Sequence[JointPart]) -> list[list[Output]]:
        made = execute(self, parts)
        found.append(len(parts))
        return made

    monkeypatch.setattr(TaskProgram, "execute_jointly", execute_jointly)
    return found


@pytest.mark.parametrize("vector", [None, True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a_joint_micro_batch_is_those_of_its_tasks(seed: int, vector: bool | None, counted: list[int]) -> None:
    sent = rows(random.Random(seed), 600)
    assert Buffered(sent, vector=vector).run(jointly) == Buffered(sent, vector=vector).run(alone)
    assert len([n for n in counted if n > 2]) > 4


def test_a_task_with_much_to_do_and_one_with_a_timer_or_a_limit_run_alone(counted: list[int]) -> None:
    buffered = Buffered(rows(random.Random(1), 300), rows_per_run=50)
    tasks = buffered.world.instance.queries["CTAS_SUMS"].built.tasks[:6]
    assert [t.joins for t in tasks] == [t.buffered_rows < 50 for t in tasks]
    assert not all(t.joins for t in tasks)
    one = next(t for t in tasks if t.joins)
    one.check = lambda _task, _outputs: None
    assert not one.joins
    one.check = None
    one.read_up_to.ms = 0
    assert not one.joins
    one.read_up_to.ms = None
    one._limit.failed(10)
    assert not one.joins


def test_a_joint_micro_batch_grows_to_as_many_inputs_as_the_beat_file_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert INPUTS_MAX == beat_file._POSITIONS
    monkeypatch.setattr("flowql.runtime.task.cohort.INPUTS_MAX", 32)
    world = InstanceHarness(SQL.replace("PARTITIONS = 6", "PARTITIONS = 40"))
    tasks = [t for t in world.instance.queries["CTAS_SUMS"].built.tasks if t.id.subtopology == 0]
    begun: list[int] = []
    world.instance.manager.hold("CTAS_SUMS")
    world.send("s", [(n, {"G": n, "V": 1, "AT": 1_000_000}, 1_000_000) for n in range(1_000)])
    for _ in range(5):
        assert world.driver is not None
        world.driver.round()
    Cohort(tasks, world.clock).process(WHOLE, lambda members: begun.append(len(members)))
    assert begun == [8, 16, 16]
    world.send("s", [(n, {"G": n, "V": 1, "AT": 1_000_000}, 1_000_000) for n in range(1_000)])
    for _ in range(5):
        world.driver.round()
    Cohort(tasks, world.clock).process(WHOLE, lambda members: begun.append(len(members)))
    assert begun[3:] == [32, 8]


BAD = 7


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[type[Exception]]:
    """Projections raise this error for a batch with a certain value of K."""
    errors: list[type[Exception]] = []
    process = ProjectionChain.process

    def check(self: ProjectionChain, inputs: Any, run: MicroBatchContext) -> Any:
        names = () if inputs[0] is None else inputs[0].schema.names
        if errors and "K" in names and BAD in inputs[0].column("K"):
            raise errors[0]("bad")
        return process(self, inputs, run)

    monkeypatch.setattr(ProjectionChain, "process", check)
    return errors


def test_of_tasks_that_fail_together_only_the_bad_record_is_left_out(failing: list[type[Exception]]) -> None:
    """They are processed alone, and the one that fails alone is split by rows."""
    sent = [(n % 40, {"G": n % 4, "V": n, "AT": 1_000_000 + n}, 1_000_000) for n in range(400)]
    failing.append(ValueError)
    left_out = sum(key == BAD for key, _, _ in sent)
    found = []
    for process in (jointly, alone):
        buffered = Buffered(sent)
        done = buffered.run(process)
        found.append([(name, number, sorted(map(repr, state[0].items())), state[2]) for name, number, state in done])
        metrics = buffered.world.instance.metrics.queries["CTAS_SUMS"]
        assert (metrics.dead_letters, metrics.records_in) == (left_out, len(sent))
    assert found[0] == found[1]


def test_an_error_belongs_to_the_task_that_raises_it_alone(failing: list[type[Exception]]) -> None:
    sent = [(n % 40, {"G": n % 4, "V": n, "AT": 1_000_000 + n}, 1_000_000) for n in range(400)]
    buffered = Buffered([(key, value, at) for key, value, at in sent if key == BAD or key % 3 == 0])
    world, instance = buffered.world, buffered.world.instance
    failing.append(TypeError)
    query, bad = "CTAS_SUMS", world.partition("s", BAD)
    tasks = [t for t in instance.queries[query].built.tasks if t.id.subtopology == 0]
    assert max(tasks, key=lambda t: t.buffered_rows).id.partition != bad, "the task that is granted first"
    instance.manager.resume(query)
    step, failed = instance.processing[0], []
    while not (failed := instance.manager.drain_failures()):
        assert step.run_once(0) == 0
    assert [(f.task_id.partition, type(f.error)) for f in failed] == [(bad, TypeError)]
    assert not instance.manager.running()
    assert all(instance.manager.has(t.id) for t in tasks)


def test_an_error_while_results_are_published_belongs_to_their_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before it have published; those after it keep their rows."""
    buffered = Buffered(rows(random.Random(3), 200))
    tasks = [t for t in buffered.world.instance.queries["CTAS_SUMS"].built.tasks if t.id.subtopology == 0]
    publish = Task.publish

    def broken(self: Task, *args: Any) -> None:
        if self is tasks[2]:
            raise TypeError
        publish(self, *args)

    monkeypatch.setattr(Task, "publish", broken)
    cohort = Cohort(tasks, buffered.world.clock)
    with pytest.raises(TypeError):
        cohort.process(WHOLE, not_noted)
    assert cohort.current is tasks[2]
    assert [t.buffered_rows > 0 for t in tasks] == [False, False, True, True, True, True]
    monkeypatch.undo()
    jointly(tasks)
    assert not any(t.buffered_rows for t in tasks)


def test_rows_that_cannot_be_encoded_are_dead_letters_of_their_tasks(
    monkeypatch: pytest.MonkeyPatch, counted: list[int]
) -> None:
    encode = Encoder.encode

    def some(self: Encoder, batch: Batch, run: MicroBatchContext) -> Any:
        bad = np.array([v == BAD for v in batch.column("V")] if "V" in batch.schema.names else [False] * len(batch))
        for seq in batch.seq[bad].tolist():
            run.fail_row(seq, "FQ4031", "bad")
        return encode(self, batch.take(np.flatnonzero(~bad)), run)

    monkeypatch.setattr(Encoder, "encode", some)
    sent = rows(random.Random(4), 300)
    done = Buffered(sent).run(jointly)
    assert done == Buffered(sent).run(alone)
    assert done[-1][2][-1]["CSAS_PLAIN"][1] > 10
    assert counted


@pytest.mark.parametrize("seed", range(3))
def test_results_after_kills_are_those_of_tasks_that_run_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rnd = random.Random(seed)
    sent = rows(rnd, 700)
    parts = [sent[start : start + 100] for start in range(0, len(sent), 100)]
    with monkeypatch.context() as patch:
        patch.setattr(TaskProgram, "joins", False)
        world = InstanceHarness(SQL)
        for part in parts:
            send(world, part)
            world.settle()
        want = finished(world)
    log, physical = MemoryLog(), MemoryPhysical()
    world = InstanceHarness(SQL, log=log, physical=physical)
    for n, part in enumerate(parts):
        send(world, part)
        for kill in range(2):
            assert world.driver is not None
            for _ in range(rnd.randrange(12)):
                world.driver.round()
                if rnd.random() < 0.2:
                    world.driver.commit()
            log.crash()
            world = InstanceHarness(SQL, log=log, physical=physical, seed=seed * 100 + 2 * n + kill)
        world.settle()
    assert finished(world) == want


def finished(world: InstanceHarness) -> Any:
    """Rows, dead letters, late rows, and what tasks have read."""
    instance = world.instance
    letters = sorted(
        (v["QUERY"], v["TOPIC"], v["PARTITION"], v["OFFSET"] or 0, v["MESSAGE"])
        for v in world.values("flowql-dead-letters")
        if v["PARTITION"] is not None
    )
    tasks = [t for q in instance.queries.values() for t in q.built.tasks]
    positions = {str(t.id): at for t in tasks if (at := t.positions.get("s")) is not None}
    late = {q: query_status(instance, q)["late_records"] for q in instance.queries}
    plain = [(p, key, value, at) for p, _, key, value, at in world.records("plain")]
    moved = sorted((p, key or b"", repr(value), at) for p, _, key, value, at in world.records("moved"))
    return [world.table(name) for name in ("COUNTS", "MOST", "SUMS", "ONLY")], letters, positions, late, plain, moved
