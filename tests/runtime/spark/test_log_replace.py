"""New results in the place of old ones where the log drops no records with a commit, as Kafka does not."""

from __future__ import annotations

import pytest

from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.spark.log_append import Target, drop_all, split
from flowql.runtime.spark.log_append import append as append_pieces
from flowql.runtime.spark.shapes import SINK
from tests.runtime.log.records import read_all
from tests.runtime.spark.logs import append_emitted, emitted, records

T0, S0 = TopicPartition("table", 0), TopicPartition("stream", 0)


class AsOnKafka(MemoryLog):
    """Records are dropped by another call than a commit, and of a compacted topic none."""

    drops_with_commits = False

    def drop_before(self, tp: TopicPartition, offset: int) -> None:
        assert "compact" not in self.topics()[tp.topic].config.values(), f"brokers refuse to delete records of {tp}"
        super().drop_before(tp, offset)


@pytest.fixture
def log() -> Log:
    log = AsOnKafka()
    log.create_topic("table", 1, {"cleanup.policy": "compact"})
    log.create_topic("stream", 1)
    return log


def epoch(log: Log, run: str, table: list[tuple[bytes, bytes | None]], stream: list[bytes]) -> None:
    """Results of a batch in the place of all there is."""
    rows = records([v for _, v in table], [k for k, _ in table])
    pieces, notes = split(
        [emitted((SINK, "table", 0, 0, 0, rows)), emitted((SINK, "stream", 0, 0, 1, records([*stream])))]
    )
    ends = {tp: log.admin().end_offset(tp) for tp in (T0, S0)}
    append_pieces(log, Target("Q", run, "app"), 0, pieces, notes, replaces=ends)


def test_a_table_has_the_new_rows_alone_at_once(log: Log) -> None:
    epoch(log, "a", [(b"k1", b"1"), (b"k2", b"1"), (b"k3", b"1"), (b"k3", None)], [b"s1", b"s2"])
    before = len(read_all(log, T0))
    epoch(log, "b", [(b"k1", b"2"), (b"k4", b"2")], [b"s3"])
    rows = read_all(log, T0)
    assert [(key, value) for _, _, key, value in rows[before:]] == [(b"k1", b"2"), (b"k4", b"2"), (b"k2", None)]
    last = {key: value for _, _, key, value in rows}
    assert last == {b"k1": b"2", b"k2": None, b"k3": None, b"k4": b"2"}
    assert [value for _, _, _, value in read_all(log, S0)] == [b"s3"]


def test_what_was_not_deleted_after_a_commit_is_deleted_when_the_epoch_comes_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch(log, "a", [], [b"old"])
    pieces, notes = split([emitted((SINK, "stream", 0, 0, 0, records([b"new"])))])
    crash = RuntimeError("killed")

    def killed(*_: object) -> None:
        raise crash

    with monkeypatch.context() as patch:
        patch.setattr(AsOnKafka, "drop_before", killed)
        with pytest.raises(RuntimeError, match="killed"):
            append_pieces(log, Target("Q", "b", "app"), 0, pieces, notes, replaces={S0: 1})
    assert len(read_all(log, S0)) == 2
    assert append_pieces(log, Target("Q", "b", "app"), 0, pieces, notes, replaces={S0: 1}).skipped
    assert [value for _, _, _, value in read_all(log, S0)] == [b"new"]


def test_all_of_a_topic_goes(log: Log) -> None:
    append_emitted(log, Target("Q", "r", "app"), 0, [emitted((SINK, "stream", 0, 0, 0, records([b"1"])))])
    epoch(log, "a", [(b"k1", b"1"), (b"k2", b"1")], [b"s"])
    for topic in ("table", "stream"):
        drop_all(log, topic, "app-drop")
        drop_all(log, topic, "app-drop")
    assert read_all(log, S0) == []
    assert [value for _, _, _, value in read_all(log, T0)] == [b"1", b"1", None, None], "tombstones are written once"


def test_where_old_rows_are_dropped_a_follower_of_the_table_still_sees_keys_go() -> None:
    log = MemoryLog()
    log.create_topic("table", 1, {"cleanup.policy": "compact"})
    log.create_topic("stream", 1)
    epoch(log, "a", [(b"k1", b"1"), (b"k2", b"1")], [b"s1"])
    epoch(log, "b", [(b"k1", b"2")], [b"s2"])
    assert [(key, value) for _, _, key, value in read_all(log, T0)] == [(b"k1", b"2"), (b"k2", None)]
    assert [value for _, _, _, value in read_all(log, S0)] == [b"s2"]
