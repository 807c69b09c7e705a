"""Results that are rebuilt: beside those that serve, and in their place with one commit."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.compiler.plan.deployed import Hold
from flowql.runtime.app.deployment import STAGING
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import query_status
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import EndMoved, OutsideRecords
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.task.dead_letters import topic_name
from tests.runtime.app.harness import InstanceHarness, plan_of

pytestmark = pytest.mark.turns("instances")

SOURCE = "CREATE STREAM S (K BIGINT KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');\n"
BIG = "CREATE STREAM BIG AS SELECT K, V FROM S WHERE V > {over};\n"
COUNTS = "CREATE TABLE COUNTS AS SELECT K, COUNT(*) AS N FROM BIG GROUP BY K;\n"
SOME = "CREATE TABLE SOME AS SELECT K, N FROM COUNTS WHERE N > 3;\n"
OTHER = "CREATE TABLE OTHER AS SELECT K, MAX(V) AS M FROM S GROUP BY K;\n"
CHAIN = SOURCE + BIG + COUNTS + SOME + OTHER


def sent(first: int, n: int) -> list[tuple[int, dict[str, int], int]]:
    return [(i % 5, {"V": i}, i) for i in range(first, first + n)]


def folded(world: InstanceHarness, topic: str) -> dict[bytes | None, Any]:
    """A table's topic as an outside reader sees it who begins now."""
    found: dict[bytes | None, Any] = {}
    for _, _, key, value, _ in world.records(topic):
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def as_from_the_beginning(sql: str, rows: int) -> InstanceHarness:
    fresh = InstanceHarness(sql)
    fresh.send("s", sent(0, rows))
    fresh.settle()
    return fresh


def same(world: InstanceHarness, fresh: InstanceHarness) -> bool:
    streams = sorted(map(str, world.values("BIG"))) == sorted(map(str, fresh.values("BIG")))
    tables = ("COUNTS", "SOME", "OTHER")
    return streams and all(folded(world, t) == folded(fresh, t) and world.table(t) == fresh.table(t) for t in tables)


@pytest.mark.parametrize("seed", range(4))
def test_a_filter_is_changed_and_rolled_back(seed: int) -> None:
    """The readers of a changed query are rebuilt with it; it used to leave its topic with the rows of all versions."""
    world = InstanceHarness(CHAIN.format(over=0), seed=seed, rows_per_run=7)
    world.send("s", sent(0, 40))
    world.settle()
    for fed, over in ((40, 15), (60, 0), (80, 70)):
        world.deploy(CHAIN.format(over=over))
        world.send("s", sent(fed, 20))
        world.settle()
        assert same(world, as_from_the_beginning(CHAIN.format(over=over), fed + 20)), over
    untouched = [t.id.query for t in world.instance.queries["CTAS_OTHER"].built.tasks]
    assert untouched == ["CTAS_OTHER", "CTAS_OTHER"], "its generation is the first"


def test_after_a_swap_positions_are_those_in_the_topics_alone() -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    world.send("s", sent(0, 40))
    world.settle()
    world.deploy(CHAIN.format(over=15))
    world.settle()
    for running in world.instance.queries.values():
        for task in running.built.tasks:
            assert task.state.metadata["positions"].keys() == {i.name for i in task.logs.values()}, task.id
    (some, *_) = world.instance.queries["CTAS_SOME@2"].built.tasks
    assert [i.tp.topic for i in some.logs.values()] == ["COUNTS"]


def test_changes_say_why() -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    found = {c.query: (c.action, c.because, c.generation) for c in world.deploy(CHAIN.format(over=5))}
    assert found == {
        "CSAS_BIG": ("change", "", 2),
        "CTAS_COUNTS": ("change", "CSAS_BIG", 2),
        "CTAS_SOME": ("change", "CTAS_COUNTS", 2),
        "CTAS_OTHER": ("none", "", 1),
    }


def test_who_follows_a_table_learns_that_keys_are_gone_and_nothing_that_has_not_changed() -> None:
    world = InstanceHarness(CHAIN.format(over=-1))
    world.send("s", sent(0, 20))
    world.settle()
    before = len(world.records("SOME"))
    world.deploy(CHAIN.format(over=3))
    world.settle()
    assert [k for k, _ in world.table("SOME")] == [4]
    assert sum(v is None for _, _, _, v, _ in world.records("SOME")) == 4, "of the other keys"
    assert len(world.records("SOME")) == before + 4
    before = len(world.records("COUNTS"))
    world.deploy(CHAIN.format(over=4))
    world.settle()
    assert len(world.records("COUNTS")) == before + 1, "one key has a row less"


def test_the_serving_generation_answers_and_feeds_until_the_swap() -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    world.send("s", sent(0, 40))
    world.settle()
    before = world.table("COUNTS"), folded(world, "COUNTS"), world.values("BIG")
    after = as_from_the_beginning(CHAIN.format(over=10), 40)
    expected = after.table("COUNTS"), folded(after, "COUNTS"), after.values("BIG")
    world.deploy(CHAIN.format(over=10))
    seen = []
    for _ in range(400):
        now = world.table("COUNTS"), folded(world, "COUNTS"), world.values("BIG")
        seen.append([n in (b, e) for n, b, e in zip(now, before, expected, strict=True)])
        if world.instance.deployer.rebuilt:
            break
        world.driver.round()
    assert all(map(all, seen)), "old or new, nothing between"
    assert world.instance.plan.queries[0].generation == 2
    assert (world.table("COUNTS"), folded(world, "COUNTS"), world.values("BIG")) == expected


def test_a_rebuild_that_is_not_wanted_any_more_leaves_nothing() -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    world.send("s", sent(0, 40))
    world.settle()
    before, topics, stores = (
        world.values("BIG"),
        set(world.log.topics()),
        {s.name for s in world.instance.state.stores()},
    )
    world.deploy(CHAIN.format(over=10))
    assert "BIG@2" in world.log.topics()
    assert "CSAS_BIG@2" in world.instance.queries
    world.deploy(CHAIN.format(over=0))
    world.settle()
    assert (world.values("BIG"), set(world.log.topics())) == (before, topics)
    assert {s.name for s in world.instance.state.stores()} == stores
    world.deploy(CHAIN.format(over=20))
    world.settle()
    assert world.instance.plan.queries[0].generation == 3, "numbers are not used again"
    assert same(world, as_from_the_beginning(CHAIN.format(over=20), 40))


def test_a_rebuild_goes_on_in_another_process() -> None:
    physical = MemoryPhysical()
    world = InstanceHarness(CHAIN.format(over=0), physical=physical)
    world.send("s", sent(0, 40))
    world.settle()
    world.deploy(CHAIN.format(over=10))
    world.log.crash()
    world.instance = Instance(world.log, physical, VirtualClock(2_000_000), InstanceConfig())
    world.driver = Driver(world.instance)
    world.instance.resume()
    assert not world.instance.deployer.rebuilt
    assert query_status(world.instance, "CSAS_BIG@2")["state"] == "running"
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=10), 40))


def test_staging_topics_that_a_crash_left_are_deleted() -> None:
    physical = MemoryPhysical()
    world = InstanceHarness(CHAIN.format(over=0), physical=physical)
    world.send("s", sent(0, 10))
    world.deploy(CHAIN.format(over=10))
    world.settle()
    world.log.create_topic("BIG@3", 2, STAGING)  # it died before the commit of a deployment, too
    world.log.create_topic("BIG@4", 2)  # somebody's own
    world.log.crash()
    world.instance = Instance(world.log, physical, VirtualClock(2_000_000), InstanceConfig())
    world.driver = Driver(world.instance)
    world.instance.resume()
    assert "BIG@3" not in world.log.topics()
    assert "BIG@4" in world.log.topics()


def test_all_writers_of_a_topic_are_rebuilt_and_rows_are_written_again() -> None:
    sql = (
        SOURCE
        + BIG.format(over=50)
        + "INSERT INTO BIG SELECT K, V FROM S WHERE V < {under};\n"
        + "INSERT INTO BIG (K, V) VALUES (9, 1000);\n"
        + COUNTS
    )
    world = InstanceHarness(sql.format(under=5))
    world.send("s", sent(0, 60))
    world.settle()
    found = {c.query: c.because for c in world.deploy(sql.format(under=2)) if c.action == "change"}
    assert found == {"CSAS_BIG": "INSERT_BIG_1", "INSERT_BIG_1": "", "CTAS_COUNTS": "INSERT_BIG_1"}
    world.settle()
    assert sorted(v["V"] for v in world.values("BIG")) == [0, 1, *range(51, 60), 1000]
    assert sum(n for _, n in world.table("COUNTS")) == 12


def test_a_result_that_comes_back_takes_the_place_of_what_it_left() -> None:
    world = InstanceHarness(SOURCE + BIG.format(over=0) + COUNTS)
    world.send("s", sent(0, 40))
    world.settle()
    world.deploy(SOURCE)
    world.settle()
    assert world.instance.queries == {}
    world.deploy(SOURCE + BIG.format(over=30) + COUNTS)
    world.settle()
    assert sorted(v["V"] for v in world.values("BIG")) == list(range(31, 40))
    assert len(folded(world, "COUNTS")) == 5
    assert sum(v["N"] for v in folded(world, "COUNTS").values()) == 9


def test_who_needs_the_history_of_a_table_that_took_a_difference_gets_that_of_one_generation() -> None:
    """Its topic holds records of two generations: exact as a table, but not as what happened."""
    joined = "CREATE STREAM J AS SELECT S.K AS K, S.V AS V, C.N AS N FROM S LEFT JOIN COUNTS C ON S.K = C.K;\n"
    sql = SOURCE + BIG + COUNTS
    world = InstanceHarness(sql.format(over=0))
    world.send("s", sent(0, 40))
    world.settle()
    world.deploy(sql.format(over=20))
    world.settle()
    found = {c.query: (c.action, c.because) for c in world.deploy(sql.format(over=20) + joined)}
    assert found["CSAS_BIG"] == ("none", "")
    assert found["CTAS_COUNTS"] == ("change", "CSAS_J needs its history from the beginning")
    world.settle()
    feeding = InstanceHarness(SOURCE)
    feeding.log.admin().create_topic("s", 2)
    feeding.send("s", sent(0, 40))
    feeding.instance.close()
    fresh = InstanceHarness(
        sql.format(over=20) + joined, log=feeding.log
    )  # over records that are there: it waits for COUNTS
    fresh.settle()
    assert sorted(map(str, world.values("J"))) == sorted(map(str, fresh.values("J")))


def test_a_row_of_a_source_that_was_taken_out_and_comes_back_is_there_once() -> None:
    """It stays in the topic, and was written again, also by a rollback: results counted it twice."""
    row = "INSERT INTO S (K, V) VALUES (9, 1000);\n"
    world = InstanceHarness(SOURCE + row + BIG.format(over=0) + COUNTS)
    world.settle()
    before = world.values("BIG")
    assert len(before) == 1
    world.deploy(SOURCE + BIG.format(over=0) + COUNTS)
    (left,) = world.instance.deployed.left
    assert left[0] == "s"
    world.deploy(SOURCE + row + BIG.format(over=0) + COUNTS)
    world.settle()
    assert (world.values("BIG"), world.instance.deployed.left) == (before, ())
    world.deploy(SOURCE + row * 2 + BIG.format(over=0) + COUNTS)
    world.settle()
    assert len(world.values("BIG")) == 2, "an equal one is another row"
    world.deploy(SOURCE.replace("'s'", "'other'") + row + BIG.format(over=0) + COUNTS)
    world.settle()
    assert len(world.values("BIG")) == len(world.records("other")) == 1, "another topic has none of them"


def test_a_topic_that_others_have_written_to_is_not_replaced() -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    world.send("s", sent(0, 40))
    world.settle()
    write_by_hand(world)
    world.settle()
    before = world.instance.deployed, world.values("BIG")
    with pytest.raises(OutsideRecords, match="BIG holds records that by-hand has written"):
        world.deploy(CHAIN.format(over=10))
    assert (world.instance.deployed, world.values("BIG")) == before
    assert {c.action for c in world.deploy(CHAIN.format(over=0))} == {"none"}


def write_by_hand(world: InstanceHarness, topic: str = "BIG") -> None:
    other = world.log.producer("by-hand")
    other.begin()
    other.send(TopicPartition(topic, 0), world.encode([(1, {"V": 7}, 0)]))
    other.commit()


def test_records_of_others_are_not_lost_with_the_state_of_an_instance() -> None:
    """Without its state all that was deployed is rebuilt, and its topics are replaced. Nothing could be deployed, as no instance came up."""
    world = InstanceHarness(CHAIN.format(over=0))
    world.send("s", sent(0, 40))
    world.settle()
    own = world.values("BIG")
    write_by_hand(world)
    before = world.values("BIG")
    world.instance.close()  # its redo is not needed any more
    again = Instance(world.log, MemoryPhysical(), VirtualClock(2_000_000), InstanceConfig())
    driver = Driver(again)
    assert "trimmed" in again.state_lost
    again.resume()
    driver.run_until_caught_up()
    assert world.values("BIG") == before
    shown = query_status(again, "CSAS_BIG")
    assert shown["state"] == "error"
    assert (
        "its state is lost, and BIG holds records that by-hand has written, which a rebuild would lose"
        in shown["last_error"]
    )
    assert query_status(again, "CTAS_OTHER@2")["state"] == "running"
    moved = CHAIN.format(over=0).replace("CREATE STREAM BIG", "CREATE STREAM BIG WITH (KAFKA_TOPIC='elsewhere')")
    again.deploy(plan_of(moved, again.plan))
    driver.run_until_caught_up()
    assert {query_status(again, name)["state"] for name in again.queries} == {"running"}
    world.instance = again
    assert world.values("elsewhere") == own


def test_what_a_query_reads_that_cannot_be_rebuilt_is_not_rebuilt_either() -> None:
    """A rebuild takes along all that reads its results."""
    world = InstanceHarness(CHAIN.format(over=0))
    world.send("s", sent(0, 40))
    world.settle()
    write_by_hand(world, "COUNTS")
    world.settle()
    before = {topic: world.values(topic) for topic in ("BIG", "COUNTS")}
    world.instance.commit.flush()
    world.instance.close()
    world = reopened(world, MemoryPhysical())
    assert "trimmed" in world.instance.state_lost
    world.settle()
    assert {topic: world.values(topic) for topic in before} == before
    states = {name: query_status(world.instance, name)["state"] for name in world.instance.queries}
    assert states == {"CSAS_BIG": "error", "CTAS_COUNTS": "error", "CTAS_SOME@2": "running", "CTAS_OTHER@2": "running"}
    said = query_status(world.instance, "CSAS_BIG")["last_error"]
    assert "its state is lost, and CTAS_COUNTS reads its results and cannot be rebuilt" in said
    assert "flowql deploy --full-refresh CSAS_BIG" in said
    moved = CHAIN.format(over=0).replace("TABLE COUNTS", "TABLE COUNTS WITH (KAFKA_TOPIC='elsewhere')")
    world.instance.deploy(plan_of(moved, world.instance.plan), refresh=["CSAS_BIG"])
    world.settle()
    assert {query_status(world.instance, name)["state"] for name in world.instance.queries} == {"running"}
    assert folded(world, "elsewhere") == folded(as_from_the_beginning(CHAIN.format(over=0), 40), "COUNTS")


def test_who_writes_to_a_topic_in_the_moment_of_its_swap_is_noticed() -> None:
    """Else readers would begin in the middle of the new records."""
    world = InstanceHarness(CHAIN.format(over=0))
    world.send("s", sent(0, 40))
    world.settle()
    other, commit = world.log.producer("by-hand"), world.log.commit

    def in_between(transactional_id: str, epoch: int, transaction: Any) -> int:
        if transaction.ends and transactional_id != "by-hand":
            other.begin()
            other.send(TopicPartition("BIG", 0), world.encode([(1, {"V": 7}, 0)]))
            other.commit()
        return commit(transactional_id, epoch, transaction)

    world.log.commit = in_between  # type: ignore[method-assign]
    world.deploy(CHAIN.format(over=10))
    with pytest.raises(EndMoved, match="BIG-0 ends at"):
        world.settle()


def test_a_row_that_was_taken_out_stays_out_through_another_deployment() -> None:
    """The serving plan forgot the row as soon as it was not wanted, so the next deployment saw nothing to rebuild."""
    row = "INSERT INTO BIG (K, V) VALUES (9, 1000);\n"
    world = InstanceHarness(CHAIN.format(over=0) + row)
    world.send("s", sent(0, 20))
    world.settle()
    assert 1000 in {v["V"] for v in world.values("BIG")}
    assert {c.query for c in world.deploy(CHAIN.format(over=0)) if c.because} == {
        "CSAS_BIG",
        "CTAS_COUNTS",
        "CTAS_SOME",
    }
    world.deploy(CHAIN.format(over=0).replace("TABLE OTHER AS", "TABLE OTHER WITH (PRIORITY='high') AS"))
    world.settle()
    assert 1000 not in {v["V"] for v in world.values("BIG")}


def test_a_row_that_comes_back_before_its_topic_was_replaced_is_there_once() -> None:
    """It was new against the abandoned generation, and written behind itself into the topic that had kept it."""
    row = "INSERT INTO BIG (K, V) VALUES (9, 1000);\n"
    world = InstanceHarness(CHAIN.format(over=0) + row)
    world.send("s", sent(0, 20))
    world.settle()
    world.deploy(CHAIN.format(over=0))
    world.deploy(CHAIN.format(over=0) + row)
    world.settle()
    assert [v["V"] for v in world.values("BIG")].count(1000) == 1


def test_a_row_that_was_new_with_an_abandoned_generation_is_written() -> None:
    """It lay in the staging topic alone, and was lost with it."""
    row = "INSERT INTO BIG (K, V) VALUES (9, 1000);\n"
    world = InstanceHarness(CHAIN.format(over=0))
    world.send("s", sent(0, 20))
    world.settle()
    world.deploy(CHAIN.format(over=5) + row)
    world.deploy(CHAIN.format(over=0) + row)
    world.settle()
    assert [v["V"] for v in world.values("BIG")].count(1000) == 1


@pytest.mark.parametrize("over", [0, 5], ids=["served", "rebuilt"])
def test_a_row_that_equals_another_is_a_row_of_its_own(over: int) -> None:
    """A second INSERT with the same values was taken for the first, and not written."""
    row = "INSERT INTO BIG (K, V) VALUES (9, 1000);\n"
    world = InstanceHarness(CHAIN.format(over=0) + row)
    world.send("s", sent(0, 20))
    world.settle()
    world.deploy(CHAIN.format(over=over) + row + row)
    world.settle()
    assert [v["V"] for v in world.values("BIG")].count(1000) == 2
    assert {c.query for c in world.deploy(CHAIN.format(over=over) + row) if c.because} == {
        "CSAS_BIG",
        "CTAS_COUNTS",
        "CTAS_SOME",
    }
    world.settle()
    assert [v["V"] for v in world.values("BIG")].count(1000) == 1


def test_an_unchanged_query_can_be_rebuilt_on_demand() -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    world.send("s", sent(0, 40))
    world.settle()
    before = world.table("COUNTS"), folded(world, "COUNTS")
    found = world.instance.deploy(plan_of(CHAIN.format(over=0), world.instance.plan), refresh=["CTAS_COUNTS"])
    assert {c.query for c in found if c.action == "change"} == {"CTAS_COUNTS", "CTAS_SOME"}
    world.settle()
    assert (world.table("COUNTS"), folded(world, "COUNTS")) == before
    assert [q.generation for q in world.instance.plan.queries] == [1, 2, 2, 1]
    assert {c.action for c in world.deploy(CHAIN.format(over=0))} == {"none"}


def reopened(world: InstanceHarness, physical: MemoryPhysical) -> InstanceHarness:
    """The same log in another process, with this state."""
    world.log.crash()
    world.instance = Instance(world.log, physical, VirtualClock(2_000_000), InstanceConfig())
    world.driver = Driver(world.instance)
    world.producer = world.log.producer("feed")
    world.instance.resume()
    return world


def without_state(sql: str, rows: int, *, held: str = "") -> InstanceHarness:
    """What ran is gone, and the log no longer has the redo of its first commits. held: the project that is built and held back."""
    world = InstanceHarness(sql)
    world.send("s", sent(0, rows))
    world.settle()
    if held:
        world.instance.deploy(plan_of(held, world.instance.plan), swap=Hold(hold=True))
        world.settle()
    world.instance.commit.flush()
    world.instance.close()
    return world


def test_lost_state_is_made_anew_from_inputs() -> None:
    world = without_state(CHAIN.format(over=10), 40)
    before = folded(world, "COUNTS"), sorted(map(str, world.values("BIG")))
    world = reopened(world, MemoryPhysical())
    world.send("s", sent(40, 20))
    assert "state commits 1 to" in world.instance.state_lost
    for _ in range(3):
        assert (folded(world, "COUNTS"), sorted(map(str, world.values("BIG")))) == before, "served as it is"
        world.driver.round()
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=10), 60))
    assert {c.action for c in world.deploy(CHAIN.format(over=10))} == {"none"}


def test_lost_state_is_made_anew_although_the_process_dies_meanwhile() -> None:
    world = without_state(CHAIN.format(over=10), 40)
    physical = MemoryPhysical()
    world = reopened(world, physical)
    for _ in range(5):
        world.driver.round()
    world = reopened(world, physical)
    assert not world.instance.state_lost
    assert all(name.endswith("@2") for name in world.instance.queries), "the old ones have no state to go on with"
    assert {c.because for c in world.deploy(CHAIN.format(over=10)) if c.action == "change"} == {"its state is lost"}
    assert {c.because for c in world.deploy(CHAIN.format(over=10)) if c.action == "change"} <= {"its state is lost"}
    world.settle()
    assert not world.instance.deployed.reasons
    assert same(world, as_from_the_beginning(CHAIN.format(over=10), 40))


def test_lost_state_is_still_lost_after_a_process_that_ended_before_its_first_commit() -> None:
    """All was processed once more, behind the results that were there."""
    world = without_state(CHAIN.format(over=10), 40)
    physical = MemoryPhysical()
    Instance(world.log, physical, VirtualClock(2_000_000), InstanceConfig())
    world.log.crash()
    world = reopened(world, physical)
    assert "state commits 1 to" in world.instance.state_lost
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=10), 40))


def test_what_cannot_be_made_anew_is_named_and_the_rest_is() -> None:
    world = without_state(CHAIN.format(over=10), 40)
    world.log.drop_before(TopicPartition("s", 0), 3)
    world = reopened(world, MemoryPhysical())
    world.settle()
    states = {name: query_status(world.instance, name)["state"] for name in world.instance.queries}
    assert states == {"CSAS_BIG": "error", "CTAS_OTHER": "error", "CTAS_COUNTS@2": "running", "CTAS_SOME@2": "running"}
    said = query_status(world.instance, "CSAS_BIG")["last_error"]
    assert "records of s-0 before offset 3 are gone" in said
    assert "flowql deploy --select CSAS_BIG --prune" in said
    assert sum(n for _, n in world.table("COUNTS")) == 29


def test_what_was_being_built_when_the_state_was_lost_begins_again() -> None:
    """Also where it cannot be made as it was: it went on on its staging topic, from the first record, and had each result twice."""
    world = without_state(CHAIN.format(over=0), 40, held=CHAIN.format(over=10))
    world.log.drop_before(TopicPartition("s", 0), 3)
    assert len(world.values("BIG@2")) == 29
    world = reopened(world, MemoryPhysical())
    world.instance.deploy(world.instance.deployed.plan, swap=Hold(hold=False))
    world.settle()
    assert len(world.values("BIG")) == 29


def test_dead_letters_of_a_generation_show_with_its_results() -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    world.send("s", sent(0, 20))
    world.send("s", [(1, b"no JSON", 5)])
    world.settle()
    first = letters(world)
    assert first == [("CSAS_BIG", 1), ("CTAS_OTHER", 1)]
    world.deploy(CHAIN.format(over=10))
    while world.instance.deployed.wanted is not None:
        assert letters(world) == first, "of what serves"
        world.driver.round()
    world.settle()
    assert letters(world) == [*first[:1], ("CSAS_BIG", 2), *first[1:]]
    assert not [t for t in world.log.topics() if "dead-letters-of" in t]


def letters(world: InstanceHarness) -> list[tuple[str, int]]:
    topic = topic_name(world.instance.config.application_id)
    return sorted((v["QUERY"], v["GENERATION"]) for _, _, _, v, _ in world.records(topic))
