"""`status` shows rows that wait for a time apart from lag, where there are any, and `top` and Prometheus do."""

from __future__ import annotations

import json
from pathlib import Path

from flowql.cli.monitoring.columns import fitting
from flowql.server.prometheus import METRICS
from tests.flowql.cli.program import Program
from tests.flowql.cli.test_topic import Topic

SQL = """
CREATE STREAM s (k STRING KEY, v INT) WITH (KAFKA_TOPIC = 's', VALUE_FORMAT = 'JSON', PARTITIONS = 1);
CREATE TABLE counts AS SELECT k, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS) GROUP BY k EMIT FINAL;
"""


def test_rows_that_wait_for_a_time_have_a_column_where_there_are_any(flowql: Program, tmp_path: Path) -> None:
    (tmp_path / "flowql.yaml").write_text("name: waiting\nsql: [queries.sql]\n")
    (tmp_path / "queries.sql").write_text(SQL)
    where = ("-p", str(tmp_path))
    assert flowql("run", "--until-caught-up", *where).code == 0
    assert "waiting" not in flowql("status", *where).out
    keys = ("a", "a", "b", "c")
    Topic(flowql, tmp_path)("produce", "s", *(f'{{"key": "{k}", "value": {{"V": 1}}, "timestamp": 5}}' for k in keys))
    assert flowql("run", "--until-caught-up", *where).code == 0
    (stopped,) = json.loads(flowql("status", "-o", "json", *where).out)["queries"]
    assert (stopped["lag"], stopped["waiting"]) == (0, {"calls": 0, "windows": 3})
    heading, row = flowql("status", *where).out.splitlines()[:2]
    assert dict(zip(heading.split(), row.split(), strict=True))["waiting"] == "3"
    (metric,) = (m for m in METRICS if m.name == "flowql_query_held_rows")
    assert list(metric.samples({"instance": {}, "queries": [stopped]})) == [(("CTAS_COUNTS",), 3)]
    (column,) = (c for c in fitting([stopped], 200) if c.key == "waiting")
    assert column.text(stopped) == "3"
