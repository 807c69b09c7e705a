"""What leaves pandas out, under other names: in this process Arrow has looked for pandas long ago."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from flowql.runtime.app import without_pandas
from flowql.runtime.app.without_pandas import leave_pandas_out

ARROW, PANDAS = "arrow_of_this_test", "pandas_of_this_test"
SOURCE = f"""
found = []
def array(values):
    try:
        import {PANDAS}
        found.append((values, True))
    except ModuleNotFoundError as error:
        found.append((values, error.name))
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An Arrow that looks for pandas, and a pandas that can be imported."""
    (tmp_path / f"{ARROW}.py").write_text(SOURCE)
    (tmp_path / f"{PANDAS}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(without_pandas, "_ARROW", ARROW)
    monkeypatch.setattr(without_pandas, "_PANDAS", PANDAS)
    before = list(sys.meta_path)
    yield
    assert sys.meta_path == before, "nothing of it stays"
    for name in (ARROW, PANDAS):
        sys.modules.pop(name, None)


def test_arrow_that_is_there_looks_once_and_finds_nothing() -> None:
    arrow = importlib.import_module(ARROW)
    leave_pandas_out()
    assert arrow.found == [([0], PANDAS)]
    importlib.import_module(PANDAS)
    assert sys.modules[PANDAS].__file__, "a program may still import it"


def test_arrow_that_comes_later_looks_as_soon_as_it_is_there() -> None:
    leave_pandas_out()
    assert ARROW not in sys.modules
    importlib.import_module("json.tool")
    arrow = importlib.import_module(ARROW)
    assert arrow.found == [([0], PANDAS)]
    assert arrow.__spec__ is not None
    assert arrow.__loader__ is arrow.__spec__.loader
    assert isinstance(arrow.__loader__, SourceFileLoader)
    importlib.import_module(PANDAS)


def test_other_modules_are_found_while_arrow_looks(tmp_path: Path) -> None:
    (tmp_path / f"{ARROW}.py").write_text(
        SOURCE.replace("    try:", "    import json.tool\n    import beside\n    try:")
    )
    (tmp_path / "beside.py").write_text("")
    leave_pandas_out()
    sys.modules.pop("json.tool", None)
    assert importlib.import_module(ARROW).found == [([0], PANDAS)]
    assert sys.modules.pop("beside").__file__


def test_where_pandas_is_in_use_nothing_looks() -> None:
    importlib.import_module(PANDAS)
    arrow = importlib.import_module(ARROW)
    leave_pandas_out()
    assert arrow.found == []


def test_an_arrow_that_is_not_installed_is_not_found(tmp_path: Path) -> None:
    leave_pandas_out()
    (tmp_path / f"{ARROW}.py").unlink()
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError, match=ARROW):
        importlib.import_module(ARROW)
