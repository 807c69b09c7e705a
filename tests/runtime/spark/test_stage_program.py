"""Tasks inside stages emit what the runtime's driver emits: bounded, in any portions, over restarts and given-up batches."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.runtime.errors import StateError, TopicMissing
from flowql.runtime.spark.shapes import DONE, NOTE, Row
from flowql.runtime.spark.stage import program
from flowql.runtime.spark.stage.exact import hash_int, slots
from flowql.runtime.spark.stage.layout import layout_of, loads
from flowql.runtime.spark.stage.processor import Head, decode_head
from flowql.runtime.spark.stage.program import program_from
from tests.runtime.spark.stage_local import LocalStages
from tests.runtime.spark.stage_world import (
    FAILS_TWICE,
    SHAPES,
    VIEWS,
    Event,
    Reference,
    comparable,
    dead_of,
    events,
    final,
    sink_of,
)


def local(reference: Reference, buckets: int = 0) -> LocalStages:
    partitions, coalesce = reference.partitions(), reference.coalesce
    layout = layout_of(reference.plan, reference.query, partitions, coalesce=coalesce, buckets=buckets)
    return LocalStages(loads(layout.dumps()))


def joined(batches: list[list[Row]]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for rows in batches:
        for p, records in sink_of(rows).items():
            found.setdefault(p, []).extend(records)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_a_bounded_run_emits_what_the_runtime_emits(shape: str) -> None:
    reference = Reference(shape)
    reference.send(events(250, 3))
    want, stages = reference.sink(), local(reference)
    assert sum(map(len, want.values())) > 20
    rows = stages.bounded(reference.packed())
    assert comparable(shape, sink_of(rows)) == comparable(shape, want)
    assert all(r.target == DONE for r in rows)


portions = st.lists(st.integers(1, 60), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(SHAPES)),
    st.integers(0, 1000),
    portions,
    st.integers(1, 20),
    st.integers(1, 50),
    st.sampled_from([None, True, False]),
    st.sets(st.integers(0, 3)),
    st.sets(st.integers(0, 3)),
)
def test_any_portions_with_restarts_and_given_up_batches(
    shape: str,
    seed: int,
    sizes: list[int],
    chunk: int,
    rows_per_run: int,
    vector: bool | None,
    restarts: set[int],
    given_up: set[int],
) -> None:
    reference, batches = Reference(shape), list[list[Row]]()
    stages = local(reference)
    feed = events(sum(sizes), seed)
    program_from.cache_clear()
    config = replace(program.CONFIG, rows_per_run=rows_per_run, vector=vector)
    with mock.patch.object(program, "CONFIG", config):
        for n, size in enumerate(sizes):
            reference.send(feed[:size])
            del feed[:size]
            if n in restarts:
                stages.restart()
            packed = reference.packed(n, chunk)
            if n in given_up:
                stages.abandon(packed)
            batches.append(stages.batch(packed))
    program_from.cache_clear()
    assert comparable(shape, joined(batches)) == comparable(shape, reference.sink())
    query = reference.query.id
    assert sorted(map(str, [d for b in batches for d in dead_of(b)])) == sorted(
        map(str, reference.world.values("flowql-dead-letters"))
    )
    late = reference.world.instance.metrics.query(query).late_records
    assert sum(sum(n["late"].values()) for b in batches for n in notes(b)) == late


@pytest.mark.parametrize(("width", "buckets"), [(1, 0), (3, 0), (3, 5)])
@pytest.mark.parametrize("view", VIEWS)
def test_views_of_standard_sql_have_the_rows_of_the_runtime(view: str, width: int, buckets: int) -> None:
    """In portions with restarts, and bounded; doubles to the last bit, as the bytes of records are compared. Each batch gives fewer updates."""
    reference = Reference(view, width=width)
    stages, feed, batches = local(reference, buckets), events(250, 3), list[list[Row]]()
    for n, start in enumerate((0, 40, 41, 200)):
        reference.send(feed[start : (40, 41, 200, 250)[n]])
        batches.append(stages.batch(reference.packed(n)))
        stages.restart()
    want = reference.rows_of(reference.sink())
    assert want
    assert reference.rows_of(joined(batches)) == want
    letters = reference.world.values("flowql-dead-letters")
    assert sum(len(dead_of(b)) for b in batches) == len(letters)
    if view != "as it is":  # rows meet the table as it is when they come, and in a bounded run they come by their times
        assert reference.rows_of(sink_of(stages.bounded(reference.packed()))) == want


def test_an_aggregate_without_groups_has_a_row_before_the_first_one() -> None:
    """Spark calls no task to which no row comes."""
    reference = Reference("one group")
    reference.send([])
    stages = local(reference)
    want = final(reference.sink())
    assert list(want.values()) == [b'{"n":0,"s":null}']
    assert final(sink_of(stages.bounded(reference.packed()))) == want
    reference.send([("d", 1, 2, 1)])  # which does not pass
    assert final(sink_of(stages.batch(reference.packed()))) == want


def test_a_record_at_which_several_expressions_fail_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a letter of its own, as on the runtime."""
    monkeypatch.setitem(SHAPES, "fails twice", FAILS_TWICE)
    reference = Reference("fails twice")
    stages = local(reference)
    reference.send(events(60, 3))
    rows = stages.batch(reference.packed())
    dead = sum(n["dead"] for n in notes(rows))
    assert dead == reference.world.instance.metrics.query(reference.query.id).dead_letters
    assert dead < len(dead_of(rows)) == len(reference.world.values("flowql-dead-letters"))


@pytest.mark.parametrize("buckets", [1, 7])
@pytest.mark.parametrize("shape", ["repartition", "hopping", "table"])
def test_behind_repartitions_any_number_of_buckets_gives_the_same_results(shape: str, buckets: int) -> None:
    """Fewer and more than the three partitions of topics, over restarts. No row is late here: lateness is that of a bucket."""
    reference, batches = Reference(shape, coalesce=True), list[list[Row]]()
    stages = local(reference, buckets=buckets)
    assert len(stages.layout.groups(stages.layout.grouped_levels()[-1])) == buckets
    feed = sorted(events(240, 5), key=lambda e: e[3])
    for n in range(3):
        reference.send(feed[80 * n : 80 * (n + 1)])
        stages.restart()
        batches.append(stages.batch(reference.packed(n)))
    assert final(joined(batches)) == final(reference.sink())
    assert sum(sum(note["late"].values()) for rows in batches for note in notes(rows)) == 0


def test_each_bucket_has_a_lateness_of_its_own() -> None:
    """As each task of the runtime has: a row is late by rows of its bucket alone."""
    reference, late = Reference("hopping"), []
    reference.send([("a", k, v, t) for v, t in ((0, 0), (1, 0), (2, 100), (0, 1), (1, 1)) for k in (0, 1)])
    for buckets in (1, 64):
        rows = local(reference, buckets=buckets).batch(reference.packed())
        late.append(sum(sum(note["late"].values()) for note in notes(rows)))
    assert late[0] > late[1] == 0


def notes(rows: list[Row]) -> list[dict[str, Any]]:
    return [json.loads(bytes(r.ipc)) for r in rows if r.kind == NOTE]


def test_records_that_come_again_are_skipped() -> None:
    reference = Reference("count")
    reference.send(events(80, 1))
    stages = local(reference)
    stages.batch(reference.packed())
    stages.restart()
    again = stages.batch(reference.packed())
    assert not sink_of(again)
    assert sum(n["records_in"] for n in notes(again)) == 0


def test_counters_survive_a_restart() -> None:
    reference = Reference("tumbling")
    stages, batches = local(reference), []
    for n in range(3):
        reference.send([("a", 1, 2, t) for t in (100 * n + 50, 100 * n, 100 * n + 51)])
        stages.restart()
        batches.append(stages.batch(reference.packed(n)))
    (note,) = (found for found in notes(batches[-1]) if found["records_in"])
    assert sum(note["since_start"]["late"].values()) == 3
    assert sum(note["late"].values()) == 1


@pytest.mark.parametrize("shape", ["count", "repartition", "tumbling"])
def test_merged_updates_end_in_the_same_table(shape: str) -> None:
    reference = Reference(shape, coalesce=True)
    reference.send(events(300, 7))
    got = sink_of(local(reference).bounded(reference.packed()))
    assert final(got) == final(reference.sink())
    assert sum(map(len, got.values())) == len(final(got)), "one record per key"


def test_a_batch_reads_and_writes_the_pages_of_its_keys_only() -> None:
    reference = Reference("count")
    many: list[Event] = [("a", k, 1, 1) for k in range(3 * 4000)]
    reference.send(many)
    stages = local(reference)
    stages.batch(reference.packed(0, 5000))
    stages.restart()
    storages = list(stages.storages.values())
    assert all(len(s.pages) > 2 for s in storages)
    before = [(s.reads, s.writes) for s in storages]
    reference.send([("a", 5, 1, 2)])
    stages.batch(reference.packed(1))
    read, written = (sum(s.reads for s in storages), sum(s.writes for s in storages))
    assert written - sum(w for _, w in before) <= 2
    assert read - sum(r for r, _ in before) <= 3


def test_the_layout_names_what_is_missing() -> None:
    reference = Reference("count")
    with pytest.raises(TopicMissing, match="a, which does not exist"):
        layout_of(reference.plan, reference.query, {})


def test_levels_and_free_parts() -> None:
    reference = Reference("lookup")
    layout = layout_of(reference.plan, reference.query, reference.partitions())
    assert layout.levels == {0: 0, 1: 1}
    assert layout.free == {0}
    assert layout.grouped_levels() == [1]
    assert layout.readers == {"a": (0,), "d": (1,)}
    assert layout.groups(1) == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("groups", [1, 2, 3, 12, 64])
def test_every_group_has_a_partition_of_its_own(groups: int) -> None:
    assert [hash_int(s) % groups for s in slots(groups)] == list(range(groups))


def test_a_head_of_another_format_is_refused() -> None:
    from flowql.runtime.spark.stage.processor import _encode

    with pytest.raises(StateError, match="format 99"):
        decode_head(_encode(Head(99, "q/0_0", b"v", b"m")))
    with pytest.raises(StateError, match="cannot be read"):
        decode_head(b"\xc1")
