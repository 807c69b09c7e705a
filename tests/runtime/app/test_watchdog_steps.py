"""The watchdog of a member: when a step counts as stuck, when the member leaves, and when it comes back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flowql.runtime.app.watchdog import LEAVE_MS, PAUSED_MS, STUCK_MS, TELL_MS, StuckStep, Watchdog


class Member:
    """What a watchdog does to its member, in order. told: whether the others learned of what hangs."""

    def __init__(self, *, alone: bool = False) -> None:
        self.done: list[Any] = []
        self.told = True
        self.now_ms = 0
        self.clock = SimpleNamespace(timer_ms=lambda: self.now_ms)
        self.running = {"CTAS_A/0_1": "processing-0"}
        self.manager = SimpleNamespace(running=lambda: self.running)
        self.commit = SimpleNamespace(lose=lambda why: self.done.append(("stops commits", why)))
        self.group = None if alone else self
        self.dog = Watchdog(cast(Any, self))

    def stay_away(self, *, away: bool) -> None:
        self.done.append("leaves" if away else "joins")

    def tell_hung(self, stuck: Sequence[StuckStep]) -> bool:
        self.done.append([s.step for s in stuck])
        return self.told

    def look(self, first_ms: int, last_ms: int) -> None:
        """Looks as often as it does."""
        for now_ms in range(first_ms, last_ms + 1, 1_000):
            self.now_ms = now_ms
            self.dog.run_once(now_ms)


WHY = "processing-0 is stuck: this member has left its group until it continues"
LEFT = [("stops commits", WHY), ["processing-0"], "leaves"]


def test_a_step_is_stuck_after_its_time_with_the_task_that_its_thread_holds() -> None:
    member = Member()
    member.dog.where = lambda step: f"code of {step}"
    member.dog.rounds["processing-0"] = 5
    member.dog.rounds["cleanup"] = 0
    assert member.dog.stuck(STUCK_MS + 4) == []
    assert member.dog.stuck(STUCK_MS + 5) == [
        StuckStep("processing-0", STUCK_MS, "CTAS_A/0_1", "code of processing-0"),
    ]
    member.dog.rounds.pop("processing-0", None)
    assert member.dog.stuck(STUCK_MS * 9) == []


def test_a_member_leaves_when_a_step_is_stuck_for_long_and_joins_when_it_has_ended() -> None:
    member = Member()
    member.dog.rounds["processing-0"] = 0
    member.look(0, LEAVE_MS - 1_000)
    assert (member.done, member.dog.is_away) == ([], False)
    member.look(LEAVE_MS, LEAVE_MS + 5_000)
    assert (member.done, member.dog.is_away) == (LEFT, True)
    member.dog.rounds.pop("processing-0", None)
    member.look(LEAVE_MS + 6_000, LEAVE_MS + 9_000)
    assert (member.done[3:], member.dog.is_away) == (["joins"], False)


def test_it_comes_back_when_all_that_is_stuck_has_ended() -> None:
    """One that is stuck for less, too: it would leave again at once."""
    member = Member()
    member.dog.rounds["processing-0"] = 0
    member.look(0, LEAVE_MS - 40_000)
    member.dog.rounds["processing-1"] = LEAVE_MS - 40_000
    member.look(LEAVE_MS - 39_000, LEAVE_MS)
    assert member.done == LEFT, "the other members are told of what is stuck for long"
    member.dog.rounds.pop("processing-0", None)
    member.look(LEAVE_MS + 1_000, LEAVE_MS + 3_000)
    assert member.dog.is_away
    member.dog.rounds.pop("processing-1", None)
    member.look(LEAVE_MS + 4_000, LEAVE_MS + 4_000)
    assert (member.done[3:], member.dog.is_away) == (["joins"], False)


@pytest.mark.parametrize("mended", [True, False])
def test_it_leaves_without_having_told_after_a_while(mended: bool) -> None:
    member = Member()
    member.told = False
    member.dog.rounds["processing-0"] = 0
    member.look(0, LEAVE_MS + 2_000)
    assert member.done == [("stops commits", WHY), *[["processing-0"]] * 3]
    assert not member.dog.is_away
    member.told = mended
    member.look(LEAVE_MS + 3_000, LEAVE_MS + TELL_MS)
    assert member.dog.is_away
    assert len(member.done) == (6 if mended else TELL_MS // 1_000 + 3)


@pytest.mark.parametrize("step", ["consumer-main", "watchdog", "rates", "cleanup"])
def test_for_steps_whose_work_nobody_could_take_over_it_stays(step: str) -> None:
    member = Member()
    member.dog.rounds[step] = 0
    member.look(0, 2 * LEAVE_MS)
    assert member.done == []


def test_an_instance_that_is_alone_only_says_it(caplog: pytest.LogCaptureFixture) -> None:
    member = Member(alone=True)
    with caplog.at_level(logging.INFO):
        member.dog.rounds["processing-0"] = 0
        member.look(0, LEAVE_MS * 2)
        member.dog.rounds.pop("processing-0", None)
        member.look(LEAVE_MS * 2, LEAVE_MS * 2)
        member.dog.rounds["processing-0"] = LEAVE_MS * 3
        member.look(LEAVE_MS * 2 + 1_000, LEAVE_MS * 3 + STUCK_MS)
    said = [r.getMessage() for r in caplog.records]
    assert said == [
        f"processing-0 has not finished a round for {STUCK_MS // 1000} s",
        "processing-0 goes on",
        f"processing-0 has not finished a round for {STUCK_MS // 1000} s",
    ]
    assert member.done == []


@pytest.mark.parametrize(("pause_ms", "forgiven"), [(PAUSED_MS, False), (PAUSED_MS + 1, True)])
def test_what_stood_still_with_the_whole_process_is_not_stuck(pause_ms: int, forgiven: bool) -> None:
    member = Member()
    begun = STUCK_MS - PAUSED_MS
    member.dog.rounds["processing-0"] = 0
    member.dog.run_once(begun)
    member.dog.run_once(begun + pause_ms)
    assert (member.dog.stuck(begun + pause_ms) == []) == forgiven
    assert member.dog.stuck(begun + pause_ms + STUCK_MS)[0].for_ms == (
        STUCK_MS if forgiven else begun + pause_ms + STUCK_MS
    )


@pytest.mark.parametrize(
    ("where", "waits"),
    [("task.py:3 run > rocks.py:90 write", True), ("rocks.py:90 write > task.py:3 run", False), ("", False)],
)
def test_who_waits_for_the_disk_is_known_by_the_innermost_call(where: str, waits: bool) -> None:
    assert StuckStep("commit", 1, None, where).waits_for_disk == waits
