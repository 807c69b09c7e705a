"""Regular expressions of Python are constants of their modules: one of a user could hold the interpreter for ever."""

from __future__ import annotations

import ast
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowql.compiler.functions import java_time, user
from flowql.runtime.spark import storage
from tests.tidy.tree import modules, text_of

CHECKED = ("compiler/functions/", "runtime/", "flowql/query/", "flowql/server/")
CALLS = {"compile", "match", "search", "sub", "subn", "split", "fullmatch", "findall", "finditer"}
# Texts of names and formats through `re.escape`, or of constants by their names: path -> how many.
BUILT = {
    "compiler/functions/patterns/short.py": 1,  # written from a tree whose steps are counted (tests/compiler/functions/patterns/test_short.py)
    "compiler/functions/java_time.py": 1,  # formats, literal parts escaped
    "compiler/functions/user.py": 1,  # names of modules
    "runtime/spark/storage.py": 1,  # a table of constants
    "flowql/query/errors.py": 1,
    "flowql/query/interactive.py": 1,
    "runtime/app/deployment.py": 1,
}


def built(source: str) -> Iterator[int]:
    """Lines of calls of `re` whose expression is not a constant of the module."""
    tree = ast.parse(source)
    constants = {
        t.id
        for n in tree.body
        if isinstance(n, ast.Assign)
        for t in n.targets
        if isinstance(t, ast.Name) and t.id.lstrip("_").isupper()
    } | {"SPACE"}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        if of_re and node.func.attr in CALLS and not _is_constant(node.args[0], constants):
            yield node.lineno


def _is_constant(text: ast.expr, constants: set[str]) -> bool:
    names = {n.id for n in ast.walk(text) if isinstance(n, ast.Name)}
    calls = any(isinstance(n, ast.Call) for n in ast.walk(text))
    return not calls and names <= constants


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import re\n_A = re.compile('a')", []),
        ("import re\n_A = 'a'\n_B = re.compile(rf'{_A}b')", []),
        ("import re\ndef f(p): return re.search(p, 'a')", [2]),
        ("import re\ndef f(p): return re.sub('a', p, 'a')", []),
        ("import re\ndef f(p): return re.compile(re.escape(p))", [2]),
    ],
)
def test_the_rule_of_expressions_finds_what_it_should(source: str, expected: list[int]) -> None:
    assert list(built(source)) == expected


def nested(parsed: Any, *, repeated: bool = False) -> bool:
    """Whether something without a bound is repeated within something that is repeated without a bound."""
    for kind, given in parsed:
        unbounded = kind in (parser.MAX_REPEAT, parser.MIN_REPEAT) and given[1] == parser.MAXREPEAT
        if unbounded and repeated:
            return True
        for part in given if isinstance(given, tuple | list) else (given,):
            for inner in part if isinstance(part, list) else (part,):
                if isinstance(inner, parser.SubPattern) and nested(inner, repeated=repeated or unbounded):
                    return True
    return False


def built_texts() -> Iterator[str]:
    """The expressions of `BUILT`: names in them are words here."""
    for path in BUILT:
        source = text_of(Path(path)) or ""
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.JoinedStr) and "re.escape" in ast.unparse(node):
                yield "".join(str(v.value) if isinstance(v, ast.Constant) else "word" for v in node.values)
    yield from (names for names, _, _ in storage._REASONS)
    yield user._IN_TEXT.pattern
    for pattern in ("yyyy-MM-dd'T'HH:mm:ss[.SSS]XXX", "EEEE, d MMMM y h a", "nn A VV D S"):
        yield java_time._reader(pattern).regex.pattern


def test_the_rule_of_nesting_finds_what_it_should() -> None:
    assert nested(parser.parse(r"^([a-z]+\.?)+@"))
    assert not nested(parser.parse(r"(?:a{1,3})+[b-z]*"))


def test_built_expressions_have_no_repetition_within_another() -> None:
    """Without one the time is a power of the length of the string, which `bounds.chars_max` holds below 1,000 where it is of a user."""
    found = list(built_texts())
    assert len(found) > 8
    assert [text for text in found if nested(parser.parse(text))] == []


def test_expressions_are_constants_of_their_modules() -> None:
    found: dict[str, list[int]] = {}
    for path in modules("compiler", "runtime", "flowql"):
        if str(path).startswith(CHECKED) and (lines := list(built(text_of(path) or ""))):
            found[str(path)] = lines
    wrong = {p: lines for p, lines in found.items() if len(lines) > BUILT.get(p, 0)}
    assert not wrong, f"expressions of `re` that are not constants of their modules: {wrong}"
