"""Input that is missing, wrong or gone: a clear error, the others go on, nothing is lost."""

import base64
import re
from dataclasses import replace

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import query_status
from flowql.runtime.app.troubles import COMPARE_TOPICS_MS, STALLED_MS
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import InstanceRunning, LogDenied, LogError, OffsetOutOfRange, StateError, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.clients import answered
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.engine import COUNTS, DOUBLED, IN, OTHERS, make, plan, produce, read, resume

SUMS = "CREATE TABLE SUMS WITH (KAFKA_TOPIC='sums') AS SELECT K, SUM(V) AS S FROM INPUT GROUP BY K EMIT CHANGES;"
OTHER_COUNTS = "CREATE TABLE OTHER_COUNTS WITH (KAFKA_TOPIC='other_counts') AS SELECT K, COUNT(*) AS N FROM OTHER GROUP BY K EMIT CHANGES;"
MALFORMED, WRONG_TYPE, CUT_UTF8 = b'{"V": 1', b'{"V": "many"}', b'{"V": 1}\xff'


def status(instance, query):
    return query_status(instance, query)


@pytest.mark.parametrize("queries", [(DOUBLED,), (SUMS,), (DOUBLED, SUMS)])
def test_bad_records_become_dead_letters_with_their_bytes(queries):
    log = MemoryLog()
    instance, driver = make(log, *queries)
    produce(log, "input", 1, MALFORMED, 2, WRONG_TYPE, CUT_UTF8, 3)
    driver.run_until_caught_up()
    letters = read(log, "flowql-dead-letters")
    assert len(letters) == 3 * len(queries)
    for query in {letter["QUERY"] for letter in letters}:
        mine = [letter for letter in letters if letter["QUERY"] == query]
        assert [letter["OFFSET"] for letter in mine] == [1, 3, 4]
        assert [base64.b64decode(letter["VALUE"]) for letter in mine] == [MALFORMED, WRONG_TYPE, CUT_UTF8]
        assert all((letter["TOPIC"], letter["PARTITION"]) == ("input", 0) for letter in mine)
        assert all(letter["CODE"].startswith("FQ") and letter["MESSAGE"] for letter in mine)
        assert [base64.b64decode(letter["KEY"]) for letter in mine] == [b"k"] * 3
        assert [letter["ROWTIME"] for letter in mine] == [1, 3, 4]
        assert status(instance, query)["dead_letters"] == 3
    if DOUBLED in queries:
        assert read(log, "doubled") == [{"V": 2}, {"V": 4}, {"V": 6}]
    if SUMS in queries:
        assert read(log, "sums")[-1] == {"S": 6}


def test_a_missing_topic_is_named_and_nothing_is_deployed():
    log = MemoryLog()
    log.create_topic("input", 1)
    instance = Instance(log, MemoryPhysical(), VirtualClock(), InstanceConfig())
    with pytest.raises(TopicMissing, match=r"other \(of OTHER\)"):
        instance.deploy(plan(OTHERS))
    assert instance.queries == {}
    assert instance.plan.queries == ()


def test_a_join_over_different_partition_counts_is_refused():
    sql = """
    CREATE STREAM A (K STRING KEY, V INT) WITH (KAFKA_TOPIC='a', VALUE_FORMAT='JSON', KEY_FORMAT='KAFKA');
    CREATE TABLE B (K STRING PRIMARY KEY, W INT) WITH (KAFKA_TOPIC='b', VALUE_FORMAT='JSON', KEY_FORMAT='KAFKA');
    CREATE STREAM J AS SELECT A.K AS K, V, W FROM A JOIN B ON A.K = B.K EMIT CHANGES;
    """
    joined = compile_project([SourceText("join.sql", sql)])
    assert joined.ok
    instance, driver = make(None, DOUBLED)
    instance.log.create_topic("a", 2)
    instance.log.create_topic("b", 3)
    with pytest.raises(LogError, match=r"a has 2, b has 3; give them the same number"):
        instance.deploy(joined.plan)
    produce(instance.log, "input", 1)
    driver.run_until_caught_up()
    assert read(instance.log, "doubled") == [{"V": 2}]


@pytest.mark.parametrize("queries", [(DOUBLED, OTHERS), (COUNTS, OTHER_COUNTS)])
def test_a_deleted_topic_stops_its_readers_alone(queries):
    log = MemoryLog()
    instance, driver = make(log, *queries)
    mine, other = [q.id for q in instance.plan.queries]
    produce(log, "input", 1)
    produce(log, "other", 1)
    driver.run_until_caught_up()
    log.delete_topic("other")
    produce(log, "input", 2, 3)
    driver.run_until_caught_up()
    assert status(instance, other)["state"] == "error"
    assert re.match("TopicMissing: there is no topic.* other", status(instance, other)["last_error"])
    assert status(instance, mine)["state"] == "running"
    out = instance.plan.sources[-2].topic
    assert read(log, out)[-1] in ({"V": 6}, {"N": 3})
    assert instance.commit.blocked == ""


class WithoutIds(MemoryLog):
    """As brokers that do not tell ids of topics."""

    def describe_topics(self, topics):
        told = super().describe_topics(topics).result()
        return answered(lambda: {name: replace(topic, id="") for name, topic in told.items()})


@pytest.mark.parametrize("restart", [False, True])
def test_a_topic_that_was_made_anew_with_fewer_records_stops_its_readers_alone(restart):
    """They waited until it had as many records as they had read, which they left out then, without a word."""
    log = WithoutIds()
    instance, driver = make(log, COUNTS, OTHER_COUNTS)
    produce(log, "input", 1)
    produce(log, "other", 1, 2, 3)
    driver.run_until_caught_up()
    log.delete_topic("other")
    log.create_topic("other", 1)
    produce(log, "other", 4)
    if restart:
        physical = instance.state._physical
        instance.close()
        instance, driver = resume(log, physical)
    for _ in range(STALLED_MS // 10 - 100):
        driver.round()
    assert status(instance, "CTAS_OTHER_COUNTS")["state"] != "error", "brokers may have changed leaders"
    for _ in range(300):
        driver.round()
    told = status(instance, "CTAS_OTHER_COUNTS")
    assert told["state"] == "error"
    assert "other-0: offset 3 is above the log's end 1: the topic was deleted and created again" in told["last_error"]
    produce(log, "input", 2)
    produce(log, "other", 5, 6, 7)
    driver.run_until_caught_up()
    assert read(log, "counts")[-1] == {"N": 2}
    assert read(log, "other_counts")[-1] == {"N": 3}
    instance.deploy(instance.plan, refresh=["CTAS_OTHER_COUNTS"])
    driver.run_until_caught_up()
    assert read(log, "other_counts")[-1] == {"N": 4}


@pytest.mark.parametrize("restart", [False, True])
def test_a_topic_that_was_made_anew_with_as_many_records_stops_its_readers_alone(restart):
    """They went on at their position in it: its first records were in no result, without a word."""
    log = MemoryLog()
    instance, driver = make(log, COUNTS, OTHER_COUNTS)
    produce(log, "other", 1, 2, 3)
    driver.run_until_caught_up()
    log.delete_topic("other")
    log.create_topic("other", 1)
    produce(log, "other", 4, 5, 6, 7)
    if restart:
        physical = instance.state._physical
        instance.close()
        instance, driver = resume(log, physical)
    else:
        instance.polling.changed_topics.asked_at_ms -= COMPARE_TOPICS_MS
        driver.round()
        driver.round()
    told = status(instance, "CTAS_OTHER_COUNTS")
    assert told["state"] == "error"
    assert "other-0: the topic was deleted and created again" in told["last_error"]
    produce(log, "input", 1)
    driver.run_until_caught_up()
    assert read(log, "counts") == [{"N": 1}]
    if restart:  # else what followed may have been read before the ids were compared
        assert read(log, "other_counts") == [{"N": 3}]
    instance.deploy(instance.plan, refresh=["CTAS_OTHER_COUNTS"])
    driver.run_until_caught_up()
    assert read(log, "other_counts")[-1] == {"N": 4}
    produce(log, "other", 8)
    for _ in range(COMPARE_TOPICS_MS // 10 + 10):
        driver.round()
    assert read(log, "other_counts")[-1] == {"N": 5}
    assert {status(instance, query)["state"] for query in instance.queries} == {"running"}


def test_topics_of_state_that_knows_no_ids_of_them_are_those_in_the_log():
    log = WithoutIds()
    instance, driver = make(log, COUNTS)
    produce(log, "input", 1, 2)
    driver.run_until_caught_up()
    physical = instance.state._physical
    instance.close()
    log.__class__ = MemoryLog
    instance, driver = resume(log, physical)
    produce(log, "input", 3)
    driver.run_until_caught_up()
    assert read(log, "counts")[-1] == {"N": 3}
    assert next(iter(instance.state.snapshot().tasks().values()))["topics"] == {"input": "1"}


def test_a_full_refresh_makes_the_deleted_topic_of_a_result_again():
    log = MemoryLog()
    instance, driver = make(log, COUNTS, DOUBLED)
    produce(log, "input", 1, 2)
    driver.run_until_caught_up()
    log.delete_topic("counts")
    produce(log, "input", 3)
    for _ in range(20):
        driver.round()
    assert "TopicMissing" in status(instance, "CTAS_COUNTS")["last_error"]
    instance.deploy(instance.plan, refresh=["CTAS_COUNTS"])
    driver.run_until_caught_up()
    assert read(log, "counts") == [{"N": 3}]
    assert {status(instance, query)["state"] for query in instance.queries} == {"running"}


def test_a_topic_deleted_while_stopped_stops_its_readers_alone():
    log = MemoryLog()
    first, driver = make(log, COUNTS, OTHER_COUNTS)
    produce(log, "input", 1)
    produce(log, "other", 1)
    driver.run_until_caught_up()
    physical = first.state._physical
    first.close()
    log.delete_topic("other")
    second, driver = resume(log, physical)
    produce(log, "input", 2)
    driver.run_until_caught_up()
    assert status(second, "CTAS_OTHER_COUNTS")["state"] == "error"
    assert "other, which does not exist" in status(second, "CTAS_OTHER_COUNTS")["last_error"]
    assert read(log, "counts")[-1] == {"N": 2}
    second.deploy(without_other())  # it can be removed, with its state
    assert not any(t.startswith("CTAS_OTHER") for t in second.state.committed_tasks())


def without_other():
    whole = plan(COUNTS)
    return replace(whole, sources=tuple(s for s in whole.sources if s.topic != "other"))


def test_a_position_below_the_start_of_the_log_stops_that_query_naming_the_gap():
    log = MemoryLog()
    first, driver = make(log, DOUBLED, OTHERS)
    produce(log, "input", 1, 2)
    driver.run_until_caught_up()
    physical = first.state._physical
    first.close()
    produce(log, "input", 3, 4, 5)
    produce(log, "other", 7)
    log.drop_before(IN, 4)
    second, driver = resume(log, physical)
    driver.run_until_caught_up()
    assert status(second, "CSAS_DOUBLED")["state"] == "error"
    assert (
        "offset 2 is below the log's start 4: records 2 to 3 are gone" in status(second, "CSAS_DOUBLED")["last_error"]
    )
    assert read(log, "others") == [{"V": 8}]
    assert read(log, "doubled") == [{"V": 2}, {"V": 4}]


def test_readers_beyond_the_gap_go_on():
    log = MemoryLog()
    instance, driver = make(log, DOUBLED)
    produce(log, "input", 1, 2)
    driver.run_until_caught_up()
    instance.manager.hold("CSAS_DOUBLED")  # it falls behind the one that comes now
    instance.deploy(plan(DOUBLED, COUNTS))
    produce(log, "input", 3)
    for _ in range(30):
        driver.round()
    physical = instance.state._physical
    driver.commit()
    instance.close()
    log.drop_before(IN, 3)
    produce(log, "input", 4)
    again, driver = resume(log, physical)
    driver.run_until_caught_up()
    assert status(again, "CSAS_DOUBLED")["state"] == "error"
    assert status(again, "CTAS_COUNTS")["state"] == "running"
    assert read(log, "counts")[-1] == {"N": 4}


class DenyingLog(MemoryLog):
    """Lets nobody read the topics in `denied`, or in `hidden` know of them; nor move positions in either, as Kafka does."""

    def __init__(self):
        super().__init__()
        self.denied, self.hidden, self.refusals = set(), set(), 0

    def check(self, tps, topics):
        for tp in sorted(tp for tp in tps if tp.topic in topics):
            self.refusals += 1
            error = LogDenied(f"{tp} is not for you")
            error.partition = tp
            raise error

    def stored(self, tp, offset):
        self.check([tp], self.denied)
        return super().stored(tp, offset)

    def commit(self, transactional_id, epoch, transaction):
        self.check([tp for _, tp in transaction.positions], self.denied | self.hidden)
        return super().commit(transactional_id, epoch, transaction)

    def end_offsets(self, tps):
        self.check(tps, self.hidden)
        return super().end_offsets(tps)

    def partition_counts(self, topics):
        self.check([TopicPartition(topic, 0) for topic in topics], self.hidden)
        return super().partition_counts(topics)

    def topics(self):
        return {name: info for name, info in super().topics().items() if name not in self.hidden}


@pytest.mark.parametrize("how", ["denied", "hidden"])
def test_a_right_to_read_that_is_taken_away_stops_readers_until_it_is_given_back(how):
    """It took a restart before; and where nothing of a topic may be known any more, the polling thread ended with it."""
    log = DenyingLog()
    instance, driver = make(log, COUNTS, OTHERS)
    produce(log, "input", 1, 2)
    produce(log, "other", 1)
    driver.run_until_caught_up()
    getattr(log, how).add("input")
    produce(log, "input", 3)
    produce(log, "other", 2)
    for _ in range(200):
        driver.round()
    assert read(log, "others") == [{"V": 2}, {"V": 3}]
    assert (status(instance, "CTAS_COUNTS")["state"], status(instance, "CSAS_OTHERS")["state"]) == ("failed", "running")
    assert "input-0 is not for you" in status(instance, "CTAS_COUNTS")["last_error"]
    before = log.refusals
    for _ in range(1000):
        driver.round()
    assert before < log.refusals < before + 12, "it is tried again, later and later"
    log.denied, log.hidden = set(), set()
    produce(log, "input", 4)
    driver.run_until_caught_up()
    assert status(instance, "CTAS_COUNTS")["state"] == "running"
    assert [row["N"] for row in read(log, "counts")][-1] == 4
    assert dict(instance.snapshot().scan("COUNTS")) == {("k",): (4,)}


def test_a_query_that_may_not_read_can_be_removed():
    log = DenyingLog()
    instance, driver = make(log, DOUBLED, OTHERS)
    log.denied.add("input")
    produce(log, "input", 1)
    for _ in range(100):
        driver.round()
    assert status(instance, "CSAS_DOUBLED")["state"] == "failed"
    instance.deploy(plan(OTHERS))
    log.denied.clear()
    produce(log, "other", 1)
    for _ in range(200):
        driver.round()
    driver.run_until_caught_up()
    assert read(log, "others") == [{"V": 2}]
    assert not instance.polling._inputs.keys() & {IN}


@pytest.mark.parametrize("broken", ["a", "b", "c"])
def test_a_partition_that_cannot_be_read_costs_no_record_of_others(broken):
    log = MemoryLog()
    names = ("a", "b", "c")
    for name in names:
        log.create_topic(name, 1)
    consumer = log.consumer("c")
    consumer.assign({TopicPartition(n, 0): 0 for n in names})
    for name in names:
        produce(log, name, 1, 2)
    log.drop_before(TopicPartition(broken, 0), 1)
    seen, failures = {n: [] for n in names}, set()
    for n in range(9):
        if n == 4:
            for name in names:
                produce(log, name, 3)
        try:
            for batch in consumer.poll(100, 1 << 20):
                seen[batch.tp.topic] += batch.records.column("offset").to_pylist()
        except OffsetOutOfRange as error:
            failures.add(error.partition)
    assert failures == {(broken, 0)}
    assert all(seen[n] == ([] if n == broken else [0, 1, 2]) for n in names)


def test_a_second_instance_on_the_same_log_is_told_who_has_it():
    log = MemoryLog()
    make(log, DOUBLED)
    with pytest.raises(InstanceRunning, match=r"process [0-9]+ runs flowql"):
        Instance(log, MemoryPhysical(), VirtualClock(), InstanceConfig())


def test_lost_state_comes_back_from_a_complete_redo():
    log = MemoryLog()
    first, driver = make(log, COUNTS)
    produce(log, "input", 1, 2)
    driver.run_until_caught_up()
    first.commit.flush = lambda: None  # the redo is not trimmed
    first.close()
    second, driver = resume(log, MemoryPhysical())
    produce(log, "input", 3)
    driver.run_until_caught_up()
    assert read(log, "counts")[-1] == {"N": 3}
    assert dict(second.snapshot().scan("COUNTS")) == {("k",): (3,)}


def test_lost_state_without_its_redo_is_said_and_made_anew():
    log = MemoryLog()
    first, driver = make(log, COUNTS)
    produce(log, "input", 1, 2)
    driver.run_until_caught_up()
    first.close()
    second = Instance(log, MemoryPhysical(), VirtualClock(), InstanceConfig())
    assert re.search(r"commits 1 to [0-9]+ are missing", second.state_lost)
    driver = Driver(second)
    second.resume()
    driver.run_until_caught_up()
    assert dict(second.snapshot().scan("COUNTS@2")) == {("k",): (2,)}


def test_a_log_older_than_the_state_is_refused_with_what_to_do():
    log = MemoryLog()
    first, driver = make(log, COUNTS)
    produce(log, "input", 1, 2)
    driver.run_until_caught_up()
    physical = first.state._physical
    first.close()
    with pytest.raises(StateError, match=r"the log only at 0.*put back the log.*or move the state away"):
        Instance(MemoryLog(), physical, VirtualClock(), InstanceConfig())
