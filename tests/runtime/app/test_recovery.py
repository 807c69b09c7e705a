"""Which instance may go on with what an application has written."""

from __future__ import annotations

import pytest

from flowql.runtime.app.recovery import check_mode
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import OtherMode
from flowql.runtime.log.memory import MemoryLog


def test_one_commit_of_a_single_instance_is_enough_to_refuse_many() -> None:
    """What waits in its local exchanges would be lost."""
    log, shared = MemoryLog(), InstanceConfig(shared=True, changelogs=True, process_id="one")
    check_mode(log, shared)
    producer = log.producer(shared.application_id)
    producer.begin()
    producer.commit()
    assert log.last_sequence(shared.application_id) == 1
    with pytest.raises(OtherMode, match="another app_id"):
        check_mode(log, shared)
    check_mode(log, InstanceConfig())
