"""A pinned log stays what the log was at one commit, whatever the log does; a copy of it goes on as a log."""

import itertools
import random

import pytest

from flowql.runtime.errors import LogCorrupt, LogError
from flowql.runtime.log.base import Position, TopicPartition
from flowql.runtime.log.embedded import ledger, writer
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.named import damages, held_still
from flowql.runtime.log.embedded.pins import pinned_files, pinned_folders
from tests.runtime.log.records import produce, read_all, values
from tests.runtime.log.test_upkeep import COMPACT, HOUR, rows
from tests.simulated_disk import SimulatedDisk

T, D, E = TopicPartition("T", 0), TopicPartition("D", 0), TopicPartition("E", 1)
OLD = {"cleanup.policy": "delete", "retention.ms": str(3 * HOUR), "segment.bytes": "2000"}


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    monkeypatch.setattr(ledger, "ROLL_BYTES", 4_000)
    monkeypatch.setattr(writer, "REDO_FILE_BYTES", 3_000)


def filled(disk, hours=12):
    log = EmbeddedLog("/log", disk)
    log.create_topic("T", 1, COMPACT)
    log.create_topic("D", 1, OLD)
    log.create_topic("E", 3)  # nobody ever writes there
    rng = random.Random(3)
    for hour in range(hours):
        step(log, rng, hour)
    return log


def step(log, rng, hour):
    sends = [(T, rows(rng, hour * HOUR)), (D, rows(rng, hour * HOUR, 10))]
    sequence = produce(log, "app", *sends, positions={"g": {T: Position(hour)}}, redo=rng.randbytes(700))
    if hour % 5 == 4:
        log.trim_redo("app", sequence - 2)


def seen(log, app="app"):
    """All that a log says."""
    tps = [TopicPartition(n, p) for n, t in log.topics().items() for p in range(t.partitions)]
    records = {tp: read_all(log, tp) for tp in tps}
    bounds = {tp: (log.begin_offset(tp), log.end_offset(tp)) for tp in tps}
    last = log.last_sequence(app)
    lost = log._state.producers[app].redo_lost
    return records, bounds, log.topics(), log.committed("g"), last, list(log.redo_after(app, lost))


def copied(disk):
    """What a backup takes of /log/pinned, on a disk of its own."""
    other = SimulatedDisk()
    for folder in pinned_folders(disk, "/log/pinned"):
        other.makedirs(folder.replace("/log/pinned", "/copy"))
    for named in pinned_files(disk, "/log/pinned"):
        file = other.open(named.path.replace("/log/pinned", "/copy"), create=True, write=True)
        file.pwrite(0, [disk.open(named.path).pread(0, named.length)])
        file.fsync()
    return other


@pytest.mark.parametrize("seed", range(6))
def test_a_pinned_log_outlives_retention_compaction_trims_and_deletions(seed):
    disk, rng = SimulatedDisk(), random.Random(seed)
    log = filled(disk, 4 + seed)
    log.pin("/log/pinned")
    expected = seen(log)
    for hour in range(20, 40):
        step(log, rng, hour)
        if rng.random() < 0.5:
            log.maintain(hour * HOUR)
    log.trim_redo("app", log.last_sequence("app"))
    log.delete_topic("D")
    assert seen(log) != expected
    assert {r[0] for r in read_all(log, T)} < set(range(log.end_offset(T))), "something was compacted"
    copy = EmbeddedLog("/copy", copied(disk))
    assert seen(copy) == expected
    again = filled(SimulatedDisk(), 4 + seed)
    rngs = random.Random(9), random.Random(9)
    for hour in range(12, 30):  # both go on alike, through rolls of the commit log and compactions
        for one, its in zip((copy, again), rngs, strict=True):
            step(one, its, hour)
            one.maintain(hour * HOUR)
    assert seen(copy) == seen(again)


@pytest.mark.parametrize("before", [1, 90])
def test_records_before_the_pin_are_read_after_a_roll_and_a_restart(before):
    """The index of a segment began behind them, or had a hole there: they were in the file, and nobody saw them."""
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("E", 3)
    for n in range(before):  # the last of them since the commit log has begun anew
        produce(log, "app", (E, [(n, b"k", b"%d" % n)]))
    log.pin("/log/pinned")
    other = copied(disk)
    copy = EmbeddedLog("/copy", other)
    for n in range(before, 200):
        produce(copy, "app", (E, [(n, b"k", b"%d" % n)]))
    copy.close()
    assert any(name.endswith(".index") for name in other._nodes)
    assert values(EmbeddedLog("/copy", other), E) == [b"%d" % n for n in range(200)]


def test_bytes_behind_the_committed_ones_are_not_pinned():
    disk = SimulatedDisk()
    log = filled(disk)
    expected = seen(log)
    log.pin("/log/pinned")
    lengths = {n.path: n.length for n in pinned_files(disk, "/log/pinned")}
    produce(log, "app", (T, [(50 * HOUR, b"k", b"new")]), redo=b"more")
    assert {n.path: n.length for n in pinned_files(disk, "/log/pinned")} == lengths
    assert any(disk.open(path).size() > length for path, length in lengths.items()), "the files have grown"
    assert seen(EmbeddedLog("/copy", copied(disk))) == expected


def test_no_file_can_go_while_links_are_made():
    held = set()

    class Watched(SimulatedDisk):
        def link(self, source, target):
            held.add("/log/append.lock" in self._locks)
            super().link(source, target)

    disk = Watched()
    filled(disk).pin("/log/pinned")
    assert held == {True}


def test_an_error_at_any_call_leaves_the_log_as_it_was():
    for n in itertools.count(1):
        disk = SimulatedDisk()
        log = filled(disk, 6)
        expected, first = seen(log), disk.calls
        disk.error_at = first + n
        try:
            log.pin("/log/pinned")
            failed = False
        except LogError:
            failed = True
        disk.error_at = None
        assert seen(log) == expected
        assert seen(EmbeddedLog("/log", disk.after_power_loss("none"))) == expected
        produce(log, "app", (T, [(50 * HOUR, b"k", b"new")]))
        if not failed:
            assert n > 10
            return


def test_a_second_pin_under_the_same_name_is_refused():
    log = filled(SimulatedDisk(), 2)
    log.pin("/log/pinned")
    with pytest.raises(LogError):
        log.pin("/log/pinned")


def test_a_missing_and_a_short_segment_are_named():
    disk = SimulatedDisk()
    log = filled(disk)
    last, first = (log._state.topics[n].partitions[0].segments[0].path for n in ("T", "D"))
    with held_still(disk, "/log") as state:
        assert list(damages(disk, state, "/log")) == []
    disk.unlink(first)
    disk.open(last, write=True).truncate(100)
    with held_still(disk, "/log") as state:
        found = list(damages(disk, state, "/log"))
    assert [path in text for path, text in zip((last, first), found, strict=True)] == [True, True]
    with pytest.raises(LogCorrupt, match="is missing"):
        log.pin("/log/pinned")


def test_a_short_segment_is_not_pinned_silently():
    disk = SimulatedDisk()
    log = filled(disk)
    path = log._state.topics["D"].partitions[0].segments[0].path
    disk.open(path, write=True).truncate(100)
    log.pin("/log/pinned")
    with pytest.raises(LogCorrupt, match="100 bytes"):
        pinned_files(disk, "/log/pinned")


def test_a_look_changes_nothing():
    disk = SimulatedDisk()
    filled(disk).close()
    before, calls = {p: bytes(n.data) for p, n in disk._nodes.items()}, disk.calls
    with held_still(disk, "/log") as state:
        assert list(damages(disk, state, "/log")) == []
    assert ({p: bytes(n.data) for p, n in disk._nodes.items()}, disk.calls) == (before, calls)
    with held_still(disk, "/nothing") as state:
        assert state is None


def test_topics_without_a_commit_log_are_not_taken_for_no_log():
    disk = SimulatedDisk()
    filled(disk).close()
    for name in disk.listdir("/log"):
        if name.startswith("commits"):
            disk.unlink(f"/log/{name}")
    with pytest.raises(LogCorrupt, match="has topics, but no commit log"), held_still(disk, "/log"):
        pass
