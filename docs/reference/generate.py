"""Write the pages that come from the code: each `write_NAME.py` here has `pages()`, their texts by file, relative to this folder.

    python docs/reference/generate.py

A test compares the files with what this program would write.
"""

from __future__ import annotations

import runpy
from pathlib import Path

HERE = Path(__file__).parent


def pages() -> dict[Path, str]:
    """Each page's file, and what belongs in it."""
    return {
        HERE / name: text
        for writer in sorted(HERE.glob("write_*.py"))
        for name, text in runpy.run_path(str(writer))["pages"]().items()
    }


if __name__ == "__main__":
    for file, text in pages().items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
