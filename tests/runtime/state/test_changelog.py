"""What the log knows of a state: tasks as of their last commit, complete changelogs, and records of another version."""

from __future__ import annotations

import pytest

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state import changelog
from flowql.runtime.state.changelog import (
    ChangelogWriter,
    RecordUnreadable,
    WrittenTasks,
    changelog_topic,
    is_complete,
    last_written,
    lost_records,
    metadata_topic,
    read_tasks,
    records_of,
)
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.values import decode_metadata, encode_value
from tests.runtime.state.support import manager_on, put, table

APP = "app"
METADATA = TopicPartition(metadata_topic(APP), 0)


class Site:
    """A state whose commits write changelogs of T."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        for name in (METADATA.topic, changelog_topic(APP, "T")):
            self.log.admin().create_topic(name, 1)
        self.manager: StateManager = manager_on(changelog=lambda _: True)
        self.task = self.manager.open_task("q/0_0", 0, [table()])
        self.producer = self.log.producer(APP)

    def commit(self, rows: dict[tuple[str], tuple[int] | None], *, complete: bool = True, at: int = 0) -> None:
        put(self.manager, self.task, "T", rows, {"at": at})
        self.commit_cut(complete=complete)

    def commit_cut(self, *, complete: bool = True) -> None:
        frozen, sequence = self.manager.cut(), self.manager.applied_sequence + 1
        self.producer.begin()
        writer = ChangelogWriter(APP, complete=complete, describe=self.log.describe_topics)
        for tp, records in writer.records(frozen, sequence, 5):
            self.producer.send(tp, records)
        assert self.producer.commit() == sequence
        self.manager.apply(frozen, sequence)

    def commit_without(self) -> None:
        self.producer.begin()
        self.producer.commit()

    def write(self, key: bytes, value: bytes | None) -> None:
        other = self.log.producer("other")
        other.begin()
        other.send(METADATA, records_of([key], [value], 0))
        other.commit()
        other.close()


def test_tasks_are_known_as_of_their_last_commit_and_dropped_ones_are_not() -> None:
    site = Site()
    site.commit({("a",): (1,)}, at=1)
    site.commit({("a",): None, ("b",): (2,)}, at=2)
    (found,) = read_tasks(site.log, APP).values()
    assert (found.sequence, found.record.partition, found.record.stores) == (2, 0, ("T",))
    assert decode_metadata(found.record.metadata) == {"at": 2}
    written = WrittenTasks(site.log, APP)
    written.read_on()
    assert (written.sequences, last_written(site.log, APP)) == ({APP: 2}, (2, True))
    site.manager.close_task("q/0_0")
    site.manager.drop_task("q/0_0")
    site.commit_cut(complete=False)
    written.read_on()
    assert (written.tasks, written.sequences, last_written(site.log, APP)) == ({}, {APP: 3}, (3, False))


def test_changelogs_are_complete_where_every_commit_was_covered_and_can_be_seen() -> None:
    site = Site()
    assert is_complete(site.log, APP)
    site.commit({("a",): (1,), ("b",): (1,)})
    site.commit({("a",): None})
    assert is_complete(site.log, APP)
    site.commit({("c",): (1,)}, complete=False)
    assert not is_complete(site.log, APP)
    site.commit({("c",): (2,)})
    assert is_complete(site.log, APP)
    site.commit_without()
    assert not is_complete(site.log, APP)


@pytest.mark.parametrize("topic", [METADATA.topic, changelog_topic(APP, "T")])
def test_changelogs_that_have_lost_records_are_not_whole(topic: str) -> None:
    site = Site()
    for n in range(3):
        site.commit({("a",): (n,)})
    site.log.admin().drop_before(TopicPartition(topic, 0), 1)
    assert lost_records(site.log.admin(), []) == {}
    (why,) = lost_records(site.log.admin(), [TopicPartition(topic, 0)]).values()
    assert why == f"{topic}-0 has lost its records before offset 1"


def test_nothing_is_complete_without_the_topic_and_the_last_commit_is_found_far_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    site.commit({("a",): (1,)})
    monkeypatch.setattr(changelog, "_TAIL_RECORDS", 1)
    for n in range(20):
        site.write(b"@other%d" % n, encode_value((1, 1, True)))
    assert is_complete(site.log, APP)
    site.log.admin().delete_topic(METADATA.topic)
    assert not is_complete(site.log, APP)
    site.log.admin().create_topic(METADATA.topic, 1)
    assert not is_complete(site.log, APP), "no commit is recorded there"


def test_a_record_of_another_version_is_refused_at_each_call_and_nothing_is_passed_over() -> None:
    site = Site()
    site.commit({("a",): (1,)})
    written = WrittenTasks(site.log, APP)
    written.read_on()
    site.write(b"q/0_1", encode_value((2, 1, 0, ("T",), b"")))
    site.write(b"q/0_2", encode_value((1, 9, 2, ("T",), b"")))
    for _ in range(2):
        with pytest.raises(RecordUnreadable, match=r"offset .*: the record has format 2, .*; this one reads 1"):
            written.read_on()
    assert list(written.tasks) == ["q/0_0"]


def test_topics_of_an_application() -> None:
    assert (METADATA.topic, changelog_topic(APP, "T-1@2")) == ("app-metadata", "app-T-1.g2-changelog")
    records = records_of([b"k", b"l"], [b"v", None], 7)
    assert records.to_pylist() == [
        {"timestamp": 7, "key": b"k", "value": b"v", "headers": None},
        {"timestamp": 7, "key": b"l", "value": None, "headers": None},
    ]
