"""The page about files on Spark: its commands are typed."""

from __future__ import annotations

import pytest

from tests.docs.tour import ROOT, Shell, blocks, commands, equalised
from tests.spark_here import skip_without_spark

PAGE = (ROOT / "docs" / "guide" / "spark" / "files.md").read_text(encoding="utf-8")


@pytest.mark.spark
@pytest.mark.turns("spark")
def test_what_the_guide_shows_is_what_comes_out(shell: Shell) -> None:
    skip_without_spark()
    for block in blocks(PAGE, "console"):
        for command, shown in commands(block):
            assert (command, equalised(shell.type(command))) == (command, equalised(shown))
