"""`errors.md`, and a page for each area of codes, from the pages that `flowql explain` shows. See `generate.py`."""

from __future__ import annotations

import re

from flowql.compiler.diagnostics.codes import CodePage, areas

HEAD = """\
# Errors by code

Every error has a code that never changes. `flowql explain FQ2002` shows its page in the terminal. In examples, `-` marks what is wrong
and `+` what is right.

| codes | area |
|---|---|
"""


def pages() -> dict[str, str]:
    """The index, and the pages of the areas."""
    written = {
        f"errors/{_file(title)}": "\n".join([f"# {title}\n", *(_entry(c, p) for c, p in sorted(entries.items()))])
        for title, entries in areas().items()
    }
    rows = [
        f"| {min(entries)} to {max(entries)} | [{title}](errors/{_file(title)}) |" for title, entries in areas().items()
    ]
    return {"errors.md": HEAD + "\n".join(rows) + "\n", **written}


def _file(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()) + ".md"


def _entry(code: str, page: CodePage) -> str:
    """The wrong example and the right one as a difference: lines with - and +."""
    parts = [f"## {code}\n", f"**{_line(page.title)}.** {_line(page.explanation)}\n"]
    lines = [f"{sign} {line}" for sign, text in (("-", page.wrong), ("+", page.right)) for line in text.splitlines()]
    if lines:
        parts += ["```diff", *lines, "```\n"]
    return "\n".join(parts)


def _line(text: str) -> str:
    """Escapes signs of Markdown outside of code."""
    parts = text.replace("|", "\\|").split("`")
    parts[::2] = [p.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_") for p in parts[::2]]
    return "`".join(parts)
