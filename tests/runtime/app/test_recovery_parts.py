"""Start-up alone: what the log, the state and the metadata topic say of each other, and what is done then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from flowql.compiler.plan import types as t
from flowql.compiler.plan.deployed import Deployed
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Plan
from flowql.runtime.app import exchanges
from flowql.runtime.app.plan_topic import PlanReader, write_deployed
from flowql.runtime.app.recovery import check_mode, check_records, recover
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import OtherMode, StateError, StateLost
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.changelog import COMPACTED, ChangelogWriter, records_of
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.values import encode_value
from tests.runtime.state.support import publish, put, rows, table

APP = "app"
METADATA = TopicPartition("app-metadata", 0)
SINGLE = InstanceConfig(application_id=APP, changelogs=True)
SHARED = InstanceConfig(application_id=APP, changelogs=True, shared=True, process_id="one")


class Life:
    """Commits of one application as an instance makes them, without its queries."""

    def __init__(self, *, redo: bool = True, writer: str = APP, complete: bool = True) -> None:
        self.log, self.physical = MemoryLog(), MemoryPhysical()
        self.log.supports_redo = redo
        for topic in ("app-metadata", "app-T-changelog", "app-__exchange-changelog"):
            self.log.create_topic(topic, 2 if topic == "app-T-changelog" else 1, COMPACTED)
        self.state = self.manager()
        self.changelogs = ChangelogWriter(APP, complete=complete, describe=self.log.describe_topics, writer=writer)
        self.producer = self.log.producer(writer)
        self.task = self.state.open_task("q/0_0", 0, [table()])

    def manager(self) -> StateManager:
        return StateManager(self.physical, changelog=lambda spec: True)

    def commit(self, n: int, *, applied: bool = True) -> None:
        """Writes n rows to the store."""
        put(self.state, self.task, "T", rows(n), {"at": n})
        frozen = self.state.cut()
        sequence = self.log.last_sequence(self.producer.transactional_id) + 1
        self.producer.begin()
        for tp, batch in self.changelogs.records(frozen, sequence, 0):
            self.producer.send(tp, batch)
        if self.log.supports_redo:
            self.producer.attach_redo(frozen.redo())
        self.producer.commit()
        if applied:
            self.state.apply(frozen, sequence)

    def say(self, tp: TopicPartition, values: Mapping[str, bytes | None]) -> None:
        producer = self.log.producer("test")
        producer.begin()
        producer.send(tp, records_of([k.encode() for k in values], list(values.values()), 0))
        producer.commit()

    def recovered(self, **options: bool) -> StateManager:
        """Another start, over what is on disk. Raises StateLost if the state is empty then."""
        state = self.manager()
        if lost := recover(self.log, state, InstanceConfig(application_id=APP, **{"changelogs": True, **options}), 0):
            assert not list(state.committed_tasks())
            raise StateLost(lost)
        return state


def count(state: StateManager) -> int:
    return len(list(state.snapshot().scan("T")))


def test_many_do_not_go_on_with_what_one_has_begun_and_not_the_other_way() -> None:
    one, many = Life(), Life(writer="app-1")
    one.commit(1)
    many.commit(1)
    check_mode(one.log, SINGLE)
    check_mode(many.log, SHARED)
    with pytest.raises(OtherMode, match="is run by one instance"):
        check_mode(one.log, SHARED)
    with pytest.raises(OtherMode, match="is shared by many"):
        check_mode(many.log, SINGLE)
    check_mode(many.log, InstanceConfig(application_id=APP))
    check_mode(MemoryLog(), SINGLE)
    check_mode(MemoryLog(), SHARED)


def test_records_of_members_do_not_count_once_one_instance_has_committed() -> None:
    life = Life(writer="app-1")
    life.commit(1)
    producer = life.log.producer(APP)
    producer.begin()
    producer.commit()
    check_mode(life.log, SINGLE)


def check(log: MemoryLog) -> None:
    check_records(log, APP, PlanReader(log, APP))


def test_members_go_on_where_their_records_are_whole() -> None:
    life = Life(writer="app-1")
    check(MemoryLog())
    check(life.log)
    life.commit(1)
    check(life.log)
    life.commit(2)
    with pytest.raises(StateLost, match="what was deployed as app is unknown"):
        check(life.log)
    tp, batch = write_deployed(Deployed(id=1, wanted=Plan()), life.log, APP, 0)
    producer = life.log.producer("deployer")
    producer.begin()
    producer.send(tp, batch)
    producer.commit()
    check(life.log)
    life.log.alter_topic("app-metadata", {"cleanup.policy": "delete"})
    with pytest.raises(StateLost, match=r"what the members of app have done .* cleanup\.policy=delete"):
        check(life.log)


def test_state_beyond_the_log_is_refused() -> None:
    life = Life()
    life.commit(1)
    state = life.manager()
    recover(life.log, state, SINGLE, 0)
    assert state.applied_sequence == 1
    with pytest.raises(StateError, match="at commit 1, the log only at 0"):
        recover(MemoryLog(), state, InstanceConfig(application_id=APP), 0)


@pytest.mark.parametrize("changelogs", [True, False])
def test_redo_brings_the_state_to_the_last_commit(changelogs: bool) -> None:
    life = Life()
    life.commit(1)
    life.commit(2, applied=False)
    state = life.recovered(changelogs=changelogs)
    assert (state.applied_sequence, count(state), state.restoring()) == (2, 2, {})


def test_without_redo_what_is_behind_is_restored_from_changelogs() -> None:
    life = Life(redo=False)
    publish(life.state, life.state.open_task("other/0_0", 1, [table()]), {"at": 0})
    life.commit(1)
    assert life.recovered().restoring() == {}, "nothing is behind"
    life.commit(2, applied=False)
    state = life.recovered()
    assert state.applied_sequence == 2
    assert state.restoring().keys() == {"q/0_0"}, "the other one is as of the first commit"
    assert count(state) == 0


def test_redo_that_is_trimmed_is_replaced_by_changelogs_or_the_state_is_lost() -> None:
    life = Life()
    life.commit(1)
    life.commit(2)
    life.log.trim_redo(APP, 1)
    life.physical = MemoryPhysical()
    with pytest.raises(StateLost, match=r"state commits 1 to 2 are missing from the log \(redo of app"):
        life.recovered(changelogs=False)
    assert life.recovered().restoring().keys() == {"q/0_0"}


def test_redo_of_another_version_says_where_it_is() -> None:
    life = Life()
    life.producer.begin()
    life.producer.attach_redo(b"\x00 of the future")
    life.producer.commit()
    with pytest.raises(StateLost, match=r"redo 1 of app: .* let the version that wrote it run once more"):
        life.recovered(changelogs=False)


def test_no_redo_is_read_where_nothing_is_behind() -> None:
    life = Life()
    life.commit(1)
    life.log.trim_redo(APP, 1)

    def redo_after(*_: object) -> None:
        raise AssertionError("it may be gone")

    life.log.redo_after = redo_after  # type: ignore[method-assign,assignment]
    assert life.recovered().applied_sequence == 1


def test_without_changelogs_what_is_missing_is_lost() -> None:
    life = Life(redo=False)
    life.commit(1, applied=False)
    with pytest.raises(StateLost, match="state commits 1 to 1 are missing"):
        life.recovered(changelogs=False)
    assert life.recovered().restoring().keys() == {"q/0_0"}


def test_changelogs_that_are_not_of_all_commits_do_not_help() -> None:
    life = Life(redo=False, complete=False)
    life.commit(1, applied=False)
    with pytest.raises(StateLost, match="not written by all commits"):
        life.recovered()


def test_changelogs_of_another_version_do_not_help() -> None:
    life = Life(redo=False)
    life.commit(1, applied=False)
    life.say(METADATA, {"q/0_0": encode_value((99, 1))})
    with pytest.raises(StateLost, match="changelogs cannot be used"):
        life.recovered()


@pytest.mark.parametrize(("topic", "text"), [("app-metadata", "commits 1 to 1"), ("app-T-changelog", "rows of q/0_0")])
def test_records_that_are_gone_make_what_is_missing_lost(topic: str, text: str) -> None:
    life = Life(redo=False)
    life.commit(2, applied=False)
    life.log.drop_before(TopicPartition(topic, 0), 1)
    with pytest.raises(StateLost, match=f"{text} are missing .* lost its records before offset 1"):
        life.recovered()


def test_a_restoration_that_was_begun_is_looked_at_again() -> None:
    life = Life(redo=False)
    life.commit(2, applied=False)
    assert life.recovered().restoring().keys() == {"q/0_0"}
    life.log.drop_before(TopicPartition("app-T-changelog", 0), 1)
    life.recovered(changelogs=False)
    with pytest.raises(StateLost, match="rows of q/0_0 are missing here"):
        life.recovered()


def test_positions_that_are_gone_stop_an_instance_after_its_first_commit() -> None:
    """One commit may be written and not be counted, at least once."""
    life = Life(redo=False)
    life.commit(1, applied=False)
    del life.log._producers[APP]
    assert life.recovered().applied_sequence == 0
    life.say(METADATA, {f"@{APP}": encode_value((1, 2, True))})
    with pytest.raises(StateError, match="the committed positions of app are gone, after commit 2"):
        life.recovered()
    life.recovered(changelogs=False)
    life.say(METADATA, {f"@{APP}": encode_value((99, 2, True))})
    life.recovered()


def test_what_waits_between_tasks_is_restored_at_once() -> None:
    life = Life(redo=False)
    waiting = life.state.open_task(exchanges.TASK, 0, [exchanges.STORE])
    key = ("topic", 7)
    waiting.store(exchanges.STORE.name).put(key, (b"rows", None))
    publish(life.state, waiting)
    life.commit(1, applied=False)
    state = life.recovered()
    assert state.restoring().keys() == {"q/0_0"}
    assert dict(state.snapshot().scan(exchanges.STORE.name)) == {key: (b"rows", None)}


def test_rows_between_tasks_of_an_earlier_version_are_refused() -> None:
    life = Life(redo=False)
    names = (("TOPIC", t.STRING), ("PARTITION", t.INT), ("SOURCE", t.INT), ("NUMBER", t.BIGINT))
    spec = replace(exchanges.STORE, key=Schema(tuple(Field(name, of, "key") for name, of in names)))
    waiting = life.state.open_task(exchanges.TASK, 0, [spec])
    waiting.store(spec.name).put(("topic", 0, 0, 7), (b"rows", None))
    publish(life.state, waiting)
    life.commit(1, applied=False)
    with pytest.raises(StateError, match="app-__exchange-changelog has rows in the format of an earlier version"):
        life.recovered()


def test_tasks_that_are_opened_before_the_recovery_fail_it() -> None:
    """The instance never does that. The restoration of a task with a commit under way would not end, and its rows would count as missing."""
    life = Life(redo=False)
    publish(life.state, life.state.open_task(exchanges.TASK, 0, [exchanges.STORE]))
    life.commit(1)
    state = life.manager()
    state.rebuild({exchanges.TASK: state.local_record(exchanges.TASK)})
    task = state.open_task(exchanges.TASK, 0, [exchanges.STORE])
    with state.epoch_lock:
        task.publish({})
    with pytest.raises(AssertionError, match="tasks are opened after the recovery"):
        recover(life.log, state, SINGLE, 0)
