"""A query goes on with a new text: positions, state and results stay, and the offsets at which the new text begins are on record."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from flowql.compiler.plan import codec
from flowql.compiler.plan.deployed import Forward
from flowql.compiler.plan.diff import ForwardRefused, QueryChange
from flowql.runtime.app import forwarding
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.exchanges import rows_saved
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.plan_topic import read_deployed, read_entries
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import ForwardUnsupported, OutsideRecords
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.harness import InstanceHarness, fail, function, plan_of

SOURCE = "CREATE STREAM S (K BIGINT KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');\n"
BIG = "CREATE STREAM BIG AS SELECT K, V{more} FROM S WHERE V > {over};\n"
COUNTS = "CREATE TABLE COUNTS AS SELECT K, COUNT(*) AS N FROM BIG GROUP BY K;\n"
BY_REST = "CREATE TABLE BY_REST AS SELECT V % 3 AS R, COUNT(*) AS N FROM S WHERE V > {over} GROUP BY V % 3;\n"


def big(over: int, more: str = "") -> str:
    return SOURCE + BIG.format(over=over, more=more)


def by_rest(over: int) -> str:
    return SOURCE + BY_REST.format(over=over)


def sent(first: int, n: int) -> list[tuple[int, dict[str, int], int]]:
    return [(i % 5, {"V": i}, i) for i in range(first, first + n)]


def forward(world: InstanceHarness, sql: str) -> dict[str, QueryChange]:
    plan = plan_of(sql, world.instance.deployed.plan)
    changes = world.instance.deploy(plan, forward=[q.id for q in plan.queries])
    return {c.query: c for c in changes}


def crashed(world: InstanceHarness, physical: MemoryPhysical) -> None:
    world.log.crash()
    world.instance = Instance(world.log, physical, VirtualClock(2_000_000), InstanceConfig())
    world.driver = Driver(world.instance)
    world.instance.resume()
    world.producer = world.log.producer("feed")


def by_definitions(world: InstanceHarness, tests: Sequence[Callable[[int], bool]]) -> list[int]:
    """Values of `s` that the tests let through, each from the recorded offsets of its definition on."""
    begins = [dict(((t, p), at) for t, p, at in f.reads) for f in world.instance.deployed.forwards]
    found = []
    for p, offset, _, value, _ in world.records("s"):
        test = tests[sum(offset >= b["s", p] for b in begins)]
        found += [value["V"]] if test(value["V"]) else []
    return sorted(found)


@pytest.mark.parametrize("seed", range(6))
def test_the_old_text_below_the_recorded_offsets_and_the_new_one_above(seed: int) -> None:
    """Also in the middle of what is buffered."""
    world = InstanceHarness(big(10), seed=seed, rows_per_run=7)
    world.send("s", sent(0, 60))
    for _ in range(seed * 9):
        world.driver.round()  # type: ignore[union-attr]
    assert forward(world, big(30))["CSAS_BIG"] == QueryChange("CSAS_BIG", "forward", "kept", "requested")
    world.send("s", sent(60, 60))
    world.settle()
    forward(world, big(80, ", V * 2 AS W"))
    world.send("s", sent(120, 20))
    world.settle()
    expected = by_definitions(world, [lambda v: v > 10, lambda v: v > 30, lambda v: v > 80])
    assert sorted(v["V"] for v in world.values("BIG")) == expected
    assert [v["W"] for v in world.values("BIG") if "W" in v] == [v["V"] * 2 for v in world.values("BIG") if "W" in v]
    assert world.instance.deployed.wanted is None
    assert [q.generation for q in world.instance.plan.queries] == [1]


def test_results_are_of_the_new_text_from_the_recorded_ends_on() -> None:
    world = InstanceHarness(big(10), rows_per_run=7)
    world.send("s", sent(0, 60))
    world.settle()
    forward(world, big(10, ", 1 AS NEW"))
    world.send("s", sent(60, 60))
    world.settle()
    (begun,) = world.instance.deployed.forwards
    ends = {(t, p): at for t, p, at in begun.results}
    assert all(("NEW" in v) == (offset >= ends["BIG", p]) for p, offset, _, v, _ in world.records("BIG"))
    assert sum("NEW" in v for v in world.values("BIG")) == 60


def test_readers_go_on_as_what_they_read_has_not_changed() -> None:
    world = InstanceHarness(big(10) + COUNTS)
    world.send("s", sent(0, 60))
    world.settle()
    tasks = world.instance.queries["CTAS_COUNTS"].built.tasks
    changes = forward(world, big(30, ", V * 2 AS W") + COUNTS)
    assert [c.action for c in changes.values()] == ["forward", "none"]
    assert world.instance.queries["CTAS_COUNTS"].built.tasks is tasks
    world.send("s", sent(60, 20))
    world.settle()
    assert sum(n for _, n in world.table("COUNTS")) == 49 + 20


@pytest.mark.parametrize("seed", range(8))
def test_a_state_that_means_the_same_goes_on(seed: int) -> None:
    """A filter in front of an aggregate, with a repartition between: nothing is under way when the texts are exchanged."""
    world = InstanceHarness(by_rest(10), seed=seed, rows_per_run=5)
    world.send("s", sent(0, 90))
    for _ in range(seed * 6):
        world.driver.round()  # type: ignore[union-attr]
    forward(world, by_rest(80))
    world.send("s", sent(90, 60))
    world.settle()
    values = by_definitions(world, [lambda v: v > 10, lambda v: v > 80])
    assert world.table("BY_REST") == [(r, sum(v % 3 == r for v in values)) for r in range(3)]


@pytest.mark.parametrize("seed", range(8))
def test_what_is_between_the_parts_of_a_query_goes_through_the_old_text(seed: int) -> None:
    """The condition is judged behind a repartition."""
    sql = (
        SOURCE
        + "CREATE TABLE D (K BIGINT PRIMARY KEY, X INT) WITH (KAFKA_TOPIC='d', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');\n"
        + "CREATE STREAM J AS SELECT D.K, S.V AS V FROM S JOIN D ON CAST(S.V % 7 AS BIGINT) = D.K WHERE S.V > D.X * {over} EMIT CHANGES;\n"
    )
    world = InstanceHarness(sql.format(over=1), seed=seed, rows_per_run=5)
    world.send("d", [(k, {"X": 10}, 0) for k in range(7)])
    world.settle()
    world.send("s", sent(0, 90))
    while world.instance.exchanges.empty:
        world.driver.round()  # type: ignore[union-attr]
    forward(world, sql.format(over=3))
    world.send("s", sent(90, 20))
    world.settle()
    values = by_definitions(world, [lambda v: v > 10, lambda v: v > 30])
    assert sorted(v["V"] for v in world.values("J")) == values


def test_rows_between_parts_survive_a_crash_also_after_a_new_text() -> None:
    """The channels of the new tasks count from their beginning; rows behind the count of the old ones were not saved."""
    physical = MemoryPhysical()
    world = InstanceHarness(by_rest(10), physical=physical, rows_per_run=5, seed=1)
    for first, over in ((0, 10), (60, 80)):
        forward(world, by_rest(over))
        world.send("s", sent(first, 60))
        while world.instance.exchanges.empty:
            world.driver.round()  # type: ignore[union-attr]
        world.instance.commit.request()
        world.instance.commit.run_once(world.clock.timer_ms())
        with world.instance.state.snapshot() as committed:
            assert rows_saved(committed), "the commit has a remainder"
        if not first:
            world.settle()
    crashed(world, physical)
    world.settle()
    assert sum(n for _, n in world.table("BY_REST")) == 49 + 39


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_leaves_the_old_text_or_the_new(moment: str) -> None:
    physical = MemoryPhysical()
    world = InstanceHarness(by_rest(10), physical=physical, seed=3)
    world.send("s", sent(0, 90))
    for _ in range(20):
        world.driver.round()  # type: ignore[union-attr]
    commit, seen = world.log.commit, []

    def dies(transactional_id: str, epoch: int, transaction: Any) -> int:
        is_it = (
            any(tp.topic == "flowql-plan" for tp in transaction.records) if hasattr(transaction, "records") else False
        )
        seen.append(is_it)
        if is_it and moment == "before":
            raise KeyboardInterrupt
        sequence = commit(transactional_id, epoch, transaction)
        if is_it:
            raise KeyboardInterrupt
        return sequence

    world.log.commit = dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        forward(world, by_rest(80))
    assert any(seen)
    world.log.commit = commit  # type: ignore[method-assign]
    crashed(world, physical)
    world.send("s", sent(90, 60))
    world.settle()
    begun = world.instance.deployed.forwards
    assert len(begun) == (moment == "after")
    values = by_definitions(world, [lambda v: v > 10, lambda v: v > 80])
    assert world.table("BY_REST") == [(r, sum(v % 3 == r for v in values)) for r in range(3)]


def test_what_a_state_does_not_permit_is_refused_and_nothing_changes() -> None:
    sql = "CREATE TABLE T AS SELECT K, SUM(V) AS N FROM S GROUP BY K;\n"
    world = InstanceHarness(SOURCE + sql)
    world.send("s", sent(0, 20))
    world.settle()
    before = world.instance.deployed
    with pytest.raises(
        ForwardRefused, match=r"CTAS_T-aggregate-1 would mean something else: its aggregates: MAX\(V\), was SUM"
    ):
        forward(world, SOURCE + sql.replace("SUM", "MAX"))
    assert world.instance.deployed is before
    world.settle()


def test_the_offsets_are_on_record() -> None:
    world = InstanceHarness(big(10))
    world.send("s", sent(0, 60))
    world.settle()
    forward(world, big(30))
    ends = {p: world.log.admin().end_offset(TopicPartition("s", p)) for p in range(2)}
    (begun,) = world.instance.deployed.forwards
    assert begun.reads == (("s", 0, ends[0]), ("s", 1, ends[1]))
    assert begun.deployment == 2
    assert read_deployed(world.log, "flowql") == world.instance.deployed
    entry = read_entries(world.log, "flowql")[-1]
    assert (entry.forwards, entry.changes) == ((begun,), (("CSAS_BIG", "forward", "requested"),))
    assert read_entries(MemoryLog(), "flowql") == [], "where nothing was deployed"
    forward(world, big(30))
    assert world.instance.deployed.forwards == (begun,), "nothing has changed"


def test_a_rebuild_computes_all_history_with_the_newest_text() -> None:
    world = InstanceHarness(big(10) + COUNTS)
    world.send("s", sent(0, 60))
    world.settle()
    forward(world, big(30) + COUNTS)
    world.send("s", sent(60, 20))
    world.settle()
    world.instance.deploy(plan_of(big(30) + COUNTS, world.instance.plan), refresh=["CSAS_BIG"])
    world.settle()
    assert sorted(v["V"] for v in world.values("BIG")) == list(range(31, 80))
    assert sum(n for _, n in world.table("COUNTS")) == 49
    assert world.instance.deployed.forwards == (), "its results are of one definition again"


def test_a_query_that_says_so_itself_goes_forward() -> None:
    def text(over: int) -> str:
        return big(over).replace("BIG AS", "BIG WITH (ON_CHANGE='forward') AS")

    world = InstanceHarness(text(10))
    world.send("s", sent(0, 60))
    world.settle()
    (change,) = world.deploy(text(30))
    assert (change.action, change.because) == ("forward", "ON_CHANGE = 'forward'")
    (change,) = world.instance.deploy(plan_of(text(40), world.instance.plan), refresh=["CSAS_BIG"])
    assert change.action == "change"
    world.settle()
    assert sorted(v["V"] for v in world.values("BIG")) == list(range(41, 60))


def test_a_topic_with_records_of_others_is_kept() -> None:
    """What refuses to be rebuilt says that there is another way."""
    world = InstanceHarness(big(10))
    world.send("s", sent(0, 60))
    world.settle()
    other = world.log.producer("by-hand")
    other.begin()
    other.send(TopicPartition("BIG", 0), world.encode([(1, {"V": 7}, 0)]))
    other.commit()
    with pytest.raises(OutsideRecords, match="flowql deploy --forward"):
        world.instance.deploy(plan_of(big(30), world.instance.plan), dry_run=True)
    with pytest.raises(OutsideRecords, match="flowql deploy --forward"):
        world.deploy(big(30))
    forward(world, big(30))
    world.send("s", sent(0, 40))
    world.settle()
    assert sorted(v["V"] for v in world.values("BIG")) == sorted([7, *range(11, 60), *range(31, 40)])


def test_a_rebuild_under_way_is_abandoned_for_a_text_that_goes_forward() -> None:
    world = InstanceHarness(big(10))
    world.send("s", sent(0, 60))
    world.settle()
    world.deploy(big(30))
    assert not world.instance.deployer.rebuilt
    forward(world, big(30))
    world.settle()
    assert world.instance.deployer.rebuilt
    assert sorted(v["V"] for v in world.values("BIG")) == list(range(11, 60))
    assert not [t for t in world.log.topics() if "@" in t]


def test_a_failing_query_goes_on_with_a_text_that_does_not_fail() -> None:
    sql = SOURCE + "CREATE STREAM BAD AS SELECT K, {call} AS W FROM S;\n"
    with function("NOPE", fail):
        world = InstanceHarness(sql.format(call="NOPE(CAST(V AS BIGINT))"))
        world.send("s", sent(0, 10))
        world.rest()
        assert world.instance.query_states.of("CSAS_BAD").reason
        forward(world, sql.format(call="CAST(V AS BIGINT)"))
        world.settle()
        assert sorted(v["W"] for v in world.values("BAD")) == list(range(10))


def test_a_query_that_cannot_come_to_rest_goes_on_with_its_old_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records come in each round, so that rows are between its tasks when it is to rest."""
    world = InstanceHarness(by_rest(10), rows_per_run=3, seed=1)
    sends = itertools.count(0, 20)
    step = world.driver.round  # type: ignore[union-attr]

    def fed() -> None:
        world.send("s", sent(next(sends), 20))
        step()

    fed()
    world.instance.await_step = fed
    monkeypatch.setattr(forwarding, "REST_MS", -1)
    with pytest.raises(ForwardUnsupported, match="rows are between the tasks of CTAS_BY_REST after"):
        forward(world, by_rest(80))
    world.instance.await_step = step
    world.settle()
    assert sum(n for _, n in world.table("BY_REST")) == next(sends) - 11


def test_a_commit_that_fails_leaves_a_query_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deployment has failed after the tasks of the old text had ended."""
    world = InstanceHarness(by_rest(10))
    world.send("s", sent(0, 60))
    world.settle()

    def fails(*_: object) -> None:
        raise ForwardUnsupported("no")

    with monkeypatch.context() as patched:
        patched.setattr(forwarding, "recorded", fails)
        with pytest.raises(ForwardUnsupported, match="no"):
            forward(world, by_rest(80))
    world.send("s", sent(60, 60))
    world.settle()
    assert sum(n for _, n in world.table("BY_REST")) == 109
    forward(world, by_rest(100))
    world.send("s", sent(120, 60))
    world.settle()
    assert sum(n for _, n in world.table("BY_REST")) == 109 + 60


def test_a_paused_query_stays_paused() -> None:
    world = InstanceHarness(by_rest(10))
    world.send("s", sent(0, 60))
    world.settle()
    plan = plan_of(by_rest(10), world.instance.plan)
    world.instance.deploy(replace(plan, paused=("CTAS_BY_REST",)))
    world.send("s", sent(60, 60))
    new = replace(plan_of(by_rest(80), world.instance.plan), paused=("CTAS_BY_REST",))
    world.instance.deploy(new, forward=["CTAS_BY_REST"])
    world.driver.run_until_idle()  # type: ignore[union-attr]
    assert sum(n for _, n in world.table("BY_REST")) == 49
    world.instance.deploy(replace(new, paused=()))
    world.settle()
    assert sum(n for _, n in world.table("BY_REST")) == 49 + 39


def test_with_threads_under_continuous_input() -> None:
    with InstanceHarness(by_rest(10), live=True) as world:
        for n in range(30):
            world.send("s", sent(n * 50, 50))
            if n % 10 == 5:
                forward(world, by_rest(100 * n))
        world.settle()
        tests = [lambda v, o=o: v > o for o in (10, 500, 1500, 2500)]
        values = by_definitions(world, tests)
        assert world.table("BY_REST") == sorted(Counter(v % 3 for v in values).items())


def test_a_log_that_cannot_replace_records_in_a_commit_goes_forward_as_well() -> None:
    log = MemoryLog()
    log.drops_with_commits = False
    world = InstanceHarness(by_rest(10), log=log)
    world.send("s", sent(0, 60))
    world.settle()
    forward(world, by_rest(80))
    world.send("s", sent(60, 60))
    world.settle()
    assert sum(n for _, n in world.table("BY_REST")) == 49 + 39


def test_records_of_older_versions_know_of_no_forward() -> None:
    world = InstanceHarness(big(10))
    line = codec.line(world.instance.deployed)
    assert "forward" not in line.lower(), "nothing is written of what is not there"
    assert codec.loads_deployed(line).forwards == ()
    forwards = (Forward("CSAS_BIG", 2, (("s", 0, 5),), (("BIG", 0, 3),)),)
    now = replace(world.instance.deployed, forwards=forwards)
    assert codec.loads_deployed(codec.line(now)) == now


def test_a_state_from_changelogs_is_that_of_all_texts() -> None:
    """As on Kafka, after the disk is lost: the changelogs go on from one text to the next."""
    log = MemoryLog()
    log.drops_with_commits = False
    world = InstanceHarness(by_rest(10), log=log, changelogs=True)
    world.send("s", sent(0, 60))
    world.settle()
    forward(world, by_rest(80))
    world.send("s", sent(60, 60))
    world.settle()
    log.crash()
    world.instance = Instance(log, MemoryPhysical(), VirtualClock(2_000_000), InstanceConfig(changelogs=True))
    world.driver = Driver(world.instance)
    world.instance.resume()
    world.producer = log.producer("feed")
    world.send("s", sent(120, 9))
    world.settle()
    assert sum(n for _, n in world.table("BY_REST")) == 49 + 39 + 9


def test_a_state_that_is_made_anew_is_made_with_the_newest_text(caplog: pytest.LogCaptureFixture) -> None:
    """And the log says so."""
    world = InstanceHarness(by_rest(10))
    world.send("s", sent(0, 60))
    world.settle()
    forward(world, by_rest(30))
    world.settle()
    world.instance.commit.flush()
    crashed(world, MemoryPhysical())
    world.settle()
    assert world.instance.state_lost
    assert sum(n for _, n in world.table("BY_REST")) == 29
    assert [r.message for r in caplog.records if "query.remade" in str(r.__dict__)] == [
        "all results are computed with the text deployed with --forward in deployment 2"
    ]
