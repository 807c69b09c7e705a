"""A directory takes another one's place, with and without a system that does both renames in one step."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.backup import lay
from flowql.backup.lay import put_in_place


def made(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "file").write_text(text)
    return path


@pytest.mark.parametrize("in_one_step", [True, False])
def test_what_was_there_gets_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_one_step: bool
) -> None:
    if not in_one_step:
        monkeypatch.setattr(lay, "_exchange", lambda *_: False)
    new, place, aside = made(tmp_path / "new", "new"), made(tmp_path / "place", "old"), tmp_path / "aside"
    put_in_place(new, place, aside)
    assert {p.name: (p / "file").read_text() for p in tmp_path.iterdir()} == {"place": "new", "aside": "old"}


@pytest.mark.parametrize("in_one_step", [True, False])
def test_an_error_leaves_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_one_step: bool) -> None:
    if not in_one_step:
        monkeypatch.setattr(lay, "_exchange", lambda *_: False)
    place = made(tmp_path / "place", "old")
    with pytest.raises(FileNotFoundError):
        put_in_place(tmp_path / "new", place, tmp_path / "aside")
    assert [p.name for p in tmp_path.iterdir()] == ["place"]
    assert (place / "file").read_text() == "old"


def test_nothing_or_an_empty_directory_is_simply_taken(tmp_path: Path) -> None:
    for place in (tmp_path / "nothing", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        put_in_place(made(tmp_path / "new", "new"), place, None)
        assert (place / "file").read_text() == "new"
    with pytest.raises(OSError, match="not empty"):  # somebody was quicker
        put_in_place(made(tmp_path / "new", "newer"), tmp_path / "empty", None)
