"""What interactive queries take of the interpreter while queries wait for it, and how answers are sent."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace

import pytest

from flowql.query import pace as subject
from flowql.query.pace import LINGER_S, RECENT_S, YIELDED, YIELDED_S_MAX, Pace, Share
from flowql.server.streaming import PIECE_BYTES, gathered, paced


class Times:
    """Processor time of a thread and the time of the clock, as they are told. slept: how long in all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cpu = self.wall = self.slept = 0.0
        # The module's name, not the module's functions: threads that other tests left behind sleep, too.
        told = SimpleNamespace(thread_time=lambda: self.cpu, monotonic=lambda: self.wall, sleep=self.sleep)
        monkeypatch.setattr(subject, "time", told)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds

    def work(self, cpu: float, wall: float) -> None:
        self.cpu += cpu
        self.wall += wall


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    return Times(monkeypatch)


def test_an_interactive_query_alone_does_not_wait(times: Times) -> None:
    pace = Pace(Share())
    pace.begin()
    times.work(0.010, 0.011)
    pace.rest()
    assert times.slept == 0


def test_one_that_others_wait_for_takes_a_tenth(times: Times) -> None:
    pace = Pace(Share())
    pace.begin()
    times.work(0.010, 0.020)
    pace.rest()
    assert times.slept == pytest.approx(0.090)


def test_several_at_work_share_it(times: Times) -> None:
    share = Share()
    paces = [Pace(share, cost=2.0) for _ in range(3)]
    for pace in paces:
        pace.begin()
    times.work(0.001, 0.010)
    paces[0].rest()
    assert times.slept == pytest.approx(YIELDED * 0.001 * 2 * 3)
    paces[0].end()
    paces[1].end()
    assert share.taking == 1, "ended once, however often it is said"
    times.work(9, 20)
    paces[2].rest()
    assert times.slept == pytest.approx(YIELDED * 0.001 * 2 * 3 + YIELDED_S_MAX)
    assert share.taking == 0


def test_small_pieces_are_sent_together_and_none_is_lost() -> None:
    pieces = [bytes([n % 251]) * (n * 977 % 60_000) for n in range(40)]
    found = list(gathered(p for p in pieces))
    assert b"".join(found) == b"".join(pieces)
    assert all(len(f) >= PIECE_BYTES for f in found[:-1])
    assert len(found) < len(pieces) / 3


def test_an_answer_that_breaks_off_or_is_left_is_no_longer_at_work() -> None:
    share = Share()

    def failing() -> Generator[bytes]:
        yield b"1"
        assert share.taking == 1
        raise ValueError("broken")

    broken = paced(failing(), share)
    assert next(broken) == b"1"
    assert share.taking == 0, "a client that does not read takes nothing"
    with pytest.raises(ValueError, match="broken"):
        next(broken)
    left = paced(failing(), share)
    next(left)
    left.close()
    assert share.taking == 0


def test_queries_that_begin_wait_for_what_others_have_taken(times: Times) -> None:
    share = Share()
    share.owe(0.010)
    share.owe(0.010)
    assert share.wait_s() == pytest.approx(2 * YIELDED * 0.010)
    times.work(0, 0.1)
    assert share.wait_s() == pytest.approx(2 * YIELDED * 0.010 - 0.1)
    share.owe(10.0)
    assert share.wait_s() == YIELDED_S_MAX
    times.work(0, YIELDED_S_MAX)
    assert share.wait_s() == LINGER_S, "equal queries come at about the same time"
    times.work(0, RECENT_S)
    share.owe(0.0)
    assert share.wait_s() == 0
    alone = Share(yields=False)
    alone.owe(10.0)
    assert alone.wait_s() == 0
