"""`status` shows what a query waits for: a time that has not come, as `top` and Prometheus do, and queries that it reads."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from flowql.cli.monitoring.columns import fitting
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.server.host import Host
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


VIEWS = """
CREATE TABLE moved (id INT PRIMARY KEY, src INT, dst INT, amt INT);
CREATE VIEW credits AS SELECT dst AS acc, SUM(amt) AS v FROM moved GROUP BY dst;
CREATE VIEW debits AS SELECT src AS acc, SUM(amt) AS v FROM moved GROUP BY src;
CREATE VIEW balance AS SELECT c.acc, c.v - d.v AS v FROM credits c JOIN debits d ON c.acc = d.acc;
"""


def test_a_view_that_waits_for_another_says_for_which_and_why(flowql: Program, tmp_path: Path) -> None:
    """A critical view over one that was far behind stood still, and its status was `running` without a reason."""
    (tmp_path / "flowql.yaml").write_text("name: waiting\ndialect: standard\nsql: [views.sql]\n")
    (tmp_path / "views.sql").write_text(VIEWS)
    host, where = Host(settings_of(load_project(tmp_path))), ("-p", str(tmp_path))
    host.start()
    try:
        host.service.deploy(compile_sources(load_project(tmp_path)).plan)
        limit = time.monotonic() + 60

        def until(says: Callable[[str], bool]) -> None:
            while not says(said := flowql("status", *where).err):
                assert time.monotonic() < limit, said
                threading.Event().wait(0.05)

        for n in (1, 2):  # balance has no tick yet, and has one
            assert flowql("pause", "credits", *where).code == 0
            assert flowql("exec", f"INSERT INTO moved VALUES ({n}, 1, 1, 40)", *where).code == 0
            until(lambda said: "CTAS_balance waits for CTAS_credits, which is paused" in said)
            assert flowql("resume", "credits", *where).code == 0
            until(lambda said: "waits for" not in said)
            while '"v"' not in flowql("query", "SELECT v FROM balance", "-o", "json", *where).out:
                assert time.monotonic() < limit
    finally:
        host.close()
