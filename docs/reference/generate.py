"""Write the pages that come from the code: each `write_NAME.py` here has `page()`, the text of `NAME.md`.

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
        writer.with_name(writer.stem.removeprefix("write_") + ".md"): runpy.run_path(str(writer))["page"]()
        for writer in sorted(HERE.glob("write_*.py"))
    }


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")
