"""Subscriptions that begin while a deployment replaces the records of what they read: they show the new rows behind a reset only."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from flowql.compiler.plan.deployed import Deployed
from flowql.deploy.settings import Settings
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.transaction import Transaction
from flowql.server.host import Host
from tests.flowql.query.harness import plan_of
from tests.flowql.server.test_feeds import WAIT_S, Client, clients, readers_of, settled, write

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM COPIED AS SELECT K, V, {version} AS VERSION FROM S;
"""
COPIED = "SELECT K, V FROM COPIED EMIT CHANGES"
ROWS, MORE = range(5), range(5, 8)

pytestmark = pytest.mark.turns("servers")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(Settings(tmp_path, "demo", 1, 64 << 20))
    made.start()
    deploy(made, 0)
    write(made, ROWS)
    yield made
    assert made.engine.fatal is None
    made.close()


def deploy(host: Host, version: int) -> None:
    host.service.deploy(plan_of(SQL.format(version=version)))


def generation(host: Host) -> int:
    """The one of COPIED that serves as far as the instance knows."""
    (writer,) = host.service.deployed.serving.queries
    return writer.generation


def held_commit(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Commits that replace records wait for the event."""
    is_free, commit = threading.Event(), EmbeddedLog.commit

    def held(log: EmbeddedLog, transactional_id: str, epoch: int, transaction: Transaction) -> int:
        if transaction.starts:
            assert is_free.wait(WAIT_S)
        return commit(log, transactional_id, epoch, transaction)

    monkeypatch.setattr(EmbeddedLog, "commit", held)
    return is_free


async def read_to_the_end(host: Host) -> str:
    """A token behind all rows, once no feed reads any more."""
    async with clients(host, Client(host, COPIED, "earliest")) as (client,):
        await client.until(ROWS[-1])
    await settled(lambda: not readers_of(host)._feeds._feeds)
    return client.token


async def continued(host: Host, token: str) -> None:
    """Asserts that a client shows the rows of the new generation, and all of them, behind a reset."""
    async with clients(host, Client(host, COPIED, token=token)) as (client,):
        while client.values != [*ROWS, *MORE]:
            await asyncio.wait_for(client.take(), WAIT_S)
            assert client.values == sorted(set(client.values)), (client.kinds, client.values)
        assert "reset" in client.kinds


def test_a_subscription_that_begins_between_a_new_plan_and_its_commit_is_reset(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance knows the new plan before the log has its rows. A token of the new plan at old rows led to new ones without a reset."""
    is_free = held_commit(monkeypatch)

    async def follow() -> None:
        token, before = await read_to_the_end(host), generation(host)
        deploying = asyncio.create_task(asyncio.to_thread(deploy, host, 1))
        await settled(lambda: generation(host) > before)
        async with clients(host, Client(host, COPIED, token=token)) as (client,):
            while client.values != list(ROWS) and client.kinds != ["begin"]:
                await asyncio.wait_for(client.take(), WAIT_S)
        is_free.set()
        await deploying
        await settled(lambda: not readers_of(host)._feeds._feeds)
        write(host, MORE)
        await continued(host, client.token)

    asyncio.run(follow())


def test_a_subscription_that_is_followed_over_the_commit_of_a_new_plan_is_reset(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above; the subscription is there when the records are replaced, which it took for deleted by retention."""
    is_free = held_commit(monkeypatch)

    async def follow() -> None:
        before = generation(host)
        deploying = asyncio.create_task(asyncio.to_thread(deploy, host, 1))
        await settled(lambda: generation(host) > before)
        async with clients(host, Client(host, COPIED, "earliest")) as (client,):
            await client.until(ROWS[-1])
            is_free.set()
            await deploying
            write(host, MORE)
            while client.values != [*ROWS, *MORE]:
                await asyncio.wait_for(client.take(), WAIT_S)
                assert client.values == sorted(set(client.values)), (client.kinds, client.values)
            assert client.kinds.count("reset") == 1

    asyncio.run(follow())


def test_a_subscription_whose_plan_is_replaced_before_it_reads_is_reset(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place behind all old rows is where the new ones begin, so offsets do not show that they are others."""

    async def follow() -> None:
        token, readers = await read_to_the_end(host), readers_of(host)
        record: Callable[[], tuple[Deployed, Mapping[str, int]]] = readers._record

        def replaced_afterwards() -> Any:
            found, before = record(), generation(host)
            monkeypatch.setattr(readers, "_record", record)
            deploy(host, 1)
            while generation(host) == before or host.service.deployed.wanted is not None:
                threading.Event().wait(0.01)
            write(host, MORE)
            return found

        monkeypatch.setattr(readers, "_record", replaced_afterwards)
        await continued(host, token)

    asyncio.run(follow())
