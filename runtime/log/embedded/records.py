"""The records of the commit log: one record per frame, msgpack arrays tagged by kind (see FORMAT.md).

Fields may be added at the end of a record, with a default; none is ever removed or reordered.
"""

from __future__ import annotations

import msgspec


class Append(msgspec.Struct, frozen=True, array_like=True):
    """One stored batch: where it lies and what it holds. segment: the base offset that names the segment file."""

    topic_id: int
    partition: int
    segment: int
    start: int
    length: int
    base_offset: int
    rows: int
    max_timestamp: int


class GroupPosition(msgspec.Struct, frozen=True, array_like=True):
    """A committed position of a group."""

    group: str
    topic_id: int
    partition: int
    offset: int
    metadata: str


class NewStart(msgspec.Struct, frozen=True, array_like=True):
    """Records of a partition below `offset` are gone with a transaction, which takes their place."""

    topic_id: int
    partition: int
    offset: int


class NewShape(msgspec.Struct, frozen=True, array_like=True):
    """A topic has so many partitions with a transaction, all of which begin at `offset`; its records and positions before are gone.

    writers: of the records that were moved into the new partitions.
    """

    topic_id: int
    partitions: int
    offset: int
    writers: list[str] = []


class Link(msgspec.Struct, frozen=True, array_like=True):
    """With a transaction the segments of a partition, its source, are those of another one too, by hard links and behind its end.

    The first offset of the source becomes the end.
    """

    topic_id: int
    partition: int
    source_topic_id: int
    source_partition: int


class Redo(msgspec.Struct, frozen=True, array_like=True):
    """Where a redo payload lies: bytes [start, start + length) of redo file number `file`."""

    sequence: int
    file: int
    start: int
    length: int
    crc: int


class Commit(msgspec.Struct, frozen=True, array_like=True, tag="commit"):
    """A transaction. It exists if and only if this record is whole in the commit log."""

    transactional_id: str
    epoch: int
    sequence: int
    appends: list[Append]
    positions: list[GroupPosition]
    redo: Redo | None = None
    starts: list[NewStart] = []
    shapes: list[NewShape] = []
    links: list[Link] = []


class CreateTopic(msgspec.Struct, frozen=True, array_like=True, tag="create_topic"):
    """A new topic; its id is never used again."""

    topic_id: int
    name: str
    partitions: int
    config: dict[str, str]


class DeleteTopic(msgspec.Struct, frozen=True, array_like=True, tag="delete_topic"):
    """A topic, its records and all positions in it are gone."""

    topic_id: int


class AdvanceStart(msgspec.Struct, frozen=True, array_like=True, tag="advance_start"):
    """Records of a partition below `offset` are gone (retention)."""

    topic_id: int
    partition: int
    offset: int


class SetConfig(msgspec.Struct, frozen=True, array_like=True, tag="set_config"):
    """The whole config of a topic from now on."""

    topic_id: int
    config: dict[str, str]


class Replace(msgspec.Struct, frozen=True, array_like=True, tag="replace"):
    """The first `count` segments of a partition are now these (compaction)."""

    topic_id: int
    partition: int
    count: int
    segments: list[SegmentImage]


class Skip(msgspec.Struct, frozen=True, array_like=True, tag="skip"):
    """Records of a partition from `first` to below `end` are damaged and left out by all readers."""

    topic_id: int
    partition: int
    first: int
    end: int


class InitProducer(msgspec.Struct, frozen=True, array_like=True, tag="init_producer"):
    """A new producer of that id; producers of an older epoch are fenced. run: a number of this start of an instance alone; 0: none."""

    transactional_id: str
    epoch: int
    run: int = 0


class TrimRedo(msgspec.Struct, frozen=True, array_like=True, tag="trim_redo"):
    """Redo payloads of commits up to `sequence` are gone."""

    transactional_id: str
    sequence: int


class SegmentImage(msgspec.Struct, frozen=True, array_like=True):
    """A segment in a snapshot. index_bytes: how much of its index file belongs to it.

    life: rises when compaction writes it again, part of its file's name. cleaned_ms: when the youngest of its records were first
    compacted; 0: never. tombstones: how many it has, counted when it was compacted. shift: of a file that was another partition's, by
    how much offsets are above those in it; such a file is never appended to.
    """

    base: int
    length: int
    end_offset: int
    max_timestamp: int
    index_bytes: int
    life: int = 0
    cleaned_ms: int = 0
    tombstones: int = 0
    shift: int | None = None

    def cleaned(self, cleaned_ms: int, tombstones: int) -> SegmentImage:
        """The same segment, of which compaction leaves everything."""
        return msgspec.structs.replace(self, cleaned_ms=cleaned_ms, tombstones=tombstones)

    def until(self, end_offset: int) -> SegmentImage:
        """The same segment, with a gap behind its last record."""
        return msgspec.structs.replace(self, end_offset=end_offset)


class PartitionImage(msgspec.Struct, frozen=True, array_like=True):
    """A partition in a snapshot. writers: transactional ids that have written its records, the first WRITERS_MAX of them.

    skipped: ranges of damaged records, first and end.
    """

    start_offset: int
    end_offset: int
    segments: list[SegmentImage]
    writers: list[str] = []
    skipped: list[tuple[int, int]] = []


class TopicImage(msgspec.Struct, frozen=True, array_like=True):
    """A topic in a snapshot."""

    topic_id: int
    name: str
    config: dict[str, str]
    partitions: list[PartitionImage]


class ProducerImage(msgspec.Struct, frozen=True, array_like=True):
    """A producer in a snapshot. redo_lost: the last commit whose redo payload was trimmed. runs: as in `ProducerState`."""

    transactional_id: str
    epoch: int
    sequence: int
    redo_lost: int
    redo: list[Redo]
    runs: list[tuple[int, int]] = []


class Snapshot(msgspec.Struct, frozen=True, array_like=True, tag="snapshot"):
    """Everything that earlier generations of the commit log said; the first record of each generation."""

    next_topic_id: int
    topics: list[TopicImage]
    positions: list[GroupPosition]
    producers: list[ProducerImage]
    redo_file: int
    redo_end: int


Record = (
    Commit | CreateTopic | DeleteTopic | AdvanceStart | SetConfig | Replace | InitProducer | TrimRedo | Snapshot | Skip
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


def encode(record: Record) -> bytes:
    return _encoder.encode(record)


def decode(payload: bytes | memoryview) -> Record:
    """The record; msgspec.DecodeError (or its ValidationError) if it is none."""
    return _decoder.decode(payload)
