"""The records of letters that came without their bytes: of rows behind a repartition, and of what was too large for a letter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flowql.dlq.letters import Letter
from flowql.runtime.errors import LogError
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.repairs import RepairedLog


def is_whole(letter: Letter) -> bool:
    """It has the bytes of its record, or names none."""
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
