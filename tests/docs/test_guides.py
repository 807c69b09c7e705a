"""Each page of the guide is short and begins with a block that runs; a test types its commands, in order, in an empty folder."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from tests.docs.tour import ROOT, Shell, blocks, commands, equalised, without_figures
from tests.docs.tutorial import free_port

GUIDE = ROOT / "docs" / "guide"
PAGES = {page.name: page.read_text(encoding="utf-8") for page in sorted(GUIDE.glob("*.md"))}
LONG = {
    "cluster.md",
    "dead-letters.md",
    "lineage.md",
    "monitoring.md",
    "operating.md",
    "performance.md",
    "priorities.md",
}
LONG |= {"ksqldb.md", "querying.md", "streams.md", "testing.md", "troubleshooting.md"}
OTHERS = {"python.md", "spark.md"}  # tests/docs/test_python.py, test_spark.py
TYPED = [name for name, text in PAGES.items() if name not in OTHERS and blocks(text, "console")]
PORT = "8327"  # of a page; it may be taken
WORDS_MAX, WORDS_BEFORE_MAX = 1200, 120
AGAIN_S = 20.0
EXPLAINING = {"install.md", "concepts.md", "comparison.md"}  # nothing to type, or nothing before FlowQL is installed

LIVE = ("flowql bench", "flowql top", "flowql logs", "flowql priority")  # they show other numbers at every look
FIGURED = ("flowql app", "flowql backup", "flowql deploy", "flowql doctor", "flowql plan", "flowql restore")
FIGURES = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+Z|<?[\d.]+(?=(?:ms|s)\b)|[\d.,]+ (?:B|KB|MB|GB)\b|(?<=bytes\n).*?[\d,]+$"
    r"|(?<=\bcommit )\d+|\d+(?= files| objects)|(?<=replaced-)\w+",
    re.MULTILINE,
)


def compared(command: str, output: str) -> str:
    """The output of a command without what differs from one reader to the next: times, durations, sizes."""
    if command.startswith(LIVE):
        return without_figures(output)
    if command.startswith(FIGURED):
        return re.sub(r" +", " ", FIGURES.sub("#", equalised(output)))
    return equalised(output)


@pytest.mark.turns("pages")
@pytest.mark.parametrize("name", TYPED)
def test_what_a_page_shows_is_what_comes_out(name: str, shell: Shell) -> None:
    if "$ psql" in PAGES[name] and shutil.which("psql") is None:
        pytest.skip("needs psql")
    page = PAGES[name].replace(PORT, str(free_port()))
    for block in blocks(page, "console"):
        for command, shown in commands(block):
            assert (command, _typed(shell, command, compared(command, shown))) == (command, compared(command, shown))


def _typed(shell: Shell, command: str, shown: str) -> str:
    """What comes out. A view may be a moment behind the rows that psql has just written: who asks it looks again."""
    limit = time.monotonic() + AGAIN_S
    while (found := compared(command, shell.type(command))) != shown and command.startswith('psql -c "SELECT'):
        if time.monotonic() > limit:
            break
    return found


@pytest.mark.parametrize("name", sorted(set(PAGES) - OTHERS))
def test_a_page_is_short(name: str) -> None:
    assert len(PAGES[name].split()) <= WORDS_MAX


@pytest.mark.parametrize("name", sorted(set(PAGES) - OTHERS - EXPLAINING))
def test_a_page_leads_with_a_block_that_runs(name: str) -> None:
    before, fence, block = PAGES[name].partition("\n```")
    assert fence
    assert block.startswith(("console\n", "python\n>>> ")), "the first block is one that a test types"
    assert len(before.split()) <= WORDS_BEFORE_MAX


def test_links_to_pages_of_the_guide_exist_in_messages() -> None:
    """Messages and docstrings name pages as `docs/guide/NAME.md`."""
    named = re.compile(r"\bdocs/(?:guide|reference|internals)/[\w/-]+\.md")
    missing = {
        found
        for package in ("compiler", "runtime", "flowql")
        for file in (ROOT / package).rglob("*.py")
        for found in named.findall(file.read_text(encoding="utf-8"))
        if not (ROOT / Path(found)).is_file()
    }
    assert not missing
