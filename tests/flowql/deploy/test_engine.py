"""The state that an instance opens."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flowql.deploy.engine import open_instance
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import StateError
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
