"""Groups of standard SQL over a table that changes: after random inserts, updates and deletes every view is what DuckDB recomputes.

`python -m tests.flowql.test_standard_groups --seeds N` goes on from the seeds of the test.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.testing.case import Case, Given, Row
from flowql.testing.feed import records_of, timings
from flowql.testing.run import partitions_of, run

COLUMNS = "k INT PRIMARY KEY, g INT, t VARCHAR, v INT, w BIGINT, d DOUBLE, n DECIMAL(12, 2)"
SOURCE = f"CREATE TABLE r ({COLUMNS}) WITH (kafka_topic='r', partitions={{p}}, value_format='JSON', key_format='JSON');"
_ALL = (
    "COUNT(*) AS c, COUNT(v) AS cv, SUM(v) AS sv, SUM(w) AS sw, SUM(d) AS sd, SUM(n) AS sn, AVG(v) AS av, AVG(d) AS ad"
)
# DuckDB's sums of doubles are not exact; as decimals they are.
_EXACT = "CAST(SUM(CAST(d AS DECIMAL(30, 6))) AS DOUBLE)"
# Each reads the table or the views before it, and DuckDB has the same ones.
VIEWS = {
    "by_g": f"SELECT g, {_ALL} FROM r GROUP BY g",
    "by_both": "SELECT g, t, COUNT(*) AS c, SUM(w) AS sw FROM r GROUP BY g, t",
    "conditions": "SELECT t, COUNT(*) AS c, SUM(v) AS sv FROM r WHERE NOT (v = 3) GROUP BY t HAVING NOT (SUM(v) < 4)",
    "by_expression": "SELECT v % 3 AS m, COUNT(*) AS c, SUM(n) AS sn FROM r WHERE g IS DISTINCT FROM 1 GROUP BY v % 3",
    "sizes": "SELECT c, COUNT(*) AS groups, SUM(sv) AS total FROM by_g GROUP BY c",
    "nulls": "SELECT sv, COUNT(*) AS groups, COUNT(g) AS named FROM by_g GROUP BY sv",
    "again": "SELECT t, COUNT(*) AS c, SUM(sw) AS sw FROM by_both WHERE c < 4 GROUP BY t",
    "nested": "SELECT h, SUM(c) AS rows, COUNT(*) AS groups FROM (SELECT g, v, g % 2 AS h, COUNT(*) AS c FROM r GROUP BY g, v) GROUP BY h",
    "plain": "SELECT g, sv + c AS s, sv IS NULL AS nothing FROM by_g",
}


def changes(chance: Random, count: int) -> list[Row]:
    """Rows that come, change and go; groups that are emptied and come back."""
    made = []
    for n in range(count):
        key = {"k": chance.randrange(14)}
        if chance.random() < 0.3:
            made.append(Row(key, n, True))
            continue
        values = {
            "g": chance.choice([None, 0, 1, 2, 3]),
            "t": chance.choice([None, "", "x", "null"]),
            "v": chance.choice([None, None, *range(5)]),
            "w": chance.choice([None, 1, 2**62, -(2**62), 2**62 + 5]),
            "d": chance.choice([None, 0.1, 1e15, -1e15, 1e-3, 3.5]),
            "n": chance.choice([None, Decimal("0.01"), Decimal("9999999999.99"), Decimal("-1.50")]),
        }
        made.append(Row(key | values, n))
    return made


def recomputed(rows: Sequence[Row]) -> dict[str, tuple[list[str], Counter[tuple[Any, ...]]]]:
    """The columns and rows of each view over the table as it is at the end."""
    last = {r.values["k"]: r for r in rows}
    db = duckdb.connect()
    db.execute(f"CREATE TABLE r ({COLUMNS})")
    left = [list(r.values.values()) for r in last.values() if not r.tombstone]
    if left:
        db.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?, ?, ?)", left)
    found = {}
    for name, select in VIEWS.items():
        db.execute(
            f"CREATE VIEW {name} AS {select.replace('SUM(d)', _EXACT).replace('AVG(d)', f'{_EXACT} / COUNT(d)')}"
        )
        answer = db.execute(f"SELECT * FROM {name}")
        columns = [d[0] for d in answer.description or ()]
        found[name] = columns, Counter(tuple(map(alike, row)) for row in answer.fetchall())
    return found


def alike(value: Any) -> Any:
    """Numbers as doubles of twelve digits, as DuckDB's averages are doubles."""
    return float(f"{value:.12g}") if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) else value


def compiled(partitions: int) -> Plan:
    views = "".join(f"CREATE VIEW {name} AS {select};" for name, select in VIEWS.items())
    result = compile_project([SourceText("v.sql", SOURCE.format(p=partitions) + views)], dialect="standard")
    assert result.ok, [f"{d.code} {d.title}" for d in result.diagnostics]
    return result.plan


def check(seed: int, plan: Plan, partitions: int) -> int:
    """How many rows the views have in all."""
    rows = changes(Random(seed), 20 + seed % 60)
    case = Case("groups", "", 1, (Given("r", tuple(rows)),), partitions=partitions)
    sources = records_of(case, plan, partitions_of(case, plan))
    _, at_once, in_pieces = timings(case, sources, 1, seed)
    outcome = run(case, plan, at_once if seed % 2 else in_pieces, ())
    for name, (columns, want) in recomputed(rows).items():
        found = Counter(tuple(alike(r.values[c]) for c in columns) for r in outcome.final[name])
        assert found == want, f"seed {seed}, {partitions} partitions, {name}: {found - want}, not {want - found}"
    return sum(map(len, outcome.final.values()))


@pytest.mark.parametrize("partitions", [1, 3])
def test_groups_are_what_a_database_recomputes(partitions: int) -> None:
    plan = compiled(partitions)
    assert sum(check(seed, plan, partitions) for seed in range(6)) > 100


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.flowql.test_standard_groups")
    parser.add_argument("--seeds", type=int, default=100)
    options = parser.parse_args()
    for partitions in (1, 3, 8):
        plan = compiled(partitions)
        for seed in range(options.seeds):
            check(seed, plan, partitions)
    print(f"{3 * options.seeds} sequences, all equal")


if __name__ == "__main__":
    main()
