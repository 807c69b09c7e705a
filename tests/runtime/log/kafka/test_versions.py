"""The release of the brokers, as they tell it, and its known fault. The answers are those of brokers 4.2.1 and 4.3.0, shortened."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flowql.runtime.log.kafka.versions import known_fault, metadata_level


def answer(level: int) -> bytes:
    keys = b"\x03" + struct.pack(">hhh", 0, 3, 13) + b"\0" + struct.pack(">hhh", 18, 0, 4) + b"\0"
    features = b"\x03" + b"\x0egroup.version" + struct.pack(">hh", 0, 1) + b"\0"
    features += b"\x11metadata.version" + struct.pack(">hh", 7, level) + b"\0"
    tagged = b"\x02" + b"\x00" + bytes([len(features)]) + features + b"\x01\x08" + struct.pack(">q", 5)
    return struct.pack(">ih", 1, 0) + keys + struct.pack(">i", 0) + tagged


@contextmanager
def broker(said: bytes) -> Iterator[str]:
    """Answers one request with `said`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(1 << 12)
                client.sendall(struct.pack(">i", len(said)) + said)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(("level", "says"), [(29, ""), (30, "Kafka 4.3, which loses"), (31, "newer than Kafka 4.3")])
def test_kafka_4_3_is_told_from_other_releases_by_its_highest_metadata_version(level: int, says: str) -> None:
    with broker(answer(level)) as bootstrap:
        assert metadata_level(f"127.0.0.1:1, {bootstrap}") == level
    fault = known_fault(level)
    assert says in fault
    assert bool(fault) == bool(says)


@pytest.mark.parametrize("said", [b"", struct.pack(">ih", 1, 35), answer(29)[:-20]])
def test_a_broker_that_does_not_tell_its_release_may_have_the_fault(said: bytes) -> None:
    with broker(said) as bootstrap:
        assert metadata_level(bootstrap) is None
    assert "cannot be ruled out" in known_fault(None)


@pytest.mark.kafka
def test_the_broker_of_kafka_up_is_without_the_fault(kafka: str) -> None:
    """On Kafka 4.3 the one kill in 15 minutes that came between prepare and markers lost records."""
    level = metadata_level(kafka)
    assert level is not None
    assert known_fault(level) == ""
