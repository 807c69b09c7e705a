"""Redo of many commits at once gives what redo one by one gives."""

import random

import msgspec
import pytest

from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical


class Counted(MemoryPhysical):
    rows = 0

    def write_batch(self, keys, values, ranges=()):
        self.rows += len(keys)
        super().write_batch(keys, values, ranges)


def commits(seed, count):
    rng = random.Random(seed)
    for sequence in range(1, count + 1):
        ranges = [(b"s0%d" % rng.randrange(5), b"s0%d\xff" % rng.randrange(5))] if rng.random() < 0.2 else []
        ranges = [r for r in ranges if r[0] < r[1]]
        keys = sorted({b"s0%d %d" % (rng.randrange(5), rng.randrange(9)) for _ in range(rng.randrange(8))})
        values = [None if rng.random() < 0.3 else b"%d" % rng.randrange(100) for _ in keys]
        yield sequence, msgspec.msgpack.encode((1, ranges, keys, values))


def test_many_commits_at_once():
    for seed in range(40):
        one, all_ = MemoryPhysical(), MemoryPhysical()
        state = StateManager(one)
        for sequence, payload in commits(seed, 30):
            state.replay_all([(sequence, payload)])
            assert state.applied_sequence == sequence
        StateManager(all_).replay_all(commits(seed, 30))
        assert one._rows == all_._rows


def test_overwritten_rows_are_not_written():
    payload = msgspec.msgpack.encode((1, [], [b"sa", b"sb"], [b"1", b"2"]))
    physical = Counted()
    state = StateManager(physical)
    state.replay_all((n, payload) for n in range(1, 1000))
    assert state.applied_sequence == 999
    assert physical.rows == 3  # and the marker


def test_a_redo_that_breaks_off_keeps_what_came_before():
    def broken():
        yield 1, msgspec.msgpack.encode((1, [], [b"sa"], [b"1"]))
        raise OSError("unreadable")

    state = StateManager(MemoryPhysical())
    try:
        state.replay_all(broken())
    except OSError:
        assert state.applied_sequence == 1
        assert state._physical.get(b"sa") == b"1"
    else:
        raise AssertionError("the error was lost")


def test_what_is_applied_already_and_what_cannot_be_read_writes_nothing():
    payload = msgspec.msgpack.encode((1, [], [b"sa"], [b"1"]))
    physical = Counted()
    state = StateManager(physical)
    state.replay_all([(1, payload)])
    rows = physical.rows
    state.replay_all([])
    state.replay_all([(1, payload)])

    def broken():
        yield 1, payload
        raise OSError("unreadable")

    with pytest.raises(OSError, match="unreadable"):
        state.replay_all(broken())
    assert physical.rows == rows
    assert state.applied_sequence == 1
