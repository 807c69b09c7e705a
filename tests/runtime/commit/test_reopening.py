"""When a state that takes no more writes is opened again, and when it is not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flowql.runtime.commit.reopening import PAUSE_MS, PAUSE_MS_MAX, StateReopening
from flowql.runtime.errors import LogUnavailable, StateError, StateLost


class State:
    """Notes how it was opened again. accepts: whether its disk takes files; error: what opening it raises."""

    def __init__(self) -> None:
        self.accepts, self.error, self.opened = True, cast("Exception | None", None), list[Any]()

    def accepts_files(self) -> bool:
        return self.accepts

    def reopen(self, redo_after: Any) -> None:
        self.opened.append("redo" if redo_after is not None else "")
        if self.error is not None:
            raise self.error


class Log:
    def __init__(self, *, supports_redo: bool) -> None:
        self.supports_redo = supports_redo

    def redo_after(self, application_id: str, sequence: int) -> list[Any]:
        return []


def reopening(*, redo: bool = True) -> tuple[State, StateReopening]:
    state = State()
    return state, StateReopening(cast(Any, state), cast(Any, Log(supports_redo=redo)), "app")


def fail(m: StateReopening, times: int) -> None:
    for _ in range(times):
        m.failed(StateError("disk"))


def test_the_first_failure_may_be_over_by_itself_and_those_of_the_log_do_not_count() -> None:
    state, m = reopening()
    assert not m.is_due(0)
    fail(m, 1)
    m.failed(LogUnavailable("away"))
    assert not m.is_due(0)
    fail(m, 1)
    assert m.is_due(0)
    state.accepts = False
    assert not m.is_due(0), "its disk takes nothing"
    state.accepts = True
    m.works()
    fail(m, 1)
    assert not m.is_due(0), "it worked meanwhile"


def test_what_does_not_help_is_done_ever_more_seldom_until_it_works() -> None:
    state, m = reopening()
    now_ms, pauses = 0, []
    for _ in range(8):
        fail(m, 2)
        assert m.is_due(now_ms)
        assert m.reopen(now_ms) == ""
        assert m.failures == 0
        fail(m, 2)
        pause_ms = next(ms for ms in (PAUSE_MS * 2**n for n in range(9)) if m.is_due(now_ms + min(ms, PAUSE_MS_MAX)))
        pauses.append(min(pause_ms, PAUSE_MS_MAX))
        assert not m.is_due(now_ms + pauses[-1] - 1)
        now_ms += pauses[-1]
        m.failures = 0
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    m.works()
    fail(m, 2)
    assert m.is_due(now_ms)
    assert len(state.opened) == 8


def test_it_is_brought_forward_by_redo() -> None:
    state, m = reopening()
    fail(m, 2)
    assert m.reopen(0) == ""
    assert state.opened == ["redo"]


def test_it_is_opened_without_anything_where_tasks_are_restored() -> None:
    state, m = reopening()
    m.is_behind = True
    fail(m, 2)
    assert m.reopen(0) == ""
    assert (state.opened, m.is_behind) == ([""], False)


def test_an_error_is_told_and_tried_again_at_once_and_a_state_that_is_lost_ends_it() -> None:
    state, m = reopening()
    fail(m, 2)
    state.error = StateError("still full")
    assert m.reopen(0) == "still full"
    assert m.is_due(0)
    state.error = StateLost("gone")
    with pytest.raises(StateLost, match="gone"):
        m.reopen(0)
    _, without = reopening(redo=False)
    with pytest.raises(StateLost, match="start again"):
        without.reopen(0)
