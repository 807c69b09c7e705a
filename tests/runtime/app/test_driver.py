"""When an instance that is stepped by hand counts as at rest."""

from __future__ import annotations

import pytest

from flowql.runtime.app import restoration
from flowql.runtime.task.status import TaskStatus
from tests.runtime.restoration.test_restoration import COUNTS, Life, no_redo


def test_an_instance_is_not_at_rest_before_its_state_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its input is consumed, so that nothing else is left to do."""
    monkeypatch.setattr(restoration, "CHUNK_RECORDS", 1)  # it takes many rounds
    life = Life(no_redo(), COUNTS)
    life.feed(0, 50)
    life.settle()
    before, life = life.table("C"), life.again()
    assert life.statuses("CTAS_C") == {TaskStatus.RESTORING}
    assert life.driver is not None
    life.driver.run_until_idle()
    assert life.statuses("CTAS_C") == {TaskStatus.RUNNING}
    assert life.table("C") == before
