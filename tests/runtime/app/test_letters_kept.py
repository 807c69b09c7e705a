"""How long dead letters stay: by the time at which they were written, whatever the times of their records."""

from __future__ import annotations

from typing import Any

import orjson

from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import MIB, InstanceConfig, LetterRetention
from flowql.runtime.log.base import EARLIEST, Log, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.task.dead_letters import topic_config, topic_name
from tests.runtime.app.engine import APP, DOUBLED, make, produce
from tests.runtime.log.records import produce as append
from tests.simulated_disk import SimulatedDisk

DAY = 86_400_000
NOW = 1_900_000_000_000
LETTERS = TopicPartition(topic_name(APP), 0)


def kept(log: Log) -> list[tuple[int, dict[str, Any] | None]]:
    """(timestamp, letter); None for a record without a value."""
    reader, found = log.reader(LETTERS, EARLIEST), []
    while (batch := reader.read(100_000, 1 << 30)) is not None:
        records = batch.records.to_pylist()
        found += [(r["timestamp"], None if r["value"] is None else orjson.loads(r["value"])) for r in records]
    return found


def put(log: Log, *records: tuple[int, bytes]) -> None:
    append(log, "old", (LETTERS, [(time_ms, None, value) for time_ms, value in records]))


def test_a_letter_a_day_stays_for_seven_days_from_when_it_was_written() -> None:
    log, clock = EmbeddedLog("/log", SimulatedDisk()), VirtualClock(NOW)
    instance, driver = make(log, DOUBLED, clock=clock)
    for day in range(20):
        produce(log, "input", b"bad %d" % day)  # its own time is of 1970
        driver.run_until_caught_up()
        found = kept(log)
        assert len(found) == day + 1 if day < 7 else len(found) in (7, 8, 9)
        assert found[-1][1] is not None
        assert found[-1][1]["ROWTIME"] < DAY
        assert NOW + day * DAY <= found[-1][0] < NOW + (day + 1) * DAY
        clock.advance(NOW + (day + 1) * DAY - clock.wall_ms())
        log.maintain(clock.wall_ms())
    assert [t // DAY - NOW // DAY for t, _ in kept(log)] == list(range(20 - len(kept(log)), 20))
    instance.close()


def test_letters_take_no_more_space_than_they_are_given() -> None:
    log = EmbeddedLog("/log", SimulatedDisk())
    instance, driver = make(log, DOUBLED, clock=VirtualClock(NOW), dead_letters=LetterRetention(size_bytes=3 * MIB))
    for n in range(40):
        produce(log, "input", b"%d" % n * 150_000)
        driver.run_until_caught_up()
    log.maintain(NOW)
    size = sum(len(orjson.dumps(letter)) for _, letter in kept(log))
    assert 2 * MIB < size < 4.5 * MIB
    last = kept(log)[-1][1]
    assert last is not None
    assert last["OFFSET"] == 39
    instance.close()


def test_segments_are_an_eighth_of_what_is_kept_within_what_brokers_take() -> None:
    """Kafka 4 takes no segments of less than a mebibyte."""
    for kept_mib, segment_mib in ((1, 1), (8, 1), (80, 10), (8_000, 64)):
        config = topic_config(LetterRetention(size_bytes=kept_mib * MIB))
        assert config["segment.bytes"] == str(segment_mib * MIB)


def test_another_retention_of_the_target_is_that_of_the_topic_after_a_start() -> None:
    log = MemoryLog()
    for n, (age, size) in enumerate(((DAY, MIB), (-1, -1), (3 * DAY, 5 * MIB))):
        config = InstanceConfig(dead_letters=LetterRetention(age, size))
        instance = Instance(log, MemoryPhysical(), VirtualClock(NOW), config)
        found = log.admin().topics()[LETTERS.topic].config
        assert (found["retention.ms"], found["retention.bytes"]) == (str(age), str(size))
        assert len(kept(log)) == n, "the segments of a topic of this version are small, and need no record to be kept"
        put(log, (NOW, b"{}"))
        instance.close()
