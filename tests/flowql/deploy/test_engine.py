"""The state that an instance opens."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flowql.deploy.engine import open_instance
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import StateError
from flowql.runtime.log.embedded.records import InitProducer
from flowql.runtime.log.embedded.state import RUNS_MAX, ProducerState
from flowql.runtime.state.rocks import open_rocks


@pytest.mark.parametrize("found", ["at the start", "by a reader"])
def test_a_damaged_state_is_set_aside(tmp_path: Path, found: str) -> None:
    """A "block checksum mismatch" was taken for a lock of another process, as the words hold "lock", and ended every start."""
    state = tmp_path / "state"
    db = open_rocks(state)
    db.write_batch([b"k"], [b"v"])
    db.flush()
    db.close()
    if found == "at the start":
        (file,) = state.glob("*.sst")
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    else:
        (state / "DAMAGED").write_text("Corruption: block checksum mismatch")
    open_instance(tmp_path / "log", state, InstanceConfig("app", tmp_path)).close()
    assert (tmp_path / "state.damaged-1" / "CURRENT").exists()
    assert not (state / "DAMAGED").exists()


def test_a_state_that_many_starts_have_not_changed_is_still_of_its_log() -> None:
    """An instance that is killed at each start, before its state is on disk, has a state from before all starts that are remembered."""
    producer = ProducerState()
    producer.begin(InitProducer("app", 1, run=1))
    producer.sequence = 10
    for run in range(2, 3 * RUNS_MAX):
        assert producer.why_foreign(10, 1) == ""
        producer.begin(InitProducer("app", run, run=run))
    assert len(producer.runs) == RUNS_MAX
    producer.sequence = 20
    assert producer.why_foreign(10, 1) == ""
    assert "do not belong together" in producer.why_foreign(15, 1)


def test_a_state_of_another_history_is_refused(tmp_path: Path) -> None:
    """Where its number fitted the log, queries went on with it, and gave rows of records that the log never had."""

    def start(folder: str) -> None:
        open_instance(tmp_path / folder / "log", tmp_path / folder / "state", InstanceConfig("app", tmp_path)).close()

    for folder in ("one", "two"):
        start(folder)
    shutil.copytree(tmp_path / "one", tmp_path / "backup")
    for folder in ("one", "backup", "backup"):
        start(folder)
    for log, state in (("one", "two"), ("backup", "one"), ("one", "backup")):
        shutil.rmtree(tmp_path / "mixed", ignore_errors=True)
        shutil.copytree(tmp_path / log / "log", tmp_path / "mixed" / "log")
        shutil.copytree(tmp_path / state / "state", tmp_path / "mixed" / "state")
        with pytest.raises(StateError, match="do not belong together"):
            start("mixed")
        (tmp_path / "mixed" / "state").rename(tmp_path / "mixed" / "state.old")
        start("mixed")
    start("one")
