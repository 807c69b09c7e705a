"""Deployments while commits do not get through: what waits, what acts at once, and what is as it was."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from flowql.compiler.plan.deployed import DEPLOY
from flowql.runtime.app.deployer import BLOCKED_MS, Deployer
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.plan_topic import read_deployed
from flowql.runtime.app.query_state import RUNNING
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import CommitsBlocked, LogUnavailable
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.engine import APP, COUNTS, DOUBLED, FullLog, make, plan, produce, read, resume

BIGGER = "CREATE STREAM DOUBLED WITH (KAFKA_TOPIC='doubled') AS SELECT K, V * 3 AS V FROM INPUT EMIT CHANGES;"


def blocked(*queries: str):
    """An instance that has answered one record, has read another, and cannot commit it."""
    log = FullLog()
    instance, driver = make(log, *queries)
    produce(log, "input", 1)
    driver.run_until_caught_up()
    produce(log, "input", 2)
    driver.run_until_idle()
    log.full = True
    instance.commit.dirty = True
    while not instance.commit.blocked:
        driver.round()
    return log, instance, driver


def paused(instance: Instance, *names: str):
    return instance.deploy(replace(instance.deployed.plan, paused=names))


@pytest.mark.parametrize(
    "wanted",
    [(DOUBLED,), (DOUBLED, COUNTS, COUNTS.replace("COUNTS", "MORE").replace("counts", "more")), (BIGGER, COUNTS)],
)
def test_a_deployment_is_answered_with_the_reason_and_changes_nothing(wanted):
    log, instance, driver = blocked(DOUBLED, COUNTS)
    before, asked_ms = instance.deployed, instance.clock.timer_ms()
    with pytest.raises(CommitsBlocked, match=r"no space left on device.*nothing has changed"):
        instance.deploy(plan(*wanted))
    assert instance.clock.timer_ms() - asked_ms < 5_000
    assert instance.deployed is before
    log.full = False
    produce(log, "input", 3)
    driver.run_until_caught_up()
    assert all(instance.query_states.of(q).state is RUNNING for q in ("CSAS_DOUBLED", "CTAS_COUNTS"))
    assert read(log, "doubled") == [{"V": 2}, {"V": 4}, {"V": 6}]
    assert read(log, "counts")[-1] == {"N": 3}
    instance.deploy(plan(*wanted))
    driver.run_until_caught_up()
    assert {q.id for q in instance.plan.queries} == {q.id for q in plan(*wanted).queries}


def test_pause_and_resume_act_at_once_and_are_committed_later():
    log, instance, driver = blocked(DOUBLED, COUNTS)
    paused(instance, "CSAS_DOUBLED")
    assert not instance.query_states.of("CSAS_DOUBLED").may_run
    paused(instance, "CTAS_COUNTS")
    assert instance.query_states.of("CSAS_DOUBLED").may_run
    assert not instance.query_states.of("CTAS_COUNTS").may_run
    log.full = False
    driver.commit()
    stored = read_deployed(log, APP)
    assert stored is not None
    assert stored.serving.paused == ("CTAS_COUNTS",)
    produce(log, "input", 3)
    driver.run_until_idle()
    driver.commit()
    assert read(log, "doubled") == [{"V": 2}, {"V": 4}, {"V": 6}]
    assert read(log, "counts")[-1] == {"N": 2}


def test_a_deployment_that_changes_one_query_pauses_and_resumes_others():
    log = FullLog()
    instance, driver = make(log, DOUBLED, COUNTS)
    more = COUNTS.replace("COUNTS", "MORE").replace("counts", "more")
    produce(log, "input", 1)
    driver.run_until_caught_up()
    instance.deploy(replace(plan(DOUBLED, COUNTS, more), paused=("CTAS_COUNTS",)))
    produce(log, "input", 2)
    driver.run_until_idle()
    driver.commit()
    assert (read(log, "counts")[-1], read(log, "more")[-1]) == ({"N": 1}, {"N": 2})
    instance.deploy(plan(DOUBLED, COUNTS))
    driver.run_until_caught_up()
    assert read(log, "counts")[-1] == {"N": 2}


def test_what_waits_behind_another_deployment_is_taken_back():
    """The first one's cut has been made, so its commit comes; the second one has not begun."""
    log, instance, driver = blocked(DOUBLED)
    first = instance.reconciler.ask(lambda: iter_commit(instance))
    while not instance.commit.blocked or not first.done.running():
        driver.round()
    with pytest.raises(CommitsBlocked, match="nothing has changed"):
        instance.deploy(plan(DOUBLED, COUNTS))
    log.full = False
    while not first.done.done():
        driver.round()
    driver.run_until_caught_up()
    assert [q.id for q in instance.plan.queries] == ["CSAS_DOUBLED"]
    assert instance.deployer.rebuilt


def iter_commit(instance):
    yield instance.commit.request()


def test_what_is_under_way_already_takes_effect_with_the_commit():
    log = FullLog()
    instance, driver = make(log, DOUBLED)
    driver.run_until_caught_up()
    wanted = plan(DOUBLED, COUNTS)
    taken = instance.commit._cut

    def full_at_the_cut():
        log.full = True
        return taken()

    instance.commit._cut = full_at_the_cut
    with pytest.raises(CommitsBlocked, match="takes effect when that is over"):
        instance.deploy(wanted, about=DEPLOY)
    assert instance.clock.timer_ms() > BLOCKED_MS
    log.full = False
    instance.commit._cut = taken
    produce(log, "input", 1)
    while not instance.deployer.rebuilt:
        driver.round()
    driver.run_until_caught_up()
    assert read(log, "counts") == [{"N": 1}]


def test_a_member_whose_brokers_go_away_while_it_starts_says_so_and_may_be_started_again():
    """It ended with a traceback after a minute. `flowql serve` waits for brokers where the error says that they are away."""

    def wait(_: object) -> None:
        raise TimeoutError("not done within 60 s")

    admin = SimpleNamespace(end_offset=lambda _: 3)
    host: Any = SimpleNamespace(wait=wait, admin=admin, log=MemoryLog(), config=InstanceConfig())
    plans = SimpleNamespace(at_start=None)
    group: Any = SimpleNamespace(swap=None, plans=plans, applied=lambda _: None, trouble="brokers do not answer")
    nothing: Any = None
    with pytest.raises(LogUnavailable, match=r"flowql-plan cannot be read up to its end.*brokers do not answer"):
        Deployer(host, nothing, nothing, nothing, group).resume()


def test_a_start_without_a_query_gives_it_no_micro_batch_and_pauses_it(monkeypatch):
    """Other steps go on before the pause is recorded: a function that freezes the instance must not be called even then."""
    recorded = Deployer._record_pauses

    def late(deployer: Deployer) -> None:
        for _ in range(50):
            deployer._host.look(0)
        recorded(deployer)

    monkeypatch.setattr(Deployer, "_record_pauses", late)
    log, physical = MemoryLog(), MemoryPhysical()
    first, driver = resume(log, physical)
    for topic in ("input", "other"):
        log.admin().create_topic(topic, 1)
    first.deploy(plan(DOUBLED, COUNTS))
    driver.run_until_caught_up()
    first.close()
    produce(log, "input", 1)

    second, driver = resume(log, physical, without=("CSAS_DOUBLED",))
    driver.run_until_caught_up()
    assert (read(log, "doubled"), read(log, "counts")) == ([], [{"N": 1}])
    stored = read_deployed(log, APP)
    assert stored is not None
    assert stored.plan.paused == ("CSAS_DOUBLED",)
    paused(second)
    driver.run_until_caught_up()
    assert read(log, "doubled") == [{"V": 2}]
    second.deploy(plan(DOUBLED.replace("2", "3"), COUNTS))
    driver.run_until_caught_up()
    assert second.query_states.of("CSAS_DOUBLED@2").may_run
