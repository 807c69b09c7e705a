"""Subscribers get the changes of whole transactions: no list or event of changes ends within one."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

import flowql
from flowql.compiler.driver import PushQuery
from flowql.config.api import ApiSettings
from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.server.following import Deployed, compile_text, deployed, follow
from tests.flowql.server.test_event_stream import TOKEN, _events
from tests.gateway import gateway_of, port_of

ROWS_AT_ONCE, TRANSACTIONS = 30_000, 3
WAIT_S = 60.0
HALVES = """
CREATE TABLE halves (id BIGINT PRIMARY KEY, half VARCHAR, n BIGINT) WITH (PARTITIONS = 2);
CREATE MATERIALIZED VIEW halved AS SELECT half, SUM(n) AS n FROM halves GROUP BY half;
"""


YAML = """name: shop
dialect: standard
sql: "*.sql"
targets:
  main: {data_dir: data, threads: 1, memory: 256 MB}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flowql.yaml").write_text(YAML)
    (tmp_path / "halves.sql").write_text(HALVES)
    return tmp_path


def insert(instance: flowql.Instance) -> None:
    """Transactions of rows, half of them of either half. A view that has not read all of one when a commit is due is committed with a part of it."""
    half = f"CASE WHEN i % {ROWS_AT_ONCE} < {ROWS_AT_ONCE // 2} THEN 'a' ELSE 'b' END"
    for n in range(TRANSACTIONS):
        rows = f"SELECT i, {half}, 1 FROM generate_series({n * ROWS_AT_ONCE}, {(n + 1) * ROWS_AT_ONCE - 1}) AS t(i)"
        instance.connection.execute(f"INSERT INTO halves {rows}")


def check_halves(instance: flowql.Instance, groups: Iterable[Iterable[tuple[str, int]]]) -> None:
    """After each group both halves are the same, until transactions that are inserted meanwhile have come. groups: halves and numbers."""
    known, count = {"a": 0, "b": 0}, 0
    inserting = threading.Thread(target=insert, args=(instance,))
    inserting.start()
    try:
        for group in groups:
            known |= dict(group)
            count += 1
            assert known["a"] == known["b"]
            if sum(known.values()) == TRANSACTIONS * ROWS_AT_ONCE:
                break
    finally:
        inserting.join()
    assert count


def test_no_event_over_http_ends_within_a_transaction(folder: Path) -> None:
    def groups(events: Iterator[Any]) -> Iterator[list[tuple[str, int]]]:
        for event in events:
            assert event.kind == "changes"
            yield [(c["row"]["half"], int(c["row"]["n"])) for c in event.data]

    headers = {"Authorization": f"Bearer {TOKEN}"}
    with flowql.Instance(folder) as instance:
        host = instance._host
        assert host is not None
        assert host.listening is not None
        with (
            gateway_of(host, ApiSettings(1, TOKEN)) as gateway,
            httpx.Client(
                base_url=f"http://127.0.0.1:{port_of(gateway)}", headers=headers, trust_env=False, timeout=WAIT_S
            ) as http,
            http.stream("GET", "/v1/subscribe", params={"sql": "halved"}) as said,
        ):
            events = _events(said.iter_lines())
            assert next(events).kind == "begin"
            check_halves(instance, groups(events))


def test_no_list_of_changes_from_another_process_ends_within_a_transaction(folder: Path) -> None:
    """As `flowql subscribe` follows them."""

    def groups(lists: Iterable[Any]) -> Iterator[list[tuple[str, int]]]:
        for changes in lists:
            if changes:
                yield [(c.row["half"], int(c.row["n"])) for c in changes]

    with flowql.Instance(folder) as instance:
        project = load_project(folder)
        settings = settings_of(project)

        def anew(there: Deployed) -> PushQuery:
            return compile_text("halved", there, settings, project)

        with closing(follow(anew, settings, deployed(settings), "latest")) as following:
            lists = iter(following)
            while not following.is_ready:
                assert not next(lists)
            check_halves(instance, groups(lists))
