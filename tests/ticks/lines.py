"""Readers of results have a state that was at each line that leaders of a group have written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flowql.runtime.log.base import EARLIEST, Log, TopicPartition
from flowql.runtime.ticks.record import LINES, Line, Lines, tick_topic

ALL = 1 << 60


class Results:
    """All that was committed to topics of results, read once."""

    def __init__(self, log: Log, application_id: str) -> None:
        self._log, self._app = log, application_id
        self._records: dict[TopicPartition, list[tuple[int, bytes | None, bytes | None]]] = {}

    def lines(self) -> Iterator[tuple[str, Line]]:
        """All that leaders have written, in order."""
        for _, key, value in _read(self._log, tick_topic(self._app)):
            if key == LINES:
                yield from Lines.decode(value or b"").stages.items()

    def everything(self, topic: str) -> dict[TopicPartition, int]:
        return {TopicPartition(topic, p): ALL for p in range(self._log.admin().topics()[topic].partitions)}

    def history(self, topic: str) -> list[dict[str, Any]]:
        """All rows that were ever written there."""
        found = [value for tp in self.everything(topic) for _, _, value in self._of(tp)]
        return [json.loads(value) for value in found if value is not None]

    def rows(self, topic: str, ends: Mapping[TopicPartition, int]) -> dict[bytes | None, dict[str, Any]]:
        """The rows that a reader has read up to these ends, by their keys."""
        rows: dict[bytes | None, dict[str, Any]] = {}
        for tp, end in ends.items():
            for offset, key, value in self._of(tp) if tp.topic == topic else ():
                if offset < end:
                    rows.pop(key, None)
                    if value is not None:
                        rows[key] = json.loads(value)
        return rows

    def _of(self, tp: TopicPartition) -> Sequence[tuple[int, bytes | None, bytes | None]]:
        if tp not in self._records:
            self._records[tp] = _read(self._log, tp)
        return self._records[tp]


def _read(log: Log, tp: TopicPartition) -> list[tuple[int, bytes | None, bytes | None]]:
    found = list[tuple[int, bytes | None, bytes | None]]()
    reader = log.reader(tp, EARLIEST)
    while (batch := reader.read(100_000, 1 << 30)) is not None:
        columns = (batch.records.column(name).to_pylist() for name in ("offset", "key", "value"))
        found += zip(*columns, strict=True)
    reader.close()
    return found


def sums_at_lines(results: Results) -> tuple[list[str], dict[int, int]]:
    """Sentences about lines of `balance` and `total` at which their inputs do not fit together; and the sums that were seen, by tick."""
    wrong, paid, before = list[str](), dict[int, dict[str, int]](), dict[str, int]()
    for name, line in results.lines():
        read = {tp.topic for tp in line.ends}
        for topic in sorted({"credits", "debits"} & read):
            seen = sum(row["v"] for row in results.rows(topic, line.ends).values())
            if seen < before.get(topic, 0):
                wrong.append(f"{topic} went back at tick {line.tick} for {name}: from {before[topic]} to {seen}")
            before[topic] = paid.setdefault(line.tick, {})[topic] = seen
        if "balance" in read and (off := [r for r in results.rows("balance", line.ends).values() if r["bal"]]):
            wrong.append(f"not in balance at tick {line.tick} for {name}: {off}")
    both = {tick: of for tick, of in paid.items() if len(of) == 2}
    wrong += [f"they differ at tick {tick}: {of}" for tick, of in both.items() if of["credits"] != of["debits"]]
    return wrong, {tick: of["credits"] for tick, of in both.items()}


def moments_at_lines(results: Results) -> tuple[list[str], set[frozenset[bytes | None]]]:
    """Sentences about ticks at which views with NOW() differ; and the sets of rows that were seen."""
    present = dict[int, dict[str, frozenset[bytes | None]]]()
    for _, line in results.lines():
        for topic in {"young", "recent"} & {tp.topic for tp in line.ends}:
            present.setdefault(line.tick, {})[topic] = frozenset(results.rows(topic, line.ends))
    both = {tick: of for tick, of in present.items() if len(of) == 2}
    wrong = [f"NOW() differs at tick {tick}: {of}" for tick, of in both.items() if of["young"] != of["recent"]]
    return wrong, {of["young"] for of in both.values()}
