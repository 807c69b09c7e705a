"""The guide to dead letters: its commands are typed."""

from __future__ import annotations

import pytest

from tests.docs.tour import ROOT, Shell, blocks, commands, equalised

PAGE = (ROOT / "docs" / "guide" / "dead-letters.md").read_text(encoding="utf-8")


@pytest.mark.turns("pages")
def test_what_the_guide_shows_is_what_comes_out(shell: Shell) -> None:
    for block in blocks(PAGE, "console"):
        for command, shown in commands(block):
            assert (command, equalised(shell.type(command))) == (command, equalised(shown))
