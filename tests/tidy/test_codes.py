"""Every diagnostic code that is used has its page, and every page says something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowql.compiler.diagnostics.codes import areas, code_pages
from tests.tidy.tree import PACKAGES, modules, own_files, text_of

CODE = re.compile(r"\bFQ\d{4}\b")


def used() -> dict[str, str]:
    """Code -> a module that names it."""
    found: dict[str, str] = {}
    for path in modules(*PACKAGES):
        for code in CODE.findall(text_of(path) or ""):
            found.setdefault(code, str(path))
    return found


def test_every_code_that_is_used_has_a_page() -> None:
    missing = {code: path for code, path in used().items() if code not in code_pages()}
    assert not missing


def test_every_page_is_about_a_code_that_is_used() -> None:
    assert not set(code_pages()) - set(used())


def test_a_code_has_one_page() -> None:
    files = [p for p in own_files() if p.parent == Path("compiler/diagnostics/pages")]
    headings = [code for p in files for code in re.findall(r"^## (\w+):", text_of(p) or "", re.MULTILINE)]
    assert sorted(headings) == sorted(code_pages())
    assert len(areas()) == len(files)


@pytest.mark.parametrize("code", sorted(code_pages()))
def test_a_page_explains(code: str) -> None:
    page = code_pages()[code]
    assert CODE.fullmatch(code)
    assert page.title
    assert not page.title.endswith(".")
    assert page.explanation.endswith(".")
    assert "```" not in page.explanation, "a block that is neither wrong nor right"
    assert bool(page.wrong) == bool(page.right), "an example has both sides"
    assert page.wrong != page.right or not page.wrong
