"""The pages about how FlowQL is built say what is: rules that code cites, code and tests that pages name, state machines, terms, links."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from flowql.runtime.app import query_state
from flowql.runtime.task import status
from tests.tidy.tree import PACKAGES, ROOT, own_files, text_of

RULES = Path("docs/internals/correctness.md")
STATES = Path("docs/internals/states.md")
PAGES = [p for p in own_files() if p.suffix == ".md" or p.name == "llms.txt"]
CITING = [p for p in own_files() if p.suffix in (".py", ".md", ".c", ".sh") and p != RULES]

CITATION = re.compile(r"\b[Rr]ules? (R\d+(?:(?:, | and | to |, and )R\d+)*)")
NAMED_CODE = re.compile(r"`((?:compiler|runtime|flowql|benchmarks|tests)/[\w/]+\.py)(?:: ?([A-Za-z_][\w.]*))?`")
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
# Written in pieces, so that this file does not name what it refuses: documents that are not in the repository.
ABSENT = re.compile(rf"\b(?:{'|'.join(['DESI' + 'GN', 'FA' + 'CTS', 'SPARK-FA' + 'CTS'])})\b")


def cited(text: str) -> set[str]:
    """Numbers of rules that a text cites; a range stands for all that are in it."""
    found: set[str] = set()
    for match in CITATION.finditer(text):
        for first, last in re.findall(r"R(\d+)(?: to R(\d+))?", match.group(1)):
            found |= {f"R{n}" for n in range(int(first), int(last or first) + 1)}
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(rule R7)", {"R7"}),
        ("rules R3 and R10", {"R3", "R10"}),
        ("rules R7 to R9", {"R7", "R8", "R9"}),
        ("suppression, rule R13.", {"R13"}),
        ("CREATE STREAM R2", set()),
    ],
)
def test_the_search_for_citations_finds_what_it_should(text: str, expected: set[str]) -> None:
    assert cited(text) == expected


@cache
def sections() -> dict[str, str]:
    parts = re.split(r"^## (R\d+):", text_of(RULES) or "", flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_cited_rule_is_on_the_page() -> None:
    unknown = {
        f"{p}: {', '.join(sorted(missing))}" for p in CITING if (missing := cited(text_of(p) or "") - set(sections()))
    }
    assert not unknown


@pytest.mark.parametrize("rule", sorted(sections(), key=lambda r: int(r[1:])))
def test_a_rule_names_its_reason_its_code_and_its_tests(rule: str) -> None:
    text = sections()[rule]
    assert "\nWhy: " in text
    assert NAMED_CODE.search(text[text.index("- Code: ") : text.index("- Tests: ")])
    assert NAMED_TEST.search(text[text.index("- Tests: ") :])


def test_no_text_cites_a_document_that_is_not_here() -> None:
    wrong = [f"{p}: {m.group()}" for p in own_files() if (m := ABSENT.search(text_of(p) or ""))]
    assert not wrong


# -- what pages name exists


def members(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Names that a module defines, methods and fields with their class: `Task._run`."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name
            yield from members(node.body, f"{prefix}{node.name}.")
            for method in (n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"):
                yield from (f"{prefix}{node.name}.{name}" for name in set_on_self(method))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
        elif isinstance(node, ast.Assign):
            yield from (prefix + n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield prefix + node.target.id
        elif isinstance(node, ast.If | ast.Try):
            yield from members(node.body, prefix)


def set_on_self(method: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


@cache
def defined(path: str) -> frozenset[str]:
    return frozenset(members(ast.parse((ROOT / path).read_text(encoding="utf-8")).body))


def nowhere(text: str) -> list[str]:
    """Code and tests that a text names and that do not exist."""
    named = [*NAMED_CODE.findall(text), *NAMED_TEST.findall(text)]
    return [
        f"{path}: {name}" for path, name in named if not (ROOT / path).is_file() or (name and name not in defined(path))
    ]


def test_the_search_for_code_finds_what_it_should() -> None:
    good = (
        "`runtime/task/task.py: Task._run` `runtime/task/status.py` `tests/tidy/test_internals.py::test_links_resolve`"
    )
    assert not nowhere(good)
    bad = "`runtime/task/task.py: Task.no_such` `runtime/task/none.py` `tests/tidy/test_internals.py::test_none`"
    assert len(nowhere(bad)) == 3


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_code_that_a_page_names_exists(page: Path) -> None:
    assert not nowhere(text_of(page) or "")


# -- packages


def packages() -> set[str]:
    """Packages of the product and their sub-packages, by their folders."""
    folders = {p.parent.as_posix() for p in own_files() if p.name == "__init__.py" and p.parts[0] in PACKAGES}
    return folders - set(PACKAGES)


def unplaced(text: str) -> set[str]:
    """Packages that a text does not name as code: `runtime/log`, `runtime/log/base.py`."""
    named = re.findall(r"`((?:compiler|runtime|flowql)/[\w/]+)", text)
    return {p for p in packages() if not any(n == p or n.startswith(f"{p}/") for n in named)}


def test_the_search_for_packages_finds_what_it_should() -> None:
    missing = unplaced("`runtime/log/kafka/log.py: KafkaLog`, runtime/task, `runtime/stateless`")
    assert not {"runtime/log", "runtime/log/kafka"} & missing
    assert {"runtime/log/embedded", "runtime/task", "runtime/state"} <= missing


def test_every_package_has_a_place_in_the_pages_about_subsystems() -> None:
    pages = (p for p in PAGES if p.parts[:2] == ("docs", "internals") or p == Path("ARCHITECTURE.md"))
    assert not unplaced("".join(text_of(p) or "" for p in pages))


# -- state machines


def transitions(section: str) -> set[tuple[str, str]]:
    """Of the diagram in a section of the page of state machines, without those from and to [*]."""
    text = (text_of(STATES) or "").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^    (\w+) --> (\w+)", text, re.M))


@pytest.mark.parametrize(
    ("section", "previous"),
    [
        ("Task", status._PREVIOUS),
        ("Query", query_state._PREVIOUS),
    ],
)
def test_a_diagram_has_the_transitions_of_the_code(section: str, previous: dict) -> None:
    assert transitions(section) == {(b.value, after.value) for after, before in previous.items() for b in before}


def test_the_states_of_a_transaction_are_fields_of_the_commit_step() -> None:
    text = (text_of(STATES) or "").partition("\n## Transaction\n")[2]
    rows = dict(re.findall(r"^\| (\w+) \| (`.*?) \|", text, re.M))
    assert set(rows) == {state for pair in transitions("Transaction") for state in pair}
    known = defined("runtime/commit/coordinator.py")
    for fields in rows.values():
        assert all(f"CommitStep.{name}" in known for name in re.findall(r"`(\w+)`", fields))


# -- links


def anchor(heading: str) -> str:
    """As repositories on the web make one of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    prose = FENCED.sub("", text_of(page) or "")
    made = [anchor(h) for h in re.findall(r"^#+ (.*)$", prose, re.M)]
    again = [f"{a}-{made[:n].count(a)}" for n, a in enumerate(made) if a in made[:n]]
    return frozenset([*made, *again, *re.findall(r'<a (?:id|name)="([^"]+)"', prose)])


def broken(page: Path) -> list[str]:
    """Links of a page within the repository that lead nowhere."""
    found = []
    for link in (a or b for a, b in LINK.findall(FENCED.sub("", text_of(page) or ""))):
        if re.match(r"[a-z]+:", link):  # other hosts: tests/tidy/test_places.py
            continue
        path, _, fragment = link.partition("#")
        target = page if not path else Path(path[1:]) if path.startswith("/") else page.parent / path
        has_anchor = not fragment or target.suffix != ".md" or fragment in anchors(target)
        if not (ROOT / target).exists() or not has_anchor:
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_resolve(page: Path) -> None:
    assert not broken(page)


# -- terms


def terms() -> list[tuple[str, str]]:
    """(term, code) of each row of the glossary."""
    rows = re.findall(r"^\| (.+?) \| .+ \| (.+) \|$", text_of(Path("docs/glossary.md")) or "", re.M)
    return [row for row in rows if row[0] not in ("term", "---")]


def test_every_term_has_one_definition_and_code() -> None:
    assert len(terms()) > 50
    names = [part for term, _ in terms() for part in re.sub(r" \(.*\)", "", term).split(", ")]
    assert len(set(names)) == len(names)
    assert all(NAMED_CODE.search(code) for _, code in terms())
