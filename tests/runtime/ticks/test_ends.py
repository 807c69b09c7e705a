"""Results that get no row have the ends of a tick: a reader of their topics, and an answer, would else wait for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from flowql.query.whole import awaited
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.clients import LocalLog
from tests.ticks import bank as plans
from tests.ticks.bank import Bank
from tests.ticks.live import LiveBank
from tests.ticks.test_ticks import CompactedBank

VIEWS = ("credits", "debits", "balance", "total")
ONE_VIEW = plans.VIEWS[: plans.VIEWS.index("CREATE VIEW debits")]
ROUNDS = 1_000  # of a ms
WAIT_S = 20.0


def is_whole(bank: Bank, *views: str) -> bool:
    """Whether all views have ends, and an answer over them is of the newest tick."""
    known = [bank.instance.ticks.whole_ends(), *map(bank.instance.ticks.whole_ends, views)]
    return all(known) and bank.look(*views) == len(bank.sums) - 1


def is_built(bank: Bank, generation: int) -> bool | None:
    """True if this generation of the only view serves, and is whole."""
    (query,) = bank.instance.plan.queries
    return (query.generation == generation and is_whole(bank, query.sink)) or None


def test_a_rebuilt_view_has_ends_without_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick that was drawn before its tasks were made had none of their partitions, and no other one was drawn before its next row."""
    monkeypatch.setattr(plans, "VIEWS", ONE_VIEW)
    bank = LiveBank(tmp_path, 1)
    bank.transact()
    for generation in (1, 2, 3):
        assert awaited(partial(is_built, bank, generation), WAIT_S)
        bank.instance.deploy(bank.plan, refresh=[q.id for q in bank.plan.queries])
    assert awaited(partial(is_built, bank, 4), WAIT_S)
    assert not bank.instance.stop()


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_gets_its_ends_after_brokers_were_away(view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that could not ask for the ends was the last one before the next row."""
    failed, of_all = list[str](), LocalLog.end_offsets

    def away(self: LocalLog, tps: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        if view in {tp.topic for tp in tps}:
            failed.append(view)
            raise LogUnavailable("brokers are away")
        return of_all(self, tps)

    with monkeypatch.context() as patch:
        patch.setattr(LocalLog, "end_offsets", away)
        bank = CompactedBank(0)
        bank.transact()
        for _ in range(ROUNDS):
            bank.driver.round()
        assert not bank.instance.ticks.whole_ends(view)
    assert failed
    for _ in range(ROUNDS):
        bank.driver.round()
    assert is_whole(bank, *VIEWS)
    bank.instance.close()
