"""The README's tour, typed in order in an empty folder: what comes out is what the README shows.

`python -m tests.docs.test_readme` writes what comes out into the README instead; look at the difference.
Only what no two readers share is made equal: process ids and durations. After `topic produce` the tour waits until the
running instance has read the record, as a person who types has.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from compiler.diagnostics.source import SourceText
from compiler.dialect.parser import parse_statements

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "README.md"
README = FILE.read_text(encoding="utf-8")
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
END = "-- end of the command --"
WAIT_S = 60.0


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[tuple[str, str]]:
    """(command, output) of a console block; lines that begin with `> ` go on with the command."""
    found: list[tuple[str, str]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith("> "):
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", "")
        else:
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


class Shell:
    """A bash in an empty folder next to an environment, as a user has it; commands are typed one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / ".venv").symlink_to(ROOT / ".venv")
        # Output in the order it is written, without colours.
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": "100"}
        self._bash = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=env,
            text=True,
        )

    def type(self, command: str) -> str:
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{command}\necho '{END}'\n")
        self._bash.stdin.flush()
        lines = []
        for line in self._bash.stdout:
            if line == f"{END}\n":
                if command.startswith("flowql topic produce"):
                    self._settle()
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"bash ended at {command!r}: {''.join(lines)}")

    def _settle(self) -> None:
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            queries = json.loads(self.type("flowql status -o json"))["queries"]
            if all(q["lag"] == 0 for q in queries):
                time.sleep(0.5)  # what is processed is committed within 100 ms
                return

    def close(self) -> None:
        self._bash.communicate(f"cd '{self._folder}/shop' && flowql stop\n", timeout=60)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


def equalised(output: str) -> str:
    output = re.sub(r"\bprocess \d+", "process 4711", output)
    output = re.sub(r"\b\d+ commits\b", "2 commits", output)
    return re.sub(r"\b\d+\.\d s\b", "0.2 s", output)


@pytest.mark.skipif(not (ROOT / ".venv" / "bin" / "flowql").exists(), reason="needs .venv, which `make setup` makes")
def test_the_tour_gives_what_the_readme_shows(shell: Shell) -> None:
    for block in blocks("console"):
        for command, shown in commands(block):
            assert (command, equalised(shell.type(command))) == (command, equalised(shown))


def test_what_init_writes_is_what_the_readme_shows(tmp_path: Path) -> None:
    from flowql.cli.init import command

    command(tmp_path / "shop")
    written = "".join((tmp_path / "shop" / name).read_text() for name in ("sources.sql", "queries.sql"))
    for sql in blocks("sql"):
        for statement in sql.split("\n\n"):
            assert statement.strip() in written


@pytest.mark.parametrize("sql", blocks("sql"))
def test_sql_of_the_readme_is_read_without_mistakes(sql: str) -> None:
    statements, mistakes = parse_statements(SourceText("README.md", sql))
    assert not mistakes
    assert statements


def test_the_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z]+)$|`make ([a-z]+)`", README, re.MULTILINE))
    assert {a or b for a, b in named} <= targets
    assert "make quickstart\nmake test\n" in blocks("")[0]


def test_ci_runs_what_the_readme_says() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    for command in ("make check", "make test", "make quickstart"):
        assert command in ci


def test_projects_that_the_readme_names_are_there() -> None:
    projects = set(re.findall(r"-p (\S+)", README))
    assert projects
    assert all(yaml.safe_load((ROOT / p / "flowql.yaml").read_text())["name"] for p in projects)


def filled(folder: Path) -> str:
    """The README with the outputs that come out now."""
    shell = Shell(folder)
    try:

        def fill(match: re.Match[str]) -> str:
            parts = []
            for command, _ in commands(match.group(1)):
                typed = command.replace("\n", "\n> ")
                parts.append(f"$ {typed}\n{equalised(shell.type(command))}")
            return f"```console\n{''.join(parts)}```"

        return CONSOLE.sub(fill, README)
    finally:
        shell.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        FILE.write_text(filled(Path(made)), encoding="utf-8")
    sys.exit(0)
