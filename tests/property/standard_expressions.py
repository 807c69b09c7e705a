"""Expressions of standard SQL as text, each with an unknown in every place, and what a database says of them over rows with NULLs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session
from flowql.compiler.plan.expr import Call, Expr
from flowql.compiler.plan.logical import Project, walk_nodes
from flowql.compiler.plan.types import BOOLEAN, DOUBLE, INT, STRING, SqlType, arrow_type, decimal

COLUMNS: dict[str, SqlType] = {
    "a": INT,
    "b": INT,
    "s": STRING,
    "u": STRING,
    "p": BOOLEAN,
    "q": BOOLEAN,
    "d": DOUBLE,
    "e": DOUBLE,
    "n": decimal(6, 2),
}
_VALUES: dict[str, list[Any]] = {
    "a": [None, 1, 2],
    "b": [None, 2, 1],
    "s": [None, "x", "%"],
    "u": [None, "x", ""],
    "p": [None, True, False],
    "q": [None, False, True],
    "d": [None, 1.0, float("nan")],
    "e": [None, float("nan"), 0.5],
    "n": [None, Decimal("1.00"), Decimal("-2.50")],
}
_SIGNS = ("=", "<>", "<", "<=", ">", ">=")
_PAIRS = (("a", "b"), ("s", "u"), ("p", "q"), ("d", "e"), ("n", "a"))


def rows() -> list[tuple[Any, ...]]:
    """Every pair of values of columns that meet, NULL among them."""
    found = []
    for i, j in itertools.product(range(3), repeat=2):
        first, second = ("a", "s", "p", "d", "n"), ("b", "u", "q", "e")
        row = {n: _VALUES[n][i] for n in first} | {n: _VALUES[n][j] for n in second}
        found += [tuple(row[c] for c in COLUMNS), tuple((row | {"a": _VALUES["a"][j]})[c] for c in COLUMNS)]
    return found


def truths() -> Iterator[str]:
    """Conditions with a NULL in each position, as a column and as a literal."""
    for sign in _SIGNS:
        for left, right in _PAIRS:
            yield f"{left} {sign} {right}"
        yield from (f"a {sign} NULL", f"NULL {sign} s", f"NULL {sign} NULL")
    for word in ("IN", "NOT IN"):
        yield from (
            f"a {word} (b)",
            f"a {word} (b, 2)",
            f"a {word} (1, NULL)",
            f"a {word} (1, 2)",
            f"s {word} (u, 'x')",
        )
        yield from (f"NULL {word} (a, 1)", f"d {word} (e, 0.5e0)", f"n {word} (1, a)", f"p {word} (q, NULL)")
    for word in ("BETWEEN", "NOT BETWEEN"):
        yield from (f"a {word} b AND 2", f"a {word} 1 AND b", f"a {word} NULL AND b", f"a {word} b AND NULL")
        yield from (f"NULL {word} a AND b", f"s {word} u AND 'y'", f"d {word} e AND 1e0")
    for word in ("IS DISTINCT FROM", "IS NOT DISTINCT FROM"):
        yield from (f"{left} {word} {right}" for left, right in _PAIRS)
        yield from (f"a {word} NULL", f"NULL {word} u")
    for word in ("LIKE", "NOT LIKE"):
        yield from (f"s {word} u", f"s {word} 'x%'", f"u {word} NULL")
    yield from (
        "p AND q",
        "p OR q",
        "NOT p",
        "p AND NULL",
        "NULL OR q",
        "a IS NULL",
        "u IS NOT NULL",
        "a = '1'",
        "'x' < s",
    )


def values() -> Iterator[str]:
    """Values that an unknown runs through."""
    yield from ("s || u", "s || NULL", "NULL || u", "s || a", "p || s", "s || u || 'z'", "COALESCE(s || u, 'none')")
    yield from ("COALESCE(a, b)", "COALESCE(a = b, p)", "NULLIF(a, b)", "NULLIF(a, NULL)", "NULLIF(s, u)")
    yield from ("CASE a WHEN b THEN 1 WHEN NULL THEN 2 ELSE 3 END", "CASE WHEN NULL THEN 1 ELSE 2 END")


def around(condition: str) -> Iterator[str]:
    """A condition where its unknown matters: negated, chosen by, listed, joined with others, tested for NULL."""
    c = f"({condition})"
    yield from (f"NOT {c}", f"CASE WHEN {c} THEN 1 WHEN NOT {c} THEN 0 ELSE -1 END", f"{c} IN (TRUE, NULL)")
    yield from (f"{c} NOT IN (FALSE)", f"{c} AND p", f"q OR {c}", f"{c} IS NULL", f"{c} = (a = b)", f"COALESCE({c}, q)")


@cache
def texts() -> tuple[str, ...]:
    """Conditions and values as they are, and every condition in two of its surroundings, by turns."""
    found, turn = [*truths(), *values()], itertools.count()
    for condition in truths():
        frames = list(around(condition))
        found += [frames[next(turn) % len(frames)] for _ in range(2)]
    return tuple(found)


@cache
def bound() -> tuple[Expr, ...]:
    """The texts as the compiler binds them."""
    listed = ", ".join(f"{n} {t}" for n, t in COLUMNS.items())
    session = Session(dialect="standard")
    session.execute(SourceText("s.sql", f"CREATE STREAM t ({listed}) WITH (kafka_topic='t', value_format='JSON');"))
    items = ", ".join(f"{t} AS x{i}" for i, t in enumerate(texts()))
    session.execute(SourceText("q.sql", f"CREATE STREAM r AS SELECT {items} FROM t;"))
    (project,) = [n.spec for n in walk_nodes(session.plan.queries[-1].logical) if isinstance(n.spec, Project)]
    assert len(project.columns) == len(texts())
    return tuple(c.expr for c in project.columns)


def table() -> pa.Table:
    """The rows as Arrow."""
    columns = zip(*rows(), strict=True)
    return pa.table([pa.array(v, arrow_type(t)) for v, t in zip(columns, COLUMNS.values(), strict=True)], list(COLUMNS))


@cache
def answers() -> tuple[list[Any], ...]:
    """What DuckDB gives for each text, row by row."""
    db = duckdb.connect()
    db.register("t", table())
    items = ", ".join(f"{t} AS x{i}" for i, t in enumerate(texts()))
    found = db.sql(f"SELECT {items} FROM t").to_arrow_table()
    return tuple(c.to_pylist() for c in found.columns)


def called(exprs: tuple[Expr, ...]) -> set[str]:
    """The functions that are called somewhere in these."""

    def names(e: Expr) -> Iterator[str]:
        if isinstance(e, Call):
            yield e.name
            for a in e.args:
                yield from names(a)

    return {n for e in exprs for n in names(e)}
