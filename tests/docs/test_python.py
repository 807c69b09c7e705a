"""The guide to Python is typed, and the examples of its reference are run."""

from __future__ import annotations

import doctest
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import flowql
from tests.distribution import build_wheel, link_dependencies
from tests.docs.tutorial import type_page


@pytest.mark.turns("pages")
@pytest.mark.slow
def test_what_the_guide_shows_is_what_comes_out(tmp_path: Path) -> None:
    """In an environment that has the wheel and the packages on which it depends, and not those of the tests."""
    wheel = build_wheel(tmp_path)
    (folder := tmp_path / "typed").mkdir()
    differs = type_page(
        folder,
        wheel,
        sys._base_executable,
        made=lambda environment: link_dependencies(wheel, environment),
        variables=(("PIP_NO_INDEX", "1"),),
    )
    if differs:
        pytest.fail(differs)


@pytest.mark.parametrize("name", flowql.__all__)
def test_examples_of_the_reference_are_what_python_says(name: str) -> None:
    scope = {
        "flowql": flowql,
        "Iterator": Iterator,
        "timedelta": timedelta,
        **{n: getattr(flowql, n) for n in flowql.__all__},
    }
    said: list[str] = []
    for test in doctest.DocTestFinder(recurse=False).find(getattr(flowql, name), name, globs=scope):
        doctest.DocTestRunner().run(test, out=said.append)
    assert not said, "".join(said)
