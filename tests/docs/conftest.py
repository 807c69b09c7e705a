"""A shell in which the commands of a page are typed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.tour import PROGRAM, SETTLE_AFTER, Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """In an empty folder. After a deployment too it waits until everything is processed."""
    if not PROGRAM.exists():
        pytest.skip("needs .venv, which `make setup` makes: the pages show the installed program")
    made = Shell(tmp_path, SETTLE_AFTER)
    yield made
    made.close()
