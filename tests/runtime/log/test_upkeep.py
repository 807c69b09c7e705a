"""Retention and compaction: disk stays bounded, and no reader sees a hole or a key that comes back."""

import itertools
import random
import re

import pyarrow.compute as pc
import pytest

from flowql.runtime.errors import BatchDamaged, LogError, LogFull
from flowql.runtime.log.base import EARLIEST, Position, TopicPartition
from flowql.runtime.log.embedded import ledger, upkeep
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.policy import import_groups
from tests.runtime.log.records import produce, read_all
from tests.simulated_disk import PowerLoss, SimulatedDisk, SimulatedFile

pytestmark = pytest.mark.turns("long")

T0 = TopicPartition("T", 0)
HOUR = 3_600_000
DAY = 24 * HOUR
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "3000", "delete.retention.ms": str(DAY)}


def rows(rng, now_ms, count=20, keys=12, keyless=0.05):
    """Upserts and deletes of few keys, and some records without one: those stay for ever."""
    found = []
    for i in range(count):
        key = None if rng.random() < keyless else b"k%d" % rng.randrange(keys)
        value = None if key and rng.random() < 0.3 else b"v%d.%d" % (now_ms, i)
        found.append((now_ms + i, key, value))
    return found


def folded(table, records):
    """A table after more records (offset, timestamp, key, value)."""
    for _, _, key, value in records:
        if key is not None and value is None:
            table.pop(key, None)
        elif key is not None:
            table[key] = value
    return table


def read_on(reader, max_records, reads=1_000_000):
    rows = []
    while reads and (raw := reader.read(max_records, 1 << 20)) is not None:
        rows += zip(*(raw.records.column(i).to_pylist() for i in range(4)), strict=True)
        reads -= 1
    return rows


def size_of(disk, part):
    return sum(len(node.data) for path, node in disk._nodes.items() if part in path)


@pytest.mark.turns("cases")
@pytest.mark.parametrize("seed", range(12))
def test_a_compacted_topic_is_the_same_table_to_every_reader(seed, monkeypatch):
    if seed % 2:  # the keys are compared in several parts
        monkeypatch.setattr(upkeep, "TABLE_BYTES", 400)
    rng = random.Random(seed)
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("T", 1, COMPACT)
    everything, readers = [], []
    for hour in range(60):
        now = hour * HOUR
        produce(log, "p", (T0, rows(rng, now)))
        everything = [*everything, *_new(log, everything)]
        if hour % 7 == 0:
            readers.append((log.reader(T0, EARLIEST), {}))
        for reader, table in readers:  # each at its own speed, and no slower than half a day
            if rng.random() < 0.5 or hour % 12 == 11:
                folded(table, read_on(reader, rng.choice([1, 3, 1000]), rng.choice([1, 5])))
                if hour % 12 == 11:
                    folded(table, read_on(reader, 100))
        if rng.random() < 0.6:
            log.maintain(now)
    truth = folded({}, everything)
    for reader, table in readers:
        assert folded(table, read_on(reader, 7)) == truth
    for sight in (log, EmbeddedLog("/log", disk), EmbeddedLog("/log", disk.after_power_loss("none"))):
        for max_records in (1, 7, 100_000):
            kept = read_all(sight, T0, max_records)
            assert folded({}, kept) == truth
            assert set(kept) <= set(everything), "a record is what it was, where it was"
            assert [r[0] for r in kept] == sorted({r[0] for r in kept})
            assert [r for r in everything if r[2] is None] == [r for r in kept if r[2] is None], (
                "no key, never replaced"
            )
    assert len(kept) < len(everything) / 3
    assert log.end_offset(T0) == len(everything)


def test_a_compaction_makes_one_table_of_keys_for_each_segment(monkeypatch):
    """One for each batch took time with the product of batches and keys: more than half a processor beside a table of 3 million keys."""
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("T", 1, COMPACT)
    rng = random.Random(3)
    for _ in range(200):
        produce(log, "p", (T0, rows(rng, HOUR, count=3)))
    (partition,) = log._ledger.state.topics["T"].partitions
    segments = len(partition.segments)
    made = []
    index_in = pc.index_in
    monkeypatch.setattr(upkeep.pc, "index_in", lambda *args, **options: made.append(1) or index_in(*args, **options))
    before = folded({}, read_all(log, T0))
    log.maintain(HOUR)
    assert folded({}, read_all(log, T0)) == before
    assert 1 <= len(made) < segments


def _new(log, known):
    reader = log.reader(T0, known[-1][0] + 1 if known else 0)
    return read_on(reader, 100_000)


def test_a_reader_may_start_in_any_gap():
    log = EmbeddedLog("/log", SimulatedDisk())
    log.create_topic("T", 1, COMPACT)
    rng = random.Random(5)
    for hour in range(20):
        produce(log, "p", (T0, rows(rng, hour * HOUR)))
    log.maintain(30 * HOUR)
    kept = read_all(log, T0)
    assert len(kept) < log.end_offset(T0)
    for start in range(log.end_offset(T0) + 1):
        reader = log.reader(T0, start)
        assert read_on(reader, 3) == [r for r in kept if r[0] >= start], start
        assert reader.position == log.end_offset(T0)


def test_tombstones_wait_for_their_time_and_for_groups_behind_them():
    log = EmbeddedLog("/log", SimulatedDisk())
    log.create_topic("T", 1, {**COMPACT, "segment.bytes": "1", "min.cleanable.dirty.ratio": "0"})
    produce(log, "p", (T0, [(0, b"a", b"1"), (0, b"b", b"1")]))
    produce(log, "p", (T0, [(1, b"a", None)]), positions={"slow": {T0: Position(1)}})
    produce(log, "p", (T0, [(2, b"c", b"1")]))

    def keys():
        return [(r[2], r[3]) for r in read_all(log, T0)]

    log.maintain(10)
    assert keys() == [(b"b", b"1"), (b"a", None), (b"c", b"1")]
    log.maintain(10 + DAY - 1)
    assert (b"a", None) in keys(), "a reader on its way has a day to see it"
    log.maintain(10 + DAY)
    assert (b"a", None) in keys(), "group `slow` has read `a` and not that it is gone"
    produce(log, "p", positions={"slow": {T0: Position(3)}})
    log.maintain(10 + DAY)
    assert keys() == [(b"b", b"1"), (b"c", b"1")]
    assert log.end_offset(T0) == 4

    produce(log, "p", (T0, [(3, b"b", None)]), positions={"gone": {T0: Position(4)}})
    produce(log, "p", (T0, [(4, b"d", b"1")]))
    log.maintain(5 * DAY)
    log.maintain(5 * DAY + upkeep.READERS_MS - 1)
    assert (b"b", None) in keys()
    log.maintain(5 * DAY + upkeep.READERS_MS)
    assert (b"b", None) not in keys(), "a group that has not moved for so long waits for nothing"


def test_records_stay_for_groups_that_have_still_to_read_them(monkeypatch):
    """A reader takes the records up to a tick, which may be between two of a key: without the first it would have none."""
    log = EmbeddedLog("/log", SimulatedDisk())
    log.create_topic("T", 1, {**COMPACT, "segment.bytes": "1", "min.cleanable.dirty.ratio": "0"})
    log.create_topic("O", 1)
    for n in range(5):
        produce(log, "p", (T0, [(n, b"a", b"%d" % n)]))

    def read_to(offset):
        metadata = f"seq={log.last_sequence('app') + 1} by=app"
        produce(log, "app", positions={"app": {T0: Position(offset, metadata)}})

    def offsets():
        log.maintain(10)
        return [r[0] for r in read_all(log, T0)]

    passes, compact = [], upkeep.compact
    monkeypatch.setattr(upkeep, "compact", lambda *args: passes.append(1) or compact(*args))
    read_to(1)
    assert offsets() == offsets() == [1, 2, 3, 4]
    assert len(passes) == 1, "another pass would leave the same"
    read_to(2)
    assert offsets() == [2, 3, 4]
    monkeypatch.setattr(upkeep, "COMMITS", 2)
    for n in range(3):
        assert offsets() == [2, 3, 4]
        produce(log, "app", (TopicPartition("O", 0), [(n, b"a", b"1")]))
    assert offsets() == [3, 4], "a query that is gone reads no more: each commit has the positions of all"


def test_a_position_that_no_instance_wrote_keeps_no_record():
    """Spark's queries write such positions; those of one that never runs again would keep the records behind them for ever."""
    log = EmbeddedLog("/log", SimulatedDisk())
    log.create_topic("T", 1, {**COMPACT, "segment.bytes": "1", "min.cleanable.dirty.ratio": "0"})
    for n in range(4):
        produce(log, "p", (T0, [(n, b"a", b"%d" % n)]))
    produce(log, "spark", positions={"spark": {T0: Position(1)}})
    log.maintain(10)
    assert [r[0] for r in read_all(log, T0)] == [2, 3]


def test_how_far_a_file_was_imported_keeps_no_tombstone():
    """Such a position counts records of the file: no reader stands there."""
    log = EmbeddedLog("/log", SimulatedDisk())
    log.create_topic("T", 1, {**COMPACT, "segment.bytes": "1", "min.cleanable.dirty.ratio": "0"})
    produce(log, "p", (T0, [(0, b"a", b"1")]), positions={f"{import_groups('T')}1": {T0: Position(0)}})
    produce(log, "p", (T0, [(1, b"a", None)]))
    produce(log, "p", (T0, [(2, b"c", b"1")]))
    log.maintain(10)
    log.maintain(10 + DAY)
    assert [r[2] for r in read_all(log, T0)] == [b"c"]


@pytest.mark.turns("disks")
def test_a_week_of_traffic_in_bounded_disk():
    """Two topics, one compacted, one kept for a day, maintained every hour."""
    rng = random.Random(1)
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("T", 1, {**COMPACT, "segment.bytes": "20000"})
    log.create_topic("E", 2, {"retention.ms": str(DAY), "segment.bytes": "20000"})
    events = [TopicPartition("E", 0), TopicPartition("E", 1)]
    most = {"/T.": 0, "/E.": 0, "/log": 0}
    for hour in range(7 * 24):
        now = hour * HOUR
        for _ in range(3):
            sends = [(tp, [(now, b"k", b"e" * 50)] * 40) for tp in events]
            produce(log, "p", (T0, rows(rng, now, 60, 80, keyless=0)), *sends)
        log.maintain(now)
        for part in most:
            most[part] = max(most[part], size_of(disk, part))
        for tp in events:
            times = [r[1] for r in read_all(log, tp)]
            assert len([t for t in times if t > now - DAY]) == min(hour + 1, 24) * 120, "nothing of the day is missing"
            assert all(t >= now - DAY - 3 * HOUR for t in times), "and little before"
    once = 80 * 200  # of 80 keys the last record each
    assert most["/T."] < 4 * (once + 20_000)
    day = 24 * 120 * 2 * 200
    assert most["/E."] < 2 * day
    assert most["/log"] < 3 << 20, "with the commit log"


def test_a_limit_of_bytes_and_an_old_last_segment():
    log = EmbeddedLog("/log", disk := SimulatedDisk())
    log.create_topic("T", 1, {"retention.bytes": "8000", "segment.bytes": "2000"})
    for i in range(30):
        produce(log, "p", (T0, [(i, None, b"x" * 400)] * 3))
        log.maintain(i)
        assert size_of(disk, ".arrows") <= 8000 + 2 * 4000
    assert 0 < log.begin_offset(T0) < log.end_offset(T0) == 90
    log.alter_topic("T", {"retention.bytes": None, "retention.ms": "100"})
    log.maintain(131)
    assert log.begin_offset(T0) == log.end_offset(T0) == 90, "also what is still written to grows old"
    produce(log, "p", (T0, [(132, None, b"new")]))
    assert [r[3] for r in read_all(log, T0)] == [b"new"]
    log.maintain(133)
    assert size_of(disk, ".arrows") < 4000


def test_a_segment_that_is_missing_is_damage_and_one_that_went_meanwhile_is_not(monkeypatch):
    disk = SimulatedDisk()
    log, other = EmbeddedLog("/log", disk), EmbeddedLog("/log", disk)
    for topic in ("T", "U"):
        log.create_topic(topic, 1, {**COMPACT, "segment.bytes": "1", "min.cleanable.dirty.ratio": "0"})
        for n in range(4):
            produce(log, "p", (TopicPartition(topic, 0), [(n, b"k", b"%d" % n)]))
    compact, calls = upkeep.compact, []

    def compact_after_another(*given):
        calls.append(given)
        if len(calls) == 1:
            other.drop_before(T0, 2)
        return compact(*given)

    monkeypatch.setattr(upkeep, "compact", compact_after_another)
    log.maintain(10)
    assert [len(read_all(log, TopicPartition(topic, 0))) for topic in ("T", "U")] == [2, 2], (
        "T waits for the next round"
    )
    log.maintain(10)
    assert len(read_all(log, T0)) == 2
    for n in range(4):
        produce(log, "p", (T0, [(n, b"k", b"%d" % n)]), (TopicPartition("U", 0), [(n, b"k", b"%d" % n)]))
    missing = log._state.topics["T"].partitions[0].segments[-2]
    disk.unlink(missing.path)
    whose = f"offsets {missing.base} to {missing.end_offset - 1} of T-0"
    with pytest.raises(BatchDamaged, match=whose):
        log.maintain(20)
    assert len(read_all(log, TopicPartition("U", 0))) == 2, "other topics are compacted all the same"


def test_one_process_at_a_time_compacts():
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("T", 1, {**COMPACT, "segment.bytes": "1", "min.cleanable.dirty.ratio": "0"})
    for n in range(3):
        produce(log, "p", (T0, [(n, b"k", b"%d" % n)]))
    held = disk.lock("/log/compaction.lock", wait=False)
    log.maintain(10)
    assert len(read_all(log, T0)) == 3
    held.release()
    log.maintain(10)
    assert len(read_all(log, T0)) == 2
    again = disk.lock("/log/compaction.lock", wait=False)
    assert again is not None, "it is free after each round"


@pytest.mark.parametrize("first", ["another process", "the compaction itself"])
def test_what_a_compaction_is_writing_is_not_removed_as_the_rest_of_a_crash(first, monkeypatch):
    """A command beside an instance did: its first record removed the new segments, and the end of the compaction the old ones."""
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("T", 1, {**COMPACT, "segment.bytes": "1", "min.cleanable.dirty.ratio": "0"})
    for n in range(4):
        produce(log, "p", (T0, [(n, b"k", b"%d" % n), (n, b"own%d" % n, b"%d" % n)]))
    expected = [r for r in read_all(log, T0) if r[2] != b"k" or r[0] >= 4]
    left = f"{log._state.topics['T'].partitions[0].directory}/0-99.arrows"
    disk.open(left, create=True)
    compact, other = upkeep.compact, EmbeddedLog("/log", disk)

    def compact_beside_another(*given):
        done = compact(*given)
        if first == "another process":
            other.producer("q")
            assert disk.exists(left), "it is left until nobody compacts"
        return done

    monkeypatch.setattr(upkeep, "compact", compact_beside_another)
    (log if first == "another process" else other).maintain(10)
    for sight in (log, other, EmbeddedLog("/log", disk)):
        assert read_all(sight, T0) == expected
    other.producer("q")
    assert not disk.exists(left)
    assert read_all(EmbeddedLog("/log", disk), T0) == expected


def test_a_compaction_that_something_else_has_overtaken_is_thrown_away(monkeypatch):
    """Its segments were replaced, or its topic deleted, while it read them."""
    disk = SimulatedDisk()
    log, other = EmbeddedLog("/log", disk), EmbeddedLog("/log", disk)
    log.create_topic("T", 1, {**COMPACT, "segment.bytes": "1", "min.cleanable.dirty.ratio": "0"})
    for n in range(4):
        produce(log, "p", (T0, [(n, b"k", b"%d" % n), (n, b"own%d" % n, b"%d" % n)]))
    compact = upkeep.compact
    for overtakes in (lambda: other.drop_before(T0, 2), lambda: other.delete_topic("T")):

        def compact_before_another(*given, overtakes=overtakes):
            done = compact(*given)
            overtakes()
            return done

        monkeypatch.setattr(upkeep, "compact", compact_before_another)
        log.maintain(10)
        assert files(disk) == named(EmbeddedLog("/log", disk))
    monkeypatch.setattr(upkeep, "compact", compact)
    log.maintain(10)


def test_another_process_reads_on_while_segments_are_replaced(tmp_path):
    writer, other = EmbeddedLog(tmp_path), EmbeddedLog(tmp_path)
    writer.create_topic("T", 1, COMPACT)
    rng = random.Random(3)
    for hour in range(30):
        produce(writer, "p", (T0, rows(rng, hour * HOUR)))
    everything = read_all(other, T0)
    readers = [other.reader(T0, start) for start in range(0, len(everything), 50)]
    tables = [folded({}, everything[: r.position]) for r in readers]
    writer.maintain(40 * HOUR)
    assert not list(tmp_path.glob("topics/T.*/*-00000000000000000000.arrows")), "the files are gone"
    for reader, table in zip(readers, tables, strict=True):
        assert folded(table, read_on(reader, 11)) == folded({}, everything)


@pytest.fixture
def small_files(monkeypatch):
    monkeypatch.setattr(ledger, "ROLL_BYTES", 1500)
    monkeypatch.setattr(ledger, "_ROLL_SNAPSHOTS", 0)


def history():
    """Steps on a log; None: a round of upkeep, which no reader may notice in what a table is."""
    rng = random.Random(11)
    yield lambda log: log.create_topic("T", 1, {**COMPACT, "segment.bytes": "900", "delete.retention.ms": "3600000"})
    yield lambda log: log.create_topic("E", 1, {"retention.ms": str(4 * HOUR), "segment.bytes": "900"})
    for hour in range(9):
        batch = rows(rng, hour * HOUR, 8, 5)
        yield lambda log, batch=batch, hour=hour: produce(
            log, "p", (T0, batch), (TopicPartition("E", 0), [(hour * HOUR, None, b"%d" % hour * 200)])
        )
        yield lambda log, hour=hour: log.maintain(hour * HOUR)


def seen(log):
    topics = log.topics()
    table = folded({}, read_all(log, T0)) if "T" in topics else None
    events = [r[3][:1] for r in read_all(log, TopicPartition("E", 0))] if "E" in topics else None
    return table, events


def play(log, done=0):
    """What is seen after each step."""
    for step in itertools.islice(history(), done, None):
        step(log)
        yield seen(log)


def allowed(found, before, after):
    """Steps are whole or not at all, but for upkeep, which may be half done: then events are those before or a tail of them."""
    if found in (before, after):
        return True
    table, events = found
    return table == before[0] == after[0] and events in [before[1][i:] for i in range(len(before[1]))]


def power_loss():
    """Power goes at the n-th call, for all n; how many there were."""
    expected = [(None, None), *play(EmbeddedLog("/log", SimulatedDisk()))]
    assert len({events[0] for _, events in expected if events}) > 2, "events must have gone"
    for n in itertools.count(1):
        disk = SimulatedDisk(fail_at=n)
        done = 0
        try:
            for _ in play(EmbeddedLog("/log", disk)):
                done += 1
        except PowerLoss:
            pass
        if not disk.off:
            return n
        for keep, seed in [("none", 0), ("all", 0), ("some", 1), ("some", 2)]:
            rebooted = disk.after_power_loss(keep, seed)
            log = EmbeddedLog("/log", rebooted)
            found = seen(log)
            where = f"power lost at call {n} ({disk.trace[-1]}), step {done}, {keep} {seed}"
            assert allowed(found, expected[done], expected[min(done + 1, len(expected) - 1)]), (where, found)
            log.create_topic("T", 1, COMPACT)
            log.producer("after")  # the first thing that is written
            assert files(rebooted) <= named(log), f"{where}: what no record names is removed"
            log.maintain(20 * HOUR)
            assert seen(log)[0] == (found[0] or {}), where


def files(disk):
    return {path for path in disk._nodes if path.endswith(".arrows")}


def named(log):
    return {s.path for t in log._state.topics.values() for p in t.partitions for s in p.segments}


@pytest.mark.turns("disks")
def test_power_loss_at_every_call_of_upkeep(small_files):
    assert power_loss() > 200


def test_a_compaction_that_is_not_durable_before_it_counts_is_caught(small_files, monkeypatch):
    fsync = SimulatedFile.fsync
    monkeypatch.setattr(SimulatedFile, "fsync", lambda f: None if re.search(r"\d\.\d+\.arrows$", f.path) else fsync(f))
    with pytest.raises((AssertionError, LogError)):
        power_loss()


@pytest.mark.turns("disks")
@pytest.mark.parametrize("full_for", [1, 4])
def test_no_space_to_compact_changes_nothing(full_for, small_files):
    failures = 0
    for n in itertools.count(1):
        disk = SimulatedDisk(full_at=n, full_for=full_for)
        log = None
        for step in history():
            for _ in range(10):
                try:
                    log = log or EmbeddedLog("/log", disk)
                    step(log)
                    break
                except LogFull:
                    failures += 1
            else:
                raise AssertionError("still no space")
        before = seen(log)
        assert before[0] == seen(EmbeddedLog("/log", disk.after_power_loss("none")))[0]
        if disk.writes < n:
            break
    assert failures > 20


def test_an_error_of_the_disk_in_upkeep_is_one_of_the_log(small_files):
    """It must not end the thread that does the upkeep: the instance would end with it."""
    failures = 0
    for n in itertools.count(1):
        disk = SimulatedDisk()
        log, rng = EmbeddedLog("/log", disk), random.Random(2)
        log.create_topic("T", 1, {**COMPACT, "segment.bytes": "900"})
        for hour in range(4):
            produce(log, "p", (T0, rows(rng, hour * HOUR, 8, 5)))
        before, first = seen(log), disk.calls
        disk.error_at = first + n
        try:
            log.maintain(5 * HOUR)
        except LogError:
            failures += 1
        assert seen(log)[0] == before[0]
        log.maintain(6 * HOUR)
        assert seen(log)[0] == before[0]
        if disk.calls < first + n:
            break
    assert failures > 5


@pytest.mark.parametrize(
    ("option", "value"),
    [("retention.ms", "soon"), ("cleanup.policy", "sweep"), ("segment.bytes", "0"), ("delete.retention.ms", "-5")],
)
def test_an_option_that_makes_no_sense_is_refused(option, value, tmp_path):
    log = EmbeddedLog(tmp_path)
    with pytest.raises(LogError, match=f"{option} cannot be '{value}'"):
        log.create_topic("T", 1, {option: value})
    log.create_topic("T", 1)
    with pytest.raises(LogError, match=f"{option} cannot be '{value}'"):
        log.alter_topic("T", {option: value})
    assert dict(log.topics()["T"].config) == {}
