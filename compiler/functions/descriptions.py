"""An example and a summary of each built-in function, for `SHOW FUNCTIONS` and the reference. `descriptions.txt` is read when they are asked for.

A line is `NAMES :: EXAMPLE :: SUMMARY`, with the names in the catalogue. A test computes the examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Description(NamedTuple):
    """example: a call, and what it gives after ` -> `; of an aggregate the call alone. summary: a sentence."""

    example: str
    summary: str


@cache
def descriptions() -> Mapping[str, Description]:
    """By name in the catalogue, functions and aggregates."""
    lines = files(__package__).joinpath("descriptions.txt").read_text(encoding="utf-8").splitlines()
    return {
        name: Description(example, summary)
        for names, example, summary in (line.split(" :: ") for line in lines)
        for name in names.split(", ")
    }
