"""A consumer that fails as it is closed ends all the same."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from flowql.runtime.log.clients import OpenClients
from flowql.runtime.log.kafka import fetching
from flowql.runtime.log.kafka.fetching import FetchClient
from flowql.runtime.log.kafka.reading import GroupClients


class Client:
    """Fails as it is closed, as the binding of the client library does."""

    def close(self) -> None:
        raise SystemError("exception <class 'str'> is not a BaseException subclass")


def test_a_client_that_fails_as_it_is_closed_ends_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """The process ended with an error, after its last commit."""
    client = FetchClient.__new__(FetchClient)
    client._client, client.cursors, client.closed = Client(), {}, False  # type: ignore[assignment]
    client.close()
    assert "not closed in order" in caplog.messages[0]
    clients = OpenClients()
    clients.consumer(client)
    assert clients.count().consumers == 0, "status counted it for as long as somebody referred to it"


class Freed:
    """The client library's consumer, which waits for ever if it is freed without being closed."""

    def __init__(self, _settings: object, logger: object) -> None:
        self.closing = lambda: None

    def close(self) -> None:
        self.closing()


class OneConnection:
    def consumer(self, *_: object) -> dict[str, object]:
        return {}


@pytest.mark.parametrize("how", ["closed", "left", "not closed in order"])
def test_a_consumer_that_was_not_closed_is_never_freed(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test run and an instance stood still for ever in the garbage collector, holding the interpreter lock."""

    def fail() -> None:
        raise SystemError("the binding failed in a callback")

    monkeypatch.setattr(fetching, "KafkaClient", Freed)
    client = FetchClient(OneConnection(), None, "c", "g", 1.0)  # type: ignore[arg-type]
    freed = weakref.ref(client._client)
    if how != "left":
        if how != "closed":
            client._client.closing = fail  # type: ignore[attr-defined]
        client.close()
    del client
    gc.collect()
    assert (freed() is None) == (how == "closed")


def test_clients_that_read_positions_of_groups_are_closed_with_their_log() -> None:
    class Closed:
        closed = 0

        def close(self) -> None:
            self.closed += 1

    made: dict[str, Any] = {}
    clients = GroupClients(lambda group: made.setdefault(group, Closed()))
    for group in ("a", "b", "a"):
        with clients.of(group) as client:
            assert client is made[group]
    clients.close()
    clients.close()
    assert {group: client.closed for group, client in made.items()} == {"a": 1, "b": 1}
    assert "a" not in clients
