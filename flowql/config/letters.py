"""The part of a target that is about how long dead letters are kept."""

from __future__ import annotations

from collections.abc import Mapping

from flowql.config.reader import Item
from flowql.config.shape import Duration, Key, Record, Size
from flowql.runtime.config import LetterRetention

DEAD_LETTERS = Record(
    "dead_letters",
    {
        "keep": Key(Duration(unlimited="forever"), "How long, from the time they were written; default: 7 days."),
        "size": Key(Size(unlimited="unlimited"), "Their size as stored; default: 1 GB. The oldest are deleted first."),
    },
)


def letter_retention(given: Mapping[str, Item]) -> LetterRetention:
    """What the checked values say."""
    fields = {"keep": "age_ms", "size": "size_bytes"}
    return LetterRetention(**{fields[k]: i.value for k, i in given.items()})
