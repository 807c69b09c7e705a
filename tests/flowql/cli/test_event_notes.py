"""What people in front of `flowql run -t spark` read of failures."""

from __future__ import annotations

import logging

import pytest

from flowql.cli.run import event_notes
from flowql.runtime.events import ERROR, LOGGER, WARNING, say


def test_people_read_what_fails_and_that_it_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was in a file of the instance alone. The same reason again and again is a line at 1, 2, 4 and so on."""
    monkeypatch.setattr(LOGGER, "level", logging.INFO)
    with event_notes("spark"):
        for n in range(1, 6):
            say(ERROR, "query.failed", "on h2: EOFError", query="CTAS_N", failures=n)
        say(WARNING, "log.trouble", "brokers at b1 do not answer")
        say(WARNING, "commit.slow", "of no matter here")
        logging.getLogger("flowql.x").warning("no event")
    with event_notes("runtime"):
        say(ERROR, "query.failed", "not here", query="CTAS_N")
    failed = "CTAS_N failed{}, and is tried again from its last micro-batch: on h2: EOFError"
    assert capsys.readouterr().err.splitlines() == [
        failed.format(""),
        failed.format(" (2 times)"),
        failed.format(" (4 times)"),
        "brokers at b1 do not answer",
    ]
