"""What a task did not use, added up over runs and partitions; how many rows a run takes."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT
from flowql.runtime.batch import from_rows
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.base import NO_TIME, DeadLetter, Looks
from flowql.runtime.task.dead_letters import LocatedDeadLetter, each_once, encode, records_of, written_at
from flowql.runtime.task.isolate import RowLimit
from flowql.runtime.task.lost import FIRST_ROWS, LateCount, losses_of, with_micro_batch
from flowql.runtime.task.repartition import ENVELOPE_ROWS, channel_key, enclose, open_envelopes, topic_of


def test_late_rows_add_up_and_the_furthest_behind_is_kept() -> None:
    assert with_micro_batch({}, {}, {}, {}, 0, {}) == {}
    first = with_micro_batch({}, {"w": 2, "j": 1}, {"w": 50}, {"w": 900}, 3, {})
    second = with_micro_batch(first, {"w": 1}, {"w": 20}, {"w": 1_000}, 0, {})
    third = with_micro_batch(second, {"w": 4}, {"w": 70}, {"w": 800}, 2, {})
    assert first == {"late": {"w": [2, 50, 900], "j": [1, 0, 0]}, "dead": 3}
    assert second["late"]["w"] == [3, 50, 1_000]
    assert third == {"late": {"w": [7, 70, 1_000], "j": [1, 0, 0]}, "dead": 5}
    assert with_micro_batch(third, {}, {}, {}, 0, {}) == third
    found = losses_of([(1, third), (0, first), (2, {})])
    assert found.late == (
        LateCount("j", 0, 1, 0, 0),
        LateCount("j", 1, 1, 0, 0),
        LateCount("w", 0, 2, 50, 900),
        LateCount("w", 1, 7, 70, 1_000),
    )
    assert (found.dead_letters, found.late_records, found.notes) == (8, 11, ())
    assert found.to_data() == {
        "dead_letters": 8,
        "late_records": 11,
        "late": [
            {"operator": o, "partition": p, "rows": n, "behind_ms": b, "stream_time": t}
            for o, p, n, b, t in (("j", 0, 1, 0, 0), ("j", 1, 1, 0, 0), ("w", 0, 2, 50, 900), ("w", 1, 7, 70, 1_000))
        ],
        "notes": [],
    }


def looked(*runs: tuple[int, int, int, int]) -> dict[str, Any]:
    """What is kept of a join after runs of (stream rows, of which met one, latest of these, latest of the table's)."""
    lost: dict[str, Any] = {}
    for rows, found, stream_ms, table_ms in runs:
        lost = with_micro_batch(lost, {}, {}, {}, 0, {"join-1": Looks(rows, found, stream_ms, table_ms)})
    return lost


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([looked((FIRST_ROWS, 0, 50, 60))], True),
        ([looked((FIRST_ROWS - 1, 0, 50, 60))], False),
        ([looked((FIRST_ROWS, 0, 50, 50))], False),
        ([looked((FIRST_ROWS, 1, 50, 60))], False),
        ([looked((FIRST_ROWS // 2, 0, 50, NO_TIME), (FIRST_ROWS // 2, 0, 40, 55))], True),
        ([looked((FIRST_ROWS // 2, 0, 50, NO_TIME)), looked((FIRST_ROWS // 2, 0, 90, 60))], True),
        ([looked((FIRST_ROWS, 0, 50, NO_TIME)), looked((0, 0, NO_TIME, 60))], True),
        ([looked((FIRST_ROWS, 0, 50, 60)), looked((10, 1, 50, 60))], False),
        ([looked((0, 0, NO_TIME, 60))], False),
        ([looked((FIRST_ROWS, 0, 50, 40), (10, 10, 90, 60))], True),
    ],
)
def test_a_join_whose_first_rows_met_nothing_of_a_later_table_is_told(parts: list[dict[str, Any]], told: bool) -> None:
    """What rows do after the first thousand does not count."""
    notes = losses_of(enumerate(parts)).notes
    assert [n.startswith("join-1: none of its first 1,0") for n in notes] == [True] * told


def test_after_a_failure_runs_take_half_and_after_successes_as_many_as_before() -> None:
    limit, tried = RowLimit(), []
    while limit.failed(limit.of(1_000)):
        tried.append(limit.of(1_000))
    assert tried == [500, 250, 125, 62, 31, 15, 7, 3, 1]
    assert not limit.failed(1)
    sizes = []
    for _ in range(12):
        limit.succeeded(1_000)
        sizes.append(limit.of(1_000))
    assert sizes == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000, 1_000, 1_000]
    assert (limit.of(5), limit.of(10_000)) == (5, 10_000)


def test_of_two_rows_that_fail_together_the_first_is_tried_alone_before_it_is_left_out() -> None:
    limit = RowLimit()
    assert limit.failed(2)
    assert limit.of(1_000) == 1
    assert not limit.failed(1)
    limit.succeeded(2)
    assert limit.of(1_000) == 1_000, "twice as many were all that was asked for"


def test_letters_of_one_run_are_told_apart_by_record_and_by_row_where_that_is_not_known() -> None:
    def letter(seq: int, message: str, origin: tuple[str, int, int] | None = None) -> LocatedDeadLetter:
        return LocatedDeadLetter(DeadLetter(seq, "FQ4031", message), None, origin=origin)

    record, next_record = ("t", 0, 7), ("t", 0, 8)
    first, other = letter(0, "no number", record), letter(1, "no time", record)
    of_next, unknown, unknown_too = letter(2, "no number", next_record), letter(3, "no number"), letter(4, "no number")
    letters = [first, letter(5, "no number", record), other, of_next, unknown, unknown_too]
    assert each_once(letters) == [first, other, of_next, unknown, unknown_too]
    assert records_of(letters) == 4


def test_letters_that_were_encoded_before_get_the_time_when_they_are_written() -> None:
    records = encode("Q", [LocatedDeadLetter(DeadLetter(n, "FQ4031", "no number"), None) for n in range(2)])
    written = written_at(records, 1_900_000_000_000)
    assert written.column("timestamp").to_pylist() == [1_900_000_000_000] * 2
    assert written.drop_columns("timestamp") == records.drop_columns("timestamp")


def test_after_a_run_that_took_long_to_fail_sixteen_rows_go_alone_before_more_are_tried() -> None:
    limit, sizes = RowLimit(), []
    limit.one_by_one()
    for _ in range(20):
        sizes.append(limit.of(1_000))
        limit.succeeded(1_000)
    assert sizes == [1] * 17 + [2, 4, 8]


@pytest.mark.parametrize("rows", [1, ENVELOPE_ROWS, ENVELOPE_ROWS + 1, 2 * ENVELOPE_ROWS + 5])
def test_rows_come_out_of_envelopes_as_they_went_in(rows: int) -> None:
    schema = Schema((Field("K", BIGINT, "key"), Field("V", BIGINT)))
    sent = from_rows(schema, [(n, 2 * n) for n in range(rows)], range(rows), [n % 4 for n in range(rows)], range(rows))
    made = enclose(sent, 258)
    pieces = -(-rows // ENVELOPE_ROWS)
    assert made.column("key").to_pylist() == [channel_key(258)] * pieces == [b"\0\0\1\2"] * pieces
    assert set(made.column("timestamp").to_pylist()) == {1}, "not 0, which Kafka's client takes for now"
    records = made.to_pylist()
    fetched = type(made).from_pylist([{**r, "offset": n} for n, r in enumerate(records)], RECORD_SCHEMA)
    decoded = open_envelopes(RawBatch(TopicPartition("r", 0), fetched, pieces, 1), schema)
    assert (decoded.batch.rows(), decoded.batch.op.tolist()) == (sent.rows(), sent.op.tolist())
    assert decoded.batch.rowtime.tolist() == list(range(rows))
    assert decoded.origin.tolist() == [n // ENVELOPE_ROWS for n in range(rows)]
    assert (decoded.raw_rows, decoded.dead_letters) == (pieces, [])
    assert topic_of("app", "Q-1@2") == "app-Q-1.g2"
