"""A view on Kafka that finishes a tick too late takes a later one."""

from __future__ import annotations

import pytest

from flowql.runtime.ticks import numbers
from tests.ticks.test_ticks import CompactedBank, go_on


def test_a_view_that_missed_a_tick_becomes_whole_without_another_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cut that found it late took back the commit that the next tick needs: answers stayed at an older tick until more rows came."""
    monkeypatch.setattr(numbers, "COMPACTED_MS", 500)
    bank = CompactedBank(0)
    go_on(bank, 20)
    bank.driver.run_until_caught_up()
    bank.instance.query_states.set_paused({"CTAS_balance"})
    for _ in range(3):
        bank.transact()
        for _ in range(300):
            bank.driver.round()
    bank.instance.query_states.set_paused(())
    for _ in range(800):
        bank.driver.round()
    assert bank.look("credits", "debits", "balance", "total") == len(bank.sums) - 1
    bank.instance.close()
