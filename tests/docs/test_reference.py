"""The generated pages are up to date, and every page can be found from the first one."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md"))


def test_pages_from_the_code_are_up_to_date() -> None:
    pages = runpy.run_path(str(DOCS / "reference" / "generate.py"))["pages"]()
    assert {file.name for file in pages} == {
        "commands.md",
        "errors.md",
        "functions.md",
        "project.md",
        "python.md",
        "types.md",
    }
    old = [file.name for file, text in pages.items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    assert not old, "type  .venv/bin/python docs/reference/generate.py"


def links(page: Path) -> list[Path]:
    """Files that a page links to, within the project; a leading slash stands for its root."""
    found = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return [(DOCS.parent / link[1:] if link[0] == "/" else page.parent / link) for link in found if "://" not in link]


def test_every_page_is_linked_from_the_index() -> None:
    index = DOCS / "README.md"
    assert index in links(DOCS.parent / "README.md")
    assert set(PAGES) - {index} <= set(links(index))
