"""Every example of the pages about statements is run: compiled with the page's sources, and its rows compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import DialectName
from flowql.compiler.plan.topology import Plan
from flowql.config.project import Project, Target
from flowql.config.texts import ProjectTexts
from flowql.testing.sql_form import read_sql
from flowql.testing.suite import Suite, judged

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"
BLOCK = re.compile(r"^```sql ?(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
Block = tuple[str, str, str]  # dialect, statements, where


def blocks(page: str) -> list[Block]:
    """Those of a page. The first of `statements.md` holds the sources of its pages, as the first of `dialects.md` does."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [(m[1], m[2], f"{page}:{text.count(chr(10), 0, m.start()) + 1}") for m in BLOCK.finditer(text)]


STATEMENTS = [f"statements/{file.name}" for file in sorted((DOCS / "statements").glob("*.md"))]
PAGES = [(page, blocks("statements.md")[0]) for page in STATEMENTS] + [("dialects.md", blocks("dialects.md")[0])]
BLOCKS = [(sources[1], *block) for page, sources in PAGES for block in blocks(page) if block != sources]


@pytest.mark.parametrize(("before", "info", "sql", "place"), BLOCKS, ids=[place for *_, place in BLOCKS])
def test_an_example_of_a_page_gives_what_it_says(before: str, info: str, sql: str, place: str, tmp_path: Path) -> None:
    dialect: DialectName = "standard" if info == "standard" else "ksql"
    sources = SourceText("sources", before)
    project = Project("page", tmp_path, tmp_path, Target(tmp_path, "default"), dialect=dialect, sources=(sources,))
    (case,), wrong = read_sql(place, f"--@test: {place}\n{sql}", Plan(), dialect)
    assert not wrong, [f"{d.code} {d.title}" for d in wrong]
    verdict = judged(Suite(project, Plan(), (case,), ProjectTexts()), case, 1, 7)
    assert verdict.passed, [(f.title, f.lines) for f in verdict.findings]
    assert ("ASSERT VALUES" in sql) == bool(case.expect)


def test_most_examples_show_what_they_give() -> None:
    assert sum("ASSERT VALUES" in sql for *_, sql, _ in BLOCKS) > len(BLOCKS) * 2 // 3
