"""The generated pages are up to date, and every page can be found from the first one."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md"))


def test_pages_from_the_code_are_up_to_date() -> None:
    pages = runpy.run_path(str(DOCS / "reference" / "generate.py"))["pages"]()
    assert {"commands", "errors", "functions", "project", "python", "types"} <= {file.stem for file in pages}
    families = {file.parent for file in pages} - {DOCS / "reference"}
    assert {page for page in PAGES if page.parent in families} <= set(pages), "a page that nothing writes"
    old = [file.name for file, text in pages.items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    assert not old, "type  .venv/bin/python docs/reference/generate.py"


def links(page: Path) -> list[Path]:
    """Files that a page links to, within the project; a leading slash stands for its root."""
    found = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return [
        (DOCS.parent / link[1:] if link[0] == "/" else (page.parent / link).resolve())
        for link in found
        if "://" not in link
    ]


def test_every_page_can_be_reached_from_the_index() -> None:
    index = DOCS / "README.md"
    assert index in links(DOCS.parent / "README.md")
    found, new = {index}, {index}
    while new := {p for page in new for p in links(page) if p in PAGES} - found:
        found |= new
    assert set(PAGES) <= found


def test_the_site_shows_every_page() -> None:
    """`make docs` checks the links of the site; here its contents, without mkdocs."""
    site = yaml.safe_load((DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8"))
    named = [str(page) for section in site["nav"] for pages in section.values() for page in _pages(pages)]
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in PAGES)
    listed = (DOCS / "llms.txt").read_text(encoding="utf-8")
    assert [page for page in named if page != "README.md" and f"({page})" not in listed] == [], "docs/llms.txt"


def test_dead_links_of_the_site_are_errors() -> None:
    """With --quiet, mkdocs counts no warnings: `make docs` passed with dead links."""
    makefile = (DOCS.parent / "Makefile").read_text(encoding="utf-8")
    assert "bin/mkdocs build --strict" in makefile
    assert "--quiet" not in makefile.partition("bin/mkdocs build")[2].splitlines()[0]
    assert "section docs make docs" in (DOCS.parent / ".ci" / "run").read_text(encoding="utf-8")


def _pages(entry: Any) -> list[str]:
    return [entry] if isinstance(entry, str) else [page for item in entry for page in item.values()]
