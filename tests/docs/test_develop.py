"""`flowql dev` on a terminal shows what its guide shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.tour import ROOT, Shell, blocks, commands
from tests.flowql.cli.terminal import Terminal

PAGE = (ROOT / "docs" / "guide" / "develop.md").read_text(encoding="utf-8")


@pytest.mark.turns("pages")
def test_a_saved_file_is_deployed_as_the_guide_shows(shell: Shell) -> None:
    for block in blocks(PAGE, "console")[:1]:
        for command, _ in commands(block):
            shell.type(command)
    (shown,) = blocks(PAGE, "text")
    assert saved_in_dev(shell.folder / "shop") == sorted(shown.splitlines())


def saved_in_dev(folder: Path) -> list[str]:
    """The lines that come when the file is saved; results of several partitions come in any order."""
    terminal = Terminal(folder, "dev")
    try:
        terminal.awaits("watching; save a file")
        queries = folder / "queries.sql"
        queries.write_text(queries.read_text().replace("SUM(AMOUNT)", "SUM(AMOUNT) * 2"))
        terminal.awaits("saved queries.sql")
        terminal.awaits("  changed  eve")
        before = terminal.child.before
        terminal.child.sendintr()
        assert terminal.ends() == 0
        found = f"saved queries.sql{before}  changed  eve{terminal.child.before}".replace("^C", "")
        return sorted(line.rstrip() for line in found.splitlines() if line.strip())
    finally:
        terminal.child.close(force=True)
