"""Running a case: after each statement every table and view must hold the rows that DuckDB answers for the same text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

import duckdb

from compiler.diagnostics.diagnostic import CompileError
from tests.incremental.check import inline_max
from tests.slt.world import Shape, World
from tests.standard_views.case import Step

Row = tuple[Any, ...]
TOLERANCE = 1e-9


class Failed(AssertionError):
    """A view is not what its definition says, or something failed inside. step: of the case. kind: the same for the same fault, mostly."""

    def __init__(self, step: int, kind: str, text: str) -> None:
        super().__init__(text)
        self.step, self.kind = step, kind


@dataclass(slots=True)
class Outcome:
    """What a case showed. refused: (labels, code and title) of views. lacking: views that DuckDB cannot answer. compared: answers."""

    accepted: list[frozenset[str]] = field(default_factory=list)
    refused: list[tuple[frozenset[str], str]] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    compared: int = 0
    changes: int = 0


def run(
    steps: Sequence[Step], shape: Shape, *, inline: int = 16, kills: int | None = None, every: int = 1
) -> Outcome:
    """Raises Failed. inline: entries of a small bucket. kills: seed of restarts in the middle of changes. every: changes per comparison."""
    outcome = Outcome()
    rng = Random(kills)
    with _world(shape) as world, duckdb.connect(config={"threads": 1}) as reference, inline_max(inline):
        known: list[str] = []
        missing: set[str] = set()
        for n, step in enumerate(steps):
            if missing & set(re.findall(r"\w+", step.sql)):
                missing.add(step.name or " ")
                continue
            if not _apply(world, reference, step, n, outcome, kill=rng if kills is not None else None):
                missing.add(step.name)
                continue
            if step.kind != "change":
                known.append(step.name)
            if step.kind == "view" or n % every == 0 or n == len(steps) - 1:
                _compare(world, reference, known, n, outcome)
    return outcome


@contextmanager
def _world(shape: Shape) -> Iterator[World]:
    world = World(shape)
    try:
        yield world
    finally:
        world.close()


def _apply(
    world: World, reference: duckdb.DuckDBPyConnection, step: Step, n: int, outcome: Outcome, *, kill: Random | None
) -> bool:
    """Whether the step is done in both."""
    if step.kind == "view":
        try:
            reference.execute(f"CREATE VIEW {step.name} AS {step.sql}")
            reference.execute(f"SELECT * FROM {step.name}").fetchall()
        except duckdb.Error as error:
            outcome.lacking.append(f"{error}\n    {step.sql}")
            reference.execute(f"DROP VIEW IF EXISTS {step.name}")
            return False
    else:
        reference.execute(step.reference or step.sql)
    sql = f"CREATE MATERIALIZED VIEW {step.name} AS {step.sql}" if step.kind == "view" else step.sql
    try:
        if kill is not None and kill.random() < 0.4:
            world.execute(sql, rounds=kill.randint(0, 6))
        else:
            world.execute(sql)
    except CompileError as error:
        (first, *_) = error.diagnostics
        if step.kind != "view":
            raise Failed(n, f"refused {first.code}", f"{first.code}: {first.title}\n    {sql}") from None
        outcome.refused.append((step.labels, f"{first.code}: {first.title}"))
        reference.execute(f"DROP VIEW {step.name}")
        return False
    except Exception as error:
        raise Failed(n, type(error).__name__, f"{type(error).__name__}: {str(error)[:1500]}\n    {sql}") from error
    outcome.changes += step.kind == "change"
    if step.kind == "view":
        outcome.accepted.append(step.labels)
    return True


def _compare(
    world: World, reference: duckdb.DuckDBPyConnection, known: Sequence[str], n: int, outcome: Outcome
) -> None:
    for name in known:
        question = f"SELECT * FROM {name}"
        try:
            answer = world.ask(question)
        except Exception as error:
            raise Failed(n, type(error).__name__, f"{question}: {type(error).__name__}: {str(error)[:1500]}") from error
        found = [tuple(r.values()) for r in answer.to_pylist()]
        described = reference.execute(question)
        names = [d[0] for d in described.description or ()]
        expected = described.fetchall()
        if list(answer.column_names) != names and len(set(names)) == len(names):
            raise Failed(n, "names", f"{name} has the columns {answer.column_names}, not {names}")
        if text := difference(expected, found):
            raise Failed(n, "rows", f"{name} after step {n}:\n{text}")
        outcome.compared += 1


def difference(expected: Sequence[Row], found: Sequence[Row]) -> str:
    """What differs between two bags of rows; empty if nothing does."""
    wanted, there = Counter(map(_plain, expected)), Counter(map(_plain, found))
    lacking, extra = sorted((wanted - there).elements(), key=repr), sorted((there - wanted).elements(), key=repr)
    for row in list(lacking):  # doubles that are rounded to another digit
        close = next((e for e in extra if len(e) == len(row) and all(map(_close, row, e))), None)
        if close is not None:
            lacking.remove(row)
            extra.remove(close)
    if not lacking and not extra:
        return ""
    return f"  missing: {_rows(lacking)}\n  too many: {_rows(extra)}"


def _rows(rows: Sequence[Row]) -> str:
    return "; ".join(", ".join(map(str, r)) for r in rows[:4]) + (" ..." if len(rows) > 4 else "")


def _plain(v: Any) -> Any:
    match v:
        case bool() | None:
            return v
        case float():
            return "nan" if math.isnan(v) else float(f"{v:.11g}") + 0.0
        case int() | Decimal():
            return Decimal(v).normalize() + 0 if v else Decimal(0)
        case list() | tuple():
            return tuple(map(_plain, v))
    return v


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(a == b)
