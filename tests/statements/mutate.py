"""Statements broken at random: tokens lost, doubled, exchanged, moved, or in the place of others."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from flowql.compiler.functions.registry import all_aggregates, all_functions
from tests.statements.sources import QUERIES, written
from tests.styles.cases import FOLDER, STYLES

TOKEN = re.compile(
    r"\s+|'(?:[^']|'')*'|`[^`]*`|\"[^\"]*\"|[A-Za-z_]\w*|\d+(?:\.\d+)?|:=|->|=>|<>|<=|>=|!=|\|\||.", re.S
)
EXTREMES = {"", "9" * 40, "1e999", "'", "(" * 60, "\x00", "😀", "-", "/*", "--", "${v}"}
NEAR = 0.7


class Mutator:
    """Makes statements of seeds; the same for the same random numbers."""

    def __init__(self) -> None:
        self._seeds = written()
        texts = (*self._seeds, *((FOLDER / f"{style}.sql").read_text() for style in STYLES))
        known = {t for s in texts for t in TOKEN.findall(s) if not t.isspace()}
        self._pool = sorted(known | set(all_functions()) | set(all_aggregates()) | EXTREMES)

    def statement(self, rng: random.Random) -> str:
        return self.mutated(rng.choice(rng.choice((QUERIES, self._seeds))), rng)

    def mutated(self, statement: str, rng: random.Random, near: Sequence[str] = ()) -> str:
        """near: tokens that are taken more often than others."""
        tokens = TOKEN.findall(statement)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
            match rng.randrange(5):
                case 0:
                    tokens[at] = " "
                case 1:
                    tokens[at] = f" {self._other(rng, near, tokens[at])} "
                case 2:
                    tokens[at], tokens[other] = tokens[other], tokens[at]
                case 3:
                    tokens.insert(at, f" {self._other(rng, near)} ")
                case _:
                    tokens[at:at] = tokens[min(at, other) : max(at, other)][:20]
        return "".join(tokens)

    def _other(self, rng: random.Random, near: Sequence[str], than: str = "") -> str:
        """Another token; of the near ones one of the kind of `than`."""
        alike = [t for t in near if _kind(t) == _kind(than)] if than else near
        return rng.choice(alike if alike and rng.random() < NEAR else self._pool)


def _kind(token: str) -> str:
    first = token[0]
    return (
        "word"
        if first.isalpha() or first in '_`"'
        else "number"
        if first.isdigit()
        else first
        if first == "'"
        else "sign"
    )
