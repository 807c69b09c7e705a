"""Every command that a page says to type exists, with its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowql.cli.app import commands_of, program

DOCS = Path(__file__).resolve().parents[2] / "docs"
COMMANDS = dict(commands_of(program()))
CODE = re.compile(r"```[a-z]*\n(.*?)```|`(flowql [^`]+)`", re.DOTALL)


def typed() -> Iterator[tuple[str, str]]:
    """Lines with a command, without what follows it: a remark, a pipe, an explanation after three blanks."""
    for page in sorted((DOCS / "guide").rglob("*.md")):
        for block, inline in CODE.findall(page.read_text(encoding="utf-8")):
            for line in (block or inline).splitlines():
                text = line.removeprefix("$ ").strip()
                if text.startswith("flowql "):
                    yield page.name, re.split(r"\s{3,}|\s+#|\s+\d?[|>&<]+(?:\s|')", text)[0]


@pytest.mark.parametrize(("page", "text"), dict.fromkeys(typed()))
def test_a_command_of_a_page_can_be_typed(
    page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(text)[1:]
    for file in ("orders.jsonl", "orders.parquet", "orders.csv"):
        (tmp_path / file).touch()
    name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS), None)
    if name is None:
        groups = {path.split()[0] for path in COMMANDS if " " in path}
        assert words[0] in groups or words[0].startswith("-"), f"{page}: there is no `{text}`"
        return
    try:
        COMMANDS[name].make_context(name, words[len(name.split()) :])
    except Exception as error:
        if type(error).__name__ != "MissingParameter":  # sentences name a command without what it is asked
            raise
