"""A history computed by the stages that run inside Spark, then live records on the runtime: as one continuous run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowql.compiler.plan.generations import at_generation, plain
from flowql.compiler.plan.topology import stores_of
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.errors import HandoverUnfit
from flowql.runtime.spark.shapes import DONE, Row, read_rows, write_rows
from flowql.runtime.spark.stage.layout import layout_of
from flowql.runtime.spark.stage.program import GroupedStage
from flowql.runtime.state.computed_history import (
    DEAD,
    HISTORY_SCHEMA,
    ROWS,
    SINK,
    TASK,
    ComputedHistory,
    HistoryManifest,
    decode_page,
    shape_of,
    write_manifest,
    write_part,
)
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.task_state import ManagedTask
from tests.runtime.app.harness import plan_of
from tests.runtime.spark import stage_world
from tests.runtime.spark.stage_local import LocalStages
from tests.runtime.spark.stage_world import SHAPES, VIEWS, Reference, comparable, events, final

HISTORY, LIVE = 220, 120
PARTS = 2


def computed(reference: Reference, folder: Path, *, coalesce: bool = False) -> ComputedHistory:
    """What `flowql.runtime.spark.backfill.compute` writes, without Spark: its stages chained by hand."""
    plan = plan_of(reference.text, dialect=reference.dialect)
    query = at_generation(plan.queries[0], 1)
    partitions = reference.partitions()
    layout = layout_of(plan, query, partitions, coalesce=coalesce, grouped=True)
    assert not layout.free
    batches = LocalStages(layout).begun(reference.packed())
    for level in layout.grouped_levels():
        batches = list(GroupedStage(layout.dumps(), level, hands_over=True)(batches))
    rows = [r._replace(ipc=bytes(r.ipc)) for b in batches for r in read_rows(b) if r.kind != "note"]
    assert all(r.target == DONE for r in rows)
    parts = tuple(
        write_part(
            folder,
            [pa.RecordBatch.from_arrays(b.columns[1:7], schema=HISTORY_SCHEMA) for b in write_rows(rows[n::PARTS])],
            "test",
        )
        for n in range(PARTS)
    )
    ends: dict[str, dict[str, int]] = {}
    for tp, end in reference.cuts[-1].items():
        if tp.topic in layout.readers:
            ends.setdefault(tp.topic, {})[str(tp.partition)] = end
    counts = [
        _count(rows, SINK),
        _count(rows, DEAD),
        sum(len(decode_page(pa.py_buffer(bytes(r.ipc)))[0]) for r in rows if r.kind == ROWS),
    ]
    counts.append(sum(r.kind == TASK for r in rows))
    starts = {t: dict.fromkeys(at, 0) for t, at in ends.items()}
    write_manifest(
        folder,
        HistoryManifest(
            query.id, query.definition, shape_of(query), {t: partitions[t] for t in ends}, starts, ends, *counts, parts
        ),
    )
    return ComputedHistory(folder)


def _count(rows: list[Row], kind: str) -> int:
    return sum(b.num_rows for r in rows if r.kind == kind for b in pa.ipc.open_stream(r.ipc))


def deploy(reference: Reference, history: ComputedHistory | None = None) -> None:
    instance = reference.world.instance
    plan = plan_of(reference.text, instance.plan if instance.plan.queries else None, reference.dialect)
    histories: Mapping[str, ComputedHistory] = {} if history is None else {history.manifest.query: history}
    instance.deploy(plan, refresh=list(histories), histories=histories)


def stores(reference: Reference) -> dict[str, Any]:
    """All rows of the query's stores, by their names in generation 1."""
    snapshot, plan = reference.world.instance.snapshot(), reference.world.instance.plan
    found = {plain(s.name, q.generation): sorted(snapshot.scan(s.name), key=repr) for q, s in stores_of(plan)}
    snapshot.close()
    return found


def tasks(reference: Reference) -> dict[str, Any]:
    """Positions, stream times and losses of all tasks."""
    (running,) = reference.world.instance.queries.values()
    return {str(t.id).rpartition("/")[2]: _comparable(t.state.metadata) for t in running.built.tasks}


def _comparable(metadata: dict[str, Any]) -> dict[str, Any]:
    """Without the stream time at which rows were late, which is that of the end of a run, wherever runs are cut."""
    lost = metadata.get("lost", {})
    late = {operator: found[:2] for operator, found in lost.get("late", {}).items()}
    return {**metadata, "lost": {**lost, "late": late}}


def bounds(reference: Reference) -> dict[str, int]:
    """Times below which stores hold nothing any more, by task and store."""
    (running,) = reference.world.instance.queries.values()
    found = {}
    for task in running.built.tasks:
        assert isinstance(task.state, ManagedTask)
        found |= {f"{task.id} {name}": store.committed_bound_ms for name, store in task.state.stores.items()}
    return found


def letters(reference: Reference) -> list[Any]:
    found = [{**v, "GENERATION": 0} for v in reference.world.values("flowql-dead-letters")]
    return sorted(found, key=repr)


@pytest.mark.turns("cases")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_new_query_that_begins_with_a_history_is_as_one_run(shape: str, seed: int, tmp_path: Path) -> None:
    feed = events(HISTORY + LIVE, seed)
    whole, continued = Reference(shape), Reference(shape, begins=False)
    for reference in (whole, continued):
        reference.send(feed[:HISTORY])
    deploy(continued, computed(continued, tmp_path / "h"))
    assert continued.world.lag(continued.query.id) == 0, "it goes on at the end of the history"
    assert bounds(continued) == bounds(whole), "before live records move them"
    for reference in (whole, continued):
        reference.send(feed[HISTORY:])
    assert comparable(shape, continued.sink()) == comparable(shape, whole.sink())
    assert stores(continued) == stores(whole)
    assert tasks(continued) == tasks(whole)
    assert letters(continued) == letters(whole)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_generation_that_begins_with_a_history_swaps_in(shape: str, tmp_path: Path) -> None:
    feed = events(HISTORY + LIVE, 3)
    whole, continued = Reference(shape), Reference(shape)
    for reference in (whole, continued):
        reference.send(feed[:HISTORY])
    deploy(continued, computed(continued, tmp_path / "h", coalesce=True))
    for reference in (whole, continued):
        reference.send(feed[HISTORY:])
    assert continued.query.generation == 2
    assert continued.world.instance.deployer.rebuilt
    same = final if "TABLE" in SHAPES[shape] else lambda sink: comparable(shape, sink)
    assert same(continued.sink()) == same(whole.sink())
    assert stores(continued) == stores(whole)


@pytest.mark.parametrize(
    "view", sorted(VIEWS.keys() - {"as it is"})
)  # whose rows meet the table as it is when they come
def test_a_view_that_begins_with_a_history_is_as_one_run(view: str, tmp_path: Path) -> None:
    feed = events(HISTORY + LIVE, 1)
    whole, continued = Reference(view), Reference(view, begins=False)
    for reference in (whole, continued):
        reference.send(feed[:HISTORY])
    deploy(continued, computed(continued, tmp_path / "h"))
    for reference in (whole, continued):
        reference.send(feed[HISTORY:])
    assert continued.rows_of(continued.sink()) == whole.rows_of(whole.sink())
    assert letters(continued) == letters(whole)


MORE = {
    "table-table": """CREATE TABLE E (K BIGINT PRIMARY KEY, W BIGINT) WITH (KAFKA_TOPIC='b', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
      CREATE TABLE OUT AS SELECT D.K, D.V, W FROM D LEFT JOIN E ON D.K = E.K;""",
    "foreign key": """CREATE TABLE E (K BIGINT PRIMARY KEY, W BIGINT) WITH (KAFKA_TOPIC='b', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
      CREATE TABLE OUT AS SELECT D.K, D.V, W FROM D JOIN E ON D.V = E.K;""",
    "final": """CREATE TABLE OUT AS SELECT K, COUNT(*) AS N FROM A
      WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY K EMIT FINAL;""",
    "two joins": """CREATE STREAM OUT AS SELECT A.K, A.V, W, NAME FROM A
      JOIN B WITHIN 4 SECONDS GRACE PERIOD 2 SECONDS ON A.K = B.K LEFT JOIN D ON A.K = D.K;""",
}


@pytest.mark.parametrize("shape", MORE)
def test_more_joins_and_final_windows(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, shape, MORE[shape])
    monkeypatch.setattr(stage_world, "MIXED", {*stage_world.MIXED, "final"})
    test_a_new_query_that_begins_with_a_history_is_as_one_run(shape, 4, tmp_path)


class Crashed(BaseException):
    """The process ends here."""


def crash_at(monkeypatch: pytest.MonkeyPatch, instance: Instance, what: str) -> None:
    """The next call of something that a takeover does kills the instance instead."""
    owner, _, name = what.rpartition(".")
    target = attrgetter(owner)(instance)

    def call(*_: Any, **__: Any) -> None:
        raise Crashed

    monkeypatch.setattr(target, name, call)


def again(reference: Reference) -> None:
    """A new instance over the log and the store that the dead one has left."""
    old = reference.world.instance
    reference.log.crash()
    reference.world.instance = Instance(reference.log, reference.physical, reference.world.clock, old.config)
    reference.world.driver = Driver(reference.world.instance)
    reference.world.instance.resume()
    reference.world.producer = reference.log.producer("feed")


STEPS = ["state.rebuild", "state.restored.take", "state.end_restore", "commit.request"]


@pytest.mark.turns("cases")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("shape", ["repartition", "session", "stream-stream"])
def test_a_takeover_that_is_killed_leaves_what_serves_and_can_be_repeated(
    shape: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = events(HISTORY + LIVE, 5)
    whole, continued = Reference(shape), Reference(shape)
    for reference in (whole, continued):
        reference.send(feed[:HISTORY])
    before, history = stores(continued), computed(continued, tmp_path / "h")
    with monkeypatch.context() as patch:
        crash_at(patch, continued.world.instance, step)
        with pytest.raises(Crashed):
            deploy(continued, history)
    again(continued)
    assert stores(continued) == before
    assert all("@" not in task for task in continued.world.instance.state.committed_tasks()), "nothing is left of it"
    deploy(continued, history)
    for reference in (whole, continued):
        reference.send(feed[HISTORY:])
    assert stores(continued) == stores(whole)
    assert final(continued.sink()) == final(whole.sink())


def test_a_takeover_whose_task_is_opened_meanwhile_fails_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance never opens it. The restoration of such a task would not end, and the deployment must not be recorded."""
    reference = Reference("count")
    reference.send(events(60, 7))
    before, history = stores(reference), computed(reference, tmp_path / "h")
    state = reference.world.instance.state
    rebuild = state.rebuild

    def opened(found: Mapping[str, TaskRecord | None], *kept: Any) -> None:
        rebuild(found, *kept)
        task = state.open_task(min(found), 0, [])
        with state.epoch_lock:
            task.publish({"positions": {}})

    monkeypatch.setattr(state, "rebuild", opened)
    with pytest.raises(AssertionError, match=r"CTAS_OUT@2/0_0 has a commit under way"):
        deploy(reference, history)
    again(reference)
    assert (stores(reference), reference.query.generation) == (before, 1)
    assert all("@" not in task for task in reference.world.instance.state.committed_tasks())


def test_after_the_commit_a_restart_goes_on_with_the_history(tmp_path: Path) -> None:
    feed = events(HISTORY + LIVE, 6)
    whole, continued = Reference("session"), Reference("session", begins=False)
    for reference in (whole, continued):
        reference.send(feed[:HISTORY])
    deploy(continued, computed(continued, tmp_path / "h"))
    again(continued)
    for reference in (whole, continued):
        reference.send(feed[HISTORY:])
    assert comparable("session", continued.sink()) == comparable("session", whole.sink())


@pytest.mark.parametrize("rounds", [0, 9])
@pytest.mark.parametrize("shape", ["repartition", "session", "stream-stream"])
def test_a_generation_that_is_killed_while_it_reads_what_has_come_since_goes_on(
    shape: str, rounds: int, tmp_path: Path
) -> None:
    """Step 5: between the commit that makes it and its swap. rounds: how far it got."""
    feed = events(HISTORY + LIVE, 8)
    whole, continued = Reference(shape), Reference(shape)
    for reference in (whole, continued):
        reference.send(feed[:HISTORY])
    history = computed(continued, tmp_path / "h")
    whole.send(feed[HISTORY:])
    continued.send(feed[HISTORY:])  # behind the end of the history
    deploy(continued, history)
    driver = continued.world.driver
    assert driver is not None
    for _ in range(rounds):
        driver.round()
    assert not continued.world.instance.deployer.rebuilt, "it serves already"
    again(continued)
    continued.world.settle()
    assert continued.query.generation == 2
    assert stores(continued) == stores(whole)
    assert final(continued.sink()) == final(whole.sink())


def test_a_damaged_or_incomplete_history_is_refused(tmp_path: Path) -> None:
    reference = Reference("count", begins=False)
    reference.send(events(60, 7))
    computed(reference, tmp_path / "h")
    part = tmp_path / "h" / "part-test-0.arrow"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(HandoverUnfit, match=r"part-test-0\.arrow is missing or differs"):
        ComputedHistory(tmp_path / "h")
    (tmp_path / "h" / "manifest.json").unlink()
    with pytest.raises(HandoverUnfit, match="no complete history"):
        ComputedHistory(tmp_path / "h")


CHANGED: dict[str, dict[str, Any]] = {
    "edited": {"definition": "another"},
    "had 2 partitions": {"partitions": {"a": 2}},
    "had 2 partitions, and has 3": {"partitions": {"a": 2}, "ends": {"a": {"0": 0, "1": 0}}},
    "has no offset": {"ends": {"a": {"0": 10_000, "1": 0, "2": 0}}},
    "the history of .* begins": {"starts": {"a": {"0": 1, "1": 0, "2": 0}}},
}


@pytest.mark.parametrize("why", CHANGED)
def test_a_history_of_something_else_is_refused_and_changes_nothing(why: str, tmp_path: Path) -> None:
    reference = Reference("count")
    reference.send(events(60, 7))
    history, before = computed(reference, tmp_path / "h"), stores(reference)
    history.manifest = replace(history.manifest, **CHANGED[why])
    with pytest.raises(HandoverUnfit, match=why):
        deploy(reference, history)
    reference.send(events(20, 8))
    assert stores(reference).keys() == before.keys()
    assert reference.query.generation == 1


@pytest.mark.parametrize("count", ["records", "state_rows", "tasks"])
def test_counts_are_verified(count: str, tmp_path: Path) -> None:
    reference = Reference("count")
    reference.send(events(60, 7))
    history = computed(reference, tmp_path / "h")
    history.manifest = replace(history.manifest, **{count: 1})
    with pytest.raises(HandoverUnfit, match="its manifest says 1"):
        deploy(reference, history)
    assert reference.query.generation == 1


def test_after_a_takeover_that_failed_a_query_of_that_name_begins_anew(tmp_path: Path) -> None:
    """Without a history the same generation must not find the state that the failed attempt has loaded."""
    reference = Reference("count")
    reference.send(events(60, 7))
    before, history = stores(reference), computed(reference, tmp_path / "h")
    history.manifest = replace(history.manifest, state_rows=1)
    with pytest.raises(HandoverUnfit):
        deploy(reference, history)
    (query,) = reference.plan.queries
    reference.world.instance.deploy(reference.plan, refresh=[query.id])
    reference.world.settle()
    assert reference.query.generation == 2
    assert stores(reference) == before
