"""Pages of diagnostic codes: what `flowql explain FQ####` shows, read from `pages/*.md` when asked for.

FQ1xxx syntax, FQ2xxx names, types and meaning of SQL, FQ3xxx project files, FQ4xxx runtime, log and state
(FQ41xx Spark), FQ5xxx commands.
A code never changes its meaning and is never given again; a range's numbers need not be dense.
A file has a heading `# Area`, and for each code `## FQ####: title`, an explanation, and a block ```wrong and one ```right, or neither.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_ENTRY = re.compile(r"^## (FQ\d{4}): (.+)\n\n", re.MULTILINE)
_BLOCK = re.compile(r"^```(wrong|right)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class CodePage:
    """One code explained: `explanation` in a few sentences; `wrong` and `right` are examples, possibly empty."""

    title: str
    explanation: str
    wrong: str = ""
    right: str = ""


@cache
def areas() -> dict[str, dict[str, CodePage]]:
    """The pages of all codes, by the title of their area."""
    found = sorted(files(__package__).joinpath("pages").iterdir(), key=lambda file: file.name)
    read = dict(_area(file.read_text(encoding="utf-8")) for file in found if file.name.endswith(".md"))
    return dict(sorted(read.items(), key=lambda area: min(area[1])))


@cache
def code_pages() -> dict[str, CodePage]:
    """The page of each code."""
    return {code: page for area in areas().values() for code, page in area.items()}


def _area(text: str) -> tuple[str, dict[str, CodePage]]:
    head, *entries = _ENTRY.split(text)
    return head.removeprefix("# ").strip(), {
        code: _page(title, body) for code, title, body in zip(*[iter(entries)] * 3, strict=True)
    }


def _page(title: str, body: str) -> CodePage:
    """Lines of the explanation are joined: a terminal and Markdown wrap them."""
    return CodePage(title, " ".join(_BLOCK.sub("", body).split()), **dict(_BLOCK.findall(body)))
