"""Notebooks of pipelines: all outputs are what comes out, and a run leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.pipelines.notebooks import executed, read, text_of
from tests.tidy.tree import ROOT, own_files

NOTEBOOKS = [path for path in own_files() if path.suffix == ".ipynb"]
pytestmark = [pytest.mark.slow, pytest.mark.turns("long")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=str)
def test_a_notebook_shows_what_comes_out(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    before = everything(path)
    now = executed(ROOT / path)
    assert text_of(now).splitlines() == text_of(read(ROOT / path)).splitlines(), (
        f"if that is right, type  .venv/bin/python -m tests.pipelines.notebooks {path}"
    )
    assert not list((tmp_path / "TMPDIR").iterdir())
    assert everything(path) == before


def everything(path: Path) -> set[str]:
    """Files and folders beside a notebook."""
    return {
        str(Path(folder) / name)
        for folder, folders, files in os.walk((ROOT / path).parent)
        for name in (*folders, *files)
        if name != "__pycache__"
    }
