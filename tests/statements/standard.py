"""Statements of standard SQL over tables of one's own, and what is defined before each: those of `tests.styles`, to be broken."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session
from flowql.compiler.plan.topology import Plan
from tests.statements.mutate import TOKEN, Mutator
from tests.styles.cases import STYLES, Step, load

_DEFINES = ("CREATE", "DROP", "SET", "ALTER")
_ASKS = ("SELECT", "WITH", "VALUES", "TABLE", "(")


@dataclass(frozen=True, slots=True)
class Standard:
    """A statement, and those before it."""

    before: tuple[str, ...]
    text: str


@cache
def written() -> list[Standard]:
    """Every statement of the styles."""
    return [
        Standard(_definitions(case.steps[:n]), step.sql + ";")
        for style in STYLES
        for case in load(style)
        for n, step in enumerate(case.steps)
    ]


def _definitions(steps: Sequence[Step]) -> tuple[str, ...]:
    return tuple(s.sql for s in steps if s.sql.upper().startswith(_DEFINES))


def mutated(mutator: Mutator, rng: random.Random) -> Standard:
    """One of them, broken."""
    seed = rng.choice(written())
    near = [t for text in (*seed.before, seed.text) for t in TOKEN.findall(text) if not t.isspace()]
    return Standard(seed.before, mutator.mutated(seed.text, rng, near))


def compiled(statement: Standard) -> Plan:
    """The plan with the statement. Raises CompileError where it is refused."""
    session = Session(dialect="standard")
    for text in statement.before:
        session.execute(SourceText("before.sql", text))
    if statement.text.lstrip().upper().startswith(_ASKS):
        session.asked(SourceText("statement.sql", statement.text))
    else:
        session.execute(SourceText("statement.sql", statement.text))
    return session.plan
