"""Real processes: a project is deployed, changed, killed, asked and brought back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowql.cli import main
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.server.address import is_alive, read_address
from flowql.server.running import connect
from tests.query_consistency import check

pytestmark = [pytest.mark.slow, pytest.mark.turns("servers")]

SOURCE = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
"""
A = "CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;\n"
B = "CREATE TABLE B AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;\n"
C = "CREATE STREAM C AS SELECT K, V FROM S WHERE V > 5;\n"
SUMS = "SELECT (SELECT coalesce(sum(n), 0) FROM a) AS a, (SELECT coalesce(sum(n), 0) FROM b) AS b"
WAIT_S = 180.0


@dataclass
class Demo:
    """A project in a folder of its own, and the program."""

    folder: Path
    capture: pytest.CaptureFixture[str]

    @property
    def data_dir(self) -> Path:
        return self.folder / ".flowql" / "default"

    def write(self, sql: str) -> None:
        (self.folder / "demo.sql").write_text(SOURCE + sql)

    def call(self, *arguments: str, code: int | None = 0) -> str:
        """code: how it must end; None: in any way."""
        self.capture.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "-p", str(self.folder)])
        out, err = self.capture.readouterr()
        assert code in (None, ended.value.code), err
        return out or err

    def deploy(self, *arguments: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.call("deploy", "-o", "json", *arguments))
        return document

    def ask(self, sql: str = SUMS) -> dict[str, Any]:
        (row,) = json.loads(self.call("query", "-o", "json", sql))
        return dict(row)

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.call("status", "-o", "json"))
        return document

    def query_status(self, name: str) -> dict[str, Any]:
        return next(q for q in self.status()["queries"] if q["id"] == name)

    def state_of(self, name: str) -> str:
        """The state of a query; empty while an instance is starting and does not answer."""
        found = json.loads(self.call("status", "-o", "json", code=None)).get("queries", ())
        return next((q["state"] for q in found if q["id"] == name), "")

    def await_ask(self, expected: dict[str, Any], sql: str = SUMS) -> None:
        limit = time.monotonic() + WAIT_S
        while (found := self.ask(sql)) != expected:
            assert time.monotonic() < limit, f"{found} instead of {expected}"
            time.sleep(0.05)

    def pid(self) -> int:
        address = read_address(self.data_dir)
        assert address is not None
        return address.pid

    def kill(self) -> None:
        pid = self.pid()
        os.kill(pid, signal.SIGKILL)
        while is_alive(pid):
            time.sleep(0.01)


def feed(data_dir: Path, transactions: int, records: int = 50, pause_s: float = 0.0) -> None:
    """Records of both partitions, as another process would append them."""
    log = EmbeddedLog(data_dir / "log")
    producer = log.producer("feed")
    for number in range(transactions):
        producer.begin()
        for partition in range(2):
            rows = [
                {
                    "timestamp": number,
                    "key": b"k%d" % (2 * (i % 7) + partition),
                    "value": b'{"V": %d}' % (i % 10),
                    "headers": None,
                }
                for i in range(records)
            ]
            producer.send(TopicPartition("s", partition), pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA))
        producer.commit()
        time.sleep(pause_s)
    producer.close()
    log.close()


@pytest.fixture
def demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Demo]:
    (tmp_path / "flowql.yaml").write_text(
        "name: demo\nsql: demo.sql\ntargets: {default: {threads: 1, memory: 128 MB}}\n"
    )
    made = Demo(tmp_path, capsys)
    yield made
    address = read_address(made.data_dir)
    if address is not None:
        os.kill(address.pid, signal.SIGKILL)


def actions(done: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {c["query"]: (c["action"], c["state"]) for c in done["changes"]}


def test_a_deployment_changes_what_it_says_and_nothing_else(demo: Demo) -> None:
    demo.write(A + B)
    assert actions(demo.deploy()) == {"CTAS_A": ("add", None), "CTAS_B": ("add", None)}
    pid = demo.pid()
    feeding = threading.Thread(target=feed, args=(demo.data_dir, 40, 50, 0.05))
    feeding.start()

    demo.write(A + B + C)
    assert actions(demo.deploy())["CSAS_C"] == ("add", None)
    demo.write(A + B.replace("COUNT(*)", "SUM(1)") + C)
    assert actions(demo.deploy()) == {
        "CTAS_A": ("none", "kept"),
        "CTAS_B": ("change", "rebuilt"),
        "CSAS_C": ("none", "kept"),
    }
    demo.write(A.replace("TABLE A", "TABLE A WITH (PRIORITY = 'critical')") + B.replace("COUNT(*)", "SUM(1)"))
    done = demo.deploy()
    assert actions(done)["CTAS_A"] == ("priority", "kept")
    assert done["withheld"] == ["CSAS_C"]
    assert demo.query_status("CSAS_C")["state"] == "running"
    assert actions(demo.deploy("--prune"))["CSAS_C"] == ("remove", "dropped")

    demo.write(A + "CREATE TABLE Z AS SELECT NOPE FROM S GROUP BY K;")
    before = [q["id"] for q in demo.status()["queries"]]
    assert "NOPE" in demo.call("deploy", code=1)
    assert [q["id"] for q in demo.status()["queries"]] == before

    feeding.join()
    demo.await_ask({"a": 4000, "b": 4000})
    assert demo.query_status("CTAS_A")["records_in"] == 4000  # it was never restarted
    assert demo.query_status("CTAS_A")["weight"] == 64
    assert demo.pid() == pid


def test_what_ran_comes_back_after_kill_and_stop(demo: Demo) -> None:
    demo.write(A + B)
    demo.deploy()
    feed(demo.data_dir, 10)
    demo.await_ask({"a": 1000, "b": 1000})
    demo.kill()
    assert demo.ask() == {"a": 1000, "b": 1000}  # from the directory
    assert [q["state"] for q in demo.status()["queries"]] == ["stopped", "stopped"]
    feed(demo.data_dir, 2)
    assert demo.query_status("CTAS_A")["lag"] == 200
    assert {a for a, _ in actions(demo.deploy()).values()} == {"none"}
    demo.await_ask({"a": 1200, "b": 1200})
    pid = demo.pid()
    assert "stopped" in demo.call("stop")
    assert not is_alive(pid)
    assert demo.ask() == {"a": 1200, "b": 1200}
    assert "no instance" in demo.call("stop")


def test_priorities_and_pauses_outlive_a_kill(demo: Demo) -> None:
    demo.write(A + B)
    assert "FQ5306" in demo.call("priority", code=1)
    demo.deploy()
    demo.call("priority", "set", "a", "critical", "--latency-target", "200 ms")
    assert "paused CTAS_B" in demo.call("pause", "b")
    feed(demo.data_dir, 4)
    demo.await_ask({"a": 400, "b": 0})
    demo.kill()
    program = [sys.executable, "-c", "from flowql.cli import main; main()", "serve", "-p", str(demo.folder)]
    process = subprocess.Popen(program, stderr=subprocess.DEVNULL)  # nothing is deployed anew
    try:
        limit = time.monotonic() + WAIT_S
        while not (demo.data_dir / "instance.json").exists() or demo.state_of("CTAS_A") in ("", "stopped"):
            assert time.monotonic() < limit
            time.sleep(0.05)
        shown = {q["query"]: q for q in json.loads(demo.call("priority", "-o", "json"))}
        assert (shown["CTAS_A"]["weight"], shown["CTAS_A"]["latency_target_ms"], shown["CTAS_A"]["of_all"]) == (
            64,
            200,
            1,
        )
        assert shown["CTAS_B"]["of_all"] == 0
        assert demo.query_status("CTAS_B")["state"] == "paused"
        assert json.loads(demo.call("resume", "b", "-o", "json")) == {"resumed": ["CTAS_B"]}
        demo.await_ask({"a": 400, "b": 400})
    finally:
        process.kill()
        process.wait()


def test_answers_agree_on_one_commit_and_never_go_back(demo: Demo) -> None:
    demo.write(A + B)
    demo.deploy()
    client = connect(demo.data_dir)
    assert client is not None
    feeding = threading.Thread(target=feed, args=(demo.data_dir, 60, 50, 0.02))
    feeding.start()
    last, asked = 0, 0
    stores = '(SELECT sum(n) FROM "CTAS_A-aggregate-1") AS a2, (SELECT sum(n) FROM "CTAS_B-aggregate-1") AS b2'
    while feeding.is_alive():
        (row,) = client.query(f"{SUMS}, {stores}").to_pylist()
        assert row["a"] == row["b"] == (row["a2"] or 0) == (row["b2"] or 0)
        assert row["a"] >= last
        last, asked = row["a"], asked + 1
    assert asked > 2
    client.close()
    demo.await_ask({"a": 6000, "b": 6000})


@pytest.mark.turns("load")
def test_calls_during_a_run_and_after_its_stop_agree(tmp_path: Path) -> None:
    report = check(12, 12, 5000, tmp_path)
    assert report.passed, report.failures
    assert report.cli == 12
    assert report.apart < 12, "a slow machine may not bring them together now and then, but not most of the time"
    assert report.advances > 5, "nothing ran"


def test_run_until_caught_up_and_a_second_instance(demo: Demo) -> None:
    demo.write(A + B)
    feed_dir = demo.data_dir / "log"
    log = EmbeddedLog(feed_dir)
    log.admin().create_topic("s", 2)
    log.close()
    feed(demo.data_dir, 4)
    assert "400 records in" in demo.call("run", "--until-caught-up", "-s", "a")
    assert demo.ask("SELECT sum(n) AS n FROM a") == {"n": 400}
    demo.deploy()
    refused = demo.call("run", code=1)
    assert "FQ4005" in refused
    assert "flowql stop  ends it" in refused


def test_run_ends_cleanly_when_asked(demo: Demo) -> None:
    demo.write(A + B)
    program = [sys.executable, "-c", "from flowql.cli import main; main()", "run", "-p", str(demo.folder)]
    process = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)
    try:
        limit = time.monotonic() + WAIT_S
        while not (demo.data_dir / "instance.json").exists() or not demo.status()["queries"]:
            assert time.monotonic() < limit
            time.sleep(0.05)
        feed(demo.data_dir, 4)
        demo.await_ask({"a": 400, "b": 400})  # a run can be asked, too
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert demo.ask() == {"a": 400, "b": 400}


@pytest.mark.parametrize("damage", ["emptied", "gone", "damaged"])
def test_a_state_that_is_gone_or_damaged_is_made_anew(demo: Demo, damage: str) -> None:
    """It used to answer FQ4010, whose advice led back to FQ4010."""
    demo.write(A)
    demo.deploy()
    before = demo.call("query", "SELECT * FROM A ORDER BY K", "-o", "csv")
    demo.call("stop")
    state = demo.data_dir / "state"
    for file in state.iterdir():
        if damage == "damaged" and file.is_file():
            file.write_bytes(b"not what it was")
        elif file.is_file():
            file.unlink()
    if damage == "gone":
        shutil.rmtree(state)
    demo.call("run", "--until-caught-up")
    assert demo.call("query", "SELECT * FROM A ORDER BY K", "-o", "csv") == before
    assert (damage == "damaged") == (demo.data_dir / "state.damaged-1").is_dir()


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_a_changed_query_is_deployed_without_the_state_of_the_old_one(demo: Demo, damage: str) -> None:
    """`deploy`, `status` and `query` answered that redo was trimmed, though the next start makes such a state anew."""
    demo.write(A)
    demo.deploy()
    feed(demo.data_dir, 4)
    demo.await_ask({"n": 400}, "SELECT sum(n) AS n FROM a")
    demo.call("stop")
    state = demo.data_dir / "state"
    if damage == "gone":
        shutil.rmtree(state)
    else:
        (state / "CURRENT").write_bytes(b"not what it was")
    assert "cannot be read" in demo.call("query", "SELECT * FROM A", code=1)
    (query,) = demo.status()["queries"]
    assert (query["id"], query["state"], query["lag"]) == ("CTAS_A", "stopped", 400)
    assert "cannot be read" in query["last_error"]
    demo.write(A.replace("COUNT(*)", "COUNT(*) + 1000"))
    demo.deploy()
    demo.await_ask({"n": 400 + 14 * 1000}, "SELECT sum(n) AS n FROM a")
