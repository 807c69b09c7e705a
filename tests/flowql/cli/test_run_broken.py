"""`flowql run --until-caught-up` does not end well when a source is gone."""

from types import SimpleNamespace

import pytest

from flowql.cli.run import _Blocked, _catch_up
from flowql.errors import CommandError
from flowql.runtime.log.memory import MemoryLog
from flowql.server.on_runtime import RuntimeEngine
from tests.runtime.app.engine import DOUBLED, OTHERS, make, produce


def test_a_query_that_reads_a_deleted_topic_has_not_caught_up() -> None:
    log = MemoryLog()
    instance, driver = make(log, DOUBLED, OTHERS)
    produce(log, "input", 1)
    driver.run_until_caught_up()
    _catch_up(SimpleNamespace(engine=RuntimeEngine(instance)), [])
    log.delete_topic("other")
    driver.run_until_caught_up()
    with pytest.raises(CommandError, match="CSAS_OTHERS: TopicMissing"):
        _catch_up(SimpleNamespace(engine=RuntimeEngine(instance)), [])


def test_commits_that_do_not_get_through_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """`flowql run` waited for room on a full disk without a word."""
    blocked = _Blocked()
    for reason in (None, "no space left", "no space left", None, None):
        blocked.look(reason)
    first, second = capsys.readouterr().err.splitlines()
    assert "no space left" in first
    assert second == "commits get through again"
