"""What cannot be read is in status with its partition as long as it goes on, however often it repeats itself."""

import logging

from runtime.app.status import instance_figures
from runtime.app.troubles import CURRENT_MS
from runtime.errors import LogUnavailable
from runtime.log.base import TopicPartition
from runtime.log.memory import MemoryLog
from tests.runtime.app.engine import DOUBLED, make, produce, read

IN = TopicPartition("input", 0)


class SilentLog(MemoryLog):
    """While `silent` its consumers get nothing, and say so at every poll."""

    silent = False

    def consumer(self, client_id):
        consumer = super().consumer(client_id)
        poll = consumer.poll

        def troubled(max_records, max_bytes):
            if self.silent:
                error = LogUnavailable("nothing arrives")
                error.partition = IN
                raise error
            return poll(max_records, max_bytes)

        consumer.poll = troubled
        return consumer


def troubles(instance):
    return instance_figures(instance)["trouble"]


def test_trouble_that_repeats_itself_is_in_status_with_its_partition_until_it_is_over(caplog):
    log = SilentLog()
    instance, driver = make(log, DOUBLED)
    assert troubles(instance) == []
    log.silent = True
    produce(log, "input", 1)
    with caplog.at_level(logging.WARNING, "flowql"):
        for _ in range(500):
            driver.round()
    (trouble,) = troubles(instance)
    assert (trouble["partition"], trouble["error"]) == (str(IN), "LogUnavailable: nothing arrives")
    assert trouble["times"] > 400
    assert trouble["for_ms"] > 4_000
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == ["LogUnavailable: nothing arrives"]
    assert read(log, "doubled") == []
    log.silent = False
    driver.run_until_caught_up()
    assert read(log, "doubled") == [{"V": 2}]
    assert troubles(instance) == []


def test_trouble_that_has_not_come_again_for_a_while_is_over():
    log = SilentLog()
    instance, driver = make(log, DOUBLED)
    log.silent = True
    driver.round()
    log.silent = False
    assert troubles(instance)
    instance.clock.advance(CURRENT_MS + 1)
    assert not troubles(instance)
