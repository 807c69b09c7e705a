"""`flowql app delete|reset`: first a list, then the removal, and the next start begins from the beginning."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from flowql.config.load import load_project
from flowql.config.storage import open_log
from flowql.deploy.removal import INSERTED, WRITTEN
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.server.host import Host
from tests.flowql.cli.program import Program
from tests.runtime.log.records import batch

COUNTED = {"a": 2, "b": 1}


def parts(flowql: Program, *command: str) -> dict[str, Any]:
    ran = flowql("app", *command, "-o", "json")
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def names(found: dict[str, Any], kind: str) -> set[str]:
    return {p["name"] for p in found["parts"] if p["kind"] == kind}


def counts(flowql: Program, *where: str) -> dict[str, int]:
    ran = flowql("run", *where, "--until-caught-up")
    assert ran.code == 0, ran.err
    return {r["K"]: r["N"] for r in json.loads(flowql("query", *where, "-o", "json", "SELECT * FROM A").out)}


def test_an_application_is_reset(flowql: Program, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = ("-p", str(folder))
    with (
        monkeypatch.context() as killed
    ):  # the log keeps the redo of all commits, as it does when an instance is killed
        killed.setattr(EmbeddedLog, "trim_redo", lambda *_: None)
        assert counts(flowql, *where) == COUNTED
        listed = parts(flowql, "reset", *where)
        assert (names(listed, "topic"), listed["removed"]) == (set(), False)
        assert names(listed, "folder") == {str(folder / ".flowql" / "default" / "state")}
        assert next(p["bytes"] for p in listed["parts"]) > 0
        assert "to remove this:  flowql app reset --yes" in flowql("app", "reset", *where).err
        assert counts(flowql, *where) == COUNTED, "a list removes nothing"
    assert parts(flowql, "reset", *where, "--yes")["removed"]
    assert counts(flowql, *where) == COUNTED
    status = json.loads(flowql("status", *where, "-o", "json").out)
    assert [q["generation"] for q in status["queries"]] == [2], "it was computed from the beginning"


def test_an_application_is_deleted(flowql: Program, folder: Path) -> None:
    where = ("-p", str(folder))
    counts(flowql, *where)
    listed = parts(flowql, "delete", *where)
    assert names(listed, "topic") == {"demo-plan", "demo-dead-letters"}
    assert listed["kept"] == {"A": WRITTEN, "s": INSERTED}
    removed = parts(flowql, "delete", *where, "--results", "--yes")
    assert (names(removed, "topic"), removed["kept"]) == ({"demo-plan", "demo-dead-letters", "A"}, {"s": INSERTED})
    assert "nothing is deployed" in flowql("status", *where).err
    (folder / "demo.sql").write_text(
        "\n".join(x for x in (folder / "demo.sql").read_text().splitlines() if "INSERT" not in x)
    )
    assert counts(flowql, *where) == COUNTED
    parts(flowql, "delete", *where, "--results", "--yes")
    assert parts(flowql, "delete", *where)["parts"] == []
    assert "nothing of demo is here" in flowql("app", "delete", *where).err


def test_nothing_is_removed_while_an_instance_runs(flowql: Program, folder: Path, host: Host) -> None:
    refused = flowql("app", "delete", "-p", str(folder), "--yes")
    assert refused.code == 1
    assert "FQ5320" in refused.err or "FQ4005" in refused.err
    assert host.service.status()["queries"]


SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = '{p}-s', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A WITH (KAFKA_TOPIC = '{p}-out') AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
"""


@pytest.mark.turns("kafka")
@pytest.mark.kafka
def test_an_application_on_kafka_is_reset_and_deleted(flowql: Program, kafka: str, tmp_path: Path) -> None:
    app, where = f"app{uuid.uuid4().hex[:6]}", ("-p", str(tmp_path))
    (tmp_path / "demo.sql").write_text(SQL.format(p=app))
    (tmp_path / "flowql.yaml").write_text(
        f"name: demo\nsql: demo.sql\ntargets:\n  default: {{log: kafka, kafka: {{bootstrap: '{kafka}', app_id: {app}}}}}\n"
    )
    log = open_log(load_project(tmp_path))
    other = f"{app}-eu-plan"  # of an application whose name begins like this one's
    for topic in (f"{app}-s", other, f"{app}-eu-CTAS_A-aggregate-1-changelog"):
        log.admin().create_topic(topic, 1)
    producer = log.producer(f"{app}-test")
    producer.begin()
    producer.send(TopicPartition(f"{app}-s", 0), batch([(0, k, b'{"V": 1}') for k in (b"a", b"b", b"a")]))
    producer.commit()
    producer.close()
    assert counts(flowql, *where) == COUNTED
    listed = names(parts(flowql, "reset", *where), "topic")
    assert {f"{app}-metadata", f"{app}-__exchange-changelog"} < listed
    assert not listed & {f"{app}-plan", f"{app}-out", f"{app}-s", other}
    assert names(parts(flowql, "reset", *where, "--yes"), "group") >= {app}
    assert not listed & set(log.admin().topics())
    assert log.admin().committed(app) == {}
    assert counts(flowql, *where) == COUNTED
    assert [q["generation"] for q in json.loads(flowql("status", *where, "-o", "json").out)["queries"]] == [2]
    parts(flowql, "delete", *where, "--results", "--yes")
    left = {t for t in log.admin().topics() if t.startswith(app)}
    assert left == {f"{app}-s", other, f"{app}-eu-CTAS_A-aggregate-1-changelog"}
    assert counts(flowql, *where) == COUNTED, "as if it had never run"
    log.close()
