"""State that outlives the machine: a new one begins with a checkpoint in an object store, and ends with the same rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flowql.runtime.app import checkpoints
from flowql.runtime.app.checkpoints import COLLECT_MS, INTERVAL_MS
from flowql.runtime.app.instance import Instance
from flowql.runtime.remote.objects import OPENED, RemoteError
from flowql.runtime.state.remote import upload
from flowql.runtime.state.remote.copying import BlockCopier
from flowql.runtime.state.remote.manifest import (
    KEPT_MS,
    LEASE_MS,
    dropped,
    encode_manifest,
    garbage_of,
    manifest_name,
    read_manifest,
    write_lease,
)
from flowql.runtime.state.runs.run import blocks_area
from flowql.runtime.state.runs.writing import RunWriter
from flowql.runtime.task.status import TaskStatus
from tests.crash.simulated import LossyPhysical
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


def test_a_lease_that_cannot_be_read_now_still_holds(store: MemoryObjects) -> None:
    """Its objects were deleted, although a reader elsewhere needed them."""
    hour, now = 3_600_000, [0]
    store.wall_ms = lambda: now[0]
    store.put_new("app/tasks/t/runs/old", b"rows")
    now[0] = 2 * hour
    write_lease(store, "app/tasks/t", "reader", 1, ["app/tasks/t/runs/old"])
    assert garbage_of(store, "app/tasks/t").names == []
    store.fail = lambda request, name: request == "get" and "/leases/" in name
    with pytest.raises(RemoteError):
        garbage_of(store, "app/tasks/t")


def test_every_task_has_its_turn_if_looks_take_longer_than_their_interval(
    store: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first task was due again whenever its look had ended."""
    life = fed()
    uploaded(life)
    steps, seen = life.instance.checkpoints, list[str]()
    assert steps is not None

    def look(name: str, *_: object) -> Iterator[None]:
        seen.append(name)
        return iter(())

    monkeypatch.setattr(steps, "_checkpoint", look)
    now_ms = life.clock.timer_ms() + INTERVAL_MS
    for turn in range(4):
        steps._next(now_ms + 2 * checkpoints.LOOK_MS * turn)
    assert len(set(seen)) == 2, seen


def test_tasks_that_stand_still_wait_for_no_commit(store: MemoryObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at them waited two seconds, and other tasks had no turn."""
    monkeypatch.setattr(checkpoints, "FOLD_ROWS", 1)
    life = fed(run_rows_min=1_000)
    uploaded(life)
    for _ in range(100):
        pass_time(life, 50)
        assert not life.instance.state.writer.to_fold


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


def test_rows_of_an_attempt_that_failed_are_in_no_later_manifest(
    store: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt took the same term and number again, found an object of that name, and took it for its own."""
    monkeypatch.setattr(upload, "INLINE_BYTES", 0)
    monkeypatch.setattr(checkpoints, "FOLD_ROWS", 1_000)
    life = Life(no_redo(), COUNTS, **options(run_rows_min=1_000))
    store.fail = lambda request, name: request == "put" and "/manifests/" in name
    for part in PARTS:
        life.feed(*part)
        life.settle()
        pass_time(life, 2 * INTERVAL_MS)
    assert any("/rows/" in name for name in store.data)
    store.fail = lambda request, name: False
    pass_time(life, 8 * INTERVAL_MS)
    ends_as_if_nothing_was_lost(life, run_rows_min=1_000)


def test_rows_that_come_back_after_an_io_error_are_in_the_next_checkpoint(
    store: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changelog brought the commit that was to be written; the upload took the rows before it for the newest."""
    monkeypatch.setattr(upload, "INLINE_BYTES", 0)
    disk = LossyPhysical()
    life = Life(no_redo(), COUNTS, physical=disk, **options(run_rows_min=1_000))
    for part in PARTS:
        life.feed(*part)
        life.settle()
    uploaded(life)
    life.feed(200, 230)
    disk.break_down()
    life.settle()
    assert disk.reopened
    uploaded(life)
    life = life.again(**options(run_rows_min=1_000))
    life.feed(230, 260)
    life.settle()
    assert life.table("C") == undisturbed(COUNTS, *PARTS, (200, 230), (230, 260)).table("C")


def damage(store: MemoryObjects, name: str) -> None:
    data, ms = store.data[name]
    store.data[name] = data[:9] + bytes([data[9] ^ 1]) + data[10:], ms


def lose(store: MemoryObjects, name: str) -> None:
    del store.data[name]


@pytest.mark.parametrize("how", [damage, lose])
@pytest.mark.parametrize("asked", [False, True])
def test_blocks_that_are_gone_after_their_run_was_adopted_come_from_the_changelog(
    store: MemoryObjects,
    how: Callable[[MemoryObjects, str], None],
    asked: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """asked: for a row of them, before it is found that they are gone."""
    life = fed()
    uploaded(life)
    with monkeypatch.context() as patched:
        patched.setattr(BlockCopier, "copy", lambda _copier, _pace: iter(()))  # not yet
        life = life.again(**options())
        life.settle()
    assert life.instance.restoration.records == 0
    for name in [n for n in store.data if "/runs/" in n]:
        how(store, name)
    if asked:
        life.feed(200, 230)
    pass_time(life, 2_000)
    assert "come from the changelog" in caplog.text
    if not asked:
        life.feed(200, 230)
    life.settle()
    assert life.instance.restoration.records > 0
    straight = undisturbed(COUNTS, *PARTS, (200, 230))
    assert life.statuses("CTAS_C") == {TaskStatus.RUNNING}
    assert life.table("C") == straight.table("C")
    assert life.records("c") == straight.records("c")
    assert life.instance.state.incomplete() == {}


def test_a_damaged_manifest_keeps_nobody_from_deleting_old_objects(store: MemoryObjects) -> None:
    life = fed()
    uploaded(life)
    name = min(n for n in store.data if "/manifests/" in n)
    damage(store, name)
    assert garbage_of(store, name.rpartition("/manifests/")[0]).kept > 0


def test_objects_of_a_reader_that_owns_nothing_are_kept_as_long_as_its_lease(store: MemoryObjects) -> None:
    """An old manifest is gone long since, and somebody still copies its runs."""
    now = [0]
    store.wall_ms = lambda: now[0]
    life = fed()
    uploaded(life)
    folder = min(n for n in store.data if "/manifests/" in n).rpartition("/manifests/")[0]
    runs = sorted(n for n in store.data if n.startswith(f"{folder}/runs/"))
    assert runs
    newest = max(n for n in store.data if n.startswith(f"{folder}/manifests/"))
    manifest = read_manifest(store, newest)
    now[0] += 2 * KEPT_MS  # the next one names none of them
    store.put_new(
        manifest_name(folder, manifest.term, manifest.number + 1),
        encode_manifest(manifest._replace(number=manifest.number + 1, stores=[])),
    )
    for number in range(4):
        write_lease(store, folder, "reader", number, runs)
        now[0] += LEASE_MS - 1
        assert not set(runs) & set(garbage_of(store, folder).names)
    assert sum("/leases/" in n for n in store.data) == 1
    now[0] += 2
    store.put_new(f"{folder}/rows/later", b"")
    assert set(runs) <= set(garbage_of(store, folder).names)


def test_a_lease_is_renewed_while_one_copy_goes_on(store: MemoryObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that took longer than an hour lost its lease, and the objects could be deleted under it."""

    def endless(_copier: BlockCopier, _pace: object) -> Iterator[None]:
        while True:
            yield

    life = fed()
    uploaded(life)
    monkeypatch.setattr(BlockCopier, "copy", endless)
    monkeypatch.setattr(checkpoints, "LEASE_RENEWED_MS", 1_000)
    life = life.again(**options())
    life.settle()
    pass_time(life, 5_000)
    renewed = [name for request, name in store.requests if request == "put" and "/leases/" in name]
    assert len(renewed) > 3
    assert sum("/leases/" in name for name in store.data) <= 2, "one of each task"


def test_a_task_that_is_no_longer_deployed_goes_after_its_time(store: MemoryObjects) -> None:
    for n, folder in enumerate(("app/tasks/old", "app/tasks/new")):
        store.wall_ms = lambda n=n: n * KEPT_MS  # type: ignore[misc]
        store.put_new(f"{folder}/runs/1", b"rows")
    assert dropped(store, "app/tasks/old", KEPT_MS).names == ["app/tasks/old/runs/1"]
    assert dropped(store, "app/tasks/new", KEPT_MS).names == ()


def test_a_task_runs_while_the_store_is_away_that_its_rows_are_in(
    store: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of its restoration looked for a first row, which was in the store: the task was never handed over."""
    life = fed()
    uploaded(life)
    monkeypatch.setattr(BlockCopier, "copy", lambda _copier, _pace: iter(()))
    tails: set[str] = set()

    def of_blocks(request: str, name: str) -> bool:
        """The first thing that is read of a run is its tail."""
        known = name in tails
        tails.update({name} if request == "get" and "/runs/" in name else ())
        return known

    store.fail = of_blocks
    life = life.again(**options())
    for _ in range(50):
        life.round()
    assert life.statuses("CTAS_C") == {TaskStatus.RUNNING}
    assert not any(q.last_error for q in life.instance.metrics.queries.values())
    store.fail = lambda request, name: False
    life.feed(200, 230)
    life.settle()
    assert life.table("C") == undisturbed(COUNTS, *PARTS, (200, 230)).table("C")


def test_a_manifest_of_a_former_owner_with_a_higher_term_costs_time_and_nothing_else(store: MemoryObjects) -> None:
    """A member that does not know yet that it was given up takes a term after a request without an answer."""
    life = fed()
    uploaded(life)
    old = {n: v for n, v in store.data.items() if "/manifests/" in n}
    life.feed(200, 230)
    life.settle()
    uploaded(life)
    for name, value in old.items():
        store.data[f"{name.rpartition('/')[0]}/{9:016x}-{1:016x}"] = value
    life = life.again(**options())
    life.settle()
    assert life.instance.restoration.records > 0
    assert life.table("C") == undisturbed(COUNTS, *PARTS, (200, 230)).table("C")


TABLE = """CREATE TABLE T (K BIGINT PRIMARY KEY, G BIGINT)
  WITH (KAFKA_TOPIC='t', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE C WITH (KAFKA_TOPIC='c') AS SELECT G, COUNT(*) AS N, SUM(K) AS T FROM T GROUP BY G EMIT CHANGES;"""


@pytest.mark.parametrize(("lost", "planted"), [(False, False), (True, False), (True, True)])
def test_deleted_rows_are_hidden_from_the_runs_that_have_them(
    store: MemoryObjects, lost: bool, planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """planted: a deletion is forgotten, as if there were no runs. lost: the machine, when the deletions are in the checkpoint."""
    if planted:
        rows = RunWriter.rows
        monkeypatch.setattr(RunWriter, "rows", lambda w, e, p, k, v, *, fresh: rows(w, e, p, k, v, fresh=True))
    changes: list[list[tuple[int, Any, int]]] = [
        [(k, {"G": k % 4}, k) for k in range(40)],
        [(k, None, 100 + k) for k in range(0, 40, 3)],
        [(k, {"G": 5}, 200 + k) for k in range(0, 40, 2)],
    ]
    monkeypatch.setattr(checkpoints, "FOLD_ROWS", 20)  # the first rows become runs, and the deletions do not
    life, straight = Life(no_redo(), TABLE, **options(run_rows_min=20)), Life(no_redo(), TABLE)
    for each in (life, straight):
        each.send("t", [(99, {"G": 9}, 0)])
        each.settle()
    for n, change in enumerate(changes):
        for each in (life, straight):
            each.send("t", change)
            each.settle()
        uploaded(life)
        if lost and n == 1:
            life = life.again(**options(run_rows_min=20))
            life.settle()
    assert (life.table("C") == straight.table("C")) != planted
