"""Answers that are taken while a deployment replaces the rows of a view: they have the rows of one plan, under its columns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.config.api import ApiSettings
from flowql.config.sections import InteractiveQuerySettings
from flowql.deploy.settings import Settings
from flowql.gateway.gateway import Gateway
from flowql.server.host import Host
from tests.gateway import gateway_of

WAIT_S = 60.0
OLD, NEW = {"k": "a", "before": 3}, {"k": "a", "after": 3}
SQL = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, k VARCHAR, n BIGINT);
CREATE MATERIALIZED VIEW summed AS SELECT k, SUM(n) AS {column} FROM orders GROUP BY k;
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    queries = InteractiveQuerySettings(dialect="standard")
    made = Host(Settings(tmp_path, "demo", 1, 64 << 20, interactive_queries=queries))
    made.start()
    deploy(made, "before")
    yield made
    assert made.engine.fatal is None
    made.close()


@pytest.fixture
def gateway(host: Host) -> Iterator[Gateway]:
    with gateway_of(host, ApiSettings(1, "t" * 16)) as made:
        made.reading.execute("INSERT INTO orders VALUES (1, 'a', 1), (2, 'a', 2)")
        until(lambda: rows(made) == [OLD])
        yield made


def deploy(host: Host, column: str) -> None:
    """Returns when the view has this column, and its rows are of a tick."""

    def is_done() -> bool:
        source, deployed = host.service.deployed.serving.source("summed"), host.service.deployed
        return deployed.wanted is None and source is not None and source.schema.get(column) is not None

    host.service.deploy(compile_project([SourceText("summed.sql", SQL.format(column=column))], dialect="standard").plan)
    until(is_done)
    until(lambda: host.service.whole_ends("summed"))


def until(is_so: Callable[[], object]) -> None:
    limit = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < limit
        threading.Event().wait(0.01)


def rows(gateway: Gateway) -> list[dict[str, Any]]:
    return gateway.reading.ask("SELECT * FROM summed").table().to_pylist()


def test_a_view_that_is_swapped_while_it_is_read(host: Host, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan was read before the ends of its topics, and showed rows of the next plan as NULL."""
    plan = gateway.reading.plan

    def swapped_afterwards() -> Plan:
        found = plan()
        monkeypatch.setattr(gateway.reading, "plan", plan)
        deploy(host, "after")
        return found

    monkeypatch.setattr(gateway.reading, "plan", swapped_afterwards)
    assert rows(gateway) in ([OLD], [NEW])
