"""Statements whose commit gets no answer, on simulated brokers: each takes effect once, or its error says that the outcome is not known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import LogUnavailable, OutcomeUnknown, TransactionAborted
from flowql.runtime.log.kafka.commit_writers import WRITERS_MAX
from flowql.runtime.topology.query import ensure_sources
from flowql.runtime.topology.table_writer import TableWriters
from tests.runtime.topology.test_table_writer import APP, TABLES, Tables, plan_of
from tests.sim.broker import Broker
from tests.sim.log import Calm, SimulatedLog

ADD = "UPDATE t SET n = n + 1"
Send = Callable[[], None]


class Trouble(Calm):
    """on_commit: makes the next commit, given the request."""

    on_commit: Callable[[Send], None] | None = None
    is_down = False

    def call(self, what: str) -> None:
        if self.is_down:
            raise LogUnavailable("no broker answers")

    def commit(self, send: Send, send_later: Callable[[int], None]) -> None:
        on_commit, self.on_commit = self.on_commit, None
        send() if on_commit is None else on_commit(send)


class Process(Tables):
    def __init__(self, broker: Broker) -> None:
        self.network = Trouble()
        self.log = SimulatedLog(broker, self.network, APP)
        self.plan = plan_of(TABLES)
        ensure_sources(self.plan, self.log.admin())
        self.writers = TableWriters(self.log, APP)  # type: ignore[misc]


@pytest.fixture
def one() -> Process:
    made = Process(Broker(VirtualClock()))
    made.change("INSERT INTO t VALUES (1, 0)")
    return made


@pytest.fixture
def other(one: Process) -> Process:
    return Process(one.log.broker)  # type: ignore[attr-defined]


def in_order(*steps: Callable[[], object]) -> None:
    for step in steps:
        step()


def unanswered() -> None:
    raise LogUnavailable("no answer; whether the transaction was committed is not known")


def test_an_update_whose_answer_was_lost_is_not_repeated_after_another_process_has_fenced_it(
    one: Process, other: Process
) -> None:
    """The client sends the request again, and the broker then says that another producer has its id."""
    one.network.on_commit = lambda send: in_order(send, partial(other.change, ADD), send)
    assert one.change(ADD) == 1
    assert one.rows("t") == [(1, 2)]


def test_an_update_that_was_fenced_before_its_commit_arrived_is_carried_out_again(one: Process, other: Process) -> None:
    one.network.on_commit = lambda send: in_order(partial(other.change, ADD), send)
    assert one.change(ADD) == 1
    assert one.rows("t") == [(1, 2)]


def test_a_commit_that_took_effect_without_an_answer_counts(one: Process) -> None:
    one.network.on_commit = lambda send: in_order(send, unanswered)
    assert one.change(ADD) == 1
    assert one.rows("t") == [(1, 1)]


def test_a_commit_that_never_arrived_is_known_to_have_written_nothing(one: Process) -> None:
    one.network.on_commit = lambda send: unanswered()
    with pytest.raises(TransactionAborted, match="nothing was written"):
        one.change(ADD)
    assert one.rows("t") == [(1, 0)]
    assert one.change(ADD) == 1
    assert one.rows("t") == [(1, 1)]


def test_an_outcome_that_cannot_be_read_is_said_to_be_unknown(one: Process) -> None:
    def broken(send: Send) -> None:
        send()
        one.network.is_down = True
        unanswered()

    one.network.on_commit = broken
    with pytest.raises(OutcomeUnknown, match="not known") as raised:
        one.change(ADD)
    assert raised.value.is_outcome_unknown
    one.network.is_down = False
    assert one.rows("t") == [(1, 1)]


@pytest.mark.parametrize("more", [WRITERS_MAX - 2, WRITERS_MAX])
def test_an_outcome_behind_many_other_writers_is_known_or_said_to_be_unknown(one: Process, more: int) -> None:
    """Each process that writes is named in the record of the commit, up to a limit."""
    others = [Process(one.log.broker) for _ in range(more)]  # type: ignore[attr-defined]
    one.network.on_commit = lambda send: in_order(send, *(partial(p.change, ADD) for p in others), send)
    if more < WRITERS_MAX:
        assert one.change(ADD) == 1
    else:
        with pytest.raises(OutcomeUnknown):
            one.change(ADD)
    assert one.rows("t") == [(1, 1 + more)]
