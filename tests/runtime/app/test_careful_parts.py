"""Careful mode alone: which errors begin it, what it knows of sizes, when it is over, and what it refuses meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from flowql.runtime.app.careful import CarefulQueries
from flowql.runtime.errors import LogUnavailable, RecordRefused
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.state.changelog import changelog_topic
from flowql.runtime.state.frozen import UnwritableState
from flowql.runtime.task.channels import ExchangeInput
from flowql.runtime.task.program import ExchangeRows, SinkRecords
from flowql.runtime.task.task import Task
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_exchanges import batch

SQL = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE R AS SELECT V % 2 AS M, COUNT(*) AS N FROM S GROUP BY V % 2 EMIT CHANGES;
"""
Q, OUT = "CTAS_R", "R"
UNWRITABLE = UnwritableState("t", "store", ValueError("this value"))


def too_large(topic: str = OUT, bytes_max: int | None = 100, *, placed: bool = True) -> RecordRefused:
    error = RecordRefused("a record is too large")
    error.bytes_max = bytes_max
    error.partition = TopicPartition(topic, 1) if placed else None
    return error


class Site:
    """A query with two tasks that read `s` and two that read from those, and careful mode over them."""

    def __init__(self) -> None:
        self.world = InstanceHarness(SQL)
        self.world.send("s", [(n, {"V": n}, n) for n in range(20)])
        self.world.settle()
        self.queries = CarefulQueries(self.world.instance.state, "flowql")

    @property
    def tasks(self) -> list[Task]:
        return self.world.instance.queries[Q].built.tasks

    def begin(self, error: Exception = UNWRITABLE) -> bool:
        return self.queries.begin(Q, self.tasks, error)

    def look(self, tasks: Sequence[Task] | None = None) -> None:
        self.queries.look({Q: self.tasks if tasks is None else tasks})

    @property
    def careful(self) -> bool:
        """Each of its tasks is checked."""
        checked = {task.check is not None for task in self.tasks}
        assert len(checked) == 1
        return checked.pop()

    def exchange(self) -> ExchangeInput:
        return next(x for task in self.tasks for x in task.exchanges.values())


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize(
    "error",
    [
        LogUnavailable("no broker answers"),
        too_large(bytes_max=None),
        too_large(placed=False),
        UnwritableState("t", "store", KeyError("a mistake of the code")),
    ],
)
def test_what_no_record_is_to_blame_for_begins_nothing(site: Site, error: Exception) -> None:
    assert site.begin(error) is False
    site.queries.attach(site.tasks)
    assert not site.careful


@pytest.mark.parametrize("error", [UNWRITABLE, too_large()])
def test_new_tasks_of_the_query_are_checked_until_they_are_where_they_were(site: Site, error: Exception) -> None:
    reached = {str(t.id): {name: i.position for name, i in t.logs.items()} for t in site.tasks}
    assert site.begin(error) is True
    site.look()
    site.queries.attach(site.tasks)
    assert site.careful, "the tasks are new"
    for task in site.tasks:
        for i in task.logs.values():
            i.position -= 1
    site.look()
    assert site.careful, "they begin at the last commit"
    site.look([])
    assert site.careful, "it is suspended"
    *_, last = (i for t in site.tasks for i in t.logs.values())
    for task in site.tasks:
        for name, i in task.logs.items():
            i.position = reached[str(task.id)][name] - (i is last)
    site.look()
    assert site.careful, "one is not there yet"
    last.position += 1
    site.look()
    assert not site.careful
    site.queries.attach(site.tasks)
    assert not site.careful, "nothing is left of it"


def test_old_tasks_that_are_there_do_not_end_it(site: Site) -> None:
    site.begin()
    site.look()
    site.queries.attach(site.tasks)
    assert site.careful


def test_tasks_of_other_queries_are_not_checked(site: Site) -> None:
    site.queries.begin("ANOTHER", site.tasks, UNWRITABLE)
    site.queries.attach(site.tasks)
    assert not site.careful


def test_what_tasks_have_sent_each_other_meanwhile_is_waited_for(site: Site) -> None:
    """As of when all have come to where they were: later rows do not matter."""
    site.begin()
    site.queries.attach(site.tasks)
    exchange = site.exchange()
    exchange.push(batch(range(3)))
    exchange.push(batch(range(3, 5)))
    site.look()
    assert site.careful
    exchange.push(batch(range(5, 9)))
    exchange.consume(3)
    site.look()
    assert site.careful, "one of two is processed"
    exchange.consume(2)
    site.look()
    assert not site.careful
    assert exchange.queue


def test_a_search_that_fails_again_for_the_same_is_given_up(site: Site) -> None:
    assert site.begin(too_large(OUT, 100))
    assert site.begin(too_large(OUT, 100)), "no task was new since"
    site.queries.attach(site.tasks)
    assert not site.begin(too_large(OUT, 100))
    assert site.begin(too_large("other", 50)), "another topic"
    site.queries.attach(site.tasks)
    assert site.begin(too_large(OUT, 90)), "it takes less than was known"
    site.queries.attach(site.tasks)
    assert not site.begin()
    assert site.queries.bytes_max(Q, OUT) == 90
    assert site.queries.bytes_max(Q, "other") == 50
    assert site.queries.bytes_max(Q, "third") is None
    assert site.queries.bytes_max("ANOTHER", OUT) is None


def test_the_end_is_that_of_all_attempts(site: Site) -> None:
    """An attempt that ends earlier does not shorten the search, and tasks without inputs now keep theirs."""
    site.begin()
    inputs = [i for t in site.tasks for i in t.logs.values()]
    for i in inputs:
        i.position += 5
    site.queries.begin(Q, [t for t in site.tasks if t.logs][:1], UNWRITABLE)
    site.queries.attach(site.tasks)
    inputs[0].position -= 1
    site.look()
    assert site.careful, "the second attempt had come further in it"
    inputs[0].position += 1
    inputs[1].position -= 6
    site.look()
    assert site.careful, "the first had come further in this one"
    inputs[1].position += 1
    site.look()
    assert not site.careful


def test_tasks_that_were_not_there_when_it_began_do_not_keep_it_going(site: Site) -> None:
    """They may have read nothing, and nothing may have come to them."""
    *others, added = (t for t in site.tasks if t.logs)
    site.queries.begin(Q, others, UNWRITABLE)
    site.queries.attach(site.tasks)
    for i in added.logs.values():
        i.position = 0
    receiving = [t for t in site.tasks if t.exchanges]
    exchange = next(iter(receiving[0].exchanges.values()))
    exchange.push(batch(range(3)))
    site.look([*others, receiving[0]])
    assert site.careful
    exchange.consume(3)
    for x in receiving[1].exchanges.values():
        x.first = 0
    site.look()
    assert not site.careful


def checked(site: Site, task: Task, *outputs: SinkRecords | ExchangeRows) -> None:
    assert task.check is not None
    task.check(task, outputs)


def sink(*sizes: int, topic: str = OUT) -> SinkRecords:
    rows = [{"timestamp": 0, "key": b"k", "value": b"x" * (n - 1), "headers": None} for n in sizes]
    return SinkRecords(topic, ((1, pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA)),))


def test_a_result_above_what_its_topic_takes_is_refused(site: Site) -> None:
    site.begin(too_large(OUT, 100))
    site.queries.attach(site.tasks)
    checked(site, site.tasks[0], sink(100, 7), sink(500, topic="another"))
    with pytest.raises(RecordRefused, match="a record of 101 bytes for R-1, which takes 100"):
        checked(site, site.tasks[0], sink(100), sink(7, 101))


def test_rows_between_tasks_that_cannot_be_written_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.begin()
    site.queries.attach(site.tasks)
    rows = ExchangeRows("between", ((0, batch(range(3))),))
    checked(site, site.tasks[0], rows)

    def refused(_batch: object) -> bytes:
        raise ValueError("this value")

    monkeypatch.setattr("flowql.runtime.app.careful.encode_batch", refused)
    with pytest.raises(UnwritableState, match="into between that cannot be kept: this value"):
        checked(site, site.tasks[0], rows)


def test_a_row_of_state_above_what_its_changelog_takes_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    store = "CTAS_R-aggregate-1"
    site.begin(too_large(changelog_topic("flowql", store), 10))
    site.queries.attach(site.tasks)
    written: dict[str, tuple[list[bytes], list[bytes | None]]] = {}
    monkeypatch.setattr(site.world.instance.state, "batch_of", lambda task: written)
    checked(site, site.tasks[0])
    written["another"] = [b"k" * 50], [None]
    written[store] = [], []
    checked(site, site.tasks[0])
    written[store] = [b"k" * 5, b"k" * 10], [b"v" * 5, None]
    checked(site, site.tasks[0])
    written[store] = [b"k" * 5, b"k" * 5], [b"v" * 6, None]
    with pytest.raises(RecordRefused, match=f"11 bytes for {store}, which takes 10"):
        checked(site, site.tasks[0])
