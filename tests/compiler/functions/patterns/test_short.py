"""Short strings go through Python's `re`: it gives what RE2 gives, and never for long (`python -m tests.patterns --short` compares many more)."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from flowql.compiler.functions import builtin
from flowql.compiler.functions.pattern_calls import function_over_columns
from flowql.compiler.functions.patterns.java import parse_java
from flowql.compiler.functions.patterns.short import CHARS_MAX, STEPS_MAX, chars_max, short, steps
from tests.compiler.functions.patterns.backtracking import tried
from tests.patterns.compare import compare_short

assert builtin.FAMILIES
NONE: frozenset[int] = frozenset()
SEED = random.randrange(10**6)
PATTERNS = (
    r"id=(\d+)",
    r"^[A-Z]+ [a-z.]+@[a-z]+ .*$",
    r"\s+",
    r"(\w+)@(\w+)",
    "a|ab|abc",
    ".*a.*b",
    "(?:ab)+c",
    "a{0,3}a{2}b",
    "x*?y",
    r"\ba+\b",
)


@pytest.mark.parametrize("dialect", ["java", "postgres"])
def test_python_and_re2_give_the_same(dialect: str) -> None:
    found = compare_short(500, SEED, dialect)
    assert len(found) > 100
    assert [o for o in found if o.verdict != "same"] == [], SEED


@pytest.mark.parametrize(
    "pattern",
    [r"^([a-zA-Z0-9]+\.?)+@", "(a|b)*c", "(?:a+)+b", "(?:a|aa)+b", "(?:a?a){50}", r"a.*b.*c.*d.*e.*f.*g.*h.*i"],
)
def test_a_pattern_that_may_take_long_is_for_re2(pattern: str) -> None:
    found = short(parse_java(pattern), NONE)
    assert found is None or found.chars_max < 20


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    "string", ["a" * 14, "ab" * 7, "a@" * 7, "id=1234567", "A b@c d \n\n", " " * 14, "x" * 13 + "z"]
)
def test_the_bound_of_steps_holds(pattern: str, string: str) -> None:
    """A matcher that backtracks as `re` does counts what it tries."""
    root = parse_java(pattern).root
    bound = steps(root, len(string))
    assert bound is not None
    assert tried(root, string) <= bound


def test_python_compiles_short_programs_alone() -> None:
    """A pattern of 3,333 letters beyond ASCII took 10 s: each was written as a set without characters, which Python compiles in 3 ms."""
    letters = short(parse_java("\uac00" * 150), NONE)
    assert letters is not None
    assert not letters.ascii_only, "letters are no sets"
    assert short(parse_java("a" * 3_333), NONE) is None


def test_strings_are_as_long_as_their_steps_allow() -> None:
    root = parse_java(r"(\w+)@(\w+)").root
    longest = chars_max(root)
    assert 100 < longest < CHARS_MAX
    assert (steps(root, longest) or 0) <= STEPS_MAX < (steps(root, longest + 1) or 0)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("REGEXP_LIKE", ("{}", r"^\w+@x$")), ("REGEXP_EXTRACT", (r"(\w)@", "{}", 1)), ("REGEXP_REPLACE", ("{}", r"(\w)@", r"<$1\\>")),
        ("REGEXP_SPLIT_TO_ARRAY", ("{}", "[@ ]")), ("sql_regexp_like", ("{}", r"\w+@")), ("sql_regexp_replace", ("{}", r"(\w)@", r"\\\1\&", "g")),
        ("sql_regexp_replace", ("{}", r"(\w)@", "<\\1>")), ("sql_similar", ("{}", "a%")),
    ],
)  # fmt: skip
def test_a_row_alone_is_a_row_of_a_column(name: str, args: tuple[Any, ...]) -> None:
    function = function_over_columns(name, len(args))
    assert function is not None
    for s in ("", "a@x", "é@ü b@c", "a@@b ", "x"):
        given = [s if a == "{}" else a for a in args]
        prepared = function.prepare(*(a for i, a in enumerate(given) if i != function.subject))
        assert prepared.row_chars_max > 0
        assert function.value(*given) == prepared.over(pa.array([s]))[0].as_py(), s
