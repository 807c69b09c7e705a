"""A hook of `make docs`: links that begin at the root of the repository work in the site, too.

`/docs/x.md` is a page of the site. Other files of the repository that pages link to, such as `/CHANGELOG.md`, become pages of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^(```\w+) \w+$", re.MULTILINE)
LINK = re.compile(r"(!?\[[^\]]*\]\()/([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the files outside of docs that pages link to, and those that these link to."""
    found = {match[2] for page in (ROOT / "docs").rglob("*.md") for match in LINK.finditer(page.read_text("utf-8"))}
    known: set[str] = set()
    while new := {name for name in found - known if not name.startswith("docs/") and (ROOT / name).is_file()}:
        known |= found
        for name in new:
            content = (ROOT / name).read_text("utf-8")
            files.append(File.generated(config, _place(name), content=content))
            if name.endswith(".md"):
                found |= {match[2] for match in LINK.finditer(content)}
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links from the root of the repository become links from the root of the site; those of other files are made from there first.

    The word behind the language of a block (`sql standard`) is for tests.
    """
    markdown = FENCE.sub(r"\1", markdown)
    if page.file.generated_by:
        markdown = re.sub(r"(!?\[[^\]]*\]\()(?![a-z]+:|[/#])([^)\s]+)", r"\1/\2", markdown)
    return LINK.sub(
        lambda m: f"{m[1]}/{m[2].removeprefix('docs/') if m[2].startswith('docs/') else _place(m[2])}", markdown
    )


def _place(name: str) -> str:
    """Where a file of the repository is in the site. A README is an index, of which each folder has one."""
    return name.replace("README.md", "ABOUT.md")
