"""A clone without symbolic links, as Git makes it where `core.symlinks` is off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distribution import copy_files


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of the present files."""
    copy_files(tmp_path / "origin")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for command in (("init", "-q"), ("add", "-A"), (*author, "commit", "-qm", "all")):
        assert run(tmp_path / "origin", "git", *command).returncode == 0
    made = run(tmp_path, "git", "clone", "-q", "-c", "core.symlinks=false", "origin", "clone")
    assert made.returncode == 0, made.stderr
    return tmp_path / "clone"


def test_a_clone_without_links_says_what_to_type_and_that_repairs_it(clone: Path) -> None:
    assert (clone / "flowql/compiler").is_file()
    refused = run(clone, sys.executable, "-m", "flowql", "--help")
    assert refused.returncode == 1
    assert "make setup" in refused.stderr.splitlines()[-1]
    repaired = run(clone, "make", "links")
    assert (repaired.returncode, repaired.stderr) == (0, "")
    assert "flowql/compiler was a file and is a link now" in repaired.stdout
    helped = run(clone, sys.executable, "-m", "flowql", "--help")
    assert helped.returncode == 0, helped.stderr
    assert not run(clone, "git", "status", "--short").stdout
    assert not run(clone, "make", "links").stdout, "nothing is left to do"
