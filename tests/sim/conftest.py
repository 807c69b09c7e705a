"""Simulations shorten constants of modules; tests that come after them in the same process find the real ones."""

from __future__ import annotations

import pytest

from tests.sim.cluster import SHORTENED


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, _ in SHORTENED:
        monkeypatch.setattr(module, name, getattr(module, name))
