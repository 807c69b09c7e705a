"""Every character of a text taken out of YAML is found in the file again."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flowql.compiler.diagnostics.source import Span
from flowql.config.texts import ProjectTexts, Taken, Variables, take_scalar

LETTERS = "ab'\"\\:#-éß€ \n\tx1{}[],&*|>%@`"


def only_scalar(text: str) -> yaml.ScalarNode:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return root.value[0][1]


def taken(text: str) -> Taken:
    node = only_scalar(text)
    return take_scalar(text, node.value, node.style, node.start_mark.index)


@given(st.text(LETTERS, max_size=60), st.sampled_from(["'", '"', "|", ">", None]), st.sampled_from([20, 80]))
def test_characters_are_found_again(value: str, style: str | None, width: int) -> None:
    text = yaml.dump({"key": value}, default_style=style, allow_unicode=True, width=width)
    node = only_scalar(text)
    assert node.value == value
    found = take_scalar(text, node.value, node.style, node.start_mark.index)
    assert found.text == value
    assert len(found.offsets) == len(value)
    assert list(found.offsets) == sorted(found.offsets)
    for char, offset in zip(value, found.offsets, strict=True):
        assert char.isspace() or text[offset] == char or text[offset] == "\\", (char, text[offset:])


@pytest.mark.parametrize(
    ("text", "word", "place"),
    [
        ("a: x = bad", "bad", (1, 8)),
        ("a:\n  b: x", "b", (2, 3)),
        ("a: 'it''s bad'", "bad", (1, 11)),
        ('a: "say \\"hi\\" bad"', "bad", (1, 16)),
        ("a: |\n  one\n    two\n  bad", "bad", (4, 3)),
        ("a: |\n  one\n    two\n  bad", "two", (3, 5)),
        ("a: >-\n\n  one\n  bad\n", "bad", (4, 3)),
        ("a: one\n   two\n  bad", "bad", (3, 3)),
        ('a: "one\n  two \\\n   bad"', "bad", (3, 4)),
    ],
)
def test_a_word_has_the_line_and_column_it_stands_at(text: str, word: str, place: tuple[int, int]) -> None:
    places = ProjectTexts()
    places.add_file("f", text)
    if "b: x" in text:
        assert places.span("f", text.index(word), text.index(word) + 1).column == place[1]
        return
    source = places.source("f", taken(text))
    before = source.text[: source.text.index(word)]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    span = places.place(Span(source.path, line, column, len(word)))
    assert (span.path, span.line, span.column, span.length) == ("f", *place, len(word))
    assert span.line_text == text.split("\n")[place[0] - 1]


def test_places_hold_behind_a_variable() -> None:
    text = "a: x > ${LIMIT:-100000} AND bad"
    places = ProjectTexts()
    places.add_file("f", text)
    expanded, undefined = Variables({"limit": "1"}, {}).expand(taken(text))
    assert (expanded.text, undefined) == ("x > 1 AND bad", [])
    source = places.source("f", expanded)
    assert places.place(Span(source.path, 1, 11, 3)).column == text.index("bad") + 1


def test_what_is_missing_at_the_end_stands_behind_the_end() -> None:
    text = "a: x +\nb: 1"
    places = ProjectTexts()
    places.add_file("f", text)
    source = places.source("f", taken(text))
    assert places.place(Span(source.path, 1, 4, 1)).column == 7


def test_variables_have_an_order() -> None:
    variables = Variables({"A": "given"}, {"A": "env", "B": "env", "C": "env"})
    variables.define("a", "file")
    variables.define("B", "file")
    assert [variables.get(n) for n in ("A", "b", "C", "c", "D")] == ["given", "file", "env", None, None]
