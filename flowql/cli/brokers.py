"""An instance that starts while brokers are away waits for them, as a running one does."""

from __future__ import annotations

import time
from collections.abc import Callable

import typer

from flowql.cli.render import note
from flowql.deploy.settings import Settings
from flowql.runtime.errors import LogUnavailable

LOOK_S = 2.0  # for an answer, and between two attempts
TOLD_S = 60.0  # between two messages


class BrokerWait:
    """Waits until brokers answer, and says so on standard error once a minute.

    stopping: sleeps for that many seconds; True when the command was asked to end, which ends it with exit code 0.
    """

    def __init__(self, settings: Settings, stopping: Callable[[float], bool]) -> None:
        self._settings, self._stopping = settings, stopping
        self._began_s: float | None = None
        self._told_s: float | None = None

    def until_they_answer(self) -> None:
        """Returns at once for another log. LogDenied where brokers refuse this user, CommandError without an address."""
        if self._settings.kafka is None or not self._settings.kafka.bootstrap:
            return
        from flowql.runtime.log.kafka.admin import KafkaAdmin  # loads a client that other targets do without
        from flowql.runtime.log.kafka.connection import Connection

        admin = KafkaAdmin(Connection.to(self._settings.kafka), f"{self._settings.application_id}-waits")
        while True:
            try:
                admin.greet(LOOK_S)
                break
            except LogUnavailable as error:
                self.again(error)
        if self._began_s is not None:
            note("brokers answer")

    def again(self, error: LogUnavailable) -> None:
        """Says why it waits, unless it just has, and sleeps."""
        assert self._settings.kafka is not None, "only brokers are waited for"
        now_s, where = time.monotonic(), self._settings.kafka.bootstrap
        if self._began_s is None:
            self._began_s = now_s
        if self._told_s is None:
            note(f"the instance starts when brokers at {where} answer: {error}")
        elif now_s - self._told_s >= TOLD_S:
            note(f"brokers at {where} have not answered for {now_s - self._began_s:.0f} s: {error}")
        if self._told_s is None or now_s - self._told_s >= TOLD_S:
            self._told_s = now_s
        if self._stopping(LOOK_S):
            raise typer.Exit


def slept(seconds: float) -> bool:
    """Sleeps in a command that ends with Ctrl-C."""
    time.sleep(seconds)
    return False
