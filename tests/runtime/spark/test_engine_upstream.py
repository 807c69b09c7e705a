"""Which streams wait for which, and for whom they do not: with a launcher that is no Spark."""

from __future__ import annotations

import pytest

from flowql.runtime.errors import LogUnavailable
from flowql.runtime.spark.engine.feeders import with_feeders
from flowql.runtime.spark.engine.status import with_state
from flowql.runtime.spark.engine.streams import RunningQuery
from flowql.runtime.spark.engine.supervisor import ASK_MS, Supervisor, awaited
from flowql.runtime.spark.settings import TopicFiles
from tests.runtime.app.test_upstream import FAR, LATEST, SOLD, SOURCES
from tests.runtime.spark.test_engine_order import plan_of
from tests.runtime.spark.test_engine_supervisor import FakeLauncher


class Life:
    """An instance of a stream joined with a table far upstream, of which nobody has read anything."""

    def __init__(self) -> None:
        self.launcher, plan = FakeLauncher(), plan_of(SOURCES + FAR + SOLD)
        self.launcher.unread = {"CSAS_MOVED", "CTAS_LATEST"}
        self.supervisor = Supervisor(self.launcher)
        self.supervisor.queries = {q.id: RunningQuery(q) for q in plan.queries}
        self.supervisor.run_continuously()
        self.now = 0

    def step(self) -> None:
        self.now += ASK_MS
        self.supervisor.run_once(self.now)

    @property
    def sold(self) -> RunningQuery:
        return self.supervisor.queries["CSAS_SOLD"]

    @property
    def has_begun(self) -> bool:
        return ("CSAS_SOLD", "continuous") in self.launcher.calls


@pytest.fixture
def life() -> Life:
    life = Life()
    life.step()
    assert [name for name, _ in life.launcher.calls] == ["CSAS_MOVED", "CTAS_LATEST"]
    return life


def test_a_join_begins_behind_all_that_its_table_is_made_of(life: Life) -> None:
    assert life.sold.waits_for == ["CSAS_MOVED", "CTAS_LATEST"]
    assert with_state({}, life.sold)["waits"] == {"for": "upstream", "whom": ["CSAS_MOVED"]}
    life.launcher.unread = {"CTAS_LATEST"}
    life.step()
    assert (life.sold.waits_for, life.has_begun) == (["CTAS_LATEST"], False)
    life.launcher.unread = set()
    life.supervisor.run_once(life.now + 1)
    assert not life.has_begun, "the log is asked now and then"
    life.step()
    assert life.has_begun
    assert with_state({}, life.sold)["waits"] is None


def test_one_that_failed_starts_again_without_waiting(life: Life) -> None:
    life.launcher.unread = set()
    life.step()
    life.launcher.unread = {"CTAS_LATEST"}
    life.launcher.streams["CSAS_SOLD"].end(ValueError("no luck"))
    life.step()
    life.now = life.sold.resume_at_ms
    life.step()
    assert life.sold.state == "running"


@pytest.mark.parametrize("why", ["paused", "error", "gone"])
def test_a_query_that_does_not_go_on_is_not_waited_for(life: Life, why: str) -> None:
    moved, latest = (life.supervisor.queries[name] for name in ("CSAS_MOVED", "CTAS_LATEST"))
    life.launcher.unread = {"CSAS_MOVED"}
    if why == "gone":
        life.supervisor.queries = {"CTAS_LATEST": latest, "CSAS_SOLD": life.sold}
    elif why == "error":
        moved.given_up(ValueError("no luck"))
    else:
        moved.paused = True
    life.step()
    assert life.has_begun


@pytest.mark.parametrize("epoch", [-1, 0])
def test_one_that_fails_is_waited_for_by_a_join_that_has_read_nothing_alone(life: Life, epoch: int) -> None:
    life.launcher.unread = {"CSAS_MOVED"}
    life.launcher.epochs["CSAS_SOLD"] = epoch
    life.launcher.streams["CSAS_MOVED"].end(ValueError("no luck"))
    life.supervisor.queries["CSAS_MOVED"].resume_at_ms = 1_000_000
    life.step()
    assert life.supervisor.queries["CSAS_MOVED"].state == "failed"
    assert life.has_begun == (epoch >= 0)


def test_brokers_that_do_not_answer_hold_it(life: Life) -> None:
    life.launcher.unread, life.launcher.log_error = set(), LogUnavailable("brokers do not answer")
    life.sold.ends = None
    life.step()
    assert not life.has_begun
    life.launcher.log_error = None
    life.step()
    assert life.has_begun


def test_files_are_read_into_topics_before_they_are_joined() -> None:
    files = {t: TopicFiles("parquet", f"/lake/{t}") for t in ("sales", "names")}
    whole = with_feeders(plan_of(SOURCES + LATEST + SOLD), files)
    (sold,) = (q for q in whole.queries if q.id == "CSAS_SOLD")
    assert awaited(sold, whole) == ["FILES_sales", "FILES_names", "CTAS_LATEST"]
    launcher = FakeLauncher()
    supervisor = Supervisor(launcher)
    supervisor.queries = {q.id: RunningQuery(q) for q in whole.queries}
    supervisor.run_continuously()
    for now, idle in enumerate(("", "FILES_sales", "FILES_names")):
        if idle:
            launcher.streams[idle].status["message"] = "Waiting for data to arrive"
        supervisor.run_once(now * ASK_MS)
        assert (("CSAS_SOLD", "continuous") in launcher.calls) == (idle == "FILES_names")


def test_queries_whose_inputs_may_come_in_any_order_wait_for_nobody() -> None:
    plan = plan_of(SOURCES + LATEST + SOLD + "CREATE TABLE BOTH AS SELECT K, N + 1 AS N FROM LATEST;\n")
    waits = {q.id: awaited(q, plan) for q in plan.queries}
    assert waits == {"CTAS_LATEST": [], "CTAS_BOTH": [], "CSAS_SOLD": ["CTAS_LATEST"]}


def test_a_run_that_ends_does_not_join_what_a_query_that_failed_has_not_made() -> None:
    """The sales would have been read, and have met nothing for good."""
    launcher, plan = FakeLauncher(), plan_of(SOURCES + FAR + SOLD)
    launcher.fails = lambda name: name == "CSAS_MOVED"
    supervisor = Supervisor(launcher)
    supervisor.queries = {q.id: RunningQuery(q) for q in plan.queries}
    supervisor.run_once_over(plan, batch=False)
    for now in range(0, 100_000, 500):
        supervisor.run_once(now)
        for stream in launcher.streams.values():
            stream.end()
    assert supervisor.finished
    sold = supervisor.queries["CSAS_SOLD"]
    assert (sold.state, "it reads no more, because CSAS_MOVED failed" in sold.last_error) == ("error", True)
    assert {name for name, _ in launcher.calls} == {"CSAS_MOVED", "CTAS_LATEST"}
