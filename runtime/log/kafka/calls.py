"""Calls of the client library that may not return, and those that end with another error than theirs.

`send_offsets_to_transaction` can ignore its timeout for minutes after a broker was killed and restarted (librdkafka 2.16). So a call that
must end gets a thread of its own; a call that does not end is abandoned, with its client.

A call that serves callbacks raises a fatal error (a fenced producer) as soon as it meets it, and goes on to serve those that are left, with
that error set (confluent-kafka 2.16). The first thing that such a callback calls ends with SystemError, whose cause is the fatal error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka import Producer as KafkaProducerClient

from flowql.runtime.errors import LogUnavailable

GRACE_S = 5.0  # beyond the timeout that the client was given


def ending(call: Callable[[float], None], seconds: float, what: str) -> None:
    """Make a call with this timeout; LogUnavailable if it has not ended a while after. Its client is of no more use then."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            call(seconds)
            done.set_result(None)
        except BaseException as error:  # raised by the calling thread
            done.set_exception(error)

    threading.Thread(target=run, name="kafka-call", daemon=True).start()
    if not futures.wait([done], seconds + GRACE_S).done:
        raise LogUnavailable(f"{what}: the client does not come back; whether brokers have done it is not known")
    done.result()


def served(call: Callable[..., Any], *args: Any) -> Any:
    """Make a call that serves callbacks. KafkaException where a fatal error came before one of them."""
    try:
        return call(*args)
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


class ProducerClient(KafkaProducerClient):
    """A producer of the client library whose calls raise their fatal errors."""

    def poll(self, *args: Any) -> int:
        return int(served(super().poll, *args))

    def flush(self, *args: Any) -> int:
        return int(served(super().flush, *args))

    def commit_transaction(self, *args: Any) -> None:
        served(super().commit_transaction, *args)

    def abort_transaction(self, *args: Any) -> None:
        served(super().abort_transaction, *args)
