"""Two members of a group on a real Kafka. One is suspended, and the standby copies of the other one answer for its partitions where this is allowed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial

import httpx
import pytest

import flowql as api
from flowql.query import session
from flowql.query.errors import COVERAGE, MISSING, STANDBY, QueryError
from flowql.runtime.app.beat_file import RUNNING, read
from flowql.runtime.placement import heartbeats
from flowql.server import members
from flowql.server.running import connect
from tests.flowql.cli.conftest import flowql
from tests.flowql.query.harness import plan_of
from tests.flowql.server.test_members import KafkaApplication, until
from tests.tidy.tree import ROOT

__all__ = ["flowql"]

pytestmark = [pytest.mark.kafka, pytest.mark.turns("servers")]
TOTALS = "SELECT COUNT(*) AS N, SUM(n)::BIGINT AS RECORDS FROM totals"
MARKED = re.compile(
    r"2 of 4 partitions: (TOTALS of partition \d at changelog offset [\d,]+, at most 0 records and [\d,]+ ms behind(; )?){2}"
)


class TwoMembers(KafkaApplication):
    """One in this process, the other one in a process that can be suspended."""

    def __init__(self, folder, bootstrap):
        super().__init__(folder, bootstrap)
        self.kafka = replace(self.kafka, standbys=1)
        kafka = f"{{bootstrap: '{bootstrap}', app_id: {self.app}, instances: many, standbys: 1}}"
        targets = "".join(f"  {m}: {{log: kafka, threads: 1, data_dir: {m}, kafka: {kafka}}}\n" for m in ("one", "two"))
        (folder / "flowql.yaml").write_text(f"name: p\nsql: p.sql\ntargets:\n{targets}")
        (folder / "p.sql").write_text(self.sql)
        self.instance = self.start("one").engine.instance
        self.service = self.hosts["one"].service
        self.service.deploy(plan_of(self.sql))
        command = [sys.executable, "-m", "flowql", "serve", "-p", str(folder), "-t", "two"]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        self.pid = until(lambda: (seen := read(folder / "two")) is not None and seen.state == RUNNING and seen.pid)

    def owned(self):
        with self.instance.snapshot() as seen:
            return {t for t in seen.owned if t.startswith("CTAS_TOTALS/1_")}

    def copied(self):
        """Copies of the other member's tasks, by their lag."""
        standbys = self.instance.restoration.standbys
        return {t: standbys.lag(t) for t in standbys.followed if t.startswith("CTAS_TOTALS/1_")}

    def close(self):
        self.process.kill()
        self.process.wait()
        os.kill(self.pid, signal.SIGKILL)
        super().close()


@pytest.fixture
def world(tmp_path, kafka):
    made = TwoMembers(tmp_path, kafka)
    yield made
    made.close()


def test_standby_copies_answer_for_a_suspended_owner_where_it_is_allowed(world, flowql, monkeypatch, tmp_path):
    of = world.feed()
    whole = {"N": len(of), "RECORDS": sum(n for n, _, _ in of.values())}
    ask = ("query", "-p", str(tmp_path), "-t", "one", TOTALS, "-o", "json")
    until(lambda: len(world.owned()) == 2)
    until(lambda: json.loads(flowql(*ask).out) == [whole])
    until(lambda: list(world.copied().values()) == [0, 0])
    assert json.loads(flowql(*ask, "--allow-standby").out) == [whole], "owners answer, so no copy does"

    monkeypatch.setattr(heartbeats, "MISSED_MAX", 1_000)  # nobody takes over until the end of the test
    monkeypatch.setattr(session, "MOVING_S", 0.5)
    monkeypatch.setattr(members, "SILENT_S", 0.5)
    os.kill(world.pid, signal.SIGSTOP)
    said = flowql(*ask, "--allow-standby")
    document = json.loads(said.out)
    assert document["rows"] == [whole]
    assert MARKED.fullmatch(document["standby"]), document
    assert "note: standby copies answer for 2 of 4 partitions: TOTALS of partition" in said.err
    table, _ = world.ask("one", TOTALS)
    assert table.schema.metadata[COVERAGE] == b"2 of 4 partitions"
    assert b"does not answer" in table.schema.metadata[MISSING]
    assert STANDBY not in table.schema.metadata, "it was not allowed"

    address = connect(tmp_path / "one").address
    answer = httpx.post(
        f"http://127.0.0.1:{address.port}/v1/query",
        json={"sql": TOTALS, "allow_standby": True},
        headers={"Authorization": f"Bearer {address.token}"},
    )
    assert (answer.json()["rows"], answer.headers["flowql-standby"]) == ([whole], "2 of 4 partitions")
    assert MARKED.fullmatch(answer.json()["standby"])
    rows = partial(httpx.get, f"http://127.0.0.1:{address.port}/v1/tables/totals/rows")
    here, both = (
        rows(headers={"Authorization": f"Bearer {address.token}", "allow-standby": allowed})
        for allowed in ("false", "true")
    )
    assert (here.headers["flowql-partitions"], "flowql-standby" in here.headers) == ("2 of 4 partitions", False)
    assert (len(both.json()["rows"]), both.headers["flowql-standby"]) == (whole["N"], "2 of 4 partitions")
    with api.connect(tmp_path, target="one") as connection:
        found = connection.sql(TOTALS, allow_standby=True)
        assert list(found) == [whole]
        assert "2 of 4 partitions: TOTALS of partition" in found.note
        with pytest.raises(QueryError, match="standby copies show no tick"):
            connection.sql(TOTALS, allow_standby=True, at_least="")

    monkeypatch.setattr(heartbeats, "MISSED_MAX", 4)
    until(lambda: len(world.owned()) == 4)
    with closing(connect(tmp_path / "one")) as client:
        assert client.query(TOTALS).to_pylist() == [whole], "the copies have become the tasks"
