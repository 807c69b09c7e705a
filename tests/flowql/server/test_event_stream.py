"""Server-sent events: a client that connects again gets each change once and in order, or is told to begin again."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from flowql.config.api import ApiSettings
from flowql.deploy.settings import Settings
from flowql.query.resuming import FOREIGN, GONE, KEEPS_STATE, Place
from flowql.runtime.log.base import TopicPartition
from flowql.server.host import Host
from tests.flowql.query.harness import plan_of
from tests.gateway import gateway_of, port_of

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 3, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
CREATE STREAM DOUBLED AS SELECT K, V * 2 AS W FROM S WHERE K = 'rebuilt';
"""
TOKEN = "t" * 16


@dataclass(frozen=True)
class Event:
    kind: str
    id: str
    data: Any


class Client:
    def __init__(self, http: httpx.Client, host: Host) -> None:
        self.http, self.host = http, host

    def write(self, *rows: dict[str, Any]) -> None:
        assert self.http.post("/v1/streams/S/rows", json=list(rows)).status_code == 200

    @contextmanager
    def events(self, sql: str, last: str = "", **given: Any) -> Iterator[Iterator[Event]]:
        headers = {"Last-Event-ID": last} if last else {}
        with self.http.stream("GET", "/v1/subscribe", params={"sql": sql, **given}, headers=headers) as said:
            if said.status_code != 200:
                said.read()
            assert said.status_code == 200, said.text
            assert said.headers["content-type"].startswith("text/event-stream")
            yield _events(said.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif not line and "event" in fields:
            yield Event(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
            fields = {}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    host = Host(Settings(tmp_path_factory.mktemp("host"), "demo", 1, 64 << 20))
    host.start()
    host.service.deploy(plan_of(SQL))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with (
        gateway_of(host, ApiSettings(1, TOKEN)) as gateway,
        httpx.Client(
            base_url=f"http://127.0.0.1:{port_of(gateway)}", headers=headers, trust_env=False, timeout=30
        ) as http,
    ):
        yield Client(http, host)
    host.close()


def test_a_client_that_connects_again_sees_each_row_of_a_stream_once(client: Client) -> None:
    """Rows of one key come in order. What is sent and not received as a whole event comes again."""
    rng, sql, seen = random.Random(7), "SELECT K, V FROM S WHERE V >= 1000 EMIT CHANGES", dict[str, list[int]]()
    last, n, total = "", 1_000, 0
    with client.events(sql) as events:
        last = next(events).id
    for _ in range(25):
        rows = [{"K": f"k{rng.randrange(5)}", "V": n + i} for i in range(rng.randrange(6))]
        n, total = n + len(rows), total + len(rows)
        client.write({"K": "other", "V": 1}, *rows)
        with client.events(sql, last) as events:
            begin = next(events)
            assert begin.kind == "begin", begin
            for _ in range(rng.randrange(3) if sum(map(len, seen.values())) < total else 0):
                event = next(events)
                assert event.kind == "changes"
                last = event.id
                for change in event.data:
                    seen.setdefault(change["row"]["K"], []).append(change["row"]["V"])
                if sum(map(len, seen.values())) == total:
                    break
    with client.events(sql, last) as events:
        while sum(map(len, seen.values())) < total:
            event = next(events)
            for change in event.data if event.kind == "changes" else ():
                seen.setdefault(change["row"]["K"], []).append(change["row"]["V"])
    assert sorted(v for values in seen.values() for v in values) == list(range(1_000, n))
    assert all(values == sorted(values) for values in seen.values())


def test_a_table_begins_again_and_says_so(client: Client) -> None:
    client.write({"K": "table", "V": 1}, {"K": "table", "V": 2})
    with client.events("A", start="earliest") as events:
        begin = next(events)
        assert (begin.kind, begin.data) == ("begin", {"columns": ["K", "N"]})
        assert awaited(events, "table")["op"] == "put"
    with client.events("A", begin.id) as events:
        reset = next(events)
        assert (reset.kind, reset.data["reason"]) == ("reset", KEEPS_STATE)
        assert awaited(events, "table")["op"] == "put"


def awaited(events: Iterator[Event], key: str) -> dict[str, Any]:
    """The first change of this key."""
    changes = (change for event in events if event.kind == "changes" for change in event.data)
    return next(c for c in changes if c["row"]["K"] == key)


def test_a_token_that_fits_no_longer_is_a_reset(client: Client) -> None:
    sql = "SELECT K, V FROM S EMIT CHANGES"
    with client.events(sql) as events:
        own = next(events).id
    place = Place.of(own)
    assert place is not None
    assert place.offsets is not None
    far = Place(place.about, {tp: o + 1_000_000 for tp, o in place.offsets.items()}).token()
    fewer = Place(place.about, dict(list(place.offsets.items())[:1])).token()
    with client.events("SELECT K FROM S EMIT CHANGES") as events:
        other = next(events).id
    for last, why in ((far, GONE), (fewer, GONE), (other, FOREIGN), ("x", FOREIGN), ("A" * 100_000, FOREIGN)):
        if len(last) > 60_000:  # the head of a request is shorter
            assert Place.of(last) is None
            continue
        with client.events(sql, last) as events:
            reset = next(events)
            assert (reset.kind, reset.data["reason"]) == ("reset", why)
            assert next(events).kind == "changes"
    assert Place.of(Place("x", {TopicPartition("é", 3): 7}).token()) == Place("x", {TopicPartition("é", 3): 7})


def test_a_limit_ends_it_and_errors_have_their_shape(client: Client) -> None:
    client.write(*({"K": "limit", "V": v} for v in range(3)))
    with client.events("S", start="earliest", limit=2) as events:
        kinds = [(e.kind, bool(e.id)) for e in events]
    assert kinds[0] == ("begin", True)
    assert kinds[-1] == ("end", False)
    said = client.http.get("/v1/subscribe", params={"sql": "SELECT * FROM NOBODY EMIT CHANGES"})
    assert (said.status_code, said.json()["error"]["position"]) == (400, {"line": 1, "column": 15})
    for params in ({}, {"sql": "S", "start": "middle"}, {"sql": "S", "limit": "-1"}):
        assert client.http.get("/v1/subscribe", params=params).status_code == 400
    assert client.http.get("/v1/subscribe", params={"sql": "NOBODY"}).status_code == 404


def test_a_rebuild_is_a_reset_for_clients_that_are_connected_and_for_those_that_come_back(client: Client) -> None:
    client.write({"K": "rebuilt", "V": 1})
    with client.events("DOUBLED", start="earliest") as events:
        assert next(events).kind == "begin"
        first = next(events)
        assert [c["row"]["W"] for c in first.data] == [2]
        client.host.service.deploy(plan_of(SQL.replace("V * 2", "V * 3")))
        reset = next(events)
        assert reset.kind == "reset"
        assert "generation 2 of DOUBLED" in reset.data["reason"]
        assert [c["row"]["W"] for c in next(events).data] == [3]
    with client.events("DOUBLED", first.id) as events:
        again = next(events)
        assert (again.kind, again.data["reason"]) == ("reset", FOREIGN)
        assert [c["row"]["W"] for c in next(events).data] == [3]
    with client.events("DOUBLED", again.id) as events:
        assert next(events).kind == "begin"
        assert [c["row"]["W"] for c in next(events).data] == [3]
