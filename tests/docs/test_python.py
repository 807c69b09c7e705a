"""The guide to Python: its examples are run in a new project."""

from __future__ import annotations

import doctest
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import flowql
from tests.docs.tour import ROOT, Shell


def test_what_the_guide_shows_is_what_python_says(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.type("flowql init shop")
    monkeypatch.chdir(shell.folder / "shop")
    page = ROOT / "docs" / "guide" / "python.md"
    options = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    text = page.read_text(encoding="utf-8").replace("```python\n%load_ext", "").replace("8321", str(free_port()))
    monkeypatch.setenv("FLOWQL_TOKEN", "")  # the guide sets it
    examples = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=options).run(examples, out=said.append)
    assert len(examples.examples) > 12
    assert not said, "".join(said)
    assert not list(Path(shell.folder / "shop" / ".flowql").rglob("instance.json")), "the guide stops what it starts"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("name", flowql.__all__)
def test_examples_of_the_reference_are_what_python_says(name: str) -> None:
    scope = {
        "flowql": flowql,
        "Iterator": Iterator,
        "timedelta": timedelta,
        **{n: getattr(flowql, n) for n in flowql.__all__},
    }
    said: list[str] = []
    for test in doctest.DocTestFinder(recurse=False).find(getattr(flowql, name), name, globs=scope):
        doctest.DocTestRunner().run(test, out=said.append)
    assert not said, "".join(said)
