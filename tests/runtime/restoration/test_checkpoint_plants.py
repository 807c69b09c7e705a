"""Commits that come while a checkpoint is uploaded; and bugs that are planted in uploads, each of which has to be found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from flowql.runtime.app import checkpoints
from flowql.runtime.app.checkpoints import INTERVAL_MS
from flowql.runtime.remote.objects import OPENED
from flowql.runtime.state.remote import upload
from flowql.runtime.state.remote.manifest import KEPT_MS, garbage_of, read_manifest
from tests.objects import MemoryObjects
from tests.runtime.restoration.test_checkpoints import (
    COUNTS,
    PARTS,
    URL,
    Life,
    fed,
    no_redo,
    options,
    pass_time,
    undisturbed,
    uploaded,
)
from tests.sim.plants import planted


class HeldObjects(MemoryObjects):
    """Requests wait until they are let go."""

    waiting: list[Callable[[], None]] | None = None

    def submit(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        if self.waiting is None:
            return super().submit(call, *args, **kwargs)
        later: Future[Any] = Future()
        self.waiting.append(lambda: later.set_result(call(*args, **kwargs)))
        return later

    def let_go(self) -> None:
        waiting, self.waiting = self.waiting or [], None
        for request in waiting:
            request()


@pytest.fixture
def store() -> Iterator[HeldObjects]:
    made = HeldObjects(URL)
    made.opened()
    yield made
    del OPENED[URL]


def a_commit_while_it_uploads(store: HeldObjects, *, again: bool) -> None:
    """again: another checkpoint, with nothing new in between, is what the new machine begins with."""
    life = Life(no_redo(), COUNTS, **options(run_rows_min=1_000))
    for part in PARTS:
        life.feed(*part)
        life.settle()
    store.waiting = []
    pass_time(life, INTERVAL_MS)
    assert store.waiting
    life.feed(200, 240)
    life.settle()
    store.let_go()
    pass_time(life, 200 if not again else 3 * INTERVAL_MS)
    life = life.again(**options(run_rows_min=1_000))
    life.settle()
    assert life.table("C") == undisturbed(COUNTS, *PARTS, (200, 240)).table("C")


def a_task_that_stands_still(store: HeldObjects) -> None:
    """What its newest manifest names is old, and needed."""
    life = fed()
    uploaded(life)
    folder = min(n for n in store.data if "/manifests/" in n).rpartition("/manifests/")[0]
    store.data[f"{folder}/rows/later"] = b"", 2 * KEPT_MS
    newest = max(n for n in store.data if n.startswith(f"{folder}/manifests/"))
    assert not set(read_manifest(store, newest).objects()) & set(garbage_of(store, folder).names)


SCENARIOS: dict[str, Callable[[HeldObjects], None]] = {
    "positions-after-rows": partial(a_commit_while_it_uploads, again=False),
    "versions-ahead": partial(a_commit_while_it_uploads, again=True),
    "deleted-too-early": a_task_that_stands_still,
}


@pytest.fixture(autouse=True)
def _rows_in_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "INLINE_BYTES", 0)
    monkeypatch.setattr(checkpoints, "FOLD_ROWS", 1_000)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_new_machine_goes_on_from_it(store: HeldObjects, scenario: str) -> None:
    SCENARIOS[scenario](store)


@pytest.mark.parametrize("plant", SCENARIOS)
def test_a_planted_bug_is_found(store: HeldObjects, plant: str) -> None:
    with planted(plant), pytest.raises(AssertionError):
        SCENARIOS[plant](store)
