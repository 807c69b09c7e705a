"""Counts the words of the documentation, and fails if a part is too long.

    python docs/words.py

A word is what stands between blanks and has a letter or a digit. Prose, headings, tables and code within a line count. Blocks of code do not.
"""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path

DOCS = Path(__file__).parent
BLOCK = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
MOST = {"guide and hand-written reference": 40_000, "generated reference": 25_000}


def words(text: str) -> int:
    """The number of words outside of blocks of code."""
    return sum(any(c.isalnum() for c in word) for word in BLOCK.sub("", text).split())


def counts() -> dict[str, int]:
    """Words by part of the documentation."""
    generated = {p for p in runpy.run_path(str(DOCS / "reference/generate.py"))["pages"]() if p.suffix == ".md"}
    written = {p for part in ("guide", "reference") for p in (DOCS / part).rglob("*.md")} - generated
    root = DOCS.parent
    parts: dict[str, Iterable[Path]] = {
        "guide and hand-written reference": written,
        "generated reference": generated,
        "internals": (DOCS / "internals").rglob("*.md"),
        "README, CHANGELOG, ARCHITECTURE": (root / f"{name}.md" for name in ("README", "CHANGELOG", "ARCHITECTURE")),
    }
    return {part: sum(words(p.read_text("utf-8")) for p in pages) for part, pages in parts.items()}


if __name__ == "__main__":
    found = counts()
    for part, n in found.items():
        print(f"{n:7,}  {part}" + (f" (at most {MOST[part]:,})" if part in MOST else ""))
    sys.exit(any(found[part] > most for part, most in MOST.items()))
