"""Rows become runs while commits, deletions, closings of windows and merges go on, step by step in random order."""

import random

import pytest

from flowql.runtime.budget import StateLimits
from flowql.runtime.clock import SystemClock
from flowql.runtime.state.columns.packed import pack
from flowql.runtime.state.columns.values import RowValues, ValueLayout
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.runs import merging, run, writing
from flowql.runtime.state.runs.run import blocks_area, name_of_block, run_name
from tests.runtime.state.support import commit, manager_on, publish, table, window

LAYOUT = ValueLayout((("integer",),))
KEYS = {"T": [(k,) for k in "abcdef"], "W": [(k, n * 90_000) for k in "ab" for n in range(8)]}
STEPS = 44
BEGIN = ("put", "put", "put", "put", "put", "put", "cut", "apply", "put", "cut", "encode", "fold")
KINDS = (
    *["put"] * 5,
    "column",
    *["cut"] * 3,
    *["encode"] * 2,
    *["apply"] * 3,
    "expire",
    "fold",
    "fold",
    *["step"] * 10,
)


class Steps(SystemClock):
    """A clock by which every step takes long."""

    cost = 0

    def cost_ns(self) -> int:
        self.cost += 1_000_000_000
        return self.cost


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (run, "BLOCK_BYTES", 40),
        (merging, "FAN_IN", 3),
        (merging, "ROWS_LEAST", 2),
        (merging, "ROWS_MAX", 10),
        (merging, "PART_ROWS", 2),
        (merging, "DELETED_ROWS", 2),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.mark.parametrize("seed", range(300))
def test_rows_stay_what_they_are_while_they_are_folded(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    if seed % 2:  # as if all runs of commits came from an instance that has made more commits
        monkeypatch.setattr(
            writing, "run_name", lambda sequence: run_name(sequence if sequence > 9_000 else sequence + 9_000)
        )
    manager = manager_on(MemoryPhysical(), limits=StateLimits(run_rows_min=4))
    merger, task, epoch = manager.merger(Steps()), manager.open_task("q", 0, [table("T"), window("W")]), None
    rows: dict[str, dict[tuple[object, ...], int]] = {name: {} for name in KEYS}
    bound = 0
    prefixes = [task.store(name).entry.prefix(0) for name in KEYS]
    n = 0
    begin = ["column", "cut", "apply"] * (seed % 2) + [*BEGIN] + ["expire", "cut", "encode", "apply"] * (seed % 3 == 0)
    for step in range(STEPS):
        kind = begin[step] if step < len(begin) else rng.choice(KINDS)
        if kind in ("put", "column"):
            name = rng.choice(list(KEYS))
            chosen, n = rng.sample(KEYS[name], 5 if kind == "column" else rng.randint(1, 2)), n + 1
            values = [None if rng.random() < (0.2 if step < 6 else 0.6) else n for _ in chosen]
            store = task.store(name)
            if kind == "put":
                store.put_many(chosen, [None if v is None else (v,) for v in values])
            else:
                found = store.columns(LAYOUT).find(pack(store_key_codec(store.spec).encode_many(chosen)))
                column = RowValues.of(LAYOUT, [None if v is None else (v,) for v in values])
                store.columns(LAYOUT).stage(found, column)
            publish(manager, task)
            for key, value in zip(chosen, values, strict=True):
                if value is None or (name == "W" and key[1] < bound):  # type: ignore[operator]
                    rows[name].pop(key, None)
                else:
                    rows[name][key] = value
        elif kind == "expire" and bound < 500_000:
            bound += 60_000
            task.store("W").expire(bound)
            publish(manager, task)
            rows["W"] = {k: v for k, v in rows["W"].items() if k[1] >= bound}  # type: ignore[operator]
        elif kind == "cut" and epoch is None:
            epoch = manager.cut()
        elif kind == "encode" and epoch is not None:
            epoch.redo()
        elif kind == "apply" and epoch is not None:
            manager.apply(epoch, manager.applied_sequence + 1)
            epoch = None
        elif kind == "fold":
            manager.writer.to_fold.update(prefixes)
        elif kind == "step":
            merger.run_once(0)
        if rng.random() > 0.2:
            continue
        for name in KEYS:
            assert dict(task.store(name).scan()) == {k: (v,) for k, v in rows[name].items()}, (seed, kind)
        with manager.snapshot() as seen:
            for name in {s.name for s in seen.stores()}:
                assert (
                    dict(zip(KEYS[name], seen.get_many(name, KEYS[name]), strict=True)).items()
                    >= dict(seen.scan(name)).items()
                )
    for _ in range(100):
        merger.run_once(0)
    for prefix in prefixes:  # what was given up leaves nothing
        kept = {run.name for run in manager._physical.runs(prefix).runs}
        assert {name_of_block(key) for key, _ in manager._physical.inner.scan(*blocks_area(prefix))} <= kept


def test_a_store_that_is_dropped_while_it_is_folded_stays_empty() -> None:
    manager = manager_on(MemoryPhysical(), limits=StateLimits(run_rows_min=100))
    merger, task = manager.merger(Steps()), manager.open_task("q", 0, [table("T")])
    task.store("T").put_many(KEYS["T"], [(1,)] * len(KEYS["T"]))
    publish(manager, task)
    commit(manager)
    prefix = task.store("T").entry.prefix(0)
    manager.writer.to_fold.add(prefix)
    for _ in range(3):
        merger.run_once(0)
    assert manager.writer.folding == {prefix}
    manager.close_task("q")
    manager.drop_task("q")
    commit(manager)
    for _ in range(20):
        merger.run_once(0)
    assert not manager._physical.runs(prefix).runs
    assert not manager.writer.folding | manager.writer.to_fold
