"""Regular expressions run on an engine of linear time, and mean what Java and PostgreSQL say (`python -m tests.patterns` compares with both)."""

from __future__ import annotations

import itertools
import re
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from flowql.compiler.functions import builtin
from flowql.compiler.functions.bounds import CallTooLong, ValueTooLarge
from flowql.compiler.functions.pattern_calls import AT_ONCE, as_python, function_over_columns
from flowql.compiler.functions.patterns import all_matches, program, tree
from flowql.compiler.functions.patterns.java import parse_java
from flowql.compiler.functions.patterns.postgres import parse_postgres, parse_postgres_match
from flowql.compiler.functions.registry import lookup
from flowql.compiler.plan.types import INT, STRING
from tests.patterns.compare import matches

assert builtin.FAMILIES
HOSTILE = "a" * 36 + "!"
# Answers of Java 17: all matches of a pattern, with their groups, in characters.
JAVA = {
    (r"[^/]+$", "a/b\n"): "2-4",
    (r"a*", "baaac"): "0-0 1-4 4-4 5-5",
    (r"[a-z&&[^b]]+", "abc"): "0-1 2-3",
    (r"(a)|(b)", "ab"): "0-1,0-1,- 1-2,-,1-2",
    (r"\Qa.b\E", "axb a.b"): "4-7",
    (r"\p{Lu}+", "aÉB"): "1-3",
    (r"(?i)É", "é É"): "2-3",
    (r"\w+", "aéb"): "0-1 2-3",
    (r"x$", "x\r\n"): "0-1",
    (r".", "a\u2028b"): "0-1 2-3",
    (r"\bfoo\b", "foo foobar foo"): "0-3 11-14",
}
# Answers of PostgreSQL 15.
POSTGRES = {
    (r"a*", "baaac"): "0-0 1-4 4-4 5-5",
    (r"a|ab", "abab"): "0-2 2-4",
    (r"[[:alpha:]]+", "é1b"): "0-1 2-3",
    (r"(?n)^b$", "a\nb\nc"): "2-3",
    (r"(?i)É", "éÉ"): "0-1 1-2",
    (r"a$", "a\n"): "",
    (r"^(.*?)=(.*)$", "a=b=c"): "0-5,0-1,2-5",
}


def call(name: str, *args: Any) -> Any:
    function = lookup(name)
    assert function is not None
    return function.reference(function.resolve(tuple(INT if isinstance(a, int) else STRING for a in args)))(*args)


@pytest.mark.parametrize(("pattern", "string"), JAVA)
def test_matches_are_javas(pattern: str, string: str) -> None:
    assert matches(parse_java, pattern, string) == JAVA[pattern, string]


@pytest.mark.parametrize(("pattern", "string"), POSTGRES)
def test_matches_are_postgresqls(pattern: str, string: str) -> None:
    assert matches(parse_postgres_match, pattern, string) == POSTGRES[pattern, string]


def test_no_record_holds_the_interpreter_up() -> None:
    """With Python's `re` these calls do not end."""
    assert call("REGEXP_EXTRACT", r"^([a-zA-Z0-9]+\.?)+@", HOSTILE) is None
    assert call("sql_regexp_like", HOSTILE * 100, r"^([a-zA-Z0-9]+\.?)+@") is False
    assert call("sql_similar", HOSTILE, "((a|aa)+)+b") is False
    assert call("like", "a" * 80, "%a%a%a%a%a%a%b") is False


def test_a_string_that_would_take_too_long_is_a_dead_letter_with_a_code() -> None:
    with pytest.raises(tree.StringTooLong, match="at most") as found:
        call("REGEXP_LIKE", "a" * 2_000_000, "(a|b|ab){1,20}c")
    assert found.value.code == "FQ4070"
    for pattern in ("a*b|a", "a+$|a", r"(a+\b)?", r"a+\B-|a"):  # each match would be searched for to the end
        with pytest.raises(tree.StringTooLong):
            call("REGEXP_REPLACE", "a" * 30_000, pattern, "")
    assert call("REGEXP_REPLACE", "  " + "a " * 15_000, r"^\s+|\s+$", "") == "a " * 14_999 + "a"


# Patterns that Java and Python read alike, with positions and empty matches.
PLACED = (
    r"\b",
    r"\b(a)?",
    r"(a)|$",
    r"a*$",
    r"(a*)\b",
    r"^",
    r"b|$",
    r"(a|b$)",
    r"a\B|b",
    r"(?:a|(b)\b)*",
    r"\n|a$",
    r"a|\z",
)


@pytest.mark.parametrize("pattern", PLACED)
def test_all_matches_from_a_place_on_are_those_of_one_search_after_the_other(pattern: str) -> None:
    made, known = program.Program(parse_java(pattern)), re.compile(pattern.replace(r"\z", r"\Z"), re.ASCII)
    strings = ["".join(s) for n in range(5) for s in itertools.product("ab \n", repeat=n)]
    groups = range(made.groups + 1)
    for skipped in (0, 1, 3):
        asked = [s for s in strings if len(s) >= skipped]
        found = all_matches.every(made, pa.array(asked), frozenset(groups), skipped)
        spans = zip(found.rows.tolist(), *(a.tolist() for g in groups for a in found.groups[g]), strict=True)
        wanted = [(i, *itertools.chain(*m.regs)) for i, s in enumerate(asked) for m in known.finditer(s, skipped)]
        assert list(spans) == wanted


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("sql_regexp_substr", ("1e9" * 500, "[1e9]", 10)),
        ("sql_regexp_instr", ("a b\n" * 500, r"(?n)^(b| )", 2, 400, 0, "", 1)),
        ("sql_regexp_count", ("a b\n" * 500, "(?n)^|$", 3)),
        ("REGEXP_EXTRACT_ALL", (r"\b(\w)|($)", "a b\n" * 500, 1)),
        ("REGEXP_REPLACE", ("a b\n" * 500, r"\b(\w)|$", "<$1>")),
    ],
)
def test_the_number_of_searches_does_not_grow_with_that_of_the_matches(
    name: str, args: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = Mock(wraps=all_matches.search)
    monkeypatch.setattr(all_matches, "search", searches)
    call(name, *args)
    assert searches.call_count < 10


def test_a_pattern_from_data_that_cannot_be_used_is_a_dead_letter_with_a_code() -> None:
    for pattern in ("(?=a)", "(", "((a{1000}){1000}){9}", "a" * 6_000):
        with pytest.raises(tree.PatternError) as found:
            call("REGEXP_LIKE", "a", pattern)
        assert found.value.code == "FQ4071"


def test_replacements_have_names_and_numbers() -> None:
    assert call("REGEXP_REPLACE", "a1", r"(?<n>\d)", r"<${n}\$>") == "a<1$>"
    with pytest.raises(ValueError, match="no group 3"):
        call("REGEXP_REPLACE", "a", "(a)", "$3")


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [("a", "x" * 60_000), ("a*?", "x" * 60_000), ("(a+)(a*)$", "$1" * 1_000), ("a", "$0" * 30_000)],
)
def test_a_replacement_is_refused_before_it_makes_a_value_without_bound(pattern: str, replacement: str) -> None:
    """The kernels of Arrow would end the process for want of memory."""
    with pytest.raises(ValueTooLarge):
        call("REGEXP_REPLACE", "a" * 18_000, pattern, replacement)
    with pytest.raises(CallTooLong):
        call("REGEXP_REPLACE", "a" * 18_000, "(z*)", "$1" * 1_000)
    assert call("REGEXP_REPLACE", "b" * 18_000, "(a)", "$1" * 1_000) == "b" * 18_000


@pytest.mark.parametrize("pattern", [r"\B", r"a*\B", r"x|\B"])
def test_no_match_is_within_a_character(pattern: str) -> None:
    """RE2 has an empty match between the bytes of a character: a replacement there was no string."""
    with pytest.raises(tree.PatternNotSupported, match="B in a pattern that matches an empty string"):
        call("REGEXP_REPLACE", "aéa", pattern, "-")
    assert call("REGEXP_REPLACE", "aéa éé", r"\Bé", "-") == "aéa --"


def test_a_replacement_is_read_in_linear_time() -> None:
    class Piece(str):
        def __add__(self, other: str) -> str:
            raise AssertionError("pieces are copied again and again")

    assert all_matches.joined([Piece("a"), Piece("b"), 1, Piece("c")]) == ("ab", 1, "c")
    assert call("REGEXP_REPLACE", "a", "(?<n>a)", "x" * 300_000 + r"${n}$1\$") == "x" * 300_000 + "aa$"
    assert call("sql_regexp_replace", "a", "(a)", r"é\1\&\\") == "éaa\\"


@pytest.mark.parametrize("pattern", [r"(?:(0))+?\S{2}", r"([^\w](.))*\Z", "(?:a(b)){2}|c"])
def test_a_group_that_java_leaves_behind_is_refused_where_it_is_taken(pattern: str) -> None:
    """Java 17 keeps what an inner group matched in a round that was given up."""
    inner = max(parse_java(pattern).stale)
    assert call("REGEXP_EXTRACT", pattern, "abc", 0) in (None, "", "c")
    with pytest.raises(tree.PatternNotSupported, match=rf"group {inner}"):
        call("REGEXP_EXTRACT", pattern, "abc", inner)
    with pytest.raises(tree.PatternNotSupported, match=rf"group {inner}"):
        call("REGEXP_REPLACE", "abc", pattern, f"${inner}")
    assert call("REGEXP_EXTRACT", "(?:a(b))?c|x", "abc", 1) == "b"


@pytest.mark.parametrize("pattern", ["[a-", "[[:digit:]-a]", "[\\d-x]"])
def test_what_postgresql_reads_as_no_range_is_an_error(pattern: str) -> None:
    with pytest.raises(tree.PatternError, match="is not valid"):
        parse_postgres(pattern)


@pytest.mark.parametrize("pattern", [r"\s*?.+", r"\d*?\D.*", r"[\D]*?c??.*", r"(\S\d)??.{2,}"])
def test_the_shortest_match_of_all_is_not_that_of_a_greedy_end(pattern: str) -> None:
    """PostgreSQL takes the shortest match where the first quantifier is lazy, whatever the last one is."""
    with pytest.raises(tree.PatternAmbiguous):
        parse_postgres_match(pattern)


def test_whether_a_pattern_matches_is_asked_of_any_pattern() -> None:
    with pytest.raises(tree.PatternAmbiguous):
        parse_postgres_match("a?(ab)?")
    assert program.Program(parse_postgres("a?(ab)?")).groups == 1


# Answers of Java 17 where a pattern matches an empty string; of Guava's Splitter and of PostgreSQL 15 otherwise.
SPLIT = (
    ("REGEXP_SPLIT_TO_ARRAY", "b?", ("", "aa", "baac", "abc"), [[""], ["a", "a"], ["", "", "a", "a", "c"], ["a", "", "c"]]),
    ("REGEXP_SPLIT_TO_ARRAY", "(a|b)*", ("", "aa", "baac", "cab"), [[""], [], ["", "", "c"], ["c"]]),
    ("REGEXP_SPLIT_TO_ARRAY", r"\b", ("a b", "é-a"), [["a", " ", "b"], ["é-", "a"]]),
    ("REGEXP_SPLIT_TO_ARRAY", "a", ("", "a", "baac"), [[""], ["", ""], ["b", "", "c"]]),
    ("sql_regexp_split_to_array", "a*", ("", "a", "baac", "xé"), [[""], ["", ""], ["b", "c"], ["x", "é"]]),
    ("sql_regexp_split_to_array", "^|b", ("", "b", "abba"), [[""], ["", ""], ["a", "", "a"]]),
)  # fmt: skip


@pytest.mark.parametrize(("name", "pattern", "strings", "parts"), SPLIT)
def test_parts_are_javas_and_postgresqls(
    name: str, pattern: str, strings: tuple[str, ...], parts: list[list[str]]
) -> None:
    function = function_over_columns(name, 2)
    assert function is not None
    assert function.column([pa.array(strings), pa.array([pattern] * len(strings))]).to_pylist() == parts


@pytest.mark.parametrize("pattern", ["a", "a?"])
def test_matches_are_counted_before_they_are_made(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a hundred bytes while it is made."""
    monkeypatch.setattr(all_matches, "mark_for", Mock(side_effect=AssertionError("matches are marked")))
    with pytest.raises(ValueTooLarge):
        call("REGEXP_SPLIT_TO_ARRAY", "a" * ((1 << 20) + 1), pattern)


def test_a_long_array_becomes_pythons_in_steps() -> None:
    """One call of pyarrow would keep the lock of the interpreter for all of them."""
    made = pa.array([["b"], ["a"] * (AT_ONCE + 7), None], pa.list_(pa.string()))
    assert [as_python(made[i]) for i in range(3)] == made.to_pylist()
