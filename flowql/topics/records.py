"""Single records: from what a person types, and to lines of JSON."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait  # select(2) takes no descriptor above 1,023
from types import FrameType
from typing import Any

import orjson
import pyarrow as pa

from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.topology import Plan
from flowql.compiler.plan.types import Kind
from flowql.errors import CommandError
from flowql.runtime.errors import BadRecord
from flowql.runtime.log.base import PRODUCE_SCHEMA, Log, RawBatch, TopicPartition
from flowql.runtime.log.murmur2 import partition_for
from flowql.topics.codecs import KeyWriter, RecordReader, ValueWriter, source_over
from flowql.topics.typed_texts import FORMS, from_text

_FIELDS = {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}
_POLL_RECORDS, _POLL_BYTES = 10_000, 16 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """One record to write. partition None: by its key."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


def parse_record(text: str, keys: KeyWriter, values: ValueWriter, now_ms: int) -> Record:
    """A record as typed: `KEY:VALUE`, a JSON object as `topic consume` prints it, or a JSON value alone. Raises CommandError.

    The value `null` is a tombstone. Of an object alone the declared key columns become the key.
    """
    text = text.strip()
    try:
        if text[:1] in ("{", "["):
            document = orjson.loads(text)
            if isinstance(document, dict) and "value" in document and set(document) <= _FIELDS:
                return _whole(document, keys, values, now_ms)
            key = {c: document[c] for c in keys.columns if c in document} if isinstance(document, dict) else {}
            return Record(keys.encode(orjson.dumps(key)) if key else None, values.encode_one(document), now_ms)
        key_text, colon, rest = text.partition(":")
        if not colon:
            raise CommandError(
                f"{text!r} is not a record", code="FQ5011", help="write KEY:VALUE, with the value in JSON or null"
            )
        return Record(keys.encode_one(key_text), values.encode_one(orjson.loads(rest)), now_ms)
    except orjson.JSONDecodeError as e:
        title = f"the value of {text[:60]!r} is not JSON: {e}"
        raise CommandError(title, code="FQ5011", help='write strings in double quotes: key:"text"') from None
    except BadRecord as e:
        raise CommandError(f"{text[:60]!r}: {e}", code="FQ5011") from None


def _whole(document: Mapping[str, Any], keys: KeyWriter, values: ValueWriter, now_ms: int) -> Record:
    time, partition = document.get("timestamp", now_ms), document.get("partition")
    if isinstance(time, str):
        time = from_text(time, Kind.TIMESTAMP)
    if type(time) is not int:
        raise CommandError(f"the timestamp {time!r} is not a time", code="FQ5011", help=FORMS[Kind.TIMESTAMP])
    if partition is not None and type(partition) is not int:
        raise CommandError(f"the partition {partition!r} is not a number", code="FQ5011")
    return Record(
        keys.encode_one(document.get("key")),
        values.encode_one(document["value"]),
        time,
        _headers(document.get("headers") or []),
        partition,
    )


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    try:
        pairs = given.items() if isinstance(given, dict) else [(h["key"], h["value"]) for h in given]
    except (TypeError, KeyError, IndexError):
        help_ = 'write {"NAME": "value"}, or [{"key": "NAME", "value": "value"}]'
        raise CommandError(f"{given!r} are not headers", code="FQ5011", help=help_) from None
    return tuple((str(k), None if v is None else str(v).encode()) for k, v in pairs)


def topic_named(given: str, plan: Plan, log: Log) -> str:
    """The topic of that name, or that of the stream or table of that name."""
    if given in log.admin().topics() or any(s.topic == given for s in plan.sources):
        return given
    return next((s.topic for s in plan.sources if s.name.upper() == given.upper()), given)


def partitions_of(topic: str, plan: Plan, log: Log, default: int) -> int:
    """The number of partitions of a topic: that of the existing topic, else the declared one, else the default."""
    known = log.admin().topics().get(topic)
    source = source_over(plan, topic)
    if known is not None:
        return known.partitions
    return (source.partitions if source is not None else None) or default


def parsed(texts: Iterable[str], keys: KeyWriter, values: ValueWriter, now_ms: int) -> list[Record]:
    """Records of typed texts; see `parse_record`."""
    return [parse_record(text, keys, values, now_ms) for text in texts]


def write_lines(
    groups: Iterable[Sequence[str]],
    writer: RecordWriter,
    keys: KeyWriter,
    values: ValueWriter,
    now_ms: Callable[[], int],
) -> None:
    """Writes each group of lines as one transaction. Raises CommandError for a line that is no record, once those before it are written."""
    for group in groups:
        records, now = list[Record](), now_ms()
        try:
            for line in group:
                records.append(parse_record(line, keys, values, now))
        except CommandError as error:
            if records:
                writer.write(records)
            title = f"record {writer.written + 1:,}: {error.title}"
            before = f"the records before it are written: {writer.written:,}" if writer.written else ""
            raise CommandError(title, code=error.code, help="; ".join(t for t in (error.help, before) if t)) from error
        writer.write(records)


class RecordWriter:
    """Writes records to a topic that exists. One thread; use it as a context."""

    def __init__(self, log: Log, topic: str, partitions: int, transactional_id: str) -> None:
        self._topic, self._partitions = topic, partitions
        self._producer = log.producer(transactional_id)
        self.written = 0

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def write(self, records: Sequence[Record]) -> None:
        """All of them in one transaction. Records without a key go to each partition in turn."""
        by_partition: dict[int, list[Record]] = {}
        for i, r in enumerate(records, self.written):
            p = (
                r.partition
                if r.partition is not None
                else i % self._partitions
                if r.key is None
                else partition_for(r.key, self._partitions)
            )
            by_partition.setdefault(p, []).append(r)
        self._producer.expect_partitions(self._topic, self._partitions)
        self._producer.begin()
        for p, some in by_partition.items():
            self._producer.send(TopicPartition(self._topic, p), _batch(some))
        self._producer.commit()
        self.written += len(records)


def _batch(records: Sequence[Record]) -> pa.RecordBatch:
    return pa.record_batch(
        [
            pa.array([r.timestamp_ms for r in records], pa.int64()),
            pa.array([r.key for r in records], pa.binary()),
            pa.array([r.value for r in records], pa.binary()),
            pa.array(
                [[{"key": k, "value": v} for k, v in r.headers] or None for r in records],
                PRODUCE_SCHEMA.field("headers").type,
            ),
        ],
        schema=PRODUCE_SCHEMA,
    )


def start_of(log: Log, topic: str, *, beginning: bool) -> dict[TopicPartition, int]:
    """The first offset of each partition of a topic, or its end without `beginning`. Raises CommandError if the topic does not exist."""
    admin = log.admin()
    topics = admin.topics()
    if topic not in topics:
        hint = did_you_mean(topic, topics) or "SHOW TOPICS;"
        raise CommandError(f"there is no topic {topic}", code="FQ5103", help=hint)
    tps = [TopicPartition(topic, p) for p in range(topics[topic].partitions)]
    return {tp: admin.begin_offset(tp) if beginning else admin.end_offset(tp) for tp in tps}


def read_records(
    log: Log, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int] | None
) -> Iterator[RawBatch | None]:
    """Batches from these positions up to `ends` (exclusive), partition after partition.

    ends None: without end, all partitions in turn; None is given when there is nothing new, and the caller waits.
    """
    if ends is not None:
        for tp, offset in positions.items():
            reader = log.reader(tp, offset)
            while reader.position < ends[tp] and (batch := reader.read(_POLL_RECORDS, _POLL_BYTES)) is not None:
                yield batch
        return
    consumer = log.consumer("flowql-consume")
    try:
        consumer.assign(positions)
        while True:
            batches = consumer.poll(_POLL_RECORDS, _POLL_BYTES)
            yield from batches
            if not batches:
                yield None
    finally:
        consumer.close()


def json_lines(batch: RawBatch, reader: RecordReader) -> Iterator[bytes]:
    """`{topic, partition, offset, timestamp, key, value, headers}` per record."""
    head = (
        b'{"topic":'
        + orjson.dumps(batch.tp.topic)
        + b',"partition":%d,"offset":%%d,"timestamp":%%d,"key":' % batch.tp.partition
    )
    columns = [column.to_pylist() for column in batch.records.columns]
    for offset, at, key, value, headers in zip(*columns, strict=True):
        yield b"".join(
            (
                head.replace(b"%%", b"%") % (offset, at),
                reader.key(key),
                b',"value":',
                reader.value(value),
                b',"headers":',
                headers_json(headers),
                b"}\n",
            )
        )


def headers_json(headers: Sequence[Mapping[str, Any]] | None) -> bytes:
    if not headers:
        return b"[]"
    return orjson.dumps(
        [
            {"key": h["key"], "value": None if h["value"] is None else h["value"].decode("utf-8", "replace")}
            for h in headers
        ]
    )


SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),
        pa.field("headers", pa.string()),
    ]
)


def exported(
    log: Log, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], reader: RecordReader
) -> Generator[pa.RecordBatch]:
    """Records from `positions` up to `ends`, partition after partition. A missing key is NULL, and so is a tombstone's value."""
    for batch in read_records(log, positions, ends):
        if batch is None:
            continue
        offset, time, key, value, headers = batch.records.columns
        columns = [
            pa.array([batch.tp.partition] * len(offset), pa.int32()),
            offset,
            time,
            pa.array([None if k is None else reader.key(k).decode() for k in key.to_pylist()], pa.string()),
            pa.array([None if v is None else reader.value(v).decode() for v in value.to_pylist()], pa.string()),
            pa.array([headers_json(h).decode() if h else None for h in headers.to_pylist()], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


# --- Records of a topic in portions, for a client that continues at the position of the last one ---

_BYTES_MAX = 8 << 20  # of an answer; one larger record is an answer of its own
_POSITION = re.compile(r"[0-9]{1,18}(-[0-9]{1,18})*")


def records_of(
    log: Log, plan: Plan, topic: str, position: str | None, limit: int, *, beginning: bool
) -> tuple[list[bytes], str]:
    """At most `limit` records as JSON objects, partition by partition, and the position after them.

    position: of an earlier answer; None: the end, or with `beginning` the first record. If the number of partitions has changed, it starts again at
    the first records. Raises CommandError for a topic that does not exist.
    """
    ends, begins = start_of(log, topic, beginning=False), start_of(log, topic, beginning=True)
    offsets = dict(begins if beginning else ends)
    if position is not None:
        given = [int(part) for part in position.split("-")]
        known = given if len(given) == len(ends) else list(begins.values())
        offsets = {tp: max(offset, begins[tp]) for tp, offset in zip(sorted(ends), known, strict=True)}
    found: list[bytes] = []
    size, reader = 0, RecordReader(source_over(plan, topic))
    for batch in read_records(log, offsets, ends):
        assert batch is not None, "it ends"
        for offset, line in zip(batch.records.column(0).to_pylist(), json_lines(batch, reader), strict=True):
            if len(found) == limit or (found and size + len(line) > _BYTES_MAX):
                return found, _position(offsets)
            found.append(line.rstrip(b"\n"))
            size += len(line)
            offsets[batch.tp] = offset + 1
    return found, _position(ends)


def _position(offsets: Mapping[TopicPartition, int]) -> str:
    return "-".join(str(offset) for _, offset in sorted(offsets.items()))


def is_position(text: str) -> bool:
    """Whether a string has the form of a position."""
    return _POSITION.fullmatch(text) is not None


# --- Lines of a pipe or a terminal in groups: a line does not wait for the end of the input before it is written ---

GROUP_LINES, GROUP_S = 10_000, 0.2  # a group ends with so many lines, or so long after its first one
_READ_BYTES = 1 << 16
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Piped:
    """The lines of a file descriptor. interrupted: Ctrl-C or SIGTERM came before its end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.interrupted = False

    def groups(self) -> Iterator[list[str]]:
        """Groups of lines that are not empty, until the end or a signal; what was read until then is the last group. Main thread only.

        Between two groups a signal waits until the caller asks for the next one.
        """
        with _signalled() as signalled:
            waiting, rest, due_s, ended = list[str](), b"", 0.0, False
            while not ended:
                ready = wait([self._descriptor, signalled], max(0.0, due_s - time.monotonic()) if waiting else None)
                self.interrupted = signalled in ready
                if self._descriptor in ready:
                    data = os.read(self._descriptor, _READ_BYTES)
                    *lines, rest = (rest + data).split(b"\n") if data else (rest, b"")
                    due_s = due_s if waiting else time.monotonic() + GROUP_S
                    waiting += [text for line in lines if (text := line.decode("utf-8", "replace").strip())]
                    ended = not data  # then `rest` was a line
                ended = ended or self.interrupted
                if waiting and (ended or len(waiting) >= GROUP_LINES or time.monotonic() >= due_s):
                    yield waiting
                    waiting = []


@contextmanager
def _signalled() -> Iterator[int]:
    """A descriptor that can be read once one of the signals has come. The second one does what it did before."""
    reading, writing = os.pipe()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def note(_number: int, _frame: FrameType | None) -> None:
        os.write(writing, b"!")
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in _SIGNALS:
        signal.signal(number, note)
    try:
        yield reading
    finally:
        restore()
        os.close(reading)
        os.close(writing)
