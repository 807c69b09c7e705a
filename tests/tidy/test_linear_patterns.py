"""Constant patterns that read strings of users and of records take linear time: Python's `re` keeps the interpreter lock while it backtracks.

A pattern takes quadratic time where two repetitions that may meet have a character in common, such as `\\d+\\.?\\d*`: a string of digits can
be divided between them in as many ways as it has digits, and `re` tries them all before it says no.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "compiler",
    "runtime/serde",
    "runtime/operators",
    "runtime/functions",
    "flowql/query",
    "flowql/server",
    "flowql/topics",
)
ALPHABET = [chr(c) for c in range(128)] + ["\u0130", "\u4e00", "\u2028"]  # of each kind that patterns tell apart
# Repetitions that meet and cost nothing, because nothing that comes after them can fail.
KNOWN = {
    "compiler/dialect/request_size.py: STANDARD",  # a word or sign at one place; a number ends with any characters of words
    "compiler/dialect/standard/tokens.py: TOKEN",
    "compiler/functions/sql_array_parts.py: _PART",  # a blank less before it is always an element
}


@dataclass
class Positions:
    """The characters of a pattern (Glushkov's construction). chars: what each may be. follow: the positions that may come next."""

    flags: int
    chars: list[frozenset[str]] = field(default_factory=list)
    follow: list[set[int]] = field(default_factory=list)
    looped: set[int] = field(default_factory=set)  # directly repeated without limit

    def add(self, op: Any, arg: Any) -> tuple[set[int], set[int], bool]:
        self.chars.append(_chars(repr((op, arg)), self.flags, lambda: (op, arg)))
        self.follow.append(set())
        n = len(self.chars) - 1
        return {n}, {n}, False

    def sequence(self, items: Any) -> tuple[set[int], set[int], bool]:
        """The first and the last positions, and whether it may be empty."""
        first: set[int] = set()
        last: set[int] = set()
        empty = True
        for op, arg in items:
            f, la, e = self.item(op, arg)
            for p in last:
                self.follow[p] |= f
            first |= f if empty else set()
            last = la | (last if e else set())
            empty = empty and e
        return first, last, empty

    def item(self, op: Any, arg: Any) -> tuple[set[int], set[int], bool]:
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, high, body = arg
            f, la, e = self.sequence(body)
            if high == sre.MAXREPEAT:
                for p in la:
                    self.follow[p] |= f
                    self.looped |= {p} & f if op is not sre.POSSESSIVE_REPEAT else set()
            return f, la, e or low == 0
        if op is sre.BRANCH:
            parts = [self.sequence(b) for b in arg[1]]
            return set().union(*(p[0] for p in parts)), set().union(*(p[1] for p in parts)), any(p[2] for p in parts)
        if op is sre.SUBPATTERN:
            return self.sequence(arg[3])
        if op is sre.ASSERT:  # its characters are read once more by what comes after it
            f, la, _ = self.sequence(arg[1])
            return f, set(), True
        if op is sre.AT and arg in (sre.AT_END, sre.AT_END_STRING) and not self.flags & re.MULTILINE:
            return set(), set(), False  # nothing comes after it
        if op in (sre.AT, sre.ASSERT_NOT, sre.GROUPREF):
            return set(), set(), True
        return self.add(op, arg)


_CACHE: dict[tuple[str, int], frozenset[str]] = {}


def _chars(key: str, flags: int, made: Any) -> frozenset[str]:
    """The characters that one item of a pattern may be."""
    if (key, flags) not in _CACHE:
        pattern = _parser.SubPattern(_parser.State(), [made()])
        pattern.state.flags = flags
        compiled = re._compiler.compile(pattern, flags)  # type: ignore[attr-defined]
        _CACHE[key, flags] = frozenset(c for c in ALPHABET if compiled.fullmatch(c))
    return _CACHE[key, flags]


def meeting(pattern: re.Pattern[Any]) -> list[str]:
    """Characters that two neighbouring repetitions of a pattern have in common."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    flags = pattern.flags if isinstance(pattern.pattern, str) else pattern.flags | re.ASCII
    found = Positions(flags & ~re.UNICODE & ~re.DEBUG)
    found.sequence(_parser.parse(source, flags))
    return [
        "".join(sorted(found.chars[a] & found.chars[b]))[:5]
        for a in found.looped
        for b in found.follow[a] & found.looped
        if a != b and found.chars[a] & found.chars[b]
    ]


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            where = str(path.relative_to(ROOT))
            text = path.read_text(encoding="utf-8")
            if not re.search(r"\bre\.", text):
                continue
            dotted = where.removeprefix("flowql/").removesuffix(".py").replace("/", ".")
            for name, value in vars(importlib.import_module(f"flowql.{dotted}")).items():
                if isinstance(value, re.Pattern):
                    yield f"{where}: {name}", value
            for node in ast.walk(ast.parse(text)):
                if (
                    isinstance(node, ast.Call)
                    and ast.unparse(node.func) in CALLS
                    and isinstance(node.args[0], ast.Constant)
                ):
                    yield f"{where}:{node.lineno}", re.compile(node.args[0].value)


CALLS = {f"re.{name}" for name in ("match", "fullmatch", "search", "sub", "split", "findall", "finditer")}


@pytest.mark.parametrize(
    ("pattern", "meets"),
    [(r"\d+\.?\d*x", True), (r"\d+(?:\.\d*)?x", False), (r"a(?=\s*;?\s*$)", True), (r"(?:[^\\]|\\.)*", False), (r"\w+(?:,\w+)*", False), (r"(?:\s*\w)*\s*z", False)],
)  # fmt: skip
def test_the_check_tells_them_apart(pattern: str, meets: bool) -> None:
    assert bool(meeting(re.compile(pattern))) == meets


def test_constant_patterns_take_linear_time() -> None:
    every = list(patterns())
    assert len(every) > 40
    found = {where: common for where, p in every if where not in KNOWN and (common := meeting(p))}
    assert not found, found
