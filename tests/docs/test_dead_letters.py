"""The guide to dead letters: its commands are typed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.tour import PROGRAM, ROOT, SETTLE_AFTER, Shell, blocks, commands, equalised

PAGE = (ROOT / "docs" / "guide" / "dead-letters.md").read_text(encoding="utf-8")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path, SETTLE_AFTER)
    yield made
    made.close()


@pytest.mark.skipif(not PROGRAM.exists(), reason="needs .venv, which `make setup` makes")
def test_what_the_guide_shows_is_what_comes_out(shell: Shell) -> None:
    for block in blocks(PAGE, "console"):
        for command, shown in commands(block):
            assert (command, equalised(shell.type(command))) == (command, equalised(shown))
