"""`errors.md`, from the registry of codes. See `generate.py`."""

from __future__ import annotations

from flowql.compiler.diagnostics.codes import CODES
from flowql.compiler.diagnostics.page import CodePage

HEAD = """\
# Errors by code

Every mistake and failure has a code that never changes. `flowql explain FQ2002` shows the same in the terminal. Written by
`docs/reference/generate.py` from the registry.
"""
RANGES = (
    ("FQ1", "Syntax"),
    ("FQ2", "Names, types, and what SQL means"),
    ("FQ3", "Project files"),
    ("FQ40", "Runtime, log and state"),
    ("FQ41", "Spark"),
    ("FQ5", "Commands"),
)


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    left = set(CODES)
    for prefix, title in RANGES:
        codes = sorted(c for c in left if c.startswith(prefix))
        left -= set(codes)
        parts += [f"## {title}\n", "| code | |", "|---|---|"]
        parts += [f"| [{c}](#{c.lower()}) | {_line(CODES[c].title)} |" for c in codes]
        parts += ["", *(_entry(c, CODES[c]) for c in codes)]
    assert not left, f"no section for {sorted(left)}"
    return "\n".join(parts)


def _entry(code: str, entry: CodePage) -> str:
    parts = [f"### {code}\n", f"**{_line(entry.title)}.** {_line(entry.explanation)}\n"]
    for title, text in (("Wrong", entry.wrong), ("Right", entry.right)):
        if text:
            parts.append(f"{title}:\n\n```\n{text.strip()}\n```\n")
    return "\n".join(parts)


def _line(text: str) -> str:
    """The text on one line. What Markdown would read as its own outside of code is escaped."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    parts[::2] = [p.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_") for p in parts[::2]]
    return "`".join(parts)
