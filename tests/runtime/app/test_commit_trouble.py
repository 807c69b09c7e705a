"""Commits that do not get through: no space, an unknown outcome, a topic that is gone, another instance."""

import pytest

from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.app.status import statuses
from flowql.runtime.errors import Fenced, RuntimeFailure
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.topology.log_facts import LogFacts
from flowql.runtime.topology.query import build_query, ensure_topics
from tests.runtime.app.engine import COUNTS, DOUBLED, FullLog, make, plan, produce, read


def rounds(driver, n=40):
    for _ in range(n):
        driver.round()


def test_a_full_disk_blocks_commits_and_nothing_is_lost_or_doubled():
    log = FullLog()
    instance, driver = make(log, DOUBLED, COUNTS)
    produce(log, "input", 1, 2)
    log.full = True
    rounds(driver)
    assert instance.commit.blocked == "no space left on device"
    assert read(log, "doubled") == []
    log.full = False
    produce(log, "input", 3)
    driver.run_until_caught_up()
    assert instance.commit.blocked == ""
    assert read(log, "doubled") == [{"V": 2}, {"V": 4}, {"V": 6}]
    assert read(log, "counts")[-1] == {"N": 3}


def test_records_that_are_processed_and_not_committed_are_lag():
    """While the disk was full `lag` was 0, although a restart begins with these records again."""
    log = FullLog()
    instance, driver = make(log, DOUBLED, COUNTS)
    produce(log, "input", *range(30))
    driver.run_until_caught_up()

    def lags():
        return [(s["lag"], [p["lag"] for p in s["partitions"] if p["lag"]]) for s in statuses(instance, detail=True)]

    assert lags() == [(0, []), (0, [])]
    produce(log, "input", 1, 2, 3)
    log.full = True
    rounds(driver)
    assert not caught_up(instance, source_ends(instance))
    assert lags() == [(3, [3]), (3, [3])]
    log.full = False
    produce(log, "input", 4)
    log.full = True
    rounds(driver)
    assert lags() == [(4, [4]), (4, [4])]
    log.full = False
    driver.run_until_caught_up()
    assert lags() == [(0, []), (0, [])]


def test_records_of_a_query_that_has_never_committed_are_lag():
    log = FullLog()
    instance, driver = make(log, DOUBLED)
    produce(log, "input", *range(150))
    log.full = True
    rounds(driver)
    assert [s["lag"] for s in statuses(instance)] == [150]


class Uncertain(FullLog):
    """A commit that fails after (or before) it took effect; the disk may be full when a new producer is made."""

    fail = ""

    def commit(self, transactional_id, epoch, transaction):
        fail, self.fail = self.fail, ""
        if transactional_id != "flowql" or not fail:
            return super().commit(transactional_id, epoch, transaction)
        self.full = "full" in fail
        if "before" not in fail:
            MemoryLog.commit(self, transactional_id, epoch, transaction)
        raise OSError("the disk does not answer")


@pytest.mark.parametrize("fail", ["after", "before", "after, full", "before, full"])
def test_a_commit_of_unknown_outcome_happens_once(fail):
    log = Uncertain()
    instance, driver = make(log, DOUBLED, COUNTS)
    produce(log, "input", 1, 2)
    log.fail = fail
    rounds(driver)
    log.full = False
    driver.run_until_caught_up()
    assert read(log, "doubled") == [{"V": 2}, {"V": 4}]
    assert read(log, "counts")[-1] == {"N": 2}
    assert instance.state.applied_sequence == log.last_sequence("flowql")


def test_closing_on_a_full_disk_releases_everything():
    log = FullLog()
    instance, driver = make(log, COUNTS)
    produce(log, "input", 1)
    driver.run_until_caught_up()
    log.full = True
    instance.close()
    log.full = False
    log.hold("the next instance")


def test_a_fenced_instance_commits_no_more():
    log = MemoryLog()
    instance, driver = make(log, DOUBLED)
    log.producer("flowql")
    produce(log, "input", 1)
    waiting = instance.commit.request()
    with pytest.raises(Fenced, match="taken over"):
        rounds(driver)
    instance.commit.fail(Fenced("taken over"))
    with pytest.raises(RuntimeFailure, match="no more commits"):
        waiting.result(0)
    assert read(log, "doubled") == []


def test_tasks_that_are_made_while_an_epoch_is_aborted_run():
    """An abort between the opening of their state and their first commit left them open, and they could not be made again."""
    log = MemoryLog()
    instance, driver = make(log, DOUBLED)
    driver.run_until_idle()
    wanted = plan(DOUBLED, COUNTS)
    ensure_topics(wanted, instance.admin)
    built = build_query(
        wanted.by_id.get("CTAS_COUNTS"), wanted, instance, LogFacts(instance.admin, "app", wanted.queries)
    )
    instance.state.abort()
    instance.begin(built)
    assert [task.state.metadata["positions"] for task in built.tasks] == [{"input": 0}]
