"""The guide to changing what runs: its commands are typed."""

from __future__ import annotations

import re

import pytest

from tests.docs.tour import ROOT, Shell, blocks, commands, equalised

PAGE = (ROOT / "docs" / "guide" / "changing.md").read_text(encoding="utf-8")
FIGURES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|<?[\d.]+(?=(?:ms|s)\b)|[\d.,]+ (?:B|KB)\b")


def without_figures(output: str) -> str:
    """As `equalised`, without times, durations and sizes, and the blanks around them."""
    return re.sub(r" +", " ", FIGURES.sub("#", equalised(output)))


@pytest.mark.turns("pages")
def test_what_the_guide_shows_is_what_comes_out(shell: Shell) -> None:
    for block in blocks(PAGE, "console"):
        for command, shown in commands(block):
            assert (command, without_figures(shell.type(command))) == (command, without_figures(shown))
