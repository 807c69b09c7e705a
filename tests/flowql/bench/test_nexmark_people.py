"""Persons and auctions: same rows however they are cut, sellers known sooner or later, all kinds on one timeline."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowql.bench.nexmark import bids, json_values, records
from flowql.bench.nexmark_input import rows_of, write_log, write_parquet
from flowql.bench.nexmark_people import MAKERS, SCHEMAS, auctions, counts, persons
from flowql.bench.nexmark_timeline import BLOCK
from flowql.runtime.log.base import EARLIEST, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog


@pytest.mark.parametrize("topic", ["person", "auction"])
@pytest.mark.parametrize(("rows", "chunk"), [(1, 1), (999, 100), (BLOCK + 1, 30_000), (0, 10)])
def test_rows_do_not_depend_on_how_many_or_how_cut(topic: str, rows: int, chunk: int) -> None:
    made = list(MAKERS[topic](rows, chunk=chunk))
    assert [b.num_rows for b in made[:-1]] == [chunk] * (len(made) - 1)
    whole = pa.Table.from_batches(MAKERS[topic](BLOCK + 5)).slice(0, rows).combine_chunks()
    assert pa.Table.from_batches(made, SCHEMAS[topic]).combine_chunks().equals(whole)


def test_kinds_draw_apart_and_from_the_seed() -> None:
    assert not next(persons(50, seed=1)).equals(next(persons(50, seed=2)))
    assert not next(auctions(50, seed=1)).equals(next(auctions(50, seed=2)))
    assert next(persons(50)).column("extra")[0].as_py()[:30] != next(bids(50)).column("extra")[0].as_py()


def test_the_timeline_is_one_to_three_to_fortysix() -> None:
    count = counts(46_000)
    assert count == {"person": 1_000, "auction": 3_000, "bid": 46_000}
    times = {t: np.asarray(next(MAKERS[t](n)).column("dateTime")) for t, n in count.items()}
    merged = np.sort(np.concatenate(list(times.values())))
    assert (merged == merged[0] + np.arange(50_000) // 10).all()
    assert all((np.diff(t) >= 0).all() for t in times.values())


def test_sellers_may_join_later_and_hot_ones_sell_most() -> None:
    sold = next(auctions(30_000))
    newest = np.arange(30_000) // 3 + 1000
    seller = np.asarray(sold.column("seller"))
    assert (seller > newest).any()
    assert (seller <= newest + 10).all()
    assert 0.7 < np.mean((seller - 1000) % 100 == 0) < 0.8
    assert set(np.asarray(sold.column("category"))) == {10, 11, 12, 13, 14}


@pytest.mark.parametrize("topic", ["person", "auction"])
def test_values_are_json_of_the_row(topic: str) -> None:
    batch = next(MAKERS[topic](200))
    assert [json.loads(v) for v in json_values(batch).to_pylist()] == batch.to_pylist()


def test_log_and_parquet_hold_the_same_events(tmp_path: Path) -> None:
    write_log(tmp_path, 2_300)
    files = write_parquet(tmp_path / "parquet", 2_300)
    log = EmbeddedLog(tmp_path / "log")
    for topic, count in counts(2_300).items():
        table = pq.read_table(files[topic])
        assert table.num_rows == count
        assert table.equals(rows_of(topic, 2_300)().read_all())
        for partition in range(4):
            batch = log.reader(TopicPartition(topic, partition), EARLIEST).read(10_000, 1 << 24)
            assert batch is not None
            want = [r for p, r in records(iter(table.combine_chunks().to_batches()), 4) if p == partition]
            assert batch.records.column("value").to_pylist() == want[0].column("value").to_pylist()
    log.close()
