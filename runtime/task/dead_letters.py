"""The dead-letter topic: every record or row that could not be processed, with its raw bytes and the reason."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa

from compiler.plan import types as t
from compiler.plan.event_times import USUAL_TIMES
from compiler.plan.schema import Field, Schema
from runtime.log.base import PRODUCE_SCHEMA, RawBatch
from runtime.operators.base import DeadLetter
from runtime.state.changelog import in_topic_name

TABLE = "DEAD_LETTERS"
IMPORT = "topic import"  # in place of a query: of lines that an import could not read
MESSAGE_MAX = 200  # of a letter that is too large otherwise
NOT_REPLAYABLE = (
    " (the row came through a repartition: which record it was made from is not known, and it cannot be replayed)"
)
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


@dataclass(frozen=True, slots=True)
class LocatedDeadLetter:
    """A dead letter with the raw record it came from; `raw` None for a row that came through a repartition."""

    letter: DeadLetter
    raw: RawBatch | None
    index: int = 0


def encode(
    query: str, letters: Sequence[LocatedDeadLetter], generation: int = 1, bytes_max: int | None = None
) -> pa.RecordBatch:
    """Dead letters as records of the dead-letter topic: JSON values with the columns of SCHEMA, bytes in base64.

    bytes_max: larger ones go without the bytes of the record.
    """
    values = [_value(query, located) | {"GENERATION": generation} for located in letters]
    if bytes_max is not None:
        values = [v if len(orjson.dumps(v)) <= bytes_max else short(v) for v in values]
    stamps = [v["ROWTIME"] or 0 for v in values]  # one that was not used stands in the message
    n = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(stamps, pa.int64()),
            pa.nulls(n, pa.binary()),
            pa.array([orjson.dumps(v) for v in values], pa.binary()),
            pa.nulls(n, PRODUCE_SCHEMA.field("headers").type),
        ],
        schema=PRODUCE_SCHEMA,
    )


def _value(query: str, located: LocatedDeadLetter) -> dict[str, object]:
    letter, raw, i = located.letter, located.raw, located.index
    row = raw.records.slice(i, 1).to_pylist()[0] if raw is not None else {}
    return {
        "QUERY": query,
        "TOPIC": raw.tp.topic if raw else None,
        "PARTITION": raw.tp.partition if raw else None,
        "OFFSET": row.get("offset"),
        "ROWTIME": _usable(row.get("timestamp")),
        "CODE": letter.code,
        "MESSAGE": _said(letter, known=raw is not None),
        "KEY": _text(row.get("key")),
        "VALUE": _text(row.get("value")),
    }


def short(value: dict[str, object]) -> dict[str, object]:
    """A letter without the bytes of its record."""
    return {**value, "KEY": None, "VALUE": None, "MESSAGE": str(value["MESSAGE"])[:MESSAGE_MAX]}


def _said(letter: DeadLetter, *, known: bool) -> str:
    """JSON takes no lone surrogates, which a message may quote."""
    message = letter.message.encode("utf-8", "backslashreplace").decode()
    return message if known else message + NOT_REPLAYABLE


def _usable(time_ms: int | None) -> int | None:
    """A letter is a record, too: with the time that made it one it could not be read."""
    return None if time_ms is None or USUAL_TIMES.why_not(time_ms, 0, of_column=False) else time_ms


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
