"""Every diagnostic code that is used has its page, and every page says something."""

from __future__ import annotations

import re

import pytest

from flowql.compiler.diagnostics.codes import CODES
from tests.tidy.tree import PACKAGES, modules, text_of

CODE = re.compile(r"\bFQ\d{4}\b")
REGISTRIES = ("codes.py", "engine_codes.py", "project_codes.py", "query_codes.py", "spark_codes.py")


def used() -> dict[str, str]:
    """Code -> a file that names it; the registry does not count."""
    found: dict[str, str] = {}
    for path in modules(*PACKAGES):
        if path.name not in REGISTRIES:
            for code in CODE.findall(text_of(path) or ""):
                found.setdefault(code, str(path))
    return found


def test_every_code_that_is_used_has_a_page() -> None:
    missing = {code: path for code, path in used().items() if code not in CODES}
    assert not missing


def test_every_page_is_about_a_code_that_is_used() -> None:
    assert not set(CODES) - set(used())


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_page_explains(code: str) -> None:
    page = CODES[code]
    assert CODE.fullmatch(code)
    assert page.title
    assert not page.title.endswith(".")
    assert page.explanation.endswith(".")
    assert bool(page.wrong) == bool(page.right), "an example has both sides"
    assert page.wrong != page.right or not page.wrong
