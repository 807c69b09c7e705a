"""All tasks of a plan: which partitions each reads, who writes repartitions, and which tasks come before which."""

from __future__ import annotations

from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.app.frontier import Upstream
from flowql.runtime.app.planned_tasks import PlannedTasks, tasks_as_begun
from flowql.runtime.commit.positions import readers
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.changelog import WrittenTask
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.values import encode_metadata
from flowql.runtime.task.id import TaskId
from flowql.runtime.topology.log_facts import LogFacts
from tests.runtime.app.harness import plan_of

SQL = """
CREATE STREAM S (K BIGINT KEY, G BIGINT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM C AS SELECT K, G FROM S EMIT CHANGES;
CREATE TABLE N AS SELECT G, COUNT(*) AS N FROM S GROUP BY G EMIT CHANGES;
"""
COPY, COUNT = "CSAS_C", "CTAS_N"
S = [TopicPartition("s", p) for p in range(2)]


def site() -> tuple[MemoryLog, Plan]:
    log = MemoryLog()
    log.create_topic("s", 2)
    return log, plan_of(SQL)


def query(plan: Plan, name: str) -> QueryPlan:
    return next(q for q in plan.queries if q.id == name)


def written(tasks: int | None) -> WrittenTask:
    return WrittenTask(1, TaskRecord(0, (), encode_metadata({} if tasks is None else {"tasks": tasks})))


def planned(*without: str) -> PlannedTasks:
    log, plan = site()
    facts = LogFacts(log, "app", plan.queries)
    return PlannedTasks.of(plan, "app", lambda q: [] if q.id in without else tasks_as_begun(q, facts, {}))


def test_a_query_has_as_many_tasks_as_when_it_began() -> None:
    log, plan = site()
    of, facts = query(plan, COUNT), LogFacts(log, "app", plan.queries)
    two = [TaskId(COUNT, n, p) for n in range(2) for p in range(2)]
    assert tasks_as_begun(of, facts, {}) == two
    others = {f"{COPY}/0_0": written(1), f"{COPY}/1_0": written(5), f"{COUNT}2/0_0": written(5)}
    assert tasks_as_begun(of, facts, others) == two, "records of other queries"
    assert tasks_as_begun(of, facts, {f"{COUNT}/1_0": written(None)}) == two, "older records do not tell it"
    begun = {f"{COUNT}/0_1": written(1), f"{COUNT}/1_12": written(3)}
    assert tasks_as_begun(of, facts, begun) == [TaskId(COUNT, 0, 0), *(TaskId(COUNT, 1, p) for p in range(3))]


def test_each_task_reads_its_partition_of_each_input() -> None:
    found = planned()
    (repartition,) = found.writers
    again = [TopicPartition(repartition, p) for p in range(2)]
    assert found.writers == {repartition: (COUNT, 0)}
    assert repartition.startswith("app-")
    assert found.reads == {
        **{TaskId(COPY, 0, p): frozenset({S[p]}) for p in range(2)},
        **{TaskId(COUNT, 0, p): frozenset({S[p]}) for p in range(2)},
        **{TaskId(COUNT, 1, p): frozenset({again[p]}) for p in range(2)},
    }
    assert found.topics == {"s", repartition}
    assert found.partitions == {*S, *again}
    assert found.readers == {
        **{S[p]: readers([TaskId(COPY, 0, p), TaskId(COUNT, 0, p)]) for p in range(2)},
        **{again[p]: readers([TaskId(COUNT, 1, p)]) for p in range(2)},
    }


def test_what_is_stopped_has_no_tasks() -> None:
    found = planned(COUNT)
    assert set(found.reads) == {TaskId(COPY, 0, p) for p in range(2)}
    assert (found.has(COPY), found.has(COUNT), found.has("CSAS")) == (True, False, False)
    assert found.topics == {"s"}


def test_a_task_is_of_who_has_all_of_its_partitions() -> None:
    one, two = TaskId("Q", 0, 0), TaskId("Q", 0, 1)
    found = PlannedTasks({one: frozenset({S[0]}), two: frozenset(S)})
    assert found.within({S[0]}) == {one: frozenset({S[0]})}
    assert found.within(frozenset(S)) == found.reads
    assert found.within({S[1]}) == {}


def test_before_a_task_come_all_that_write_its_repartition() -> None:
    found = planned()
    first = tuple(TaskId(COUNT, 0, p) for p in range(2))
    upstream = found.upstream()
    assert upstream.keys() == found.reads.keys()
    for task, of in upstream.items():
        last = task in (TaskId(COUNT, 1, 0), TaskId(COUNT, 1, 1))
        assert of == Upstream(found.reads[task], first if last else ())
