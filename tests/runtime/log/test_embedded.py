"""The embedded log's files: truncated, damaged, shared with other processes, read by other programs."""

import os
import signal
import subprocess
import sys
import time

import duckdb
import pyarrow as pa
import pytest

from flowql.runtime.errors import Fenced, LogCorrupt, LogError
from flowql.runtime.log import files, policy
from flowql.runtime.log.base import EARLIEST, RECORD_SCHEMA, Position, TopicPartition
from flowql.runtime.log.embedded import ledger, segment
from flowql.runtime.log.embedded.journal import Journal
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.records import decode, encode
from flowql.runtime.log.embedded.state import LogState
from tests.runtime.log.records import batch, numbered, produce, read_all, values
from tests.runtime.log.workload import A0, A1, expected, observe, steps
from tests.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.turns("long")

SEED = int(os.environ.get("FLOWQL_SEED", time.time_ns() % 1_000_000))


def commit_log(disk):
    (name,) = [n for n in disk.listdir("/log") if n.startswith("commits-")]
    return f"/log/{name}"


def segments(disk):
    return [f"/log/topics/{t}/{s}" for t in disk.listdir("/log/topics") for s in disk.listdir(f"/log/topics/{t}")]


def sizes(disk):
    return {path: disk.open(path).size() for path in [commit_log(disk), *segments(disk)]}


def changed(disk, path, *, length=None, flip=None):
    """A copy of the disk with one file cut or one byte of it inverted."""
    copy = disk.after_power_loss("all")
    file = copy.open(path)
    if length is not None:
        file.truncate(length)
    if flip is not None:
        file.pwrite(flip, [bytes([file.pread(flip, 1)[0] ^ 0xFF])])
    return copy


@pytest.fixture
def before_and_after():
    """A disk before and after its last transaction, which goes to two partitions."""
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("A", 2)
    produce(log, "p", (A0, [b"1"]), (A1, [b"2", b"3"]), redo=b"r")
    producer = log.producer("p")
    before = disk.after_power_loss("all")
    producer.begin()
    producer.send(A0, batch([b"4", b"5"]))
    producer.send(A1, batch([b"6"]))
    producer.send_positions("g", {A0: Position(3)})
    producer.attach_redo(b"s")
    producer.commit()
    return before, disk


def contents(disk):
    log = EmbeddedLog("/log", disk)
    return values(log, A0), values(log, A1), log.committed("g"), list(log.redo_after("p", 0))


def crashed(disk, before):
    """The disk with the mark that a crash within the last commit leaves: that of the commit before."""
    mark = before.open("/log/append.lock").pread(0, 200)
    disk.lock("/log/append.lock", wait=False).write(mark.decode())
    disk._locks.clear()
    return disk


def test_commit_log_cut_at_every_byte_of_the_last_transaction(before_and_after):
    before, after = before_and_after
    for length in range(sizes(before)[commit_log(before)], sizes(after)[commit_log(after)]):
        with pytest.raises(LogCorrupt, match="it was committed"):
            EmbeddedLog("/log", changed(after, commit_log(after), length=length))
        disk = crashed(changed(after, commit_log(after), length=length), before)
        assert contents(disk) == contents(before), length
        produce(EmbeddedLog("/log", disk), "p", (A0, [b"7"]))
        assert contents(disk)[0] == [b"1", b"7"], length


def test_segment_cut_at_every_byte_of_the_last_transaction(before_and_after):
    """Without the commit record the rest is no matter; with it, a missing byte is never passed over."""
    before, after = before_and_after
    record_gone = crashed(changed(after, commit_log(after), length=sizes(before)[commit_log(before)]), before)
    for path in segments(after):
        for length in range(sizes(before)[path], sizes(after)[path]):
            assert contents(changed(record_gone, path, length=length)) == contents(before)
            with pytest.raises(LogCorrupt, match="committed"):
                EmbeddedLog("/log", changed(after, path, length=length))


def test_damage_of_the_commit_log_is_told_from_a_crash(before_and_after):
    before, after = before_and_after
    path = commit_log(after)
    start, stop = sizes(before)[path], sizes(after)[path]
    for at in range(start, stop):  # the last frame: as if torn
        assert contents(crashed(changed(after, path, flip=at), before)) == contents(before), at
        with pytest.raises(LogCorrupt, match="it was committed"):
            EmbeddedLog("/log", changed(after, path, flip=at))
    with pytest.raises(LogCorrupt):  # an earlier one, that later ones build on
        EmbeddedLog("/log", changed(after, path, flip=start - 1))
    with pytest.raises(LogCorrupt):
        EmbeddedLog("/log", changed(after, path, flip=0))
    with pytest.raises(LogCorrupt, match="format version"):
        EmbeddedLog("/log", changed(after, path, flip=8))


def test_damaged_redo_is_found(before_and_after):
    _, after = before_and_after
    log = EmbeddedLog("/log", changed(after, "/log/redo-000000000000.bin", flip=1))
    assert next(log.redo_after("p", 0)) == (1, b"r")
    with pytest.raises(LogCorrupt, match="damaged"):
        list(log.redo_after("p", 1))
    after.unlink("/log/redo-000000000000.bin")
    with pytest.raises(LogCorrupt, match="missing"):
        list(EmbeddedLog("/log", after).redo_after("p", 0))


def test_missing_segment_is_found(before_and_after):
    _, after = before_and_after
    after.unlink(segments(after)[0])
    with pytest.raises(LogCorrupt, match="missing"):
        EmbeddedLog("/log", after)


@pytest.mark.parametrize("damage", ["none", "missing", "cut", "flipped"])
def test_index_files_are_only_a_shortcut(damage, monkeypatch):
    monkeypatch.setattr(ledger, "ROLL_BYTES", 2000)
    monkeypatch.setattr(ledger, "_ROLL_SNAPSHOTS", 0)
    monkeypatch.setattr(policy, "SEGMENT_BYTES", 50_000)
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("A", 1)
    producer = log.producer("p")
    for i in range(300):
        producer.begin()
        producer.send(A0, numbered(i, 1))
        producer.commit()
    indexes = [p for p in segments(disk) if p.endswith(".index")]
    assert len(indexes) >= 3
    for path in indexes if damage != "none" else []:
        size = disk.open(path).size()
        disk.unlink(path) if damage == "missing" else None
        disk.open(path).truncate(size // 2) if damage == "cut" else None
        disk = changed(disk, path, flip=size // 2) if damage == "flipped" else disk
    for at in (0, 150, 299):
        reader = EmbeddedLog("/log", disk).reader(A0, at)
        assert reader.read(1, 1000).records.column(3).to_pylist() == [b"value %d" % at]
    assert len(values(EmbeddedLog("/log", disk), A0)) == 300
    assert values(log, A0) == [b"value %d" % i for i in range(300)]


def test_reopened_log_is_the_same(tmp_path, monkeypatch):
    for roll in (1, 300, 1 << 20):
        monkeypatch.setattr(ledger, "ROLL_BYTES", roll)
        monkeypatch.setattr(ledger, "_ROLL_SNAPSHOTS", 0)
        path = tmp_path / str(roll)
        for step, seen in zip(steps(), expected()[1:], strict=True):
            log = EmbeddedLog(path)
            step(log)
            log.close()
            again = EmbeddedLog(path)
            assert observe(again) == seen
            again.close()
        assert len([n for n in os.listdir(path) if n.startswith("redo-")]) == 1
        assert os.listdir(path / "topics") == ["B.2"]


def test_closed_log_refuses(tmp_path):
    """Each call says so: an error of the system for a closed file would be tried again."""
    log = EmbeddedLog(tmp_path)
    log.create_topic("A", 1)
    produce(log, "p", (A0, [b"1"]), redo=b"r")
    reader, producer = log.reader(A0), log.producer("p")
    producer.begin()
    log.close()
    for call in (
        lambda: reader.read(1, 1),
        log.topics,
        lambda: log.producer("p"),
        lambda: log.create_topic("B", 1),
        lambda: log.alter_topic("A", {"retention.ms": "1"}),
        lambda: log.delete_topic("A"),
        lambda: log.drop_before(A0, 1),
        lambda: log.trim_redo("p", 1),
        lambda: log.skip_damaged([]),
        lambda: log.maintain(0),
        log.verify,
        producer.commit,
    ):
        with pytest.raises(LogError, match="cannot be used: it was closed"):
            call()


def test_directory_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogError, match="cannot be read"):
        EmbeddedLog(tmp_path / "file")


def test_more_partitions_in_a_transaction_than_open_files(monkeypatch):
    monkeypatch.setattr(segment, "_APPENDERS_KEPT", 2)
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("A", 7)
    for n in range(2):
        produce(log, "p", *[(TopicPartition("A", i), [b"%d" % n]) for i in range(7)], redo=b"r")
    log = EmbeddedLog("/log", disk.after_power_loss("none"))
    assert [values(log, TopicPartition("A", i)) for i in range(7)] == [[b"0", b"1"]] * 7


def test_segments_that_are_written_to_no_more_are_closed(tmp_path, monkeypatch):
    """Else an instance over many partitions ends with too many open files."""
    kept = set()

    class Noting(files.DiskFile):
        def __init__(self, path, flags):
            super().__init__(path, flags)
            kept.add(self)

        def close(self):
            super().close()
            kept.discard(self)

    monkeypatch.setattr(segment, "_APPENDERS_KEPT", 2)
    monkeypatch.setattr(files, "DiskFile", Noting)
    log = EmbeddedLog(tmp_path)
    log.create_topic("A", 7)
    for n in range(7):
        produce(log, "p", (TopicPartition("A", n), [b"%d" % n]))
    assert len({file.path for file in kept if file.path.endswith(".arrows")}) <= 2


def test_a_write_of_which_the_system_takes_a_part_goes_on_behind_it(tmp_path, monkeypatch):
    """Of a large one it takes 2 GB, and of any one a part where a signal comes or space ends."""
    pwritev, sizes = os.pwritev, iter([7, 1, 64, 300] * 1_000)

    def a_part(fd, parts, offset):
        return pwritev(fd, [b"".join(parts)[: next(sizes)]], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", a_part)
        log = EmbeddedLog(tmp_path)
        log.create_topic("A", 1)
        for n in range(3):
            produce(log, "p", (A0, [b"%d" % n * 500, b"x"]), redo=b"r" * 200)
        log.close()
    again = EmbeddedLog(tmp_path)
    assert values(again, A0) == [v for n in range(3) for v in (b"%d" % n * 500, b"x")]
    assert list(again.redo_after("p", 0)) == [(n, b"r" * 200) for n in (1, 2, 3)]
    assert again.verify().damages == []


# Two processes


def test_a_transaction_looks_three_times_for_commits_of_other_processes(tmp_path, monkeypatch):
    """Each look is a system call, after which the thread waits for the interpreter: a written row took 17 of them."""
    log, looks, has_new = EmbeddedLog(tmp_path), list[None](), Journal.has_new
    log.create_topic("A", 2)
    producer = log.producer("p")
    produce_one(producer, b"first")

    def looked(journal: Journal) -> bool:
        looks.append(None)
        return has_new(journal)

    monkeypatch.setattr(Journal, "has_new", looked)
    produce_one(producer, b"second")
    assert len(looks) == 3
    assert producer.ends == {A0: 2}


def produce_one(producer, value):
    producer.begin()
    producer.expect_partitions("A", 2)
    producer.expect_end(A1, 0)
    producer.send(A0, batch([value]))
    producer.commit()


def test_a_producer_that_another_process_has_replaced_since_it_began_writes_nothing(tmp_path):
    log, other = EmbeddedLog(tmp_path), EmbeddedLog(tmp_path)
    log.create_topic("A", 2)
    old = log.producer("p")
    old.begin()
    old.send(A0, batch([b"old"]))
    other.producer("p")
    with pytest.raises(Fenced):
        old.commit()
    with pytest.raises(Fenced):
        old.begin()
    assert values(other, A0) == []


def test_two_logs_on_one_directory_see_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "ROLL_BYTES", 500)
    monkeypatch.setattr(ledger, "_ROLL_SNAPSHOTS", 0)
    logs = [EmbeddedLog(tmp_path), EmbeddedLog(tmp_path)]
    logs[0].create_topic("A", 2)
    readers = [log.reader(A0) for log in logs]
    producers = [log.producer(f"p{i}") for i, log in enumerate(logs)]
    for n in range(60):
        who = n * 7 % 5 % 2
        producers[who].begin()
        producers[who].send(A0, numbered(n, 1))
        producers[who].commit()
        for i in (0, 1) if n % 3 else (who,):
            last = None
            while (raw := readers[i].read(100, 1 << 20)) is not None:
                last = raw.records.column(3).to_pylist()[-1]
            assert last == b"value %d" % n
    assert values(logs[0], A0) == values(logs[1], A0) == [b"value %d" % n for n in range(60)]
    assert logs[0].last_sequence("p1") + logs[1].last_sequence("p0") == 60
    fenced = logs[0].producer("same")
    logs[1].producer("same")
    with pytest.raises(Fenced):
        fenced.begin()
    logs[1].delete_topic("A")
    with pytest.raises(LogError, match="no topic"):
        readers[0].read(1, 1)


APPEND = """
import sys
from flowql.runtime.log.embedded import ledger
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.base import TopicPartition
from tests.runtime.log.records import numbered
ledger.ROLL_BYTES, ledger._ROLL_SNAPSHOTS = 4000, 0
log = EmbeddedLog(sys.argv[1])
producer = log.producer(sys.argv[2])
print("ready", flush=True)
for n in range(log.last_sequence(sys.argv[2]), int(sys.argv[3])):
    producer.begin()
    producer.send(TopicPartition("A", 0), numbered(n, 2))
    producer.send(TopicPartition("A", 1), numbered(n, 1))
    producer.attach_redo(b"%d" % n)
    print(producer.commit(), flush=True)
"""


def appender(path, transactional_id, count):
    command = [sys.executable, "-c", APPEND, str(path), transactional_id, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_other_process_appends_while_this_one_reads_and_writes(tmp_path):
    log = EmbeddedLog(tmp_path)
    log.create_topic("A", 2)
    other = appender(tmp_path, "other", 60)
    try:
        assert other.stdout.readline() == "ready\n"
        producer = log.producer("own")
        consumer = log.consumer("c")
        consumer.assign({A0: EARLIEST, A1: EARLIEST})
        seen = {A0: 0, A1: 0}
        running = True
        while running:
            running = other.poll() is None
            producer.begin()
            producer.send(A0, batch([b"own"]))
            producer.send(A1, batch([b"own"]))
            producer.commit()
            while batches := consumer.poll(1000, 1 << 20):
                for raw in batches:
                    assert raw.first_offset == seen[raw.tp]
                    seen[raw.tp] = raw.next_offset
        assert other.wait() == 0
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    expected = [b"value %d" % n for n in range(60)]
    assert [v for v in values(log, A1) if v != b"own"] == expected
    assert [v for v in values(log, A0) if v != b"own"][::2] == expected
    assert seen == {tp: log.end_offset(tp) for tp in (A0, A1)}
    assert values(EmbeddedLog(tmp_path), A1) == values(log, A1)


@pytest.mark.crash
def test_kill_at_random_moments(tmp_path):
    import random

    print(f"FLOWQL_SEED={SEED}")
    rng = random.Random(SEED)
    log = EmbeddedLog(tmp_path)
    log.create_topic("A", 2)
    for _ in range(3):
        process = appender(tmp_path, "p", 1_000_000)
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        acknowledged = process.communicate()[0].split()
        for view in (log, EmbeddedLog(tmp_path)):
            done = view.last_sequence("p")
            assert not acknowledged or done - int(acknowledged[-1]) in (0, 1)
            assert values(view, A1) == [b"value %d" % n for n in range(done)]
            assert values(view, A0)[::2] == values(view, A1)
            assert [s for s, _ in view.redo_after("p", 0)] == list(range(1, done + 1))


def test_hold_of_a_dead_process_is_free(tmp_path):
    code = f"from flowql.runtime.log.embedded.log import EmbeddedLog as E\nE({str(tmp_path)!r}).hold('p')\nimport os; os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    EmbeddedLog(tmp_path).hold("p")


# Other programs


def test_segments_are_arrow_streams(tmp_path):
    log = EmbeddedLog(tmp_path)
    log.create_topic("A", 1)
    produce(log, "p", (A0, [b"1", (9, b"k", None, [{"key": "h", "value": b"x"}])]))
    produce(log, "p", (A0, [b"3"]))
    (path,) = (tmp_path / "topics").glob("A.*/*.arrows")
    records = pa.ipc.open_stream(path).read_all()
    assert records.schema == RECORD_SCHEMA
    assert records.column("value").to_pylist() == [b"1", None, b"3"]
    assert duckdb.sql('SELECT max("offset"), count(value) FROM records').fetchall() == [(2, 2)]
    assert read_all(log, A0)[1] == (1, 9, b"k", None)


def test_batches_outlive_their_windows_and_files(tmp_path, monkeypatch):
    monkeypatch.setattr(segment, "WINDOW_BYTES", 1 << 16)
    monkeypatch.setattr(segment, "WINDOWS_KEPT", 2)
    log = EmbeddedLog(tmp_path)
    log.create_topic("A", 1)
    producer = log.producer("p")
    for i in range(20):
        producer.begin()
        producer.send(A0, numbered(i * 1000, 1000))
        producer.commit()
    producer.begin()
    producer.send(A0, numbered(20_000, 10_000))
    producer.commit()
    reader = log.reader(A0)
    raws = []
    while (raw := reader.read(700, 1 << 20)) is not None:
        raws.append(raw)
    log.delete_topic("A")
    log.close()
    assert [v for r in raws for v in r.records.column(3).to_pylist()] == [b"value %d" % i for i in range(30_000)]
    assert TopicPartition("A", 0) == raws[0].tp


@pytest.mark.parametrize("copied", [0, 1 << 16])
def test_messages_in_pieces_are_what_arrow_serializes(monkeypatch, copied):
    monkeypatch.setattr(segment, "_COPIED_BYTES", copied)
    rows = [(1, b"k", b"v" * 200, [("h", b"1"), ("h", None)]), (2, None, None, None), (3, b"", b"", [])]
    first = segment.numbered(7, batch(rows * 5))
    batches = [first, first.slice(3, 4), first.slice(0, 1), segment.numbered(40, numbered(0, 2_000)).slice(1_990)]
    messages = [b"".join(map(bytes, pieces)) for pieces in segment.encode(batches)]
    for message, stored in zip(messages, batches, strict=True):
        read = pa.ipc.read_record_batch(pa.py_buffer(message), RECORD_SCHEMA)
        assert read == stored
        assert len(message) % 8 == 0
    plain = first.serialize().to_pybytes()
    metadata = 8 + int.from_bytes(plain[4:8], "little")
    assert messages[0][8:metadata] == plain[8:metadata]
    assert messages[0][metadata + 8 :] == plain[metadata:], "the checksum stands at the end of the metadata"
    assert len(messages[3]) < 2_000, "a slice is stored without what is around it"
    assert [len(pieces) == 2 for pieces in segment.encode(batches)] == [copied > 0] * 4, "small ones are copied"


def test_a_disk_that_is_full_behind_the_commit_point_takes_nothing_back(monkeypatch):
    """The mark beside the log is written after the commit: an error there was taken for one of the commit, which was made twice."""
    from tests.simulated_disk import SimulatedLock

    log = EmbeddedLog("/log", SimulatedDisk())
    log.create_topic("A", 1)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(SimulatedLock, "write", full)
        produce(log, "p", (A0, [b"1"]))
    produce(log, "p", (A0, [b"2"]))
    assert values(log, A0) == [b"1", b"2"]
    assert log.last_sequence("p") == 2


def test_who_has_written_is_known_after_the_log_was_opened_again(tmp_path):
    log = EmbeddedLog(tmp_path / "log")
    log.create_topic("A", 1)
    for writer in ("p", "q"):
        produce(log, writer, (A0, [b"0"]))
    image = decode(encode(log._state.snapshot()))
    restored = LogState(str(tmp_path))
    restored.apply(image)
    assert restored.topics["A"].partitions[0].writers == {"p", "q"}, "also by a snapshot of the commit log"
    log.close()
    log = EmbeddedLog(tmp_path / "log")
    assert log.writers(A0) == {"p", "q"}
    log.close()


def test_a_new_reader_sees_a_topic_that_another_process_has_made_anew(tmp_path):
    """It read the records of the old one where this process had read them before: a worker of Spark did so in a rebuild."""
    log, other = EmbeddedLog(tmp_path / "log"), EmbeddedLog(tmp_path / "log")
    log.create_topic("A", 1)
    produce(log, "p", (A0, [b"old", b"old"]))
    assert values(log, A0) == [b"old", b"old"]
    other.delete_topic("A")
    other.create_topic("A", 1)
    produce(other, "q", (A0, [b"new", b"new", b"new"]))
    reader = log.reader(A0, 0)
    assert reader.read(10, 1 << 20).records.column("value").to_pylist() == [b"new"] * 3
    log.close()
    other.close()
