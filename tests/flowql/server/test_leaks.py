"""An instance ends as one that collects everything again, whatever its engine: native modules complain at exit of the rest."""

from __future__ import annotations

import gc
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from flowql.deploy.settings import Settings
from flowql.server import host
from flowql.server.engine import Engine


def test_no_object_stays_frozen_behind_an_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MagicMock(Engine, fatal=None, shared=False)  # as Spark, which has no threads of its own to freeze for
    monkeypatch.setattr(host, "open_engine", lambda settings, mode: engine)
    instance = host.Host(Settings(tmp_path / "data", "leaks", 1, 64 << 20))
    instance.start()
    assert gc.get_freeze_count() > 0
    instance.close()
    assert gc.get_freeze_count() == 0, "nanobind reports DuckDB's types and functions as leaked"
