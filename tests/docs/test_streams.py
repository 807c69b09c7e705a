"""The guides to streams in Python: their examples are run, each page in a new project."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.docs.tour import ROOT, Shell

pytestmark = pytest.mark.turns("long")


@pytest.mark.parametrize("name", ["streams.md", "stream-functions.md"])
def test_what_the_guide_shows_is_what_python_says(name: str, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.type("flowql init shop --template ksqldb")
    monkeypatch.chdir(shell.folder / "shop")
    page = ROOT / "docs" / "guide" / name
    examples = doctest.DocTestParser().get_doctest(page.read_text(encoding="utf-8"), {}, page.name, str(page), 0)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples, out=said.append)
    assert len(examples.examples) > 9
    assert not said, "".join(said)
    assert not list(Path(shell.folder / "shop" / ".flowql").rglob("instance.json")), "the guide stops what it starts"
