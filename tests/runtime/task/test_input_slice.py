"""Where the rows of a run came from: put together from inputs, and as bytes."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from flowql.compiler.plan import types as t
from flowql.compiler.plan.schema import Field, Schema
from flowql.runtime.batch import UNKNOWN, Batch, Origins, concat_origins, from_rows
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.base import DeadLetter, SourceRecord
from flowql.runtime.task.batch_ipc import decode_batch, encode_batch
from flowql.runtime.task.input_buffer import DecodedRows
from flowql.runtime.task.input_slice import InputSlice, locate, locate_retired, origins_of, records_of
from flowql.runtime.task.peeked import PeekedRows

SCHEMA = Schema((Field("V", t.BIGINT),))
PLACES = [("a", 0), ("a", 1), ("b", 7)]


def batch(n: int, origins: Origins | None = None) -> Batch:
    made = from_rows(SCHEMA, [(i,) for i in range(n)], [0] * n, [0] * n, list(range(n)))
    return made if origins is None else made.with_origins(origins)


def known(places) -> Origins:
    """Of these (topic, partition, offset) or None."""
    found = tuple(dict.fromkeys(p[:2] for p in places if p is not None))
    which = np.array([found.index(p[:2]) if p is not None else 0 for p in places], np.int16)
    return Origins(found, which, np.array([UNKNOWN if p is None else p[2] for p in places], np.int64))


def listed(origins: Origins) -> list:
    return [origins.of(i) for i in range(len(origins))]


@pytest.mark.parametrize("seed", range(20))
def test_as_bytes_and_cut_and_put_together(seed):
    rng = random.Random(seed)
    base = rng.choice([0, 5, 2**40, 2**62])
    spread = rng.choice([1, 200, 70_000, 2**33])
    names = rng.sample(PLACES, rng.randint(1, 3))
    places = [
        None if rng.random() < 0.2 else (*rng.choice(names), base + rng.randrange(spread))
        for _ in range(rng.randint(1, 40))
    ]
    origins = known(places)
    back = decode_batch(encode_batch(batch(len(places), origins)), SCHEMA).origins
    if back is None:  # nothing is known of any
        assert not any(places)
        back = Origins.unknown(len(places))
    assert listed(back) == places
    cut = rng.randint(0, len(places))
    whole = batch(len(places), back)
    parts = [whole.slice(0, cut), whole.take(np.arange(cut, len(places)))]
    assert listed(concat_origins([p.origins for p in parts])) == places
    other = known([("c", 1, 4)])
    assert listed(concat_origins([other, origins])) == [("c", 1, 4), *places]


def test_a_stream_of_bytes_without_origins_is_read():
    """Of a commit that an earlier version has made."""
    assert decode_batch(encode_batch(batch(3)), SCHEMA).origins is None


def test_of_a_run_over_a_topic_and_a_repartition(monkeypatch):
    records = pa.RecordBatch.from_arrays([pa.array([10, 11, 13, 14])], names=["offset"])
    raw = RawBatch(TopicPartition("t", 2), records, 15, 0)
    decoded = DecodedRows(batch(3), np.array([0, 2, 3]), 4, [], raw)
    channel = batch(3, known([("a", 0, 5), None, ("a", 1, 6)]))
    of_topic = InputSlice(
        "t", "scan", 1, np.array([0, 3]), PeekedRows([decoded.batch], 1, np.zeros(2), more=False), decoded
    )
    of_channel = InputSlice(
        "x#0", "exchange", 0, np.array([1, 2, 4]), PeekedRows([channel], 0, np.zeros(3), more=False)
    )
    looks, look = [], InputSlice.origins
    monkeypatch.setattr(InputSlice, "origins", lambda taken: looks.append(taken) or look(taken))
    origins = origins_of([of_topic, of_channel])
    assert not looks, "nothing is done for a run that nobody asks about"
    assert origins is not None
    everything = [("t", 2, 13), ("a", 0, 5), None, ("t", 2, 14), ("a", 1, 6)]
    assert listed(origins(np.arange(5))) == everything
    assert listed(origins(np.array([4, 0]))) == [everything[4], everything[0]]
    assert len(looks) == 2, "each input once, however many letters there are"


@pytest.mark.parametrize("in_topic", [False, True])
def test_the_record_behind_a_row_and_behind_a_dead_letter(in_topic):
    """Of a row of a topic its bytes, of a row of a repartition its place, of a row that no input has nothing."""
    columns = [[10, 11, 13], [1, 2, 3], [b"k", None, b"m"], [b"x", b"y", None], [None] * 3]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, RECORD_SCHEMA, strict=True)]
    raw = RawBatch(TopicPartition("t", 2), pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA), 14, 0)
    decoded = DecodedRows(batch(3), np.array([0, 1, 2]), 3, [], raw)
    channel = batch(2, known([("a", 0, 5), None]))
    through = DecodedRows(channel, np.array([0, 0]), 1, [], raw) if in_topic else None  # records of a repartition topic
    taken = [
        InputSlice("u", "scan", 3, np.array([], np.int64), decoded=decoded),
        InputSlice("t", "scan", 1, np.array([0, 3]), PeekedRows([decoded.batch], 1, np.zeros(2), more=False), decoded),
        InputSlice("x#0", "exchange", 0, np.array([1, 2]), PeekedRows([channel], 0, np.zeros(2), more=False), through),
    ]
    origins = origins_of(taken)
    behind = [
        SourceRecord("t", 2, 11, 2, None, b"y"),
        SourceRecord("a", 0, 5),
        None,
        SourceRecord("t", 2, 13, 3, b"m", None),
    ]
    assert records_of(taken, origins)(np.arange(5)) == [*behind, None]
    assert records_of(taken, None)(np.arange(4)) == [behind[0], None, None, behind[3]]
    letters = [DeadLetter(seq, "FQ4020", "bad") for seq in range(5)]
    found = [locate(letter, taken, origins) for letter in letters[:4]]
    assert [(f.raw is raw, f.index) for f in found if f.raw is not None] == [(True, 1), (True, 2)]
    assert [f.origin for f in found if f.raw is None] == [("a", 0, 5), None]
    with pytest.raises(AssertionError, match="row 4 belongs to no input"):
        locate(letters[4], taken, origins)
    retired = [behind[0], behind[1], None]
    kept = [locate_retired(letter, retired) for letter in letters[:4]]
    assert [f.origin for f in kept] == [None, ("a", 0, 5), None, None]
    assert kept[0].raw is not None
    assert kept[0].raw.records.to_pylist()[0] == raw.records.to_pylist()[1]
    assert (kept[0].raw.tp, kept[0].raw.next_offset) == (raw.tp, 12)
