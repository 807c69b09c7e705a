"""RocksDB's statistics, as a step reads them."""

from __future__ import annotations

from pathlib import Path

from flowql.runtime.errors import StateError
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.rocks import RocksPhysical, open_rocks
from flowql.runtime.state.statistics import CALLS, LOOK_MS, StateStatistics

KEYS = [b"%06d" % n for n in range(1_000)]


def work(db: RocksPhysical) -> None:
    db.write_batch(KEYS, [b"v" * 50] * len(KEYS))
    db.flush()
    assert None not in db.multi_get(KEYS)
    assert db.get(b"none") is None
    assert len(list(db.scan(KEYS[0], KEYS[100]))) == 100


def test_hits_bytes_and_times_of_calls_are_counted(tmp_path: Path) -> None:
    db = open_rocks(tmp_path)
    step = StateStatistics(db)
    work(db)
    assert step.run_once(0) == LOOK_MS
    found = step.newest
    assert found["cache_hits"] > found["cache_misses"] > 0
    assert found["written_bytes"] > 50 * len(KEYS)
    assert found["flushed_bytes"] > 0
    assert found["files_bytes"] > 0
    assert (found["stall_s"], found["compactions"]) == (0, 0)
    assert set(found["calls"]) == set(CALLS)
    assert {call: times["count"] for call, times in found["calls"].items()} == {
        **dict.fromkeys(("multi_get", "write", "flush", "get"), 1),
        "scan": 1,
    }
    assert 0 < found["calls"]["flush"]["seconds"] < 60
    assert found["calls"]["multi_get"]["p50_ms"] <= found["calls"]["multi_get"]["p99_ms"]
    assert step.run_once(1) == LOOK_MS - 1, "it looks now and then"
    assert step.newest is found


def test_counters_rise_also_when_the_state_was_opened_again(tmp_path: Path) -> None:
    db = open_rocks(tmp_path)
    step = StateStatistics(db)
    work(db)
    step.run_once(0)
    before = step.newest
    db.reopen(lambda: None)
    step.run_once(LOOK_MS)
    assert step.newest["written_bytes"] >= before["written_bytes"]
    work(db)
    step.run_once(2 * LOOK_MS)
    assert step.newest["written_bytes"] >= 2 * before["written_bytes"]
    assert step.newest["calls"]["flush"]["count"] == 2


def test_a_state_that_is_being_opened_again_is_looked_at_later(tmp_path: Path) -> None:
    db = open_rocks(tmp_path)
    step = StateStatistics(db)
    step.run_once(0)
    before = step.newest

    def gone(_name: str) -> int:
        raise StateError("it is being opened again")

    db.property = gone  # type: ignore[method-assign]
    assert step.run_once(LOOK_MS) == LOOK_MS
    assert step.newest is before


def test_a_state_in_memory_counts_nothing() -> None:
    step = StateStatistics(MemoryPhysical())
    step.run_once(0)
    assert step.newest == {}
