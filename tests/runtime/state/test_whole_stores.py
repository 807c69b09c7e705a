"""Stores whose rows are all in memory answer absent keys from there, and look below again when some have left."""

from __future__ import annotations

import random
import sys
import threading

import pytest

from flowql.runtime.state.columns.values import ValueLayout
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.task_store import TaskStore
from tests.runtime.state.support import commit, manager_on, put, table


def opened(physical: MemoryPhysical | None = None) -> tuple[StateManager, TaskStore]:
    manager = manager_on(physical)
    return manager, manager.open_task("q", 0, [table()]).stores["T"]


def test_absent_keys_of_a_new_store_are_not_looked_up_below() -> None:
    manager, store = opened()
    task = manager._tasks["q"]
    assert store.get_many([("a",), ("b",)]) == [None, None]
    put(manager, task, "T", {("a",): (1,)})
    commit(manager)
    assert store.get_many([("a",), ("b",)]) == [(1,), None]
    store.age()
    assert store.get_many([("b",), ("a",)]) == [None, (1,)]
    assert store.metrics.physical == 0
    store.age()
    store.age()
    assert store.get_many([("a",), ("b",)]) == [(1,), None]
    assert store.metrics.physical == 2


def test_a_store_with_rows_is_looked_up_below() -> None:
    physical = MemoryPhysical()
    manager, _ = opened(physical)
    put(manager, manager._tasks["q"], "T", {("a",): (1,)})
    commit(manager)
    again = StateManager(physical).open_task("q", 0, [table()]).stores["T"]
    assert again.get_many([("a",), ("b",)]) == [(1,), None]
    assert again.metrics.physical == 2


@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_commits_losses_and_agings_gives_the_rows(seed: int) -> None:
    chance, steps = random.Random(seed), ["put", "put", "delete", "commit", "age"]
    steps += ["abort", "forget"] if seed % 2 else []  # the cache is whole no more then
    manager, store = opened()
    task = manager._tasks["q"]
    committed: dict[tuple[str], tuple[int]] = {}
    now: dict[tuple[str], tuple[int]] = {}
    for n in range(60):
        step = chance.choice(steps)
        key = (chance.choice("abcdef"),)
        if step == "put":
            put(manager, task, "T", {key: (n,)})
            now[key] = (n,)
        elif step == "delete":
            put(manager, task, "T", {key: None})
            now.pop(key, None)
        elif step == "commit" and task.is_dirty:
            commit(manager)
            committed = dict(now)
        elif step == "age":
            store.age()
        elif step == "abort":
            manager.abort()
            task.begin_again()
            now = dict(committed)
        elif step == "forget":
            store.forget()
        keys = [(k,) for k in chance.sample("abcdef", 4)]
        assert store.get_many(keys) == [now.get(k) for k in keys], (seed, n, step)


def test_a_reader_misses_no_row_while_the_cache_grows_older() -> None:
    manager, store = opened()
    put(manager, manager._tasks["q"], "T", {(str(i),): (i,) for i in range(50)})
    commit(manager)
    ended = threading.Event()

    def age() -> None:
        while not ended.is_set():
            with manager.epoch_lock:
                store.age()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=age)
    thread.start()
    try:
        for n in range(3_000):
            i = n % 50
            assert store.get_many([(str(i),), ("absent",)]) == [(i,), None]
            if n % 100 == 0:
                with manager.epoch_lock:
                    store.reload()
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)


def test_rows_written_before_a_store_is_in_columns_stay_until_their_commit() -> None:
    manager, store = opened()
    task = manager._tasks["q"]
    put(manager, task, "T", {("a",): (1,)})
    store.columns(ValueLayout((("integer",),)))
    for _ in range(3):
        store.age()
    assert store.get_many([("a",)]) == [(1,)]
    frozen = manager.cut()
    put(manager, task, "T", {("b",): (2,)})
    for _ in range(3):
        store.age()
    assert store.get_many([("a",), ("b",)]) == [(1,), (2,)]
    manager.apply(frozen, 1)
    assert store.get_many([("a",), ("b",)]) == [(1,), (2,)]
