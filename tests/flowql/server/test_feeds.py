"""Subscribers of one statement share a reader, and each of them gets every change once and in order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from flowql.deploy.settings import Settings
from flowql.query import push
from flowql.query.push import Start
from flowql.server import feeds
from flowql.server.event_stream import Messages
from flowql.server.host import Host
from flowql.server.readers import Readers
from flowql.server.subscriber import Subscriber
from tests.flowql.query.harness import plan_of

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE LAST AS SELECT K, COUNT(*) AS N, MAX(V) AS V FROM S GROUP BY K;
CREATE STREAM DOUBLED AS SELECT K, V * 2 AS V FROM S;
"""
STREAM = "SELECT K, V FROM S EMIT CHANGES"
WAIT_S = 60.0
MANY = 200

pytestmark = pytest.mark.turns("servers")


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    made = Host(Settings(tmp_path_factory.mktemp("host"), "demo", 1, 64 << 20))
    made.start()
    made.service.deploy(plan_of(SQL))
    yield made
    assert made.engine.fatal is None
    made.close()


def readers_of(host: Host) -> Readers:
    assert host.listening is not None
    return host.listening.readers


def produced(host: Host, rows: list[dict[str, Any]]) -> None:
    assert host.listening is not None
    host.listening.rows.produce_json("S", rows, None, declared_only=False)


def readers(host: Host) -> int:
    return len(readers_of(host)._feeds._feeds)


def write(host: Host, values: range, key: str = "k", size: int = 0) -> None:
    rows = [{"K": f"{key}{'x' * size}", "V": v} for v in values]
    produced(host, rows)


class Client:
    """Takes events when it is told to. values: of V, in order, since the last reset."""

    def __init__(
        self, host: Host, sql: str, start: Start = "latest", token: str | None = None, form: Messages | None = None
    ) -> None:
        self.subscriber: Subscriber = readers_of(host).subscriber(sql, start, None, form or Messages(), token)
        self.values: list[int] = []
        self.kinds: list[str] = []
        self.token = ""

    async def begin(self) -> Client:
        await self.subscriber.begin()
        self._frames = self.subscriber.frames()
        await self.take()
        return self

    async def take(self) -> None:
        while (event := orjson.loads(await anext(self._frames)))["event"] == "alive":
            pass
        self.apply(event)

    def apply(self, event: dict[str, Any]) -> None:
        self.kinds.append(event["event"])
        self.token = event.get("id", self.token)
        if event["event"] == "reset":
            self.values.clear()
        if event["event"] == "changes":
            self.values += [c["row"]["V"] for c in event["data"]]

    async def until(self, last: int) -> None:
        while not self.values or self.values[-1] < last:
            await asyncio.wait_for(self.take(), WAIT_S)


@asynccontextmanager
async def clients(host: Host, *made: Client) -> AsyncIterator[list[Client]]:
    """Closes those that are added, too."""
    there = list(made)
    try:
        for client in made:
            await client.begin()
        yield there
    finally:
        for client in there:
            client.subscriber.close()
        await settled(lambda: not any(c.subscriber in readers_of(host)._subscribers for c in there))


async def settled(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < limit
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("sql", [STREAM, "LAST"])
def test_two_hundred_subscribers_add_a_few_threads_and_each_sees_every_change_once(host: Host, sql: str) -> None:
    """The default limit is on readers, and they have one."""

    async def follow() -> None:
        before = threading.active_count()
        async with clients(host, *(Client(host, sql) for _ in range(MANY))) as made:
            assert readers(host) == 1
            for n in range(10):
                await asyncio.to_thread(write, host, range(n, n + 1))
                await asyncio.gather(*(c.until(n) for c in made))
            assert threading.active_count() - before <= 8
        assert {tuple(c.values) for c in made} == {tuple(range(10))}
        await settled(lambda: not readers(host))

    asyncio.run(follow())


def test_those_that_begin_meanwhile_miss_nothing_that_follows_their_first_event(host: Host) -> None:
    """Rows are written all the time. Each client has to see all values above the ones written before it subscribed, without a gap."""

    async def follow() -> None:
        written, is_over = [0], threading.Event()

        def keep_writing() -> None:
            while not is_over.is_set():
                write(host, range(written[0], written[0] + 3))
                written[0] += 3

        async with clients(host) as made:
            writer = asyncio.create_task(asyncio.to_thread(keep_writing))
            try:
                for n in range(12):
                    sql, start = (STREAM, "LAST")[n % 2], ("latest", "earliest")[n // 2 % 2]
                    made.append(await Client(host, sql, start).begin())  # type: ignore[arg-type]
                    begun = written[0]
                    await made[-1].until(begun + 1)
            finally:
                is_over.set()
                await writer
            last = written[0] - 1
            for n, client in enumerate(made):
                await client.until(last)
                values = client.values
                assert values == sorted(set(values)), "once and in order"
                if n % 2 == 0:
                    assert values == list(range(values[0], last + 1)), "a stream has no gap"
                    assert values[0] == 0 or n // 2 % 2 == 0, "from the beginning"

    asyncio.run(follow())


def test_a_table_tells_every_change_after_its_first_event(host: Host) -> None:
    """Its existing rows take a while to read, and changes come meanwhile."""

    async def follow() -> None:
        rows = [{"K": f"k{v}", "V": v} for v in range(30_000)]
        produced(host, rows)
        await settled(lambda: host.service.query("SELECT K FROM LAST").table().num_rows == len(rows))
        written, is_over = [len(rows)], threading.Event()

        def write_keys(count: int) -> None:
            for v in range(written[0], written[0] + count):
                write(host, range(v, v + 1), f"k{v}")
            written[0] += count

        def keep_writing() -> None:
            while not is_over.is_set():
                write_keys(1)

        writer = asyncio.create_task(asyncio.to_thread(keep_writing))
        try:
            async with clients(host, Client(host, "LAST")) as (client,):
                begun = written[0] + 1
                await asyncio.sleep(1.0)
                is_over.set()
                await writer
                await asyncio.to_thread(write_keys, 20)  # in both partitions
                while not set(range(written[0] - 20, written[0])) <= set(client.values):
                    await asyncio.wait_for(client.take(), WAIT_S)
                assert set(range(begun, written[0])) <= set(client.values)
        finally:
            is_over.set()
            await writer

    asyncio.run(follow())


@pytest.mark.parametrize("sql", [STREAM, "LAST"])
def test_a_subscriber_that_comes_late_shares_the_reader_once_it_has_caught_up(
    host: Host, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    monkeypatch.setattr(feeds, "KEPT_PIECES", 2)  # or it begins with what is kept

    async def follow() -> None:
        async with clients(host, Client(host, sql, "earliest")) as (first,):
            for n in range(5):
                await asyncio.to_thread(write, host, range(n, n + 1))
                await first.until(n)
            async with clients(host) as made:
                made += [await Client(host, sql, "earliest").begin(), await Client(host, sql, "latest").begin()]
                await made[0].until(4)
                taking = [asyncio.ensure_future(c.take()) for c in made]
                await settled(lambda: readers(host) == 1)
                await asyncio.to_thread(write, host, range(5, 6))
                await asyncio.wait_for(asyncio.gather(*taking), WAIT_S)
                assert made[0].values[-2:] == [4, 5]
                assert made[1].values == [5]

    asyncio.run(follow())


def test_slow_subscribers_hold_up_nobody_and_continue_with_a_reader_of_their_own(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream continues where the client stopped reading. A table begins again, and says so."""
    monkeypatch.setattr(feeds, "KEPT_BYTES", 20_000)
    monkeypatch.setattr(feeds, "SLOW_S", 0.2)

    async def follow() -> None:
        async with clients(
            host, Client(host, STREAM), Client(host, STREAM), Client(host, "LAST"), Client(host, "LAST")
        ) as (fast, slow, shown, late):
            await asyncio.to_thread(write, host, range(1))
            for client in (fast, slow, shown, late):
                await client.until(0)
            for n in range(1, 40):
                await asyncio.to_thread(write, host, range(n, n + 1), "k", 1_000)
                await asyncio.gather(*(c.until(n) for c in (fast, shown)))
            assert fast.values == list(range(40))
            assert (slow.values, late.values) == ([0], [0])
            for client in (slow, late):
                await client.until(39)
            assert slow.values == list(range(40))
            assert "reset" not in slow.kinds
            assert late.kinds.count("reset") == 1
            await asyncio.to_thread(write, host, range(40, 41))
            for client in (fast, slow, shown, late):
                await client.until(40)
            assert fast.values == slow.values == list(range(41))

    asyncio.run(follow())


def test_a_token_finds_its_place_among_what_is_kept_and_behind_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "KEPT_PIECES", 3)

    async def follow() -> None:
        async with clients(host, Client(host, STREAM)) as (first,):
            tokens = [first.token]
            for n in range(8):
                await asyncio.to_thread(write, host, range(n, n + 1))
                await first.until(n)
                tokens.append(first.token)
            for n, token in enumerate(tokens):
                async with clients(host, Client(host, STREAM, token=token)) as made:
                    assert made[0].kinds == ["begin"]
                    assert readers(host) == 1 if n >= 6 else readers(host) <= 2
                    if n < 8:
                        await made[0].until(7)
                    assert made[0].values == list(range(n, 8))

    asyncio.run(follow())


class OtherMessages(Messages):
    """A form of its own."""


def test_forms_that_are_encoded_later_do_not_raise_the_limit_of_what_is_kept(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their bytes count, too."""
    monkeypatch.setattr(feeds, "KEPT_BYTES", 20_000)

    async def follow() -> None:
        async with clients(host, Client(host, STREAM)) as (first,):
            tokens = list[str]()
            for n in range(60):
                tokens.append(first.token)
                await asyncio.to_thread(write, host, range(n, n + 1), "k", 1_000)
                await first.until(n)
                (feed,) = readers_of(host)._feeds._feeds
                assert sum(p.bytes for p in feed._pieces) <= 20_000
                if n % 5 == 4:
                    async with clients(host, Client(host, STREAM, token=tokens[n - 4], form=OtherMessages())) as (
                        late,
                    ):
                        await late.until(n)

    asyncio.run(follow())


def test_a_rebuild_is_one_reset_for_all_that_share_a_reader(host: Host) -> None:
    async def follow() -> None:
        async with clients(host, *(Client(host, "DOUBLED", "earliest") for _ in range(5))) as made:
            await asyncio.to_thread(write, host, range(1, 4))
            for client in made:
                await client.until(6)
            await asyncio.to_thread(host.service.deploy, plan_of(SQL.replace("V * 2", "V * 3")))
            for client in made:
                await client.until(9)
            assert {tuple(c.values) for c in made} == {(3, 6, 9)}
            assert {tuple(k for k in c.kinds if k != "changes") for c in made} == {("begin", "reset")}
            made.append(await Client(host, "DOUBLED", "earliest").begin())
            await made[-1].until(9)
            assert readers(host) == 1

    asyncio.run(follow())


def test_what_a_subscriber_may_read_is_a_part_of_what_it_shares(host: Host) -> None:
    async def follow() -> None:
        found = readers_of(host)
        made = [found.subscriber("S", "latest", None, Messages(), None, seen) for seen in (None, frozenset({"s"}))]
        for subscriber in made:
            await subscriber.begin()
        assert readers(host) == 2
        for subscriber in made:
            subscriber.close()
        await settled(lambda: not found.subscriptions)

    asyncio.run(follow())


def test_a_subscriber_that_leaves_before_the_first_tick_delays_no_end(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host.engine, "whole_ends", lambda *topics: None)

    async def leave() -> None:
        client = Client(host, "LAST")
        beginning = asyncio.ensure_future(client.begin())
        await settled(lambda: readers(host) == 1)
        client.subscriber.close()
        began = time.monotonic()
        await settled(lambda: readers(host) == 0)
        assert time.monotonic() - began < push.FIRST_S / 2
        beginning.cancel()

    asyncio.run(leave())
