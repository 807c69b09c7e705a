"""What cannot be read is in status with its partition as long as it goes on, however often it repeats itself."""

import logging

from flowql.runtime.app.status import instance_metrics
from flowql.runtime.app.troubles import CURRENT_MS, STALLED_MS
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
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
    return instance_metrics(instance)["trouble"]


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


class StalledLog(MemoryLog):
    """Its consumers give nothing of a partition once `stalled` is set, and no error, until it is begun anew."""

    stalled = False

    def consumer(self, client_id):
        consumer = super().consumer(client_id)
        poll, seek = consumer.poll, consumer.seek

        def begun_anew(tp, offset):
            self.stalled = False
            seek(tp, offset)

        consumer.poll = lambda max_records, max_bytes: [] if self.stalled else poll(max_records, max_bytes)
        consumer.seek = begun_anew
        return consumer


def test_a_partition_that_is_stalled_is_read_anew_and_told(caplog):
    log = StalledLog()
    instance, driver = make(log, DOUBLED)
    produce(log, "input", 1)
    driver.run_until_caught_up()
    log.stalled = True
    for _ in range(2 * STALLED_MS // 10):  # nobody waits: the log has ended there
        driver.round()
    assert log.stalled
    produce(log, "input", 2)
    for _ in range(STALLED_MS // 10 - 100):
        driver.round()
    assert log.stalled
    with caplog.at_level(logging.WARNING, "flowql"):
        for _ in range(200):
            driver.round()
    (told,) = [
        r.message for r in caplog.records if r.levelno >= logging.WARNING
    ]  # a thread of another test may say that it ended
    assert f"{IN}: nothing arrives from offset 1 on" in told
    assert read(log, "doubled") == [{"V": 2}, {"V": 4}]
    assert troubles(instance) == []  # over
