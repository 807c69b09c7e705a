"""Views over tables with every kind of value at its edges, beside a query that has nothing to do with them.

    python -m tests.nasty_views            # all pairs of views and columns, by rows and by columns: some minutes
    python -m tests.nasty_views --view sum

No value may stop a query, a record makes one letter in each task that reads it, and once the rows with bad values are deleted a view holds what it holds where they
never were. A sample is a test (`tests/runtime/app/test_nasty_views.py`).
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import orjson
import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Compiled, compile_project
from flowql.compiler.plan.diff import QueryChange
from flowql.compiler.plan.logical import Scan
from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.app.query_state import RUNNING
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from tests import nasty_values
from tests.runtime.app import test_values
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_values import done

TYPES = {
    **{"l": "BIGINT", "d": "DOUBLE PRECISION", "c": "NUMERIC(20, 4)", "h": "NUMERIC(38, 10)", "t": "TEXT", "a": "DATE"},
    **{"at": "TIMESTAMP", "ti": "TIME", "b": "BYTEA", "o": "BOOLEAN", "i": "INT"},
}
_COLUMNS = ", ".join(f'"{name}" {kind}' for name, kind in TYPES.items())
SOURCES = f"""
CREATE TABLE ts (k TEXT PRIMARY KEY, {_COLUMNS});
CREATE TABLE tu (k TEXT PRIMARY KEY, {_COLUMNS});
CREATE STREAM u (k TEXT KEY, v BIGINT) WITH (KAFKA_TOPIC='u', KEY_FORMAT='JSON', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE VIEW beside AS SELECT k, SUM(v) AS n FROM u GROUP BY k;
CREATE VIEW r AS """
GOOD = {name.lower(): value for name, value in nasty_values.GOOD.items() if name.lower() in TYPES}
_PAIR = "SELECT ts.k AS a, tu.k AS b, ts.{c} AS x FROM ts "
VIEWS = {
    "join": _PAIR + "JOIN tu ON ts.{c} = tu.{c}",
    "left": _PAIR + "LEFT JOIN tu ON ts.{c} = tu.{c}",
    "full": _PAIR + "FULL JOIN tu ON ts.{c} = tu.{c}",
    "residual": _PAIR + "LEFT JOIN tu ON ts.i = tu.i AND ts.{c} < tu.{c}",
    "temporal": _PAIR + "LEFT JOIN tu FOR SYSTEM_TIME AS OF PROCTIME() AS tu ON ts.{c} = tu.{c}",
    "exists": "SELECT k FROM ts WHERE EXISTS (SELECT 1 FROM tu WHERE tu.{c} = ts.{c})",
    "not in": "SELECT k FROM ts WHERE {c} NOT IN (SELECT {c} FROM tu WHERE k = 'later')",
    "value": "SELECT k, (SELECT MAX({c}) FROM tu WHERE tu.i = ts.i) AS x FROM ts",
    "group": "SELECT {c} AS g, COUNT(*) AS n FROM ts GROUP BY {c}",
    "rollup": "SELECT i, {c} AS x, COUNT(*) AS n FROM ts GROUP BY ROLLUP (i, {c})",
    "sum": "SELECT SUM({c}) AS s, AVG({c}) AS m, COUNT(*) AS n FROM ts",
    "sums": "SELECT i, SUM({c}) AS s, AVG({c}) AS m, COUNT(*) AS n FROM ts GROUP BY i",
    "extremes": "SELECT MIN({c}) AS s, MAX({c}) AS m, COUNT(DISTINCT {c}) AS n FROM ts",
    "percentile": "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {c}) AS s FROM ts",
    "list": "SELECT ARRAY_AGG({c} ORDER BY {c}) AS s FROM ts",
    "texts": "SELECT STRING_AGG({c}, ',' ORDER BY {c}) AS s FROM ts",
    "having": "SELECT i, COUNT({c}) FILTER (WHERE {c} IS NOT NULL) AS n FROM ts GROUP BY i HAVING MAX({c}) IS NOT NULL",
    "distinct": "SELECT DISTINCT {c} AS x FROM ts",
    "distinct on": "SELECT DISTINCT ON (i) i, {c} AS x FROM ts ORDER BY i, {c}",
    "union": "SELECT {c} AS x FROM ts UNION SELECT {c} FROM tu",
    "except": "SELECT {c} AS x FROM ts EXCEPT ALL SELECT {c} FROM tu WHERE k = 'good'",
    "intersect": "SELECT {c} AS x FROM ts INTERSECT SELECT {c} FROM tu",
    "top": "SELECT k, {c} AS x FROM ts ORDER BY {c} DESC LIMIT 3",
    "rank": "SELECT k, RANK() OVER (ORDER BY {c}) AS x FROM ts",
    "lag": "SELECT k, LAG({c}) OVER (PARTITION BY i ORDER BY k) AS x FROM ts",
    "running": "SELECT k, SUM({c}) OVER (ORDER BY k) AS x FROM ts",
    "near": "SELECT k, COUNT(*) OVER (ORDER BY {c} RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS x FROM ts",
    "over": "SELECT k, ROW_NUMBER() OVER (PARTITION BY {c} ORDER BY k) AS x FROM ts",
    "moving": "SELECT k, MAX({c}) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS x FROM ts",
    "tumble": "SELECT window_start, COUNT(*) AS n FROM TUMBLE(ts, {c}, INTERVAL '1 day') GROUP BY window_start, window_end",
    "hop": "SELECT window_start, COUNT(*) AS n FROM HOP(ts, {c}, INTERVAL '12 hours', INTERVAL '1 day') GROUP BY window_start",
    "expressions": "SELECT k, {c} + {c} AS x, {c} * {c} AS y, {c} / {c} AS z FROM ts WHERE {c} * 2 > 1",
    "casts": "SELECT k, CAST({c} AS TEXT) AS x, CAST(CAST({c} AS TEXT) AS VARCHAR(3)) AS y FROM ts",
}  # fmt: skip


def compiled(view: str, column: str) -> Compiled:
    text = SOURCES + VIEWS[view].format(c=column) + ";"
    return compile_project([SourceText("views.sql", text)], dialect="standard")


def fits(view: str, column: str) -> bool:
    return compiled(view, column).ok


class ViewHarness(InstanceHarness):
    """A view over a column, fed with keys that are texts and values as they are."""

    def __init__(self, view: str, column: str, *, vector: bool) -> None:
        self.pair = view, column
        super().__init__("", vector=vector)

    def deploy(self, sql: str) -> tuple[QueryChange, ...]:
        return self.instance.deploy(compiled(*self.pair).plan)

    def write(self, topic: str, rows: Sequence[tuple[str, bytes | None, int]]) -> None:
        records = [
            {"timestamp": at, "key": orjson.dumps(key), "value": value, "headers": None} for key, value, at in rows
        ]
        self.producer.begin()
        self.producer.send(TopicPartition(topic, 0), pa.RecordBatch.from_pylist(records, PRODUCE_SCHEMA))
        self.producer.commit()
        done(self)


@dataclass(frozen=True, slots=True)
class Found:
    """wrong: what is. rows: of the view once the bad rows are deleted. letters: of the view's query."""

    wrong: list[str]
    rows: list[Any]
    letters: list[dict[str, Any]]


def live(view: str, column: str, texts: Sequence[str], *, vector: bool) -> Found:
    """Rows with these texts in the column, between good ones; then they are deleted."""
    good = orjson.dumps(GOOD)
    bad = [(f"bad {n}", record(column, text), 2 + n) for n, text in enumerate(texts)]
    rows = [("good", good, 1), *bad, ("later", good, 90)]
    world = ViewHarness(view, column, vector=vector)
    world.write("u", [(key, b'{"v": 5}', at) for key, _, at in rows])
    for topic in ("ts", "tu"):
        world.write(topic, rows)
    name = next(n for n in world.instance.queries if n.endswith("_r"))
    letters = world.dead_letters(name)
    wrong = [*_wrong(world, len(rows)), *_again(letters, world.instance.queries[name].plan)]
    for topic in ("ts", "tu"):
        world.write(topic, [(key, None, 100) for key, _, _ in bad])
    return Found([*wrong, *_wrong(world, len(rows))], world.table("r"), letters)


def _wrong(world: InstanceHarness, rows: int) -> Iterator[str]:
    if world.instance.commit.blocked:
        yield f"commits are blocked: {world.instance.commit.blocked}"
    if [row[-1] for row in world.table("beside")] != [5] * rows:
        yield f"the query beside has {world.table('beside')}"
    for name in world.instance.queries:
        state = world.instance.query_states.of(name)
        if state.state is not RUNNING:
            yield f"{name}: {state.reason}"


def _again(letters: Sequence[dict[str, Any]], query: QueryPlan) -> Iterator[str]:
    tasks = Counter(o.spec.topic for s in query.subtopologies for o in s.operators if isinstance(o.spec, Scan))
    said = Counter((x["TOPIC"], x["PARTITION"], x["OFFSET"], x["MESSAGE"]) for x in letters)
    again = sorted(x for x, times in said.items() if times > tasks[x[0]])
    if again:
        yield f"several letters of a record: {again}"


def record(column: str, text: str) -> bytes:
    """The good record with one column as a raw text."""
    parts = (f'"{c}": {text if c == column else orjson.dumps(v).decode()}' for c, v in GOOD.items())
    return ("{" + ",".join(parts) + "}").encode()


def wrong(view: str, column: str, *, vector: bool) -> list[str]:
    """What is wrong with all nasty values of a column."""
    name = column.upper()
    texts = [*test_values.NASTY.get(name, ()), *nasty_values.NASTY[name]]
    found, without = live(view, column, texts, vector=vector), live(view, column, [], vector=vector)
    said = [*found.wrong, *without.wrong]
    if view != "temporal" and repr(found.rows) != repr(without.rows):  # there, rows keep what they met when they came
        said.append(f"{found.rows} is left after the bad rows are gone, not {without.rows}")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--view", choices=VIEWS)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    worlds = bad = 0
    for view, column in product(VIEWS, TYPES):
        if given.view in (None, view) and fits(view, column):
            for vector in (False, True):
                worlds += 1
                for what in wrong(view, column, vector=vector):
                    bad += 1
                    print(f"{view}, {column}, {'columns' if vector else 'rows'}: {what[:300]}", flush=True)
    print(f"{worlds} worlds, {bad} wrong")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
