"""Topics whose writers place keys differently: rows of one key are in different partitions, and a query that needs them together stops."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa
import pytest

from flowql.compiler.plan.logical import Aggregate, Sink
from flowql.compiler.plan.partitioners import meeting_scans
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import query_status
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.engine import COUNTS, OTHERS, plan

PARTITIONS = 4
KEYS = [f"customer-{n}" for n in range(60)]
JOINED = """CREATE STREAM JOINED WITH (KAFKA_TOPIC='joined') AS
  SELECT I.K AS K, O.V AS V FROM INPUT I JOIN OTHER O WITHIN 1 HOUR ON I.K = O.K EMIT CHANGES;"""
PLACED = "CREATE STREAM PLACED WITH (KAFKA_TOPIC='placed') AS SELECT K, V FROM INPUT EMIT CHANGES;"
JOINED_AS_PLACED = JOINED.replace("INPUT I", "PLACED I")
BY_VALUE = """CREATE STREAM BY_VALUE WITH (KAFKA_TOPIC='by_value') AS
  SELECT O.K AS K, O.V AS V FROM INPUT I JOIN OTHER O WITHIN 1 HOUR ON CAST(I.V AS STRING) = O.K EMIT CHANGES;"""

Place = Callable[[bytes, int], int]


def crc32(key: bytes, n: int) -> int:
    """As librdkafka places keys: `consistent_random` of its configuration."""
    return zlib.crc32(key) % n


def by_length(key: bytes, n: int) -> int:
    """A partitioner that nobody knows."""
    return (sum(key) + len(key)) % n


class Life:
    """An instance over topics of four partitions."""

    def __init__(self, log: MemoryLog | None = None, physical: MemoryPhysical | None = None) -> None:
        self.log, self.physical = log or MemoryLog(), physical or MemoryPhysical()
        clock = VirtualClock()
        self.instance = Instance(self.log, self.physical, clock, InstanceConfig(threads=1))
        self.driver = Driver(self.instance, tick=lambda: clock.advance(10))
        for topic in {"input", "other"} - self.log.topics().keys():
            self.log.create_topic(topic, PARTITIONS)

    def settle(self) -> None:
        for _ in range(80):
            self.driver.round()

    def again(self) -> Life:
        self.instance.close()
        after = Life(self.log, self.physical)
        after.instance.resume()
        return after

    def said(self, query: str) -> tuple[str, str]:
        status = query_status(self.instance, query)
        return status["state"], status["last_error"] or ""

    def why_stopped(self, query: str) -> str:
        state, why = self.said(query)
        assert state == "error"
        return why


def put(log: MemoryLog, topic: str, place: Place, keys: Iterable[str] = KEYS) -> None:
    producer = log.producer("test")
    producer.begin()
    for n, key in enumerate(keys):
        row = {"timestamp": n, "key": key.encode(), "value": json.dumps({"V": n}).encode(), "headers": None}
        tp = TopicPartition(topic, place(key.encode(), PARTITIONS))
        producer.send(tp, pa.RecordBatch.from_pylist([row], PRODUCE_SCHEMA))
    producer.commit()
    producer.close()


def keys_in(log: MemoryLog, topic: str) -> list[str]:
    found = []
    for p in range(log.topics()[topic].partitions):
        reader = log.reader(TopicPartition(topic, p), EARLIEST)
        while (batch := reader.read(10_000, 1 << 30)) is not None:
            found += [key.decode() for key in batch.records.column("key").to_pylist()]
    return sorted(found)


@pytest.mark.parametrize("first", ["input", "other"])
def test_topics_that_are_placed_differently_are_not_joined(first: str) -> None:
    """Three of four rows were missing without a word: a client of Python wrote one topic, one of Java the other."""
    life = Life()
    life.instance.deploy(plan(JOINED, OTHERS))
    for topic in sorted(("input", "other"), key=lambda t: t != first):
        put(life.log, topic, crc32 if topic == "input" else partition_for)
        life.settle()
    said = life.why_stopped("CSAS_JOINED")
    assert said.startswith("KeysMisplaced: CSAS_JOINED reads ")
    assert "so that rows of one key do not meet" in said
    assert len(keys_in(life.log, "others")) == 60, "another query goes on"
    after = life.again()
    after.settle()
    assert after.why_stopped("CSAS_JOINED")


@pytest.mark.parametrize("keys", [KEYS, KEYS[:3]])
def test_nothing_is_committed_of_topics_whose_records_are_there_and_placed_differently(keys: list[str]) -> None:
    """Few keys do not tell how a topic is placed; one that both topics have tells that its rows do not meet."""
    life = Life()
    put(life.log, "input", crc32, keys)
    put(life.log, "other", partition_for, keys)
    life.instance.deploy(plan(JOINED, OTHERS))
    life.settle()
    assert "so that rows of one key do not meet" in life.why_stopped("CSAS_JOINED")
    assert not keys_in(life.log, "joined")


def test_an_empty_key_in_two_partitions_is_not_counted_in_two_tasks() -> None:
    """librdkafka places empty keys at random."""
    life = Life()
    life.instance.deploy(plan(COUNTS))
    places = iter(range(8))
    put(life.log, "input", lambda key, n: partition_for(key, n) if key else next(places) % n, ["", *KEYS[:40], "", ""])
    life.settle()
    assert "key '' are in partition" in life.why_stopped("CTAS_COUNTS").replace("the key ", "key ")


@pytest.mark.parametrize("place", [crc32, partition_for, by_length])
def test_topics_that_are_placed_alike_are_joined(place: Place) -> None:
    life = Life()
    life.instance.deploy(plan(JOINED))
    put(life.log, "input", place)
    put(life.log, "other", place)
    life.settle()
    assert life.said("CSAS_JOINED") == ("running", "")
    assert keys_in(life.log, "joined") == sorted(KEYS)


def test_a_copy_of_a_stream_is_placed_as_joins_need_it() -> None:
    """What the error advises."""
    life = Life()
    life.instance.deploy(plan(PLACED, JOINED_AS_PLACED))
    put(life.log, "input", crc32)
    put(life.log, "other", partition_for)
    life.settle()
    assert keys_in(life.log, "joined") == sorted(KEYS)


def by_rule(key: bytes, n: int) -> int:
    """Murmur2, but for a key that has a partition of its own."""
    return 0 if key == b"customer-7" else partition_for(key, n)


def declared(topic: str, partitioner: str) -> str:
    return f"""CREATE STREAM {topic}S (K STRING KEY, V INT)
      WITH (KAFKA_TOPIC='{topic.lower()}', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONER='{partitioner}');"""


def joined(first: str, second: str) -> str:
    names = "INPUTS I JOIN OTHERS_ O"
    return f"""{declared("INPUT", first)} {declared("OTHER", second).replace("OTHERS (", "OTHERS_ (")}
      {JOINED.replace("INPUT I JOIN OTHER O", names)}"""


def test_topics_that_follow_a_rule_of_their_own_are_joined() -> None:
    """Almost all keys are where murmur2 puts them: the one that is not was taken for a mistake, although both topics have it in one place."""
    for partitioner, state in (("custom", "running"), ("murmur2", "error")):
        life = Life()
        life.instance.deploy(plan(joined(partitioner, partitioner)))
        put(life.log, "other", by_rule, [k for k in KEYS if k != "customer-7"])
        life.settle()
        put(life.log, "input", by_rule)
        put(life.log, "other", by_rule, ["customer-7"])
        life.settle()
        assert life.said("CSAS_JOINED")[0] == state, life.said("CSAS_JOINED")
    assert "declared with PARTITIONER = 'murmur2'. The key 'customer-7' is in partition 0" in life.why_stopped(
        "CSAS_JOINED"
    )


def test_the_first_key_contradicts_what_a_source_says() -> None:
    life = Life()
    life.instance.deploy(plan(joined("crc32", "crc32")))
    put(life.log, "input", crc32)
    life.settle()
    assert life.said("CSAS_JOINED")[0] == "running"
    elsewhere = next(k for k in KEYS if crc32(k.encode(), PARTITIONS) != partition_for(k.encode(), PARTITIONS))
    put(life.log, "other", partition_for, [elsewhere])
    life.settle()
    assert "reads other, which is declared with PARTITIONER = 'crc32'" in life.why_stopped("CSAS_JOINED")


def test_what_was_known_of_a_topic_is_known_to_the_next_instance() -> None:
    """A table that was read long ago has no records that could be looked at."""
    life = Life()
    life.instance.deploy(plan(JOINED))
    put(life.log, "other", partition_for)
    life.settle()
    life = life.again()
    life.settle()
    put(life.log, "input", crc32)
    life.settle()
    said = life.why_stopped("CSAS_JOINED")
    assert "reads input beside other, whose keys are in the partitions of murmur2" in said


def test_a_topic_beside_a_repartition_has_to_follow_murmur2() -> None:
    life = Life()
    life.instance.deploy(plan(BY_VALUE))
    put(life.log, "other", crc32, [str(n) for n in range(60)])
    put(life.log, "input", crc32)
    life.settle()
    said = life.why_stopped("CSAS_BY_VALUE")
    assert "reads other beside a repartition" in said


def test_a_key_in_two_partitions_is_not_counted_in_two_tasks() -> None:
    """Both tasks wrote a count of it into the same row."""
    life = Life()
    life.instance.deploy(plan(COUNTS, OTHERS))
    put(life.log, "input", crc32)
    life.settle()
    assert life.said("CTAS_COUNTS") == ("running", "")
    put(life.log, "input", partition_for)
    life.settle()
    said = life.why_stopped("CTAS_COUNTS")
    assert "in which records of the key 'customer-" in said


def test_a_topic_that_was_made_anew_has_its_own_places() -> None:
    """What was seen of the one before says nothing of it: the query that is computed anew goes on."""
    life = Life()
    life.instance.deploy(plan(COUNTS, JOINED))
    put(life.log, "input", crc32)
    put(life.log, "other", crc32)
    life.settle()
    life.log.delete_topic("input")
    life.log.create_topic("input", PARTITIONS)
    put(life.log, "input", by_length)
    life.instance.deploy(plan(COUNTS, JOINED), refresh=["CTAS_COUNTS"])
    for _ in range(1500):
        life.driver.round()
    assert life.said("CTAS_COUNTS@2") == ("running", "")
    assert set(keys_in(life.log, "counts")) == set(KEYS)


@pytest.mark.parametrize(
    ("queries", "topics"),
    [
        ((OTHERS,), set()),
        ((COUNTS,), {"input"}),
        ((JOINED,), {"input", "other"}),
        # Placed by its repartition.
        (
            ("CREATE TABLE V WITH (KAFKA_TOPIC='v') AS SELECT V, COUNT(*) AS N FROM INPUT GROUP BY V EMIT CHANGES;",),
            set(),
        ),
        (
            (COUNTS, "CREATE TABLE T WITH (KAFKA_TOPIC='t') AS SELECT K, N + 1 AS N FROM COUNTS EMIT CHANGES;"),
            {"counts"},
        ),
        # With the window in its key a writer may have placed it by both.
        (
            (
                "CREATE TABLE W WITH (KAFKA_TOPIC='w') AS SELECT K, COUNT(*) AS N FROM INPUT WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY K EMIT CHANGES;",
                "CREATE TABLE T WITH (KAFKA_TOPIC='t') AS SELECT K, N + 1 AS N FROM W EMIT CHANGES;",
            ),
            set(),
        ),
    ],
)
def test_which_topics_have_to_be_placed_by_key(queries: tuple[str, ...], topics: set[str]) -> None:
    last = plan(*queries).queries[-1]
    assert {s.topic for sub in last.subtopologies for s in meeting_scans(sub.operators).values()} == topics


def test_rows_that_a_view_keeps_are_not_kept_by_the_key_of_their_records() -> None:
    """A view over a stream keeps rows by where they were read."""
    (sub,) = plan(COUNTS).queries[0].subtopologies
    stores = next(op.stores for op in sub.operators if isinstance(op.spec, Aggregate))
    assert stores
    assert (
        meeting_scans([replace(op, stores=stores if isinstance(op.spec, Sink) else ()) for op in sub.operators]) == {}
    )
