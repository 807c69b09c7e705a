"""Running a case: after each statement every table and view must hold the rows that DuckDB answers for the same text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from random import Random
from typing import Any

import duckdb

from flowql.compiler.diagnostics.diagnostic import CompileError
from tests.incremental.check import inline_max
from tests.slt.session import Shape, SqlSession
from tests.standard_views.case import Step

Row = tuple[Any, ...]
TOLERANCE = 1e-9


class Failed(AssertionError):
    """A view is not what its definition says, or something failed inside. step: of the case. kind: the same for the same fault, mostly."""

    def __init__(self, step: int, kind: str, text: str) -> None:
        super().__init__(text)
        self.step, self.kind = step, kind


@dataclass(slots=True)
class CaseResult:
    """What a case showed. refused: (labels, code and title, query) of views. lacking: views that DuckDB cannot answer. compared: answers."""

    accepted: list[frozenset[str]] = field(default_factory=list)
    refused: list[tuple[frozenset[str], str, str]] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    compared: int = 0
    changes: int = 0
    edits: int = 0


def run(
    steps: Sequence[Step], shape: Shape, *, inline: int = 16, kills: int | None = None, every: int = 1
) -> CaseResult:
    """Raises Failed. inline: entries of a small bucket. kills: seed of restarts in the middle of changes. every: changes per comparison."""
    with _world(shape) as world, duckdb.connect(config={"threads": 1}) as reference, inline_max(inline):
        judge = Judge(world, reference, CaseResult(), None if kills is None else Random(kills))
        for defining, group in groupby(enumerate(steps), lambda s: s[1].kind in ("table", "view")):
            numbered = list(group)
            if defining:
                judge.define(numbered)
                continue
            for n, step in numbered:
                if step.kind == "edit":
                    judge.edit(step, n)
                else:
                    judge.change(step, n, compared=n % every == 0)
        judge.compare(len(steps) - 1, asked=True)
    return judge.outcome


@contextmanager
def _world(shape: Shape) -> Iterator[SqlSession]:
    world = SqlSession(shape)
    try:
        yield world
    finally:
        world.close()


@dataclass(slots=True)
class Judge:
    """Both databases. tables, views: those that both have. missing: names that one of them refused. project: what is deployed."""

    world: SqlSession
    reference: duckdb.DuckDBPyConnection
    outcome: CaseResult
    kill: Random | None
    tables: list[str] = field(default_factory=list)
    views: list[str] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    project: dict[str, Step] = field(default_factory=dict)

    def define(self, steps: Sequence[tuple[int, Step]]) -> None:
        """Tables and views, deployed together."""
        wanted = [(n, s) for n, s in steps if self._referred(s)]
        errors = self.world.define([_definition(s) for _, s in wanted])
        for (n, step), error in zip(wanted, errors, strict=True):
            if error is None:
                (self.tables if step.kind == "table" else self.views).append(step.name)
                self.project[step.name] = step
                if step.kind == "view":
                    self.outcome.accepted.append(step.labels)
                continue
            refused = isinstance(error, CompileError)
            if step.kind == "table" or not (refused or self.missing & _words(step.sql)):
                raise Failed(n, type(error).__name__, f"{type(error).__name__}: {str(error)[:1500]}\n    {step.sql}")
            assert isinstance(error, CompileError)
            self.missing.add(step.name)
            self.reference.execute(f"DROP VIEW {step.name}")
            (first, *_) = error.diagnostics
            if not self.missing & _words(step.sql):
                self.outcome.refused.append((step.labels, f"{first.code}: {first.title}", step.sql))
        self.compare(steps[-1][0], asked=False)

    def _referred(self, step: Step) -> bool:
        """Whether DuckDB has it."""
        if self.missing & _words(step.sql):
            self.missing.add(step.name)
            return False
        try:
            if step.kind == "table":
                self.reference.execute(step.reference or step.sql)
            else:
                self.reference.execute(f"CREATE VIEW {step.name} AS {step.reference or step.sql}")
                self.reference.execute(f"SELECT * FROM {step.name}").fetchall()
        except duckdb.Error as error:
            self.outcome.lacking.append(f"{error}\n    {step.sql}")
            self.reference.execute(f"DROP VIEW IF EXISTS {step.name}")
            self.missing.add(step.name)
            return False
        return True

    def edit(self, step: Step, n: int) -> None:
        """The project with another query for a view; nothing happens if one of both databases refuses that."""
        wanted = {**self.project, step.name: step}
        if not step.sql:
            del wanted[step.name]
        if step.name in self.missing or not self._has(wanted.values()):
            self.outcome.lacking.append(f"edit: {step.name}: {step.sql}")
            self._has(self.project.values())
            return
        rounds = self.kill.randint(0, 6) if self.kill is not None and self.kill.random() < 0.4 else None
        try:
            self.world.redefine(";\n".join(map(_definition, wanted.values())) + ";", rounds=rounds)
        except CompileError as error:
            self.outcome.lacking.append(f"edit: {error}\n    {step.sql}")
            self._has(self.project.values())
            return
        except Exception as error:
            raise Failed(
                n,
                type(error).__name__,
                f"edit of {step.name}: {type(error).__name__}: {str(error)[:1500]}\n    {step.sql}",
            ) from error
        self.project, self.views = wanted, [v for v in wanted if v not in self.tables]
        self.outcome.edits += 1
        self.compare(n, asked=False)

    def _has(self, project: Iterable[Step]) -> bool:
        """Whether DuckDB can answer every view of the project, which it now has."""
        views = [s for s in project if s.kind != "table"]
        try:
            for name in self.project.keys() - {s.name for s in views} - set(self.tables):
                self.reference.execute(f"DROP VIEW IF EXISTS {name}")
            for step in views:
                self.reference.execute(f"CREATE OR REPLACE VIEW {step.name} AS {step.reference or step.sql}")
            for step in views:
                self.reference.execute(f"SELECT * FROM {step.name}").fetchall()
        except duckdb.Error:
            return False
        return True

    def change(self, step: Step, n: int, *, compared: bool) -> None:
        self.reference.execute(step.reference or step.sql)
        rounds = self.kill.randint(0, 6) if self.kill is not None and self.kill.random() < 0.4 else None
        try:
            self.world.execute(step.sql, rounds=rounds)
        except Exception as error:
            raise Failed(
                n, type(error).__name__, f"{type(error).__name__}: {str(error)[:1500]}\n    {step.sql}"
            ) from error
        self.outcome.changes += 1
        if compared:
            self.compare(n, asked=False)

    def compare(self, n: int, *, asked: bool) -> None:
        """Every view, and every table if asked by a query."""
        try:
            if asked:
                answers = {v: self.world.ask(f"SELECT * FROM {v}") for v in (*self.tables, *self.views)}
            else:
                answers = self.world.contents(self.views)
        except Exception as error:
            raise Failed(n, type(error).__name__, f"{type(error).__name__}: {str(error)[:1500]}") from error
        for name, answer in answers.items():
            described = self.reference.execute(f"SELECT * FROM {name}")
            names = [d[0] for d in described.description or ()]
            if list(answer.column_names) != names and len(set(names)) == len(names):
                raise Failed(n, "names", f"{name} has the columns {answer.column_names}, not {names}")
            columns = [c.to_pylist() for c in answer.columns]
            rows = list(zip(*columns, strict=True))
            if difference(described.fetchall(), rows) and (text := difference(self._unoptimised(name), rows)):
                raise Failed(n, "rows", f"{name} after step {n}:\n{text}\n{self.project[name].sql}")
            self.outcome.compared += 1

    def _unoptimised(self, name: str) -> list[Row]:
        """DuckDB's answer by the plan as written: 2.0 pushes a filter below DISTINCT ON, which then shows other rows."""
        self.reference.execute("PRAGMA disable_optimizer")
        try:
            return self.reference.execute(f"SELECT * FROM {name}").fetchall()
        finally:
            self.reference.execute("PRAGMA enable_optimizer")


def _definition(step: Step) -> str:
    return f"CREATE MATERIALIZED VIEW {step.name} AS {step.sql}" if step.kind != "table" else step.sql


def _words(sql: str) -> set[str]:
    return set(re.findall(r"\w+", sql))


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
