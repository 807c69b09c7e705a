"""The commit log in bytes, as FORMAT.md says: what one version writes every later one reads."""

from __future__ import annotations

import struct
import zlib

import msgspec
import pytest

from flowql.runtime.errors import LogCorrupt
from flowql.runtime.log.base import EARLIEST, LATEST, PRODUCE_SCHEMA, RECORD_SCHEMA, TopicInfo
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.records import (
    AdvanceStart,
    Append,
    Commit,
    CreateTopic,
    DeleteTopic,
    GroupPosition,
    InitProducer,
    Link,
    NewShape,
    NewStart,
    PartitionImage,
    ProducerImage,
    Record,
    Redo,
    Replace,
    SegmentImage,
    SetConfig,
    Skip,
    Snapshot,
    TopicImage,
    TrimRedo,
    decode,
    encode,
)
from tests.simulated_disk import SimulatedDisk

SEGMENT = SegmentImage(1, 2, 3, 4, 5, 6, 7, 8, 9)
ENCODED: list[tuple[Record, list[object]]] = [
    (
        Commit(
            *("p", 1, 2, [Append(1, 2, 3, 4, 5, 6, 7, 8)], [GroupPosition("g", 1, 2, 3, "m")], Redo(1, 2, 3, 4, 5)),
            *([NewStart(1, 2, 3)], [NewShape(1, 2, 3, ["p"])], [Link(1, 2, 3, 4)]),
        ),
        [
            *("commit", "p", 1, 2, [[1, 2, 3, 4, 5, 6, 7, 8]], [["g", 1, 2, 3, "m"]], [1, 2, 3, 4, 5], [[1, 2, 3]]),
            *([[1, 2, 3, ["p"]]], [[1, 2, 3, 4]]),
        ],
    ),
    (CreateTopic(1, "A", 2, {"a": "b"}), ["create_topic", 1, "A", 2, {"a": "b"}]),
    (DeleteTopic(1), ["delete_topic", 1]),
    (AdvanceStart(1, 2, 3), ["advance_start", 1, 2, 3]),
    (SetConfig(1, {"a": "b"}), ["set_config", 1, {"a": "b"}]),
    (Replace(1, 2, 3, [SEGMENT]), ["replace", 1, 2, 3, [[1, 2, 3, 4, 5, 6, 7, 8, 9]]]),
    (Skip(1, 2, 3, 4), ["skip", 1, 2, 3, 4]),
    (InitProducer("p", 1, 2), ["init_producer", "p", 1, 2]),
    (TrimRedo("p", 1), ["trim_redo", "p", 1]),
    (
        Snapshot(
            7,
            [TopicImage(1, "A", {}, [PartitionImage(1, 2, [SEGMENT], ["p"], [(3, 4)])])],
            [GroupPosition("g", 1, 2, 3, "m")],
            [ProducerImage("p", 1, 2, 3, [Redo(1, 2, 3, 4, 5)], [(1, 2)])],
            *(8, 9),
        ),
        [
            *("snapshot", 7, [[1, "A", {}, [[1, 2, [[1, 2, 3, 4, 5, 6, 7, 8, 9]], ["p"], [[3, 4]]]]]]),
            *([["g", 1, 2, 3, "m"]], [["p", 1, 2, 3, [[1, 2, 3, 4, 5]], [[1, 2]]]], 8, 9),
        ],
    ),
]
# As older versions wrote them, and what they mean.
SHORTER: list[tuple[list[object], Record]] = [
    (["commit", "p", 1, 2, [], []], Commit("p", 1, 2, [], [], None, [], [], [])),
    (
        ["commit", "p", 1, 2, [], [], None, [], [[1, 2, 3]]],
        Commit("p", 1, 2, [], [], None, [], [NewShape(1, 2, 3, [])], []),
    ),
    (["init_producer", "p", 1], InitProducer("p", 1, 0)),
    (["replace", 1, 2, 3, [[1, 2, 3, 4, 5]]], Replace(1, 2, 3, [SegmentImage(1, 2, 3, 4, 5, 0, 0, 0, None)])),
    (
        ["snapshot", 7, [[1, "A", {}, [[1, 2, []]]]], [], [["p", 1, 2, 3, []]], 8, 9],
        Snapshot(
            7,
            [TopicImage(1, "A", {}, [PartitionImage(1, 2, [], [], [])])],
            [],
            [ProducerImage("p", 1, 2, 3, [], [])],
            *(8, 9),
        ),
    ),
]


@pytest.mark.parametrize(("record", "encoded"), ENCODED)
def test_a_record_is_an_array_that_begins_with_its_kind(record: Record, encoded: list[object]) -> None:
    assert msgspec.msgpack.decode(encode(record)) == encoded
    assert decode(encode(record)) == record


@pytest.mark.parametrize(("encoded", "record"), SHORTER)
def test_a_record_of_an_older_version_means_what_it_meant(encoded: list[object], record: Record) -> None:
    assert decode(msgspec.msgpack.encode(encoded)) == record


def test_every_kind_of_record_is_tried() -> None:
    assert {type(record) for record, _ in ENCODED} == set(Record.__args__)


def commit_log(version: int, generation: int = 0) -> SimulatedDisk:
    """A log that another version has made: one topic, nothing in it."""
    disk = SimulatedDisk()
    disk.makedirs("/log/topics/A.1")
    header = struct.pack("<8sIIQ", b"FLOWQLOG", version, 0, generation)
    payload = encode(Snapshot(2, [TopicImage(1, "A", {}, [PartitionImage(0, 0, [])])], [], [], 0, 0))
    crc = zlib.crc32(payload, zlib.crc32(header))
    file = disk.open("/log/commits-000000000000.log", create=True)
    file.pwrite(0, [header, struct.pack("<II", len(payload), crc), payload])
    return disk


@pytest.mark.parametrize("version", [1, 2, 3])
def test_logs_of_all_versions_so_far_are_read(version: int) -> None:
    assert EmbeddedLog("/log", commit_log(version)).topics() == {"A": TopicInfo("A", 1, {})}


@pytest.mark.parametrize(("version", "generation"), [(0, 0), (4, 0), (3, 1)])
def test_a_log_of_a_later_version_is_refused(version: int, generation: int) -> None:
    said = f"has format version {version} and generation {generation}; this program reads versions up to 3 and expected"
    with pytest.raises(LogCorrupt, match=said):
        EmbeddedLog("/log", commit_log(version, generation))


def test_a_new_log_is_written_in_the_last_version() -> None:
    disk = SimulatedDisk()
    EmbeddedLog("/log", disk)
    assert disk.open("/log/commits-000000000000.log").pread(0, 24) == struct.pack("<8sIIQ", b"FLOWQLOG", 3, 0, 0)


def test_a_record_has_an_offset_and_a_time_and_the_rest_where_it_is_given() -> None:
    assert [f.name for f in RECORD_SCHEMA] == ["offset", *PRODUCE_SCHEMA.names]
    assert [f.nullable for f in RECORD_SCHEMA] == [False, False, True, True, True]
    assert (EARLIEST, LATEST) == (-2, -1), "as in Kafka"
