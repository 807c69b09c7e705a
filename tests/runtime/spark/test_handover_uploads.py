"""A history that Spark computed is uploaded soon after the hand-over. An empty machine then needs neither Spark nor the changelogs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowql.backup.lay import restore_backup
from flowql.config.sections import StateSettings
from flowql.deploy.settings import Settings
from flowql.runtime.app.checkpoints import INTERVAL_MS
from flowql.runtime.app.uploads import INTERVAL_MS as ROUND_MS
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.remote.objects import OPENED
from tests.objects import MemoryObjects
from tests.runtime.restoration.test_restoration import Life, no_redo
from tests.runtime.spark.stage_world import Reference, events
from tests.runtime.spark.test_handover import computed, deploy, stores, tasks
from tests.sim.embedded import FiledPhysical

URL, STEP_MS = "memory://handed-over", 50
SHAPE = "repartition"


@pytest.fixture
def store() -> Iterator[MemoryObjects]:
    yield MemoryObjects(URL).opened()
    del OPENED[URL]


def handed_over(folder: Path, within_ms: int, **options: Any) -> Reference:
    """Runs an instance over a history for a while, without another record."""
    reference = Reference(SHAPE, begins=False, options=options)
    reference.send(events(200, 1))
    deploy(reference, computed(reference, folder / "computed"))
    reference.world.settle()
    world = reference.world
    world.tick_ms = STEP_MS
    assert world.driver is not None
    for _ in range(within_ms // STEP_MS):
        world.driver.round()
    return reference


def positions(reference: Reference) -> dict[str, Any]:
    """The positions of each task, and the rows that it has lost."""
    return {task: (found["positions"], found["lost"]) for task, found in tasks(reference).items()}


def test_on_kafka_an_empty_machine_begins_with_its_checkpoints(store: MemoryObjects, tmp_path: Path) -> None:
    options = {"changelogs": True, "remote_state": URL, "run_rows_min": 1, "vector": True}
    reference = handed_over(tmp_path, INTERVAL_MS, log=no_redo(), **options)
    wanted, at = stores(reference), positions(reference)
    assert sum("/manifests/" in name for name in store.data) >= len(at)
    reference.world.instance.close()
    reference.world = life = Life(reference.log, "", **options)
    life.settle()
    assert (stores(reference), positions(reference)) == (wanted, at)
    assert life.instance.restoration.records == 0, "nothing was read from changelogs"


def test_on_the_embedded_log_it_is_restored_with_the_log(store: MemoryObjects, tmp_path: Path) -> None:
    """The redo does not contain these rows, so an older copy of the state with the newer log would lack them."""
    settings = Settings(tmp_path / "live", "flowql", 2, 64 << 20, state=StateSettings(URL))
    settings.state_dir.mkdir(parents=True)
    options = {"data_dir": settings.data_dir, "remote_state": URL}
    reference = handed_over(
        tmp_path, 2 * ROUND_MS, log=EmbeddedLog(settings.log_dir), physical=FiledPhysical(), **options
    )
    wanted, at, sink = stores(reference), positions(reference), reference.rows_of(reference.sink())
    reference.world.instance.close()
    elsewhere = Settings(tmp_path / "elsewhere", "flowql", 2, 64 << 20)
    restore_backup(elsewhere, URL)
    physical = FiledPhysical.in_folder(elsewhere.state_dir)
    reference.world = life = Life(EmbeddedLog(elsewhere.log_dir), "", changelogs=False, physical=physical)
    assert not life.instance.state_lost
    assert (stores(reference), positions(reference)) == (wanted, at)
    assert reference.rows_of(reference.sink()) == sink
