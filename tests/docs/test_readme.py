"""The README, typed in order in an empty folder: what comes out is what it shows (`tests.docs.tour`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs import tour
from tests.docs.tour import PROGRAM, ROOT, Shell, commands, equalised

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {"README": README, "guide": (ROOT / "docs/guide/first-project.md").read_text(encoding="utf-8")}


def blocks(language: str) -> list[str]:
    return [block for page in PAGES.values() for block in tour.blocks(page, language)]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path, ("flowql topic produce", "flowql exec"))
    yield made
    made.close()


@pytest.mark.turns("pages")
@pytest.mark.skipif(not PROGRAM.exists(), reason="needs .venv, which `make setup` makes")
def test_the_tour_gives_what_the_page_shows(shell: Shell) -> None:
    for block in tour.blocks(README, "console"):
        for command, shown in commands(block):
            assert (command, equalised(shell.type(command))) == (command, equalised(shown))


def test_what_init_writes_is_what_the_readme_shows(tmp_path: Path) -> None:
    from flowql.cli.init import command

    command(tmp_path / "shop")
    written = "".join((tmp_path / "shop" / name).read_text() for name in ("sources.sql", "queries.sql"))
    for sql in blocks("sql"):
        for statement in sql.split("\n\n"):
            assert statement.strip() in written


def test_the_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z]+)$|`make ([a-z]+)`", README, re.MULTILINE))
    assert {a or b for a, b in named} <= targets
    assert "```\nmake quickstart\nmake test\n```" in README


def test_ci_runs_what_the_readme_says() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    for command in ("make check", "make test", "make quickstart"):
        assert command in ci


def test_projects_that_the_readme_names_are_there() -> None:
    projects = {p.rstrip("`") for page in PAGES.values() for p in re.findall(r"-p (\S+)", page)}
    assert projects
    assert all(yaml.safe_load((ROOT / p / "flowql.yaml").read_text())["name"] for p in projects)
