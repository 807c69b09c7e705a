"""Whether compaction has removed records is known from the offsets that are left."""

from __future__ import annotations

import pytest

from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.compacted import removed_from
from flowql.runtime.log.embedded.log import EmbeddedLog
from tests.runtime.log.records import produce
from tests.simulated_disk import SimulatedDisk

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1", "min.cleanable.dirty.ratio": "0"}
T0, T1 = TopicPartition("T", 0), TopicPartition("T", 1)


class Gapped(EmbeddedLog):
    """Commits take offsets, as on Kafka."""

    drops_with_commits = False


def compacted(log: EmbeddedLog, tp: TopicPartition, keys: bytes, **config: str) -> Log:
    """Each record is a transaction and a segment; the last one is not compacted."""
    log.create_topic("T", 2, COMPACT | config)
    for at, key in enumerate(keys):
        produce(log, "p", (tp, [(at, bytes([key]), b"v")]))
    log.maintain(1_000_000)
    return log


@pytest.mark.parametrize(
    ("keys", "removed"), [(b"", None), (b"abcd", None), (b"abcb", None), (b"abab", T1), (b"abbc", T1), (b"aac", T1)]
)
def test_a_record_that_is_gone_is_found_wherever_it_was(keys: bytes, removed: TopicPartition | None) -> None:
    log = compacted(EmbeddedLog("/log", SimulatedDisk()), T1, keys)
    assert removed_from(log, log.admin().topics()["T"]) == removed


@pytest.mark.parametrize(("keys", "removed"), [(b"abac", None), (b"abbc", None), (b"abbbc", T0), (b"aaabc", T0)])
def test_where_commits_take_offsets_a_single_one_says_nothing(keys: bytes, removed: TopicPartition | None) -> None:
    log = compacted(Gapped("/log", SimulatedDisk()), T0, keys)
    assert removed_from(log, log.admin().topics()["T"]) == removed


def test_a_gap_between_two_reads_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowql.runtime.log.compacted._ROWS", 1)
    log = compacted(EmbeddedLog("/log", SimulatedDisk()), T0, b"abbc")
    assert removed_from(log, log.admin().topics()["T"]) == T0


def test_as_many_records_are_looked_at_as_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowql.runtime.log.compacted._ROWS", 1)
    log = compacted(EmbeddedLog("/log", SimulatedDisk()), T0, b"abcddef")
    for most, removed in ((3, None), (4, T0)):
        monkeypatch.setattr("flowql.runtime.log.compacted.LOOKED_AT", most)
        assert removed_from(log, log.admin().topics()["T"]) == removed


def test_what_compaction_took_is_known_after_it_was_switched_off() -> None:
    """The policy was asked alone: a rebuild read what was left of the topic, without a word."""
    disk = SimulatedDisk()
    log = compacted(EmbeddedLog("/log", disk), T0, b"abab")
    log.alter_topic("T", {"cleanup.policy": "delete"})
    assert removed_from(log, log.admin().topics()["T"]) == T0
    log.close()
    again = EmbeddedLog("/log", disk)
    assert removed_from(again, again.admin().topics()["T"]) == T0, "the log's files say so"


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_topic_that_was_never_compacted_is_not_read(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EmbeddedLog("/log", SimulatedDisk())
    log.create_topic("T", 2, {"cleanup.policy": policy})
    produce(log, "p", (T0, [(0, b"a", b"v"), (1, b"a", b"v")]))
    monkeypatch.setattr(log, "reader", lambda *_: pytest.fail("it was read"))
    assert removed_from(log, log.admin().topics()["T"]) is None
