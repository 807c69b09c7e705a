"""The guide to backups: its commands are typed."""

from __future__ import annotations

import re

import pytest

from tests.docs.tour import ROOT, Shell, blocks, commands, equalised

PAGE = (ROOT / "docs" / "guide" / "backup.md").read_text(encoding="utf-8")
FIGURES = re.compile(r"(?<=\bcommit )\d+|\d+(?= files)|[\d.]+(?= [KM]B)|\d{4}-\d\d-\d\dT[\d:.]+Z|(?<=replaced-)\w+")


def without_figures(output: str) -> str:
    """As `equalised`, without commits, sizes and times."""
    return FIGURES.sub("#", equalised(output))


@pytest.mark.turns("pages")
def test_what_the_guide_shows_is_what_comes_out(shell: Shell) -> None:
    for block in blocks(PAGE, "console"):
        for command, shown in commands(block):
            assert (command, without_figures(shell.type(command))) == (command, without_figures(shown))
