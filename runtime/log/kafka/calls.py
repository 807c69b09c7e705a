"""Calls of the client library that may not return.

`send_offsets_to_transaction` can ignore its timeout for minutes after a broker was killed and restarted (librdkafka 2.16). So a call that
must end gets a thread of its own; a call that does not end is abandoned, with its client.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future

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
