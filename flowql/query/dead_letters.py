"""Dead letters by record: a record of a topic that one or several queries could not read, with the reasons."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from flowql.compiler.plan.generations import runtime_name
from flowql.compiler.plan.topology import Plan
from flowql.errors import CommandError
from flowql.query.errors import INVALID, REFUSED, UNKNOWN, QueryError
from flowql.query.given_rows import TableRelation, commit_of
from flowql.query.session import evaluate as answered
from flowql.runtime.errors import LogError
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.repairs import RepairedLog, Repairs
from flowql.runtime.task.dead_letters import IMPORT

BAD_CONDITION, BAD_NAME = "FQ5801", "FQ5804"
LISTED = 'SELECT "TOPIC", "PARTITION", "OFFSET", "ROWTIME", "FAILURES" FROM DEAD_LETTERS'  # without the records
WITH_VALUES = 'SELECT "TOPIC", "PARTITION", "OFFSET", "ROWTIME", "KEY", "VALUE", "FAILURES" FROM DEAD_LETTERS'
_PLACE = re.compile(r"(.+)/(\d+)@(\d+)")


@dataclass(frozen=True, slots=True)
class Failure:
    """A query that did not get over a record, and why."""

    query: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Letter:
    """A record, or a row of a query whose record is not known: then tp and offset are None.

    timestamp_ms: the record's own, in the log. key, value: raw bytes.
    """

    tp: TopicPartition | None
    offset: int | None
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    failures: tuple[Failure, ...]

    @property
    def name(self) -> str:
        """TOPIC/PARTITION@OFFSET, as `flowql dlq show` takes it."""
        return "(no record of a topic)" if self.tp is None else f"{self.tp.topic}/{self.tp.partition}@{self.offset}"

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(f.query for f in self.failures)

    def to_data(self) -> dict[str, Any]:
        """The public JSON. `binary` names members that are base64, as their bytes are no text. `timestamp` is `time` in ms."""
        tp, parts = self.tp, {"key": self.key, "value": self.value}
        return {
            "topic": None if tp is None else tp.topic,
            "partition": None if tp is None else tp.partition,
            "offset": self.offset,
            "time": shown_time(self.timestamp_ms),
            "timestamp": self.timestamp_ms,
            **{name: _json(data) for name, data in parts.items()},
            "binary": [name for name, data in parts.items() if data is not None and text_of(data) is None],
            "failures": [{"query": f.query, "code": f.code, "message": f.message} for f in self.failures],
        }


def letter_of(data: Mapping[str, Any]) -> Letter:
    """The inverse of `Letter.to_data`, after a way through JSON. Raises KeyError, TypeError, ValueError."""

    def read(name: str) -> bytes | None:
        text = data[name]
        return None if text is None else base64.b64decode(text) if name in data["binary"] else text.encode()

    tp = None if data["topic"] is None else TopicPartition(data["topic"], data["partition"])
    failures = tuple(Failure(f["query"], f["code"], f["message"]) for f in data["failures"])
    return Letter(tp, data["offset"], data["timestamp"], read("key"), read("value"), failures)


def _json(data: bytes | None) -> str | None:
    if data is None or (text := text_of(data)) is not None:
        return None if data is None else text
    return base64.b64encode(data).decode()


# Whether a record was given to a query once more (`flowql.runtime.log.repairs`): the record, and the name of the query's generation.
IsDelivered = Callable[[TopicPartition, int, str], bool]


def open_letters(
    rows: Iterable[Mapping[str, Any]], serving: Plan, is_delivered: IsDelivered = lambda *_: False
) -> list[Letter]:
    """Letters of the generations that serve, by topic, partition and offset. rows: the answer to WITH_VALUES or LISTED, times in ms.

    A rebuilt query has letters of its own: those of the generation before are done with. Lines that an import could not read belong to
    no query.
    """
    generations = {q.id: q.generation for q in serving.queries} | {IMPORT: 1}
    names, found = {q.id: runtime_name(q) for q in serving.queries}, []
    for row in rows:
        of_query = {
            f["QUERY"]: Failure(f["QUERY"], f["CODE"], f["MESSAGE"])
            for f in row["FAILURES"]
            if generations.get(f["QUERY"]) == (f["GENERATION"] or 1)
        }
        known = row["OFFSET"] is not None
        tp = TopicPartition(row["TOPIC"], row["PARTITION"]) if known else None
        if tp is not None:
            of_query = {q: f for q, f in of_query.items() if not is_delivered(tp, row["OFFSET"], names.get(q, q))}
        if not of_query:
            continue
        parts = row["OFFSET"], row["ROWTIME"], row.get("KEY"), row.get("VALUE")
        found.append(Letter(tp, *parts, tuple(of_query.values())))
    return sorted(found, key=lambda x: (x.tp is None, x.tp, x.offset) if x.tp is not None else (True,))


def letters_in(answer: pa.Table, plan: Plan, repairs: Repairs) -> list[Letter]:
    """As `open_letters`, of an answer to WITH_VALUES or LISTED in DuckDB's SQL."""
    at = answer.schema.get_field_index("ROWTIME")
    times = answer.column(at).cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    return open_letters(answer.set_column(at, "ROWTIME", times).to_pylist(), plan, repairs.is_delivered)


def shown_time(ms: int | None) -> str | None:
    """ISO-8601 in UTC; the number itself where no calendar has it."""
    if ms is None:
        return None
    try:
        return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(ms)


def text_of(data: bytes) -> str | None:
    """The text that these bytes are; None if they are none."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() or all(c.isprintable() or c in "\t\r\n" for c in text) else None


def shown_bytes(data: bytes | None) -> str | None:
    """For people: the text, or what the bytes are."""
    if data is None:
        return None
    text = text_of(data)
    return f"{data.hex(' ')} (no text)" if text is None else text


def at_place(letters: Sequence[Letter], name: str) -> Letter:
    """The letter of a record named TOPIC/PARTITION@OFFSET. CommandError if there is none."""
    match = _PLACE.fullmatch(name)
    if match is None:
        raise CommandError(
            f"{name} names no record", code=BAD_NAME, help="write TOPIC/PARTITION@OFFSET, as  flowql dlq ls  shows"
        )
    place = TopicPartition(match[1], int(match[2])), int(match[3])
    found = next((x for x in letters if (x.tp, x.offset) == place), None)
    if found is None:
        raise CommandError(f"there is no open dead letter of {name}", code=BAD_NAME, help="flowql dlq ls")
    return found


_ARROW = pa.schema(
    [
        ("number", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
        ("rowtime", pa.timestamp("ms")),
        ("queries", pa.list_(pa.string())),
        ("code", pa.string()),
        ("message", pa.string()),
        ("key", pa.string()),
        ("value", pa.string()),
    ]
)


def table_of(letters: Sequence[Letter]) -> pa.Table:
    """The relation of conditions and expressions: a row per record. code, message: of its first query. key, value: as texts; NULL
    where they are none.
    """
    rows = [
        {
            "number": n,
            "topic": None if x.tp is None else x.tp.topic,
            "partition": None if x.tp is None else x.tp.partition,
            "offset": x.offset,
            "rowtime": x.timestamp_ms,
            "queries": list(x.queries),
            "code": x.failures[0].code,
            "message": x.failures[0].message,
            "key": None if x.key is None else text_of(x.key),
            "value": None if x.value is None else text_of(x.value),
        }
        for n, x in enumerate(letters)
    ]
    return pa.Table.from_pylist(rows, schema=_ARROW)


def evaluate(letters: pa.Table, sql: str, option: str) -> pa.Table:
    """The answer to an interactive query about the table `letters`, and about nothing else. CommandError, which names the option."""
    try:
        return answered(sql, lambda _: commit_of({"letters": lambda: TableRelation("letters", letters)}))
    except QueryError as error:
        if error.code not in (INVALID, UNKNOWN, REFUSED):
            raise
        columns = ", ".join(
            f'"{name}"' if name == "offset" else name for name in letters.column_names if name != "number"
        )
        title, help_ = f"{option}: {error.title}", f"SQL as in flowql query, over the columns {columns}"
        raise CommandError(title, code=BAD_CONDITION, help=help_) from error


def is_whole(letter: Letter) -> bool:
    """Whether the letter has the bytes of its record, or concerns no record."""
    return letter.value is not None or letter.tp is None


def with_records(letters: Sequence[Letter], log: Log, application_id: str) -> list[Letter]:
    """The letters with key, value and time of the records they name, as queries read these; as they are where a record is gone."""
    repaired = RepairedLog(log, application_id)
    return [_with_record(x, repaired) for x in letters]


def _with_record(letter: Letter, log: Log) -> Letter:
    if is_whole(letter) or letter.tp is None or letter.offset is None:
        return letter
    record = _record(log, letter.tp, letter.offset)
    if record is None:
        return letter
    return replace(letter, key=record["key"], value=record["value"], timestamp_ms=record["timestamp"])


def _record(log: Log, tp: TopicPartition, offset: int) -> dict[str, Any] | None:
    try:
        reader = log.reader(tp, offset)
        try:
            batch = reader.read(1, 1)
        finally:
            reader.close()
    except LogError:  # the topic is gone, or its beginning
        return None
    if batch is None or not batch.records.num_rows or batch.first_offset != offset:
        return None
    found: dict[str, Any] = batch.records.slice(0, 1).to_pylist()[0]
    return found
