"""Long strings are worked on part by part, as one call of the standard library keeps the interpreter lock; the parts make no difference to the result."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from flowql.compiler.functions import collections_functions, sql_bytes, sql_strings, strings
from flowql.compiler.functions.bounds import PART_MAX, ValueTooLarge, utf8_bytes
from flowql.compiler.functions.patterns import all_matches
from flowql.compiler.functions.registry import all_functions
from flowql.compiler.plan.types import Kind
from tests.bounds.calls import signatures

SIZE = 4 * PART_MAX


def called(name: str, arg: str) -> Any:
    resolution = next(r for r in signatures(name) if r.args[0].kind is Kind.STRING)
    return all_functions()[name].reference(resolution)(arg)


@pytest.mark.parametrize("name", ["UCASE", "LCASE"])
@pytest.mark.parametrize("text", ["ß" * SIZE, "İ" * SIZE, "Σ" * SIZE, "Σ'" * (SIZE // 2)])
def test_no_call_changes_the_case_of_more_than_a_part(name: str, text: str) -> None:
    longest = 0

    def note(_frame: Any, event: str, what: Any) -> None:
        nonlocal longest
        if (
            event == "c_call"
            and isinstance(getattr(what, "__self__", None), str)
            and what.__name__ in ("upper", "lower")
        ):
            longest = max(longest, len(what.__self__))

    sys.setprofile(note)
    try:
        found = called(name, text)
    finally:
        sys.setprofile(None)
    assert found == (text.upper() if name == "UCASE" else text.lower())
    assert 0 < longest <= PART_MAX + 2


@pytest.mark.parametrize("text", ["\\" * SIZE, "\\101" * (SIZE // 4), "ab\\\\" * (SIZE // 4)])
def test_no_call_reads_more_escapes_than_those_of_a_part(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []

    class Noted:
        def sub(self, by: Any, raw: bytes) -> bytes:
            lengths.append(len(raw))
            return escapes.sub(by, raw)

    escapes: re.Pattern[bytes] = sql_bytes._ESCAPE
    whole = called("sql_to_bytes", text)
    monkeypatch.setattr(sql_bytes, "_ESCAPE", Noted())
    assert called("sql_to_bytes", text) == whole
    assert max(lengths) <= PART_MAX


def test_parts_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    r = random.Random(53)
    for part in (5, 7, 64):
        for module in (strings, sql_bytes):
            monkeypatch.setattr(module, "PART_MAX", part)
        for _ in range(700):
            text = "".join(r.choices("ΣΣΣaé'.\u0301\u00ad ßİﬃ1A", k=r.randint(1, 90)))
            assert strings.upper(text) == text.upper(), text
            assert strings.lower(text) == text.lower(), text
            pieces = r.choices(["\\\\", "\\101", "\\000", "\\377", "a", "7", "é"], k=r.randint(1, 90))
            plain = b"".join(
                b"\\" if p == "\\\\" else bytes([int(p[1:], 8)]) if p[0] == "\\" else p.encode() for p in pieces
            )
            if not "".join(pieces).startswith("\\x"):
                assert sql_bytes.bytes_of_text("".join(pieces)) == plain, pieces
            with pytest.raises(ValueError, match="bytea"):
                sql_bytes.bytes_of_text("a" + "".join(pieces) + r.choice(["\\", "\\8", "\\40", "\\477"]))


@pytest.mark.parametrize("by", [str.strip, str.lstrip, str.rstrip])
def test_a_strip_of_many_characters_looks_for_none_of_them_one_by_one(by: Callable[[str, str], str]) -> None:
    calls: list[Any] = []
    many = "".join(map(chr, range(97, 97 + 10 * sql_strings.STRIPPED_MAX)))
    random_ = random.Random(7)
    texts = ["".join(random_.choices(many + "AB", k=9)) for _ in range(200)] + [many, ""]

    def noted(s: str, characters: str) -> str:
        calls.append(characters)
        return by(s, characters)

    assert [sql_strings.strip(by, s, many) for s in texts] == [by(s, many) for s in texts]
    sql_strings.strip(noted, "xax", "x")
    sql_strings.strip(noted, many, many)
    assert calls == ["x"]


class _Long(str):
    """A text whose characters nothing takes in one call: other threads wait for its end."""

    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all of a long text at once")

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        raise AssertionError("all of a long text at once")

    def join(self, parts: Iterable[str]) -> str:
        raise AssertionError("joined before it was measured")


def test_the_characters_of_a_strip_are_read_in_parts() -> None:
    many = _Long("".join(map(chr, range(0x1000, 0x1100))) * 1000)
    assert sql_strings.strip(str.rstrip, "1.0\u1001\u10ff", many) == "1.0"


def test_the_bytes_of_a_text_are_counted_in_parts_and_before_it_is_made() -> None:
    assert utf8_bytes(_Long("\U0001f600" * SIZE)) == 4 * SIZE
    with pytest.raises(ValueTooLarge):
        strings.joined(_Long("\U0001f600" * SIZE), ["a"] * 62)


def test_the_characters_of_a_text_are_made_an_array_in_parts() -> None:
    split = all_functions()["sql_string_to_array"].reference(signatures("sql_string_to_array")[0])
    assert split(_Long("\u0101" * SIZE), None) == ["\u0101"] * SIZE


@pytest.mark.parametrize("part", [1, 2, 7])
def test_replacing_and_counting_in_parts_makes_no_difference(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_matches, "PART_MAX", part)
    monkeypatch.setattr(collections_functions, "PART_MAX", part)
    replace = all_functions()["REGEXP_REPLACE"].reference(signatures("REGEXP_REPLACE")[0])
    assert replace("00:11:2", "", "<>") == "<>".join(["", *"00:11:2", ""])
    assert replace("00:11:2", "([0-9]*)", "[$1]") == "[00][]:[11][]:[2][]"
    assert collections_functions.series(7, 1, -2) == [7, 5, 3, 1]
