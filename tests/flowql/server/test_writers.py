"""Processes that write for an application do not take each other's place."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from flowql.deploy.settings import Settings


def test_processes_in_two_containers_have_two_transactional_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process of each container has the process id 1: each statement of one instance fenced the producer of the other."""
    settings, found = Settings(Path("data"), "shop", 1, 1 << 20), set[str]()
    for host in ("a", "b"):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        found |= {settings.writer("api"), settings.writer("api-exec"), settings.writer("pg")}
    assert len(found) == 6
    assert all(name.startswith("shop-") for name in found), "rights on a cluster are given by the prefix"
