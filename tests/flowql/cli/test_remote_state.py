"""`flowql state remote`: what the store of a target on Kafka has."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.flowql.cli.program import Program

WAIT_S = 60.0
SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = '{topic}', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE C WITH (KAFKA_TOPIC = '{topic}-c') AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
"""


@pytest.mark.turns("kafka")
@pytest.mark.kafka
def test_checkpoints_are_listed_verified_and_cleaned_up(flowql: Program, kafka: str, tmp_path: Path) -> None:
    topic = f"remote-{tmp_path.name}"
    target = f"{{log: kafka, state: {{remote: store}}, kafka: {{bootstrap: '{kafka}', app_id: '{topic}'}}}}"
    (tmp_path / "flowql.yaml").write_text(f"name: shop\nsql: shop.sql\ntargets:\n  default: {target}\n")
    (tmp_path / "shop.sql").write_text(SQL.format(topic=topic))

    def typed(*command: str, code: int = 0) -> str:
        done = flowql(*command, "-p", str(tmp_path))
        assert done.code == code, done.err
        return done.out

    typed("deploy")
    try:
        typed("topic", "produce", topic, '{"K": "x", "V": 3}', '{"K": "y", "V": 9}')
        until = time.monotonic() + WAIT_S
        listed: list[dict[str, Any]] = []
        while not listed and time.monotonic() < until:
            listed = json.loads(typed("state", "remote", "ls", "-o", "json"))
        assert [(t["task"], t["problem"]) for t in listed] == [("CTAS_C/0_0", None)]
        remote = json.loads(typed("status", "-o", "json"))["instance"]["remote"]
        assert remote["away"] is None
        assert list(remote["queries"]) == ["CTAS_C"]
    finally:
        typed("stop")
    assert json.loads(typed("state", "remote", "verify", "-o", "json"))["problems"] == []
    assert json.loads(typed("state", "remote", "gc", "-o", "json")) == []  # within an hour nothing goes
    listed_parts = json.loads(typed("app", "delete", "-o", "json"))["parts"]
    assert [p["name"].rpartition("/")[2] for p in listed_parts if p["kind"] == "store"] == ["tasks"]
    manifest = max((tmp_path / "store").rglob("manifests/*"))
    manifest.chmod(0o600)
    manifest.write_bytes(manifest.read_bytes()[:-1] + b"?")
    said = json.loads(typed("state", "remote", "verify", "-o", "json", code=1))
    assert "is damaged in its body" in said["problems"][0]
    typed("app", "delete", "--results", "--yes")
    assert not [f for f in (tmp_path / "store").rglob("*") if f.is_file()]


def test_what_killed_backups_have_left_is_cleaned_up(flowql: Program, tmp_path: Path) -> None:
    """On the embedded log the command said that the instance does so, and no instance may run there."""
    (tmp_path / "flowql.yaml").write_text("name: shop\ntargets: {default: {state: {remote: store}}}\n")
    folder = tmp_path / "store" / "shop" / "instance" / "files" / "log" / "x.arrows"
    folder.mkdir(parents=True)
    for name, age_s in (("0-5-left-0000000000000001", 90_000), ("0-5-new-0000000000000002", 0)):
        (folder / name).write_bytes(b"12345")
        os.utime(folder / name, (time.time() - age_s,) * 2)
    found = json.loads(flowql("state", "remote", "gc", "-o", "json", "-p", str(tmp_path)).out)
    assert [(f["application"], f["bytes"], len(f["objects"])) for f in found] == [("shop", 5, 1)]
    assert [path.name for path in folder.iterdir()] == ["0-5-new-0000000000000002"]


def test_a_target_without_a_store_is_told_so(flowql: Program, tmp_path: Path) -> None:
    (tmp_path / "flowql.yaml").write_text("name: shop\n")
    done = flowql("state", "remote", "ls", "-p", str(tmp_path))
    assert done.code != 0
    assert "FQ5708" in done.err
