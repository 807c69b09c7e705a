"""One seed: tables, a query, random changes; after each round the view must be what DuckDB computes from the tables."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb

from flowql.compiler.optimize.mark_appends import mark_appends
from flowql.compiler.plan.changes import Consolidate
from flowql.compiler.plan.logical import Node
from flowql.runtime.batch import Row
from flowql.runtime.operators.changes import buckets
from tests.incremental.deployed import Deployed, sunk
from tests.incremental.queries import Maker, Query
from tests.incremental.tables import Table

Shape = Callable[[Maker], Query]


class Mismatch(AssertionError):
    """A view is not what its definition says."""


@dataclass
class SeedResult:
    """What a seed showed. changes: rows fed; emitted: rows of the view at the end."""

    labels: tuple[str, ...]
    rounds: int
    changes: int


@contextmanager
def inline_max(entries: int) -> Iterator[None]:
    """Buckets of more entries are large ones, so that small tests meet both."""
    kept, buckets.INLINE_MAX = buckets.INLINE_MAX, entries
    try:
        yield
    finally:
        buckets.INLINE_MAX = kept


def run(
    shape: Shape,
    seed: int,
    *,
    rounds: int = 5,
    partitions: int | None = None,
    vector: bool | None = None,
    appends: bool | None = None,
) -> SeedResult:
    """Raises Mismatch with the seed, the definition and both results. appends: rows of the tables only come; None: of some."""
    rng, kinds = random.Random(seed), random.Random(f"tables {seed}")
    tables = [
        Table(n, rng, rng.choice((2, 4, 30)), kinds.random() < 0.4 if appends is None else appends) for n in ("t", "u")
    ]
    query = shape(Maker(tables, rng))
    partitions = partitions or rng.choice((1, 3))
    if vector is None:
        vector = rng.choice((True, False, None))
    node = Node(Consolidate(), (query.node,), query.node.schema, "retract")
    node = mark_appends(node)
    deployed = Deployed(sunk(node), partitions, rng, vector=vector)
    fed = 0
    with duckdb.connect(config={"threads": 1}) as connection, inline_max(rng.choice((1, 3, 16))):
        deployed.settle()
        _compare(deployed, connection, tables, query, seed, "before any row")
        for n in range(rounds):
            for table in tables:
                changes = table.clear() if rng.random() < 0.06 else table.changes(rng.choice((1, 3, 20, 60)))
                fed += len(changes)
                at = 0
                while at < len(changes):
                    step = rng.choice((1, 7, 50))
                    deployed.feed(table.name, changes[at : at + step])
                    at += step
            deployed.settle()
            _compare(deployed, connection, tables, query, seed, f"after round {n}")
            rng.choice((deployed.commit, deployed.reopen, lambda: None))()
    if deployed.dead:
        raise Mismatch(f"seed {seed}: {deployed.dead[0].message}")
    return SeedResult(query.labels, rounds, fed)


def _compare(
    deployed: Deployed,
    connection: duckdb.DuckDBPyConnection,
    tables: Sequence[Table],
    query: Query,
    seed: int,
    when: str,
) -> None:
    for t in tables:
        connection.register(t.name, t.arrow())
    expected = Counter(map(plain, connection.execute(query.sql).fetchall()))
    found = Counter(map(plain, deployed.rows()))
    if found != expected:
        missing, extra = list((expected - found).elements())[:5], list((found - expected).elements())[:5]
        raise Mismatch(f"seed {seed}, {when}: {query.sql}\n  missing: {missing}\n  too many: {extra}")


def plain(row: Row) -> Row:
    """A row as it is compared: doubles by 10 digits."""
    return tuple(map(_plain, row))


def _plain(v: Any) -> Any:
    if isinstance(v, bool) or v is None:
        return v
    if isinstance(v, float):
        return "nan" if math.isnan(v) else float(f"{v:.10g}") + 0.0
    if isinstance(v, (int, Decimal)):
        return Decimal(v).normalize() + 0
    if isinstance(v, (list, tuple)):
        return tuple(map(_plain, v))
    return v
