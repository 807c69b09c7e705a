"""State that outlives the machine: a new one begins with a checkpoint in an object store, and ends with the same rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from flowql.runtime.app import checkpoints
from flowql.runtime.app.checkpoints import COLLECT_MS, INTERVAL_MS
from flowql.runtime.app.instance import Instance
from flowql.runtime.remote.objects import OPENED
from flowql.runtime.state.runs.run import blocks_area
from flowql.runtime.task.status import TaskStatus
from tests.objects import MemoryObjects
from tests.runtime.restoration.test_restoration import COUNTS, WINDOWS, Life, no_redo, undisturbed

URL = "memory://store"
PARTS = [(n * 40, n * 40 + 40) for n in range(5)]


@pytest.fixture
def store() -> Iterator[MemoryObjects]:
    yield MemoryObjects(URL).opened()
    del OPENED[URL]


def options(**others: Any) -> dict[str, Any]:
    return {"remote_state": URL, "run_rows_min": 1, "vector": True, **others}


def fed(sql: str = COUNTS, **others: Any) -> Life:
    life = Life(no_redo(), sql, **options(**others))
    for part in PARTS:
        life.feed(*part)
        life.settle()
    return life


def pass_time(life: Life, ms: int) -> None:
    for _ in range(ms // 50):
        life.clock.advance(50)
        life.round()
        life.instance.merger.run_once(life.clock.timer_ms())


def uploaded(life: Life) -> None:
    """Checkpoints of both tasks as they are now."""
    assert life.instance.checkpoints is not None
    before = life.instance.checkpoints.uploaded.manifests
    pass_time(life, 2 * INTERVAL_MS)
    assert life.instance.checkpoints.uploaded.manifests >= before + 2, life.instance.checkpoints.status()


def ends_as_if_nothing_was_lost(life: Life, sql: str = COUNTS, **others: Any) -> Life:
    """After more records on a new machine."""
    life.feed(200, 230)
    life.settle()
    life = life.again(**options(**others))
    life.feed(230, 260)
    life.settle()
    straight = undisturbed(sql, *PARTS, (200, 230), (230, 260))
    result = "W" if sql is WINDOWS else "C"
    assert life.statuses(f"CTAS_{result}") == {TaskStatus.RUNNING}
    assert life.table(result) == straight.table(result)
    assert life.records(result.lower()) == straight.records(result.lower())
    return life


@pytest.mark.parametrize(("run_rows_min", "fold_rows"), [(1, 1_000), (15, 1_000), (1_000, 1_000), (1_000, 2)])
@pytest.mark.parametrize("sql", [COUNTS, WINDOWS])
def test_a_machine_that_is_lost_goes_on_from_its_checkpoint(
    store: MemoryObjects, sql: str, run_rows_min: int, fold_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "FOLD_ROWS", fold_rows)
    life = fed(sql, run_rows_min=run_rows_min)
    uploaded(life)
    if fold_rows == 2:  # with the next commit
        life.feed(0, 0)
    life = ends_as_if_nothing_was_lost(life, sql, run_rows_min=run_rows_min)
    assert life.instance.restoration.records < 100  # and not all 260


def test_blocks_are_copied_here_and_the_store_is_not_needed_after_that(store: MemoryObjects) -> None:
    life = fed()
    uploaded(life)
    life = ends_as_if_nothing_was_lost(life)
    pass_time(life, 2 * INTERVAL_MS)
    assert life.instance.checkpoints is not None
    assert life.instance.checkpoints.status()["to_copy_bytes"] == 0
    store.fail = lambda request, name: True
    before = life.table("C")
    assert len(before) == 40
    life.feed(260, 300)
    life.settle()
    assert len(life.table("C")) == 40


def test_a_run_is_uploaded_once(store: MemoryObjects) -> None:
    life = fed()
    uploaded(life)
    life.feed(200, 230)
    life.settle()
    uploaded(life)
    puts = [name for request, name in store.requests if request == "put" and "/runs/" in name]
    assert len(puts) == len(set(puts))
    assert len(puts) > 0


def test_nothing_is_uploaded_of_a_task_that_stands_still(store: MemoryObjects) -> None:
    life = fed()
    uploaded(life)
    puts = sum(request == "put" for request, _ in store.requests)
    pass_time(life, 4 * INTERVAL_MS)
    assert sum(request == "put" for request, _ in store.requests) == puts


@pytest.mark.parametrize("part", ["/runs/", "/manifests/"])
def test_a_flipped_byte_is_found_and_the_changelog_is_read(
    store: MemoryObjects, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    life = fed()
    uploaded(life)
    for name, (data, ms) in list(store.data.items()):
        if part in name:
            at = len(data) - 30
            store.data[name] = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], ms
    life = ends_as_if_nothing_was_lost(life)
    assert "is damaged in" in caplog.text
    assert life.instance.restoration.records > 0


@pytest.mark.parametrize("part", ["/runs/", "/manifests/"])
def test_an_object_that_is_gone_is_no_obstacle(store: MemoryObjects, part: str) -> None:
    life = fed()
    uploaded(life)
    for name in [n for n in store.data if part in n]:
        del store.data[name]
    ends_as_if_nothing_was_lost(life)


def test_a_store_that_is_away_changes_nothing_but_what_is_said(
    store: MemoryObjects, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flowql")
    store.fail = lambda request, name: True
    life = fed()
    pass_time(life, 20 * INTERVAL_MS)
    assert life.instance.checkpoints is not None
    assert "the store is away" in life.instance.checkpoints.status()["away"]
    assert caplog.text.count("checkpoints wait, queries go on") == 1
    store.fail = lambda request, name: False
    pass_time(life, 20 * INTERVAL_MS)
    uploaded_manifests = life.instance.checkpoints.uploaded.manifests
    assert uploaded_manifests >= 2
    assert caplog.text.count("answers again") == 1
    ends_as_if_nothing_was_lost(life)


def test_a_put_whose_answer_was_lost_is_not_repeated_under_its_name(store: MemoryObjects) -> None:
    life = fed()
    lost: list[str] = []

    def lose(name: str) -> bool:
        lost.append(name)
        return len(lost) % 3 == 1

    store.lost_answer = lose
    pass_time(life, 20 * INTERVAL_MS)
    store.lost_answer = lambda name: False
    uploaded_or_current = life.instance.checkpoints
    assert uploaded_or_current is not None
    pass_time(life, 4 * INTERVAL_MS)
    ends_as_if_nothing_was_lost(life)


def test_a_manifest_of_a_former_owner_is_not_taken_while_a_newer_one_is_there(store: MemoryObjects) -> None:
    life = fed()
    uploaded(life)
    old = {n: v for n, v in store.data.items() if "/manifests/" in n}
    life.feed(200, 230)
    life.settle()
    life = life.again(**options())
    life.settle()
    uploaded(life)
    for name, value in old.items():  # the zombie uploads what it had, under its next numbers
        term, _, number = name.rpartition("/")[2].partition("-")
        folder = name.rpartition("/")[0]
        store.data[f"{folder}/{term}-{int(number, 16) + 9:016x}"] = value
    asked = len(store.requests)
    life = life.again(**options())
    life.feed(230, 260)
    life.settle()
    read = {name for request, name in store.requests[asked:] if request == "get" and "/manifests/" in name}
    assert read
    assert not {n for n in read if n.rpartition("/")[2].startswith(f"{1:016x}")}
    straight = undisturbed(COUNTS, *PARTS, (200, 230), (230, 260))
    assert life.table("C") == straight.table("C")


def test_what_no_checkpoint_needs_is_deleted_an_hour_later(store: MemoryObjects) -> None:
    life = fed()
    store.wall_ms = life.clock.wall_ms
    sizes = []
    for n in range(30):
        life.feed(200 + 30 * n, 230 + 30 * n)
        life.settle()
        pass_time(life, 2 * INTERVAL_MS)
        life.clock.advance(COLLECT_MS)
        pass_time(life, 2_000)
        sizes.append(len(store.data))

    assert max(sizes[16:]) <= max(sizes[:16]), sizes
    assert any(request == "delete" for request, _ in store.requests)
    life = life.again(**options())
    life.settle()
    straight = undisturbed(COUNTS, *PARTS, *[(200 + 30 * n, 230 + 30 * n) for n in range(30)])
    assert life.table("C") == straight.table("C")


def test_rows_that_the_store_has_leave_a_full_disk_and_come_back(
    store: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [checkpoints.FREE_ENOUGH_BYTES]
    monkeypatch.setattr(Instance, "_free_bytes", lambda self: free[0])
    life = fed()
    uploaded(life)

    def blocks() -> int:
        prefixes = [e.prefix(p) for e in life.instance.state.committed_stores().values() for p in e.partitions]
        inner = life.instance.state._physical.inner
        return sum(1 for prefix in prefixes for _ in inner.scan(*blocks_area(prefix)))

    here = blocks()
    assert here
    free[0] = 0
    pass_time(life, 4 * INTERVAL_MS)
    assert blocks() == 0
    before = life.table("C")
    assert len(before) == 40
    free[0] = checkpoints.FREE_ENOUGH_BYTES
    pass_time(life, 4 * INTERVAL_MS)
    assert blocks() > 0
    assert life.table("C") == before
    ends_as_if_nothing_was_lost(life)
