"""The broker to try with, as people meet it: `flowql kafka up`, `status`, `down`."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from flowql.errors import CommandError
from flowql.kafka import jars
from flowql.kafka.broker import Broker, cluster_id, server_properties
from flowql.runtime.log.kafka.connection import answers
from tests.flowql.cli.conftest import flowql

pytestmark = pytest.mark.turns("long")

__all__ = ["flowql"]


@pytest.mark.kafka
def test_up_status_down(flowql, kafka, tmp_path):
    place = ("--dir", str(tmp_path / "broker"))
    assert flowql("kafka", "status", *place).code == 1
    up = flowql("kafka", "up", *place, "--port", "0")
    try:
        assert up.code == 0, up.err
        bootstrap = up.out.strip()
        said = json.loads(flowql("kafka", "status", *place, "-o", "json").out)
        assert (said["running"], said["answers"], said["bootstrap"]) == (True, True, bootstrap)
        again = flowql("kafka", "up", *place)
        assert (again.code, again.out.strip()) == (0, bootstrap)
        taken = flowql("kafka", "up", *place, "--port", "1")
        assert taken.code == 1
        assert "FQ5504" in taken.err
        assert "stopped" in flowql("kafka", "down", *place).err
        assert not answers(bootstrap)
        assert "no broker" in flowql("kafka", "down", *place).err
    finally:
        Broker(tmp_path / "broker").kill()


def test_another_process_with_its_number_is_not_taken_for_it(tmp_path):
    here = {"pid": 1, "port": 1, "controller_port": 2, "started": 0.0}
    (tmp_path / "broker.json").write_text(json.dumps(here))
    assert Broker(tmp_path).running() is None
    assert Broker(tmp_path).stop() is False


def test_a_fetch_that_fails_leaves_nothing_and_says_what_was_said(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWQL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        jars, "_fetch_command", lambda _wanted, work: ["sh", "-c", f"mkdir {work}/jars; echo no route >&2; exit 1"]
    )
    with pytest.raises(CommandError, match="could not be fetched") as raised:
        jars.kafka_jars()
    assert raised.value.help == "no route"
    assert jars.fetched_jars() is None
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["fetching.lock"]


def test_two_that_want_the_jars_at_once_fetch_them_once(tmp_path, monkeypatch):
    """Maven's own cache breaks when two fill it."""
    monkeypatch.setenv("FLOWQL_CACHE", str(tmp_path / "cache"))
    fetch = f"echo once >> {tmp_path}/fetched; sleep 0.3; mkdir jars; touch jars/kafka_2.13-9.jar"
    monkeypatch.setattr(jars, "_fetch_command", lambda _wanted, work: ["sh", "-c", f"cd {work}; {fetch}"])
    with ThreadPoolExecutor() as pool:
        found = {f.result() for f in [pool.submit(jars.kafka_jars) for _ in range(2)]}
    assert found == {jars.fetched_jars()}
    assert (tmp_path / "fetched").read_text() == "once\n"


def test_what_is_given_beats_what_the_broker_is_made_with(tmp_path):
    text = server_properties(tmp_path, 1, 2, {"log.segment.bytes": "9", "auto.create.topics.enable": "true"})
    lines = text.splitlines()
    assert "log.segment.bytes=9" in lines
    assert [line for line in lines if line.startswith("auto.create")] == ["auto.create.topics.enable=true"]


def test_the_id_of_a_cluster_is_never_taken_for_an_option():
    assert not [text for text in (cluster_id() for _ in range(2_000)) if len(text) != 22 or text.startswith("-")]


def test_a_directory_of_a_newer_kafka_is_refused_by_name(tmp_path, monkeypatch):
    """Brokers end with a trace that says nothing: a directory of 4.3 has metadata.version 30, and 4.2.1 knows 29 (made so with 4.2.1 and read with xxd)."""
    monkeypatch.setattr("flowql.kafka.broker.find_java", lambda: "java")
    monkeypatch.setattr("flowql.kafka.broker.kafka_jars", lambda: tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bootstrap.checkpoint").write_bytes(b"....\x11metadata.version\x00\x1e\x00")
    with pytest.raises(CommandError, match=r"was made by Kafka 4\.3") as raised:
        Broker(tmp_path).start(port=0)
    assert "cannot be lowered" in raised.value.title
