"""`flowql run --until-caught-up` does not end well when a source is gone."""

from types import SimpleNamespace

import pytest

from flowql.cli.run import _catch_up
from flowql.errors import CommandError
from flowql.runtime.log.memory import MemoryLog
from flowql.server.on_runtime import RuntimeEngine
from tests.runtime.app.engine import DOUBLED, OTHERS, make, produce


def test_a_query_that_reads_a_deleted_topic_has_not_caught_up() -> None:
    log = MemoryLog()
    instance, driver = make(log, DOUBLED, OTHERS)
    produce(log, "input", 1)
    driver.run_until_caught_up()
    _catch_up(SimpleNamespace(engine=RuntimeEngine(instance)))
    log.delete_topic("other")
    driver.run_until_caught_up()
    with pytest.raises(CommandError, match="CSAS_OTHERS: TopicMissing"):
        _catch_up(SimpleNamespace(engine=RuntimeEngine(instance)))
