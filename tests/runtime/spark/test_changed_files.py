"""Files that were changed behind a stream that has read them. No Spark: its lists of files are made by hand."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from flowql.runtime.clock import VirtualClock
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.spark.engine import changed_files
from flowql.runtime.spark.engine.changed_files import LOOK_MS, REST, ChangedFiles, changed
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.settings import SparkSettings

READ_MS = 1_700_000_000_123


def listed(folder: Path, name: str, *files: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"path": f.as_uri(), "timestamp": READ_MS, "batchId": 0}) for f in files]
    (folder / name).write_text("\n".join(["v1", *lines]))


def put(file: Path, at_ms: int = READ_MS) -> Path:
    file.touch()
    os.utime(file, ns=(at_ms * 1_000_000, at_ms * 1_000_000))
    return file


def test_files_that_grow_or_are_replaced_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Their new rows are nowhere. Files that are gone, and those that are as they were, are no matter."""
    log = EmbeddedLog(tmp_path / "log")
    site = Site(tmp_path / "log", tmp_path / "state", log, "app", SparkSettings())
    lists = site.checkpoint("FILES_s") / "sources" / "0"
    same, grown, late = (put(tmp_path / name) for name in ("same.json", "grown é.json", "late.json"))
    listed(lists, "8", tmp_path / "of a list that is part of the compacted one")
    listed(lists, "9.compact", same, grown, tmp_path / "gone.json")
    listed(lists, "10", late)
    (lists / "11").write_text('v1\n{"path":')
    looks = ChangedFiles(site, VirtualClock())
    with caplog.at_level(logging.WARNING, "flowql"):
        looks.look(["FILES_s"], 0)
        assert not caplog.records
        put(grown, READ_MS + 1)
        put(late, READ_MS - 5_000)
        looks.look(["FILES_s", "FILES_that_has_not_begun"], LOOK_MS - 1)
        assert not caplog.records
        for n in (1, 2):
            looks.look(["FILES_s", "FILES_that_has_not_begun"], n * LOOK_MS)
    assert sorted(f.name for f, _ in changed(site.checkpoint("FILES_s"))) == ["grown é.json", "late.json"]
    (said,) = caplog.records
    assert "1 more files changed after being read" in said.getMessage()
    assert "--rebuild" in said.getMessage()
    log.close()


def test_looks_that_take_long_are_made_more_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look reads the times of all files that a stream has read, on the thread that supervises streams."""
    log, clock, looked = EmbeddedLog(tmp_path / "log"), VirtualClock(), list[int]()

    def slow(_checkpoint: Path) -> list[tuple[Path, int]]:
        looked.append(clock.timer_ms())
        clock.advance(2_000)
        return []

    monkeypatch.setattr(changed_files, "changed", slow)
    looks = ChangedFiles(Site(tmp_path / "log", tmp_path / "state", log, "app", SparkSettings()), clock)
    for now_ms in range(0, 2_000 * REST + LOOK_MS, LOOK_MS):
        looks.look(["FILES_s"], now_ms)
    assert len(looked) == 2
    log.close()
