"""What a buffer of fetched records knows of its position, and that no record is given twice or left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT
from flowql.runtime.batch import Origins, from_rows
from flowql.runtime.config import LetterRetention
from flowql.runtime.log.base import RawBatch
from flowql.runtime.operators.base import DeadLetter
from flowql.runtime.task.batch_ipc import decode_batch, encode_batch
from flowql.runtime.task.dead_letters import SEGMENT_AGE_MS, SEGMENT_BYTES, SEGMENT_BYTES_MIN, topic_config
from flowql.runtime.task.input_buffer import DecodedRows, LogInput, Probes
from flowql.runtime.task.position_names import positions_of_input, topic_named
from tests.runtime.task.test_gathering import TP, fetched

SCHEMA = Schema((Field("V", BIGINT),))


def decoded(raw: RawBatch, origin: Sequence[int], dead: Sequence[int] = ()) -> DecodedRows:
    """One row for each number in `origin`, that of its record in the batch."""
    n = len(origin)
    rows = from_rows(SCHEMA, [(i,) for i in range(n)], list(range(n)), [0] * n, list(range(n)))
    letters = [DeadLetter(seq, "BAD_VALUE", "no") for seq in dead]
    return DecodedRows(rows, np.array(origin, np.int64), raw.records.num_rows, letters, raw)


def test_records_that_were_fetched_before_are_cut_off() -> None:
    """Two readers of a partition may give batches that overlap."""
    source = LogInput("op", TP, 0)
    source.add(fetched(0, 10))
    for again in (fetched(4, 6), fetched(0, 10), fetched(2, 3, after=5)):
        source.add(again)
    assert (source.rows, source.next_fetch, source.size_bytes) == (10, 10, 100)
    source.add(fetched(6, 10, after=2))
    assert (source.rows, source.next_fetch, source.size_bytes) == (16, 18, 160)
    assert [b.records.column("offset").to_pylist() for b in source.queue] == [list(range(10)), list(range(10, 16))]
    source.add(fetched(10, 6, after=4))
    assert (source.rows, source.next_fetch, source.position) == (16, 20, 0), "of it there were only markers left"


def test_a_record_that_holds_many_rows_may_be_processed_in_part() -> None:
    source = LogInput("op", TP, 0)
    source.add(fetched(0, 3))
    source.decode_next(lambda raw, parts: decoded(raw, [0, 0, 0, 1, 1, 2]))
    seen = []
    for cursor in range(1, 6):
        source.consume(cursor)
        seen.append((source.position, source.rows_within, source.at, source.rows))
    assert seen == [(0, 1, 0, 3), (0, 2, 0, 3), (1, 0, 1, 2), (1, 1, 1, 2), (2, 0, 2, 1)]
    source.consume(6)
    assert (source.position, source.rows_within, source.at, source.rows) == (3, 0, 3, 0)


def test_a_restart_within_a_record_goes_on_with_the_row_behind_the_last_published_one() -> None:
    source = LogInput("op", TP, 5, within=2)
    assert source.rows_within == 2
    source.add(fetched(5, 1))
    found = source.decode_next(lambda raw, parts: decoded(raw, [0, 0, 0]))
    assert found is not None
    assert (found.cursor, source.rows_within, source.peek(9).batches[0].rows()[found.cursor :]) == (2, 2, [(2,)])
    source.consume(3)
    assert (source.position, source.rows_within) == (6, 0)


def test_unreadable_records_leave_with_the_rows_before_them_and_each_is_told_once() -> None:
    source = LogInput("op", TP, 0)
    source.add(fetched(0, 5))
    source.decode_next(lambda raw, parts: decoded(raw, [1, 3], dead=[0, 2, 4]))
    assert [d.seq for d in source.consume(1)] == [0, 2]
    assert (source.position, source.at) == (3, 3)
    assert [d.seq for d in source.consume(2)] == [4]
    assert (source.position, source.rows) == (5, 0)


def test_what_a_fused_run_has_consumed_is_not_decoded_again() -> None:
    source, seen = LogInput("op", TP, 0), []

    def decode(raw: RawBatch, parts: Sequence[RawBatch]) -> DecodedRows:
        seen.append(raw.records.column("offset").to_pylist())
        return decoded(raw, range(raw.records.num_rows))

    source.add(fetched(0, 10))
    source.consume_raw(4)
    assert (source.position, source.at, source.rows, source.size_bytes) == (4, 4, 6, 100)
    source.decode_next(decode)
    assert seen == [[4, 5, 6, 7, 8, 9]]
    assert (source.size_bytes, source.skipped) == (60, 0)
    source.consume(5)
    assert (source.position, source.rows) == (9, 1)
    source.consume(6)
    assert (source.position, source.rows, source.size_bytes) == (10, 0, 0)


def test_rows_of_batches_that_are_decoded_together_keep_the_records_they_came_from() -> None:
    raws = [fetched(0, 3), fetched(3, 2), fetched(5, 1)]
    parts = [decoded(raws[0], [0, 2], dead=[1]), decoded(raws[1], [0, 1, 1]), decoded(raws[2], [], dead=[0])]
    joined = DecodedRows.joined(parts, fetched(0, 6))
    assert joined.origin.tolist() == [0, 2, 3, 4, 4]
    assert [d.seq for d in joined.dead_letters] == [1, 5]
    assert [row for (row,) in joined.batch.rows()] == [0, 1, 0, 1, 2]
    alone = DecodedRows.joined(parts[:1], raws[0])
    assert (alone.origin.tolist(), alone.raw_rows, len(alone.batch)) == ([0, 2], 3, 2)


def test_a_channel_that_no_rows_of_others_wait_for_is_idle_at_its_end() -> None:
    channel = LogInput("op", TP, 0, channel=b"k", probes=Probes())
    assert channel.idle
    assert not channel.waited_for
    channel.end_offset = 1
    assert not channel.idle, "more is known to exist"
    channel.add(fetched(0, 1))
    assert (channel.idle, channel.has_rows) == (False, True)
    channel.consume_raw(1)
    assert channel.idle
    other = LogInput("op", TP, 0, channel=b"j", probes=channel.probes)
    channel.siblings = other.siblings = [channel, other]
    other.end_offset = 2
    channel.add(fetched(1, 1))
    assert (other.waited_for, other.more_to_come) == (True, True)
    other.complete, other.complete_at = 1, 2
    assert (other.waited_for, other.idle) == (False, False), "it is not read up to there"
    other.add(fetched(1, 0, after=1))
    assert (other.idle, other.more_to_come) == (True, False)


def test_origins_of_rows_are_written_by_their_distance_from_the_lowest() -> None:
    """Rows between tasks carry them, so that a byte or two for each is much."""
    n, unknown, sizes = 200, -1, []
    for offset in (0, 7, 10**15):
        offsets = np.array([unknown if i % 3 == 0 else offset + i for i in range(n)], np.int64)
        rows = from_rows(SCHEMA, [(0,)] * n, [0] * n, [0] * n, list(range(n)))
        rows.origins = Origins((("t", 0),), np.zeros(n, np.int16), offsets)
        written = encode_batch(rows)
        found = decode_batch(written, SCHEMA).origins
        assert found is not None
        assert [found.of(i) for i in range(n)] == [rows.origins.of(i) for i in range(n)]
        sizes.append(len(written))
    assert max(sizes) - min(sizes) < n


@pytest.mark.parametrize(
    ("kept", "segment"),
    [
        (LetterRetention(-1, -1), (SEGMENT_AGE_MS, SEGMENT_BYTES)),
        (LetterRetention(0, 0), (1, SEGMENT_BYTES_MIN)),
        (LetterRetention(7, 8 * SEGMENT_BYTES_MIN), (1, SEGMENT_BYTES_MIN)),
        (LetterRetention(70, 16 * SEGMENT_BYTES_MIN), (10, 2 * SEGMENT_BYTES_MIN)),
        (LetterRetention(70, 1 << 50), (10, SEGMENT_BYTES)),
    ],
)
def test_segments_of_dead_letters_are_a_small_part_of_what_is_kept(
    kept: LetterRetention, segment: tuple[int, int]
) -> None:
    config = topic_config(kept)
    assert (config["retention.ms"], config["retention.bytes"]) == (str(kept.age_ms), str(kept.size_bytes))
    assert (int(config["segment.ms"]), int(config["segment.bytes"])) == segment


@pytest.mark.parametrize("buffered", [0, 1])
def test_records_of_other_channels_are_passed_over(buffered: int) -> None:
    """They would be fetched again and again, and its input would never be idle."""
    source = LogInput("op", TP, 0, channel=b"k")
    if buffered:
        source.add(fetched(0, buffered))
    other = LogInput("op", TP, 0, channel=b"j")
    other.add(fetched(0, 3))
    assert (other.next_fetch, other.position, other.rows, other.seen) == (3, 3, 0, (3, 0))
    source.add(fetched(buffered, 2, after=4))
    assert (source.next_fetch, source.position, source.rows) == (buffered + 6, 0, buffered + 2)


def test_every_input_of_a_partition_has_a_position_of_its_own() -> None:
    first, second = (LogInput("op", TP, 0, ordinal=n) for n in range(2))
    channels = [LogInput("op", TP, 0, channel=b"k", source=n) for n in range(2)]
    names = [i.name for i in (first, second, *channels)]
    assert names == ["t", "t#1", "t#0", "t#1"], "a task reads a topic in channels or as a whole"
    assert {topic_named(name) for name in names} == {"t"}
    assert [second.name_in("u"), channels[0].name_in("u")] == ["u#1", "u#0"]
    positions = {"t": 5, "t#1": 7, "u": 3}
    assert [i.position_in(positions, 9) for i in (first, second)] == [5, 7]
    assert second.position_in({"t": 5}, 9) == 5, "an older version wrote one for all"
    assert second.position_in({}, 9) == 9
    assert positions_of_input(positions, 0) == {"t": 5, "u": 3}
    assert positions_of_input(positions, 1) == {"t": 7, "u": 3}
