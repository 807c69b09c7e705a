"""The dead-letter topic: every record or row that could not be processed, with its raw bytes and the reason."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa

from flowql.compiler.plan import types as t
from flowql.compiler.plan.event_times import USUAL_TIMES
from flowql.compiler.plan.schema import Field, Schema
from flowql.runtime.config import LetterRetention
from flowql.runtime.errors import LogError
from flowql.runtime.events import WARNING, say
from flowql.runtime.log.base import PRODUCE_SCHEMA, Log, RawBatch
from flowql.runtime.log.policy import SEGMENT_BYTES
from flowql.runtime.operators.base import DeadLetter
from flowql.runtime.state.changelog import in_topic_name

TABLE = "DEAD_LETTERS"
IMPORT = "topic import"  # in place of a query: of lines that an import could not read
SEGMENT_BYTES_MIN = 1 << 20  # brokers take no less
SEGMENT_AGE_MS = 86_400_000  # where letters are kept for ever
MESSAGE_MAX = 200  # of a letter that is too large otherwise
NOT_REPLAYABLE = (
    " (the row came through a repartition, and no single record is known that it was made from: it cannot be replayed)"
)
IN_FILES = " (the row was read from files and is in no topic: it cannot be replayed; correct the file)"
SCHEMA = Schema(
    (
        Field("QUERY", t.STRING),
        Field("TOPIC", t.STRING),
        Field("PARTITION", t.INT),
        Field("OFFSET", t.BIGINT),
        Field("ROWTIME", t.TIMESTAMP),
        Field("CODE", t.STRING),
        Field("MESSAGE", t.STRING),
        Field("KEY", t.BYTES),
        Field("VALUE", t.BYTES),
        Field("GENERATION", t.INT),
    )
)


def topic_name(application_id: str) -> str:
    return f"{application_id}-dead-letters"


def staging_topic(application_id: str, query: str) -> str:
    """Where those of a generation that is being built wait for its swap. query: its name as it runs."""
    return f"{topic_name(application_id)}-of-{in_topic_name(query)}"


def ensure_topic(log: Log, application_id: str, kept: LetterRetention) -> None:
    """Create the topic, or set its retention. Raises LogError if it can be neither created nor read."""
    admin, name, wanted = log.admin(), topic_name(application_id), topic_config(kept)
    config = admin.create_topic(name, 1, wanted).config
    changes: dict[str, str | None] = {option: value for option, value in wanted.items() if config.get(option) != value}
    if not changes:
        return
    try:
        admin.alter_topic(name, changes)
    except LogError as error:
        say(WARNING, "dead_letters.retention", f"{name} keeps the retention that it has: {error}")


def topic_config(kept: LetterRetention) -> dict[str, str]:
    """Segments are small enough that retention, which drops whole ones, keeps at most a seventh more than it is to keep."""
    config = {"cleanup.policy": "delete", "retention.ms": str(kept.age_ms), "retention.bytes": str(kept.size_bytes)}
    size = SEGMENT_BYTES if kept.size_bytes < 0 else min(SEGMENT_BYTES, max(SEGMENT_BYTES_MIN, kept.size_bytes // 8))
    age = SEGMENT_AGE_MS if kept.age_ms < 0 else max(1, kept.age_ms // 7)
    return config | {"segment.bytes": str(size), "segment.ms": str(age)}


@dataclass(frozen=True, slots=True)
class LocatedDeadLetter:
    """A dead letter with the raw record it came from.

    raw: None for a row that came through a repartition, when origin is the place of the record it was made from, if that is known; and for a row
    of files (in_files), whose message names its file where that is known.
    """

    letter: DeadLetter
    raw: RawBatch | None
    index: int = 0
    origin: tuple[str, int, int] | None = None
    in_files: bool = False

    @property
    def place(self) -> tuple[str | None, int | None, int | None]:
        """Topic, partition and offset of the record."""
        if self.raw is not None:
            return (*self.raw.tp, int(self.raw.records.column(0)[self.index].as_py()))
        return self.origin or (None, None, None)

    @property
    def record(self) -> tuple[object, ...]:
        """The record that it is about, among the letters of one run: its place, or the row where that is not known."""
        place = self.place
        return place if place[2] is not None else (self.letter.seq,)


def each_once(letters: Sequence[LocatedDeadLetter]) -> list[LocatedDeadLetter]:
    """Letters of one run without those that say the same of the same record: a query may read a topic several times, and a record may
    change several rows of a result.
    """
    found: dict[object, LocatedDeadLetter] = {}
    for x in letters:
        found.setdefault((x.record, x.letter.code, x.letter.message), x)
    return list(found.values())


def records_of(letters: Iterable[LocatedDeadLetter]) -> int:
    """How many records letters of one run are about."""
    return len({x.record for x in letters})


def encode(
    query: str,
    letters: Sequence[LocatedDeadLetter],
    now_ms: int = 0,
    generation: int = 1,
    bytes_max: int | None = None,
) -> pa.RecordBatch:
    """Dead letters as records of the dead-letter topic: JSON values with the columns of SCHEMA, bytes in base64.

    now_ms: wall time; the records carry it, as retention goes by it (0: `written_at` says it later). The bad record's own time is a column.
    bytes_max: larger ones go without the bytes of the record.
    """
    values = [_value(query, located) | {"GENERATION": generation} for located in letters]
    if bytes_max is not None:
        values = [v if len(orjson.dumps(v)) <= bytes_max else short(v) for v in values]
    n = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([now_ms] * n, pa.int64()),
            pa.nulls(n, pa.binary()),
            pa.array([orjson.dumps(v) for v in values], pa.binary()),
            pa.nulls(n, PRODUCE_SCHEMA.field("headers").type),
        ],
        schema=PRODUCE_SCHEMA,
    )


def written_at(records: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """Letters that were encoded before it was known when they would be written."""
    at = records.schema.get_field_index("timestamp")
    times = pa.array([now_ms] * records.num_rows, records.schema.field(at).type)
    return records.set_column(at, records.schema.field(at), times)


def _value(query: str, located: LocatedDeadLetter) -> dict[str, object]:
    letter, raw, i = located.letter, located.raw, located.index
    row = raw.records.slice(i, 1).to_pylist()[0] if raw is not None else {}
    topic, partition, offset = located.place
    return {
        "QUERY": query,
        "TOPIC": topic,
        "PARTITION": partition,
        "OFFSET": offset,
        "ROWTIME": _usable(row.get("timestamp")),
        "CODE": letter.code,
        "MESSAGE": _said(located),
        "KEY": _text(row.get("key")),
        "VALUE": _text(row.get("value")),
    }


def short(value: dict[str, object]) -> dict[str, object]:
    """A letter without the bytes of its record."""
    return {**value, "KEY": None, "VALUE": None, "MESSAGE": str(value["MESSAGE"])[:MESSAGE_MAX]}


def _said(located: LocatedDeadLetter) -> str:
    """JSON takes no lone surrogates, which a message may quote."""
    message = located.letter.message.encode("utf-8", "backslashreplace").decode()
    if located.in_files:
        return message + IN_FILES
    return message if located.place[2] is not None else message + NOT_REPLAYABLE


def _usable(time_ms: int | None) -> int | None:
    """A letter is a record, too: with the time that made it one it could not be read."""
    return None if time_ms is None or USUAL_TIMES.why_not(time_ms, 0, of_column=False) else time_ms


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
