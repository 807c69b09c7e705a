"""`flowql explain` names the operators that process every batch row by row, with the reason, and `rows_by_row` counts the rows of just these."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowql.bench.engines import NEXMARK
from flowql.compiler.driver import DialectName
from tests.flowql.cli.program import Program
from tests.runtime.app.harness import InstanceHarness

STREAM = """CREATE STREAM s (id BIGINT KEY, v INT, x DOUBLE, d DECIMAL(10, 2), l ARRAY<INT>)
  WITH (KAFKA_TOPIC = 's', KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON', PARTITIONS = 1);
"""
KSQL = (
    STREAM
    + """
CREATE STREAM s2 (id BIGINT KEY, w INT) WITH (KAFKA_TOPIC = 's2', KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON', PARTITIONS = 1);
CREATE TABLE t (id BIGINT PRIMARY KEY, other BIGINT) WITH (KAFKA_TOPIC = 't', KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON', PARTITIONS = 1);
CREATE TABLE sums AS SELECT id, SUM(d) AS total FROM s GROUP BY id EMIT CHANGES;
CREATE TABLE means AS SELECT id, AVG(d) AS mean FROM s GROUP BY id EMIT CHANGES;
CREATE TABLE computed AS SELECT id, SUM(v + 1) AS total FROM s GROUP BY id EMIT CHANGES;
CREATE TABLE doubles AS SELECT x, COUNT(*) AS n FROM s GROUP BY x EMIT CHANGES;
CREATE TABLE over_table AS SELECT other, COUNT(*) AS n FROM t GROUP BY other EMIT CHANGES;
CREATE TABLE sessions AS SELECT id, COUNT(*) AS n FROM s WINDOW SESSION (10 SECONDS) GROUP BY id EMIT CHANGES;
CREATE TABLE lists AS SELECT id, COLLECT_LIST(v) AS vs FROM s WINDOW SESSION (10 SECONDS) GROUP BY id EMIT CHANGES;
CREATE STREAM inner_join AS SELECT s.id, v, w FROM s JOIN s2 WITHIN 1 HOUR ON s.id = s2.id EMIT CHANGES;
CREATE STREAM outer_join AS SELECT s.id, v, w FROM s LEFT JOIN s2 WITHIN 1 HOUR ON s.id = s2.id EMIT CHANGES;
CREATE TABLE foreign_join AS SELECT t.id, t.other, sums.total FROM t JOIN sums ON t.other = sums.id EMIT CHANGES;
"""
)
STANDARD = (
    STREAM
    + """
CREATE VIEW sums AS SELECT v, SUM(d) AS total FROM s GROUP BY v;
CREATE VIEW doubles AS SELECT v, SUM(x) AS total FROM s WHERE v > 0 GROUP BY v;
CREATE VIEW counts AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;
CREATE VIEW spread AS SELECT n, COUNT(DISTINCT id) AS ids FROM counts GROUP BY n;
"""
)
REASONS = {
    "ksql": {
        "CTAS_COMPUTED": "",
        "CTAS_DOUBLES": "a key of type DOUBLE",
        "CTAS_OVER_TABLE": "it gives every change of a row, its input is a table",
        "CTAS_LISTS": "COLLECT_LIST(INT)",
        "CSAS_OUTER_JOIN": "an outer join",
        "CTAS_FOREIGN_JOIN": "it gives every change of a row, a join through a foreign key",
    },
    "standard": {
        "CTAS_doubles": "SUM(DOUBLE)",
        "CTAS_spread": "it gives every change of a row, COUNT(DISTINCT BIGINT)",
    },
}


def explained(flowql: Program, folder: Path) -> dict[str, dict[str, str]]:
    """By query, its operators and reasons."""
    out = flowql("explain", "-p", str(folder)).out
    found: dict[str, dict[str, str]] = {}
    for part in re.split(r"^query ", out, flags=re.MULTILINE)[1:]:
        lines = part.split("row by row:\n")[1].split("\n\n")[0].splitlines() if "row by row:\n" in part else []
        found[part.split()[0]] = dict(line.strip().split(": ", 1) for line in lines)
    return found


@pytest.mark.parametrize(("dialect", "sql"), [("ksql", KSQL), ("standard", STANDARD)])
def test_reasons_are_of_the_operators_whose_rows_are_counted(
    flowql: Program, tmp_path: Path, dialect: DialectName, sql: str
) -> None:
    (tmp_path / "flowql.yaml").write_text(f"name: reasons\ndialect: {dialect}\nsql: [queries.sql]\n")
    (tmp_path / "queries.sql").write_text(sql)
    reasons = explained(flowql, tmp_path)
    expected = REASONS[dialect]
    assert {q: ", ".join(of.values()) for q, of in reasons.items() if of} == {q: r for q, r in expected.items() if r}
    world = InstanceHarness(sql, dialect=dialect, vector=True)
    world.send("s", [(n % 7, {"V": n % 3 + 1, "X": 0.5, "D": 1.25, "L": [n]}, 1_000 * n) for n in range(40)])
    if dialect == "ksql":
        world.send("s2", [(n % 7, {"W": n}, 1_000 * n) for n in range(40)])
        world.send("t", [(n, {"OTHER": n % 3}, 1_000 * n) for n in range(7)])
    world.settle()
    counted = {q: set(world.instance.metrics.query(q).rows_by_row) for q in world.instance.queries}
    assert counted == {q: set(of) for q, of in reasons.items()}


def test_queries_of_the_benchmark_go_by_columns(flowql: Program) -> None:
    """All but one."""
    reasons = explained(flowql, NEXMARK)
    assert len(reasons) > 5
    assert {q: ", ".join(of.values()) for q, of in reasons.items() if of} == {"CTAS_Q8": "LATEST_BY_OFFSET(STRING)"}
