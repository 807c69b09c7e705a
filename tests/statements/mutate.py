"""Statements broken at random: tokens lost, doubled, exchanged, moved, or in the place of others."""

from __future__ import annotations

import random
import re

from compiler.functions.registry import all_aggregates, all_functions
from tests.statements.sources import QUERIES, written

TOKEN = re.compile(
    r"\s+|'(?:[^']|'')*'|`[^`]*`|\"[^\"]*\"|[A-Za-z_]\w*|\d+(?:\.\d+)?|:=|->|=>|<>|<=|>=|!=|\|\||.", re.S
)
EXTREMES = {"", "9" * 40, "1e999", "'", "(" * 60, "\x00", "😀", "-", "/*", "--", "${v}"}


class Mutator:
    """Makes statements of seeds; the same for the same random numbers."""

    def __init__(self) -> None:
        self._seeds = written()
        known = {t for s in self._seeds for t in TOKEN.findall(s) if not t.isspace()}
        self._pool = sorted(known | set(all_functions()) | set(all_aggregates()) | EXTREMES)

    def statement(self, rng: random.Random) -> str:
        return self.mutated(rng.choice(rng.choice((QUERIES, self._seeds))), rng)

    def mutated(self, statement: str, rng: random.Random) -> str:
        tokens = TOKEN.findall(statement)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
            match rng.randrange(5):
                case 0:
                    tokens[at] = " "
                case 1:
                    tokens[at] = f" {rng.choice(self._pool)} "
                case 2:
                    tokens[at], tokens[other] = tokens[other], tokens[at]
                case 3:
                    tokens.insert(at, f" {rng.choice(self._pool)} ")
                case _:
                    tokens[at:at] = tokens[min(at, other) : max(at, other)][:20]
        return "".join(tokens)
