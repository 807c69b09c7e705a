"""What the log refuses of one query stops that query alone; it goes on by itself, and nothing is lost or doubled (rule R1)."""

from __future__ import annotations

import random
import time

import pytest

from flowql.runtime.app.progress import caught_up, query_status, source_ends
from flowql.runtime.app.query_state import SUSPENDED
from flowql.runtime.errors import LogDenied, LogUnavailable, RecordRefused, TopicMissing
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.engine import APP, COUNTS, DOUBLED, IN, OTHERS, make, plan, produce, read, resume, threaded

BY_VALUE = """CREATE TABLE BY_VALUE WITH (KAFKA_TOPIC='by_value') AS
  SELECT V % 3 AS R, COUNT(*) AS N, SUM(V) AS T FROM INPUT GROUP BY V % 3 EMIT CHANGES;"""
WAIT_S = 60.0


class RefusingLog(MemoryLog):
    """Takes nothing for the topics in `refused`, as each of them says; nor records above `bytes_max`."""

    bytes_max = 1 << 20

    def __init__(self):
        super().__init__()
        self.refused = {}
        self.attempts = 0

    def commit(self, transactional_id, epoch, transaction):
        for tp, batches in transaction.batches():
            kind = self.refused.get(tp.topic)
            if any(len(v or b"") > self.bytes_max for b in batches for v in b.column("value").to_pylist()):
                kind = RecordRefused
            if kind is not None:
                self.attempts += 1
                error = kind(f"{tp} is not for you")
                error.partition = tp
                raise error
        return super().commit(transactional_id, epoch, transaction)


def rounds(driver, n=60):
    for _ in range(n):
        driver.round()


def until_failed(driver, query):
    """It is tried again now and then, and runs for that moment."""
    for _ in range(1000):
        driver.round()
        if states(driver.instance)[query] == "failed":
            return
    raise AssertionError(f"{query} does not fail")


def states(instance):
    return {q: query_status(instance, q)["state"] for q in instance.queries}


@pytest.mark.parametrize("kind", [RecordRefused, LogDenied, TopicMissing])
def test_a_refused_query_stops_alone_and_goes_on_by_itself(kind):
    log = RefusingLog()
    instance, driver = make(log, DOUBLED, BY_VALUE)
    produce(log, "input", *range(10))
    driver.run_until_caught_up()
    log.refused = {"by_value": kind}
    produce(log, "input", *range(10, 20))
    rounds(driver)
    assert [r["V"] for r in read(log, "doubled")] == [2 * v for v in range(20)]
    until_failed(driver, "CTAS_BY_VALUE")
    assert states(instance) == {"CSAS_DOUBLED": "running", "CTAS_BY_VALUE": "failed"}
    assert "by_value-0 is not for you" in query_status(instance, "CTAS_BY_VALUE")["last_error"]
    assert instance.commit.blocked == ""
    assert not caught_up(instance, source_ends(instance))
    before = log.attempts
    rounds(driver, 1000)
    assert before < log.attempts < before + 12, "it is tried again, later and later"
    log.refused = {}
    produce(log, "input", *range(20, 30))
    driver.run_until_caught_up()
    assert states(instance) == {"CSAS_DOUBLED": "running", "CTAS_BY_VALUE": "running"}
    rows = read(log, "by_value")
    assert {(r["N"], r["T"]) for r in rows} >= {(10, sum(range(m, 30, 3))) for m in range(3)}
    assert max(r["N"] for r in rows) == 10
    instance.stop()


def test_one_refused_from_its_first_record_begins_at_the_first():
    log = RefusingLog()
    log.refused = {"by_value": LogDenied}
    _, driver = make(log, BY_VALUE, OTHERS)
    produce(log, "input", 1, 4, 7)
    produce(log, "other", 1)
    rounds(driver)
    assert read(log, "others") == [{"V": 2}]
    assert log.stable_positions(APP, [IN])[IN].offset == 0, "where another process would begin"
    log.refused = {}
    driver.run_until_caught_up()
    assert read(log, "by_value")[-1] == {"N": 3, "T": 12}


def test_a_deleted_output_topic_stops_its_query_until_it_is_there_again():
    log = MemoryLog()
    instance, driver = make(log, DOUBLED, OTHERS)
    log.delete_topic("doubled")
    produce(log, "input", 1)
    produce(log, "other", 1)
    rounds(driver)
    until_failed(driver, "CSAS_DOUBLED")
    assert states(instance) == {"CSAS_DOUBLED": "failed", "CSAS_OTHERS": "running"}
    assert "doubled" in query_status(instance, "CSAS_DOUBLED")["last_error"]
    assert read(log, "others") == [{"V": 2}]
    log.create_topic("doubled", 1)
    driver.run_until_caught_up()
    assert read(log, "doubled") == [{"V": 2}]


def test_an_output_topic_deleted_while_nobody_ran():
    log = MemoryLog()
    _, driver = make(log, DOUBLED, OTHERS)
    produce(log, "input", 1)
    driver.run_until_caught_up()
    log.crash()
    log.delete_topic("doubled")
    produce(log, "input", 2)
    produce(log, "other", 1)
    _, driver = resume(log, MemoryPhysical())
    until_failed(driver, "CSAS_DOUBLED")
    rounds(driver)
    assert read(log, "others") == [{"V": 2}]
    log.create_topic("doubled", 1)
    driver.run_until_caught_up()
    assert read(log, "doubled") == [{"V": 4}]


def test_of_two_that_write_to_a_topic_the_one_with_the_largest_record_is_stopped():
    log = RefusingLog()
    text = (
        "CREATE STREAM COPY WITH (KAFKA_TOPIC='doubled') AS SELECT K, LPAD('x', V, 'x') AS T FROM OTHER EMIT CHANGES;"
    )
    instance, driver = make(log, DOUBLED, text)
    log.bytes_max = 500
    produce(log, "input", 1)
    produce(log, "other", 1000)
    rounds(driver)
    until_failed(driver, "CSAS_COPY")
    assert states(instance) == {"CSAS_DOUBLED": "running", "CSAS_COPY": "failed"}
    assert read(log, "doubled") == [{"V": 2}]


def test_a_deleted_changelog_stops_its_query_for_good():
    """Rows that were in it are nowhere else: another empty one must not take its place."""
    log = MemoryLog()
    instance, driver = make(log, COUNTS, OTHERS, changelogs=True)
    produce(log, "input", 1)
    driver.run_until_caught_up()
    changelog = "flowql-CTAS_COUNTS-aggregate-1-changelog"
    log.delete_topic(changelog)
    produce(log, "input", 2)
    produce(log, "other", 1)
    rounds(driver, 500)
    assert states(instance) == {"CTAS_COUNTS": "error", "CSAS_OTHERS": "running"}
    assert changelog not in log.topics()
    assert read(log, "others") == [{"V": 2}]


def test_a_changelog_that_goes_while_its_query_is_suspended_is_not_made_again():
    """For whatever reason it is suspended: the empty one counted as whole, and a restoration from it began with nothing."""
    log = RefusingLog()
    instance, driver = make(log, COUNTS, OTHERS, changelogs=True)
    produce(log, "input", 1)
    driver.run_until_caught_up()
    changelog = "flowql-CTAS_COUNTS-aggregate-1-changelog"
    log.refused = {"counts": LogDenied}
    produce(log, "input", 2)
    until_failed(driver, "CTAS_COUNTS")
    log.delete_topic(changelog)
    log.refused = {}
    produce(log, "other", 1)
    rounds(driver, 500)
    assert states(instance) == {"CTAS_COUNTS": "error", "CSAS_OTHERS": "running"}
    assert f"there is no topic {changelog}" in query_status(instance, "CTAS_COUNTS")["last_error"]
    assert changelog not in log.topics()


def test_a_query_that_was_refused_before_its_first_commit_gets_its_changelog():
    log = RefusingLog()
    log.refused = {"counts": LogDenied, "flowql-CTAS_COUNTS-aggregate-1-changelog": LogDenied}
    instance, driver = make(log, COUNTS, changelogs=True)
    produce(log, "input", 1)
    until_failed(driver, "CTAS_COUNTS")
    log.refused = {}
    driver.run_until_caught_up()
    assert states(instance) == {"CTAS_COUNTS": "running"}
    assert read(log, "counts") == [{"N": 1}]


def test_a_changelog_that_brokers_do_not_know_for_a_moment_stops_its_query_for_a_moment():
    """One that has just come back says so of topics that are there."""
    log = RefusingLog()
    instance, driver = make(log, COUNTS, OTHERS, changelogs=True)
    produce(log, "input", 1)
    driver.run_until_caught_up()
    log.refused = {"flowql-CTAS_COUNTS-aggregate-1-changelog": TopicMissing}
    produce(log, "input", 2)
    rounds(driver)
    until_failed(driver, "CTAS_COUNTS")
    log.refused = {}
    driver.run_until_caught_up()
    assert states(instance) == {"CTAS_COUNTS": "running", "CSAS_OTHERS": "running"}


def test_a_refused_query_can_be_removed_and_deployed_anew():
    """What waited in its repartition is gone with it."""
    log = RefusingLog()
    instance, driver = make(log, BY_VALUE, OTHERS)
    produce(log, "input", *range(6))
    driver.run_until_caught_up()
    log.refused = {"by_value": LogDenied}
    produce(log, "input", *range(6, 12))
    rounds(driver)
    instance.deploy(plan(OTHERS))
    log.refused = {}
    rounds(driver)
    instance.deploy(plan(BY_VALUE, OTHERS))
    driver.run_until_caught_up()
    assert sorted((r["N"], r["T"]) for r in read(log, "by_value")[-3:]) == [(4, 18), (4, 22), (4, 26)]


def test_with_threads_and_refusals_at_any_moment():
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng, log = random.Random(seed), RefusingLog()
    instance = threaded(log, DOUBLED, BY_VALUE, COUNTS)
    try:
        for n in range(30):
            log.refused = {"by_value": LogDenied} if rng.random() < 0.4 else {}
            produce(log, "input", *range(20 * n, 20 * n + 20))
            time.sleep(rng.uniform(0, 0.03))
        log.refused = {}
        ends, limit = source_ends(instance), time.monotonic() + WAIT_S
        while not caught_up(instance, ends):
            assert instance.fatal is None, instance.fatal
            assert time.monotonic() < limit, states(instance)
            time.sleep(0.01)
        assert [r["V"] for r in read(log, "doubled")] == [2 * v for v in range(600)]
        assert read(log, "counts")[-1] == {"N": 600}
        rows = read(log, "by_value")
        assert {(r["N"], r["T"]) for r in rows if r["N"] >= 200} == {(200, sum(range(m, 600, 3))) for m in range(3)}
    finally:
        assert instance.stop() == []


class BlindLog(RefusingLog):
    """Does not say where the topics in `endless` end."""

    endless = frozenset()

    def end_offsets(self, tps):
        for tp in tps:
            if tp.topic in self.endless:
                error = LogDenied(f"{tp} is not for you")
                error.partition = tp
                raise error
        return super().end_offsets(tps)


def test_a_suspended_query_whose_new_tasks_may_not_read_is_made_anew_once_more():
    """Inputs that were denied while they were handed over would have been read by nobody."""
    log = BlindLog()
    instance, driver = make(log, COUNTS, OTHERS)
    log.refused = {"counts": LogDenied}
    produce(log, "input", 1, 2)
    until_failed(driver, "CTAS_COUNTS")
    assert instance.query_states.having(SUSPENDED) == ["CTAS_COUNTS"]
    log.refused, log.endless = {}, {"input"}
    built = instance.queries["CTAS_COUNTS"].built
    for _ in range(10_000):
        driver.round()
        assert states(instance)["CTAS_COUNTS"] == "failed"
    assert instance.queries["CTAS_COUNTS"].built is not built, "it was tried"
    log.endless = frozenset()
    driver.run_until_caught_up()
    assert [row["N"] for row in read(log, "counts")] == [2]  # both records are one micro-batch, as in tasks of a start
    assert states(instance) == {"CTAS_COUNTS": "running", "CSAS_OTHERS": "running"}


class AwayLog(MemoryLog):
    """Answers nothing for a while, and then refuses the records of one topic, once."""

    def __init__(self):
        super().__init__()
        self.away, self.refused = False, ""

    def commit(self, transactional_id, epoch, transaction):
        if transactional_id == "flowql":
            if self.away:
                raise LogUnavailable("no answer")
            for tp, _ in transaction.batches():
                if tp.topic == self.refused:
                    self.refused = ""
                    error = RecordRefused(f"{tp} is not for you")
                    error.partition = tp
                    raise error
        return super().commit(transactional_id, epoch, transaction)


def test_what_a_refused_query_made_after_the_cut_is_forgotten_as_well():
    """Its tasks are made anew from the last commit, and process the records of the next epoch once more."""
    log = AwayLog()
    instance, driver = make(log, DOUBLED, COUNTS)
    produce(log, "input", *range(10))
    driver.run_until_caught_up()
    log.away = True
    produce(log, "input", *range(10, 20))
    rounds(driver)
    produce(log, "input", *range(20, 30))
    rounds(driver)
    assert not instance.collector.empty, "the next epoch has results, while the first one waits"
    log.away, log.refused = False, "doubled"
    rounds(driver)
    assert log.refused == ""
    driver.run_until_caught_up()
    assert [r["V"] for r in read(log, "doubled")] == [2 * v for v in range(30)]
    assert read(log, "counts")[-1] == {"N": 30}
