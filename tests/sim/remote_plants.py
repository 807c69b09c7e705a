"""Bugs to plant in checkpoints and in restorations that begin with one. Found where machines are lost (`--lost`), or by `test_checkpoint_plants`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.remote import manifest
from flowql.runtime.state.remote.upload import TaskUpload
from flowql.runtime.state.runs.reader import RunsReader
from flowql.runtime.state.runs.run import FlatRows
from flowql.runtime.state.runs.writing import RunWriter

_snapshot, _take_in = StateManager.checkpoint_snapshot, RunWriter._take_in


def _runs_later(_upload: TaskUpload, _run: Any, _name: str) -> Any:
    """The manifest does not wait for runs to be there."""
    yield
    return 1, 1


def _positions_later(state: StateManager) -> Any:
    """Positions are read when they are needed, and not with the rows."""
    reader, versions = _snapshot(state)
    reader.get = state._physical.get  # type: ignore[method-assign]
    return reader, versions


def _rows_later(state: StateManager) -> Any:
    """Rows in no run are read when they are needed, and runs are those of before."""
    reader, _ = _snapshot(state)
    live = RunsReader(state._physical.inner)  # type: ignore[arg-type]
    reader.rows_in_no_run = live.rows_in_no_run  # type: ignore[method-assign]
    return reader, {}


def _versions_ahead(state: StateManager) -> Any:
    """Versions of rows are those of now, and the rows are older."""
    return _snapshot(state)[0], state.writer.versions


def _folds_lose(writer: RunWriter, prefix: bytes, low: bytes, rows: FlatRows) -> Any:
    """A run takes the place of rows that it does not have."""
    return rows, _take_in(writer, prefix, low, rows)[1]


Plants = dict[str, tuple[object, str, Callable[..., object]]]
SIMULATED_PLANTS: Plants = {
    "manifest-before-runs": (TaskUpload, "_upload_run", _runs_later),
    "rows-of-another-moment": (StateManager, "checkpoint_snapshot", _rows_later),
    "folds-lose-rows": (RunWriter, "_take_in", _folds_lose),
}
REMOTE_PLANTS: Plants = {
    **SIMULATED_PLANTS,
    "deleted-too-early": (manifest, "_needed", lambda _objects, _name: set()),
    "positions-after-rows": (StateManager, "checkpoint_snapshot", _positions_later),
    "versions-ahead": (StateManager, "checkpoint_snapshot", _versions_ahead),
}
