"""An instance as a member of a group, on a log where it is the only one: the same results, state that comes back."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.deployed import Swap
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.group import BUSY_MS, QUIET_MS
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import query_status
from flowql.runtime.app.query_state import STOPPED, SUSPENDED
from flowql.runtime.app.status import instance_metrics
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import (
    Fenced,
    ForwardUnsupported,
    LogDenied,
    LogUnavailable,
    OtherMode,
    TopicMissing,
)
from flowql.runtime.log.base import EARLIEST
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.placement.record import Place, PlacementChange
from flowql.runtime.state.memory import MemoryPhysical
from tests.crash.contents import DEAD_LETTERS, contents_of, differences
from tests.crash.project import APPENDED, UPSERTED, append, compiled, create_topics, customers, orders
from tests.runtime.app.engine import COUNTS, DOUBLED, OTHERS, SOURCES, plan, produce, read
from tests.runtime.app.test_broken_input import DenyingLog
from tests.runtime.app.test_refused import RefusingLog

APP = "flowql"


def world(log=None):
    log = log or MemoryLog()
    create_topics(log.admin())
    append(log, customers())
    return log


def start(log, physical=None, seed=None, **config):
    clock = VirtualClock()
    instance = Instance(log, physical or MemoryPhysical(), clock, InstanceConfig(threads=1, changelogs=True, **config))
    driver = Driver(instance, seed=seed, tick=lambda: clock.advance(10))
    instance.deploy(compiled())
    return instance, driver


def result(log, instance):
    found = contents_of(log, instance.snapshot())
    found.appended[DEAD_LETTERS] = Counter({k[:3]: n for k, n in found.appended[DEAD_LETTERS].items()})
    return found


@pytest.fixture(scope="module")
def expected():
    log = world()
    for part in orders(300, 1, 50):
        append(log, part)
    instance, driver = start(log)
    driver.run_until_caught_up()
    return result(log, instance)


def settle(instance, driver):
    for _ in range(50):
        driver.round()
    driver.run_until_caught_up()


def test_a_member_makes_what_the_only_instance_makes(expected):
    log = world()
    instance, driver = start(log, shared=True, process_id="one")
    for part in orders(300, 1, 50):
        append(log, part)
        settle(instance, driver)
    assert not differences(expected, result(log, instance))
    total = len(instance.group.planned.partitions)
    assert instance_metrics(instance)["group"] == {
        "away": False,
        "partitions": total,
        "of": total,
        "rack": None,
        "trouble": None,
    }


def member(log, name, physical=None):
    """One that runs what was deployed."""
    clock = VirtualClock()
    config = InstanceConfig(threads=1, changelogs=True, shared=True, process_id=name)
    instance = Instance(log, physical or MemoryPhysical(), clock, config)
    driver = Driver(instance, tick=lambda: clock.advance(10))
    instance.resume()
    return instance, driver


@pytest.mark.parametrize("how", ["deleted", "hidden"])
def test_a_member_starts_without_a_topic_that_one_query_reads(how):
    """It ran none of its queries, and asked again and again."""
    log = DenyingLog()
    for topic in ("input", "other"):
        log.create_topic(topic, 1)
    first, driver = member(log, "one")
    first.deploy(plan(COUNTS, OTHERS))
    produce(log, "input", 1)
    produce(log, "other", 1)
    settle(first, driver)
    physical = first.state._physical
    first.close()
    if how == "deleted":
        log.delete_topic("other")
    else:
        log.hidden.add("other")
    second, driver = member(log, "one", physical)
    produce(log, "input", 2)
    for _ in range(200):
        driver.round()
    assert read(log, "counts")[-1] == {"N": 2}
    state = {q: query_status(second, q)["state"] for q in second.queries}
    assert state == {"CTAS_COUNTS": "running", "CSAS_OTHERS": "error" if how == "deleted" else "failed"}
    if how == "hidden":
        log.hidden.clear()
        produce(log, "other", 2)
        while query_status(second, "CSAS_OTHERS")["state"] != "running":
            driver.round()
        settle(second, driver)
        assert read(log, "others") == [{"V": 2}, {"V": 3}]


@pytest.mark.parametrize("kept", [True, False])
def test_a_member_goes_on_with_its_state_or_without(expected, kept):
    log, parts = world(), list(orders(300, 1, 50))
    physical = MemoryPhysical()
    instance, driver = start(log, physical, shared=True, process_id="one")
    for part in parts[:3]:
        append(log, part)
        settle(instance, driver)
    append(log, parts[3])
    for _ in range(3):
        driver.round()  # and some of it is not committed
    log.crash()
    instance, driver = start(log, physical if kept else None, shared=True, process_id="two")
    for part in parts[4:]:
        append(log, part)
    settle(instance, driver)
    assert not differences(expected, result(log, instance))
    assert (instance.restoration.records == 0) == kept


def test_a_member_reads_the_plan_once_at_its_start(monkeypatch):
    """It read the topic from its beginning three times."""
    log = world()
    first, _ = start(log, shared=True, process_id="one")
    first.close()
    reader, read = log.reader, []
    monkeypatch.setattr(log, "reader", lambda tp, offset=EARLIEST: read.append(tp.topic) or reader(tp, offset))
    member(log, "two")
    assert read.count("flowql-plan") == 1


BY_V = "CREATE TABLE BY_V AS SELECT V, COUNT(*) AS N FROM INPUT GROUP BY V EMIT CHANGES;"


@pytest.mark.parametrize(("sql", "look_ms"), [(COUNTS, QUIET_MS), (BY_V, BUSY_MS)])
def test_a_member_looks_less_often_while_no_task_waits_for_others(sql, look_ms):
    """It took most of the processor time of a member at rest."""
    log = MemoryLog()
    for topic in ("input", "other"):
        log.create_topic(topic, 1)
    first, driver = member(log, "one")
    first.deploy(plan(sql))
    settle(first, driver)
    assert first.group.run_once(first.clock.timer_ms()) == look_ms


def test_a_first_deployment_creates_the_topics_of_its_queries_in_two_rounds(monkeypatch):
    """Brokers take 50 to 100 ms for each: sources, results, changelogs and repartitions had one of their own."""
    log = MemoryLog()
    first, _ = member(log, "one")
    create, rounds = log.create_topics, []

    def created(topics):
        if new := sorted(set(topics) - log.topics().keys()):
            rounds.append(new)
        return create(topics)

    monkeypatch.setattr(first.admin, "create_topics", created)
    declared = SOURCES.replace("WITH (", "WITH (PARTITIONS=2, ")
    first.deploy(compile_project([SourceText("test.sql", declared + BY_V)]).plan)
    assert len(rounds) == 2, rounds
    assert rounds[0] == ["BY_V", "input", "other"]
    assert {name.rpartition("-")[2] for name in rounds[1]} == {"changelog", "repartition"}


def test_a_member_looks_often_while_something_is_swapped_in_and_while_its_copies_warm_up():
    """Each step waited for 100 ms."""
    log = MemoryLog()
    for topic in ("input", "other"):
        log.create_topic(topic, 1)
    first, driver = member(log, "one")
    first.deploy(plan(COUNTS))
    settle(first, driver)

    def looked():
        first.clock.advance(QUIET_MS)
        first.group.observe(first.clock.timer_ms())
        return first.group.look_ms

    deployed = first.deployed
    assert looked() == QUIET_MS
    for changed in (replace(deployed, swap=Swap(1, "Q")), replace(deployed, wanted=deployed.plan)):
        first.deployed = changed
        assert looked() == BUSY_MS
    first.deployed = deployed
    assert looked() == QUIET_MS
    first.group._copies.are_cold = True
    assert looked() == BUSY_MS


def test_a_fenced_member_starts_over(expected):
    log, parts = world(), list(orders(300, 1, 50))
    instance, driver = start(log, shared=True, process_id="one")
    for n, part in enumerate(parts):
        append(log, part)
        driver.round()
        if n % 2:
            log.producer("flowql-one").close()  # as the brokers do to one whose transaction took too long
        settle(instance, driver)
    assert instance.fatal is None
    assert not differences(expected, result(log, instance))


def test_two_that_fence_each_other_end():
    log = world()
    instance, driver = start(log, shared=True, process_id="copied")

    def fence_each_other():
        for _ in range(20):
            log.producer("flowql-copied")
            instance.commit.dirty = True
            settle(instance, driver)

    with pytest.raises(Fenced, match="copy of this data directory"):
        fence_each_other()


def tell(instance, change, tps):
    """What another member would write as the leader."""
    step = instance.placement
    step._lead = lambda now_ms: None
    now, me = step.placement, step.member
    place = {
        PlacementChange.LOST: Place("another", "another"),
        PlacementChange.ASSIGN: Place(me, me),
        PlacementChange.REVOKE: Place(me, "another"),
    }[change]
    with step._lock:
        step._learn(replace(now, number=now.number + 1, places={**now.places, **dict.fromkeys(tps, place)}))


def test_a_member_that_was_given_up_commits_nothing_of_what_it_had(expected):
    log, parts = world(), list(orders(300, 1, 50))
    instance, driver = start(log, shared=True, process_id="one")
    everything = instance.group.planned.partitions
    for n, part in enumerate(parts):
        append(log, part)
        for _ in range(n + 2):  # and some of it is processed, and not committed
            driver.round()
        before = log.committed(APP), log.last_sequence("flowql-one")
        tell(instance, PlacementChange.LOST, everything)
        while instance.group._tasks:
            instance.group.run_once(0)
            driver.round()
        assert not any(q.built.tasks for q in instance.queries.values())
        assert log.committed(APP) == before[0]
        tell(instance, PlacementChange.ASSIGN, everything)
        settle(instance, driver)
    assert instance.restoration.records == 0  # what it had committed is here
    assert not differences(expected, result(log, instance))


class Silent(MemoryLog):
    """Commits, and does not say so, once."""

    silent = False

    def commit(self, transactional_id, epoch, transaction):
        sequence = super().commit(transactional_id, epoch, transaction)
        if self.silent and transactional_id == "flowql-one":
            self.silent = False
            raise LogUnavailable("no answer")
        return sequence


def test_who_waits_for_a_commit_learns_that_it_came_through_though_the_member_was_given_up(expected):
    log = world(Silent())
    instance, driver = start(log, shared=True, process_id="one")
    for part in orders(300, 1, 50):
        append(log, part)
        driver.round()
        log.silent = True
        done = instance.commit.request()
        while log.silent:
            instance.commit.run_once(0)
        tell(instance, PlacementChange.LOST, everything := instance.group.planned.partitions)
        assert not done.done()
        while instance.group._tasks or not done.done():
            driver.round()
        assert done.result() == log.last_sequence("flowql-one")
        tell(instance, PlacementChange.ASSIGN, everything)
        settle(instance, driver)
    assert not differences(expected, result(log, instance))


def test_what_is_revoked_is_committed_before_it_is_acknowledged(expected, monkeypatch):
    log, parts = world(), list(orders(300, 1, 50))
    instance, driver = start(log, shared=True, process_id="one")
    acknowledge, acknowledged = instance.placement.acknowledge, []

    def noted():
        assert not instance.commit._requests, "the commit of what leaves is made"
        acknowledged.append(log.committed(APP))
        acknowledge()

    monkeypatch.setattr(instance.placement, "acknowledge", noted)
    half = {tp for tp in instance.group.planned.partitions if tp.partition == 1}
    for part in parts:
        append(log, part)
        for _ in range(5):
            driver.round()
        tell(instance, PlacementChange.REVOKE, half)
        processed = {}
        while instance.placement._leaving or half & instance.group._owned:
            tasks = [t for q in instance.queries.values() for t in q.built.tasks if t.id.partition == 1]
            processed |= {i.tp: i.position for t in tasks for i in t.logs.values() if i.channel is None}
            driver.round()
        assert {t.id.partition for q in instance.queries.values() for t in q.built.tasks} == {0}
        committed = acknowledged[-1]
        assert all(committed[tp].offset >= position for tp, position in processed.items())
        for _ in range(20):  # the rest goes on, as far as it need not wait for what went
            driver.round()
        assert {tp: log.committed(APP)[tp] for tp in half} == {tp: committed[tp] for tp in half}
        tell(instance, PlacementChange.ASSIGN, half)
        settle(instance, driver)
    assert not differences(expected, result(log, instance))


def reads_of(instance):
    """What each task that is here reads of the log."""
    tasks = [t for q in instance.queries.values() for t in q.built.tasks]
    return {t.id: {i.tp for i in t.logs.values()} for t in tasks}


def test_a_task_runs_only_where_all_its_partitions_are_owned(expected):
    """With one half of its inputs it would join rows with nothing, and commit that."""
    log, parts = world(), list(orders(300, 1, 50))
    instance, driver = start(log, shared=True, process_id="one")
    for part in parts[:2]:
        append(log, part)
    settle(instance, driver)
    before = reads_of(instance)
    gone = min(min(reads) for reads in before.values() if len(reads) > 1)
    tell(instance, PlacementChange.REVOKE, {gone})
    while instance.placement._leaving or gone in instance.group._owned:
        driver.round()
    assert reads_of(instance) == {task: reads for task, reads in before.items() if gone not in reads}
    for part in parts[2:]:
        append(log, part)
    tell(instance, PlacementChange.ASSIGN, {gone})
    settle(instance, driver)
    assert reads_of(instance) == before
    assert not differences(expected, result(log, instance))


def shown(instance):
    """Tasks and partitions of stores in answers."""
    with instance.snapshot() as snapshot:
        tasks = {int(name.rpartition("_")[2]) for name in snapshot.tasks()}
        rows = {s.name: len(list(snapshot.scan(s.name))) for s in snapshot.stores()}
    return tasks, rows


def test_answers_of_a_member_hold_what_it_owns_at_the_commit_alone():
    """What it gave up is still in its files, and belongs to others who go on with it."""
    log = world()
    instance, driver = start(log, shared=True, process_id="one")
    for part in orders(300, 1, 50):
        append(log, part)
    settle(instance, driver)
    everything, all_rows = shown(instance)
    assert everything == {0, 1}
    half = {tp for tp in instance.group.planned.partitions if tp.partition == 1}
    tell(instance, PlacementChange.REVOKE, half)
    while half & instance.group._owned:
        driver.round()
    owned, rows = shown(instance)
    assert owned == {0}
    assert all(0 <= rows[s] < n for s, n in all_rows.items() if n > 1), (rows, all_rows)
    tell(instance, PlacementChange.ASSIGN, half)
    settle(instance, driver)
    assert shown(instance) == (everything, all_rows)
    tell(instance, PlacementChange.LOST, instance.group.planned.partitions)
    while instance.group._tasks:
        driver.round()
    assert shown(instance) == (set(), dict.fromkeys(all_rows, 0))


def test_the_only_instance_ends_when_it_is_fenced():
    log = world()
    _, driver = start(log)
    append(log, next(iter(orders(50, 1, 50))))
    log.producer("flowql")
    with pytest.raises(Fenced):
        driver.run_until_caught_up()


@pytest.mark.parametrize("shared", [True, False])
def test_an_application_cannot_change_between_one_instance_and_many(shared):
    log = world()
    _, driver = start(log, shared=shared, process_id="one")
    settle(_, driver)
    driver.commit()
    log.crash()
    with pytest.raises(OtherMode, match="another app_id"):
        start(log, shared=not shared, process_id="one")


SUMS = "CREATE TABLE COUNTS WITH (KAFKA_TOPIC='counts') AS SELECT K, SUM(V) AS N FROM INPUT GROUP BY K EMIT CHANGES;"


def deployed_in_turn(**config):
    """What topics hold after plans that add, keep and remove queries, with input between them."""
    log = MemoryLog()
    for topic in ("input", "other"):
        log.create_topic(topic, 1)
    clock = VirtualClock()
    instance = Instance(log, MemoryPhysical(), clock, InstanceConfig(threads=1, changelogs=True, **config))
    driver = Driver(instance, tick=lambda: clock.advance(10))
    for n, queries in enumerate([(COUNTS,), (COUNTS, DOUBLED), (COUNTS,)]):
        instance.deploy(plan(*queries))
        produce(log, "input", *range(n * 3, n * 3 + 3))
        settle(instance, driver)
        assert sorted(instance.queries) == sorted(q.id for q in plan(*queries).queries)
    tasks = sorted(t.rpartition("/")[0] for t in instance.state.committed_tasks() if not t.startswith("__"))
    return read(log, "counts"), read(log, "doubled"), tasks, dict(instance.snapshot().scan("CTAS_COUNTS-aggregate-1"))


def test_plans_that_change_while_it_runs():
    assert deployed_in_turn(shared=True, process_id="one") == deployed_in_turn()


@pytest.mark.parametrize("wanted", [(SUMS,), (DOUBLED,)])
def test_what_many_instances_share_is_rebuilt_as_well(wanted):
    """It was refused, as not all of them stop writing at one moment; now each task says on record that it has."""
    log = MemoryLog()
    for topic in ("input", "other"):
        log.create_topic(topic, 1)
    clock = VirtualClock()
    instance = Instance(
        log, MemoryPhysical(), clock, InstanceConfig(threads=1, changelogs=True, shared=True, process_id="one")
    )
    driver = Driver(instance, tick=lambda: clock.advance(10))
    instance.deploy(plan(COUNTS))
    produce(log, "input", 5, 6, 7)
    settle(instance, driver)
    if wanted == (DOUBLED,):
        instance.deploy(plan(DOUBLED))
        settle(instance, driver)
    instance.deploy(plan(*wanted, *(() if wanted == (SUMS,) else (COUNTS,))))
    settle(instance, driver)
    assert instance.plan.by_id.get("CTAS_COUNTS").generation == 2
    produce(log, "input", 8)
    settle(instance, driver)
    assert read(log, "counts")[-1] == {"N": 26 if wanted == (SUMS,) else 4}


def test_many_instances_refuse_a_text_that_goes_forward():
    """They would have to change it at one position. Nothing is changed."""
    log = MemoryLog()
    for topic in ("input", "other"):
        log.create_topic(topic, 1)
    clock = VirtualClock()
    config = InstanceConfig(threads=1, changelogs=True, shared=True, process_id="one")
    instance = Instance(log, MemoryPhysical(), clock, config)
    driver = Driver(instance, tick=lambda: clock.advance(10))
    instance.deploy(plan(COUNTS))
    settle(instance, driver)
    before, wanted = instance.deployed, plan(COUNTS.replace(" GROUP BY", " WHERE V > 1 GROUP BY"))
    assert wanted.queries[0].definition != before.serving.queries[0].definition
    with pytest.raises(ForwardUnsupported, match="CTAS_COUNTS cannot change without a rebuild"):
        instance.deploy(wanted, forward=["CTAS_COUNTS"])
    assert instance.deployed is before


@pytest.mark.turns("cases")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_refusals_at_any_moment_change_no_result(expected, shared, seed):
    """Of any query, while it repartitions, joins and feeds others."""
    rng, log, parts = random.Random(seed), world(RefusingLog()), list(orders(300, 1, 50))
    config = {"shared": True, "process_id": "one"} if shared else {}
    instance, driver = start(log, seed=seed, **config)
    for part in parts:
        append(log, part)
        log.refused = {topic: LogDenied for topic in (*APPENDED, *UPSERTED) if rng.random() < 0.3}
        for _ in range(rng.randrange(120)):
            driver.round()
    assert log.attempts
    log.refused = {}
    driver.run_until_caught_up()
    assert not differences(expected, result(log, instance))


class Away(RefusingLog):
    """Does not say which topics there are while it is `away`."""

    away = False

    def topics(self):
        if self.away:
            raise LogUnavailable("no answer")
        return super().topics()


def test_brokers_that_go_while_a_refused_query_is_tried_again_do_not_end_a_member(expected):
    """Whether its changelog is gone for good is asked of them."""
    log = world(Away())
    instance, driver = start(log, shared=True, process_id="one")
    settle(instance, driver)
    changelog = next(t for t in sorted(log.topics()) if t.endswith("-changelog") and "aggregate" in t)
    log.refused = {changelog: TopicMissing}
    for part in orders(300, 1, 50):
        append(log, part)
    for _ in range(300):
        driver.round()
        if instance.query_states.having(SUSPENDED):
            break
    (refused,) = instance.query_states.having(SUSPENDED)
    log.away, log.refused = True, {}
    for _ in range(300):
        driver.round()
        if instance.group.trouble:
            break
    assert "no answer" in instance.group.trouble
    log.away = False
    settle(instance, driver)
    assert instance.query_states.of(refused).state is not STOPPED
    assert not differences(expected, result(log, instance))
