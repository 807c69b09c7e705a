"""The files of the page about continuous integration: they are what the page shows, and they run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.docs.tour import PROGRAM, ROOT, blocks

FOLDER = ROOT / "docs" / "guide" / "ci"
PAGE = (ROOT / "docs" / "guide" / "ci.md").read_text(encoding="utf-8")
SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE STREAM BIG AS SELECT K, V FROM S WHERE V > 1;
"""
TEST = """
tests:
  - name: big values pass
    given: {S: [{K: a, V: 5}]}
    expect: {BIG: [{K: a, V: 5}]}
"""


def _run(folder: Path, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"}
    git = {f"GIT_{who}_{what}": "ada@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=folder / "shop",
        env={**env, **git, "CALLED": str(folder / "called"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository whose main branch has the project; in the working tree a query has changed. `gh` and `pip` only say that they were called."""
    if not PROGRAM.exists():
        pytest.skip("needs .venv, which `make setup` makes")
    shop, programs = tmp_path / "shop", tmp_path / "bin"
    (shop / "tests").mkdir(parents=True)
    programs.mkdir()
    (shop / "flowql.yaml").write_text("name: shop\nsql: [shop.sql]\n")
    (shop / "shop.sql").write_text(SQL)
    (shop / "tests" / "shop.yaml").write_text(TEST)
    (shop / "check.sh").write_text((FOLDER / "check.sh").read_text())
    (shop / "check.sh").chmod(0o755)
    for name in ("gh", "pip"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> "$CALLED"\n')
        (programs / name).chmod(0o755)
    done = _run(tmp_path, "git init -q -b main && git add . && git commit -qm 'The shop'")
    assert done.returncode == 0, done
    (shop / "shop.sql").write_text(SQL.replace("V > 1", "V > 2"))
    return tmp_path


def test_the_page_shows_the_files() -> None:
    assert (FOLDER / "check.sh").read_text() in blocks(PAGE, "sh")
    assert (FOLDER / "flowql.yml").read_text() in blocks(PAGE, "yaml")


@pytest.mark.turns("long")
def test_the_workflow_comments_the_plan_and_fails_at_a_mistake(folder: Path) -> None:
    steps = yaml.safe_load((FOLDER / "flowql.yml").read_text())["jobs"]["check"]["steps"]
    summary = folder / "summary.md"
    for step in (s for s in steps if "run" in s):
        done = _run(folder, step["run"], BASE="main", NUMBER="7", GITHUB_STEP_SUMMARY=str(summary))
        assert done.returncode == 0, done
    assert "| `CSAS_BIG` | rebuilt |" in summary.read_text()
    assert (folder / "called").read_text() == "pip install flowql\ngh pr comment 7 --body-file plan.md\n"
    (folder / "bin" / "flowql").write_text('#!/bin/sh\n[ "$1" != plan ]\n')
    (folder / "bin" / "flowql").chmod(0o755)
    assert _run(folder, "./check.sh main").returncode == 1, "the exit code of a failed plan"
