"""The log of an instance: what is in it, how files take turns, and that a reader misses nothing."""

from __future__ import annotations

import json
import logging
import select
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pexpect
import pytest

from flowql.deploy.settings import Settings
from flowql.runtime.events import DEBUG, ERROR, INFO, say
from flowql.runtime.task.id import TaskId
from flowql.server import logs
from flowql.server.host import Host
from flowql.server.logs import FILE, LogReader, Wanted, parsed, writing
from tests.flowql.cli.program import Program
from tests.flowql.query.harness import plan_of
from tests.runtime.app.harness import InstanceHarness, fail, function

WAIT_S = 60
SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A WITH (PRIORITY = 'high') AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
"""


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in LogReader(folder).older()]


def test_a_line_has_time_level_event_query_task_and_fields(tmp_path: Path) -> None:
    with writing(tmp_path, "info"):
        say(ERROR, "query.failed", 'no "luck"\nat all', query="Q", task=TaskId("Q", 0, 1), retry_ms=500)
        say(INFO, "instance.started")
        say(DEBUG, "commit")  # not wanted
        logging.getLogger("uvicorn.error").warning("odd")
    say(ERROR, "too late")
    first, second, third = lines(tmp_path)
    at = datetime.fromisoformat(first.pop("time"))
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=5)
    assert first == {
        **{"level": "error", "event": "query.failed", "query": "Q", "task": "Q/0_1"},
        **{"message": 'no "luck"\nat all', "retry_ms": 500},
    }
    assert list(second) == ["time", "level", "event", "query", "task", "message"]
    assert (third["level"], third["event"], third["message"]) == ("warning", "uvicorn.error", "odd")


def test_files_take_turns_and_a_reader_misses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "BYTES_MAX", 2_000)
    reader, seen = LogReader(tmp_path), []
    with writing(tmp_path, "info"):
        for n in range(200):
            say(INFO, "n", n=n)
            if n % 7 == 0:  # a file holds more than seven
                seen += [parsed(line)["n"] for line in reader.newer()]
        seen += [parsed(line)["n"] for line in reader.newer()]
    assert seen == list(range(200))
    kept = [line["n"] for line in lines(tmp_path)]
    assert kept == list(range(kept[0], 200))
    assert len(list(tmp_path.glob(f"{FILE}*"))) == logs.OLDER + 1
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) <= 2_000 * (logs.OLDER + 1)


def test_a_line_that_is_not_whole_waits(tmp_path: Path) -> None:
    reader = LogReader(tmp_path)
    assert reader.newer() == []
    (tmp_path / FILE).write_text('{"a": 1}\n{"a"')
    assert reader.newer() == ['{"a": 1}']
    with (tmp_path / FILE).open("a") as file:
        file.write(": 2}\n")
    assert reader.newer() == ['{"a": 2}']


def test_what_is_wanted() -> None:
    line = {"level": "warning", "query": "CTAS_A"}
    assert Wanted()(line)
    assert Wanted("warning", "ctas_a")(line)
    assert not Wanted("error")(line)
    assert not Wanted(query="CTAS_B")(line)
    assert Wanted("error")(parsed("{cut o")), "what nobody understands is shown"


def test_an_instance_writes_down_its_life(tmp_path: Path, flowql: Program) -> None:
    host = Host(Settings(tmp_path / ".flowql" / "default", "demo", 1, 64 << 20))
    host.start()
    host.service.deploy(plan_of(SQL))
    host.service.pause(["a"], paused=True)
    host.service.pause(["a"], paused=False)
    host.close()
    found = [(line["event"], line["query"]) for line in lines(tmp_path / ".flowql" / "default")]
    assert found == [
        ("instance.started", None),
        ("query.deployed", "CTAS_A"),
        ("query.paused", "CTAS_A"),
        ("query.resumed", "CTAS_A"),
        ("instance.stopped", None),
    ]
    (tmp_path / "flowql.yaml").write_text("name: demo\n")
    shown = flowql("logs", "--query", "ctas_a", "-p", str(tmp_path)).out.splitlines()
    assert ["query.deployed" in shown[0], "action=add" in shown[0], "query.resumed" in shown[-1]] == [True] * 3
    assert len(shown) == 3
    (last,) = flowql("logs", "-n", "1", "-o", "json", "-p", str(tmp_path)).out.splitlines()
    assert json.loads(last)["event"] == "instance.stopped"
    assert "nothing is logged" in flowql("logs", "--level", "error", "-p", str(tmp_path)).err


def test_trouble_is_in_the_log_with_its_task(tmp_path: Path) -> None:
    sql = """
    CREATE STREAM S (ID BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
    CREATE STREAM GOOD AS SELECT ID, V FROM S;
    CREATE STREAM BAD AS SELECT ID, RAISES(V) AS V FROM S;
    """
    with writing(tmp_path, "warning"), function("RAISES", fail):
        world = InstanceHarness(sql)
        world.send("s", [(1, {"V": 1}, 0), *[(2, b"{nonsense", n) for n in range(5)]])
        world.rest()
    found = lines(tmp_path)
    (failed,) = [line for line in found if line["event"] == "query.failed"]
    assert (failed["query"], failed["task"], failed["level"]) == ("CSAS_BAD", "CSAS_BAD/0_0", "error")
    assert "no to 1" in failed["message"]
    assert failed["retry_ms"] == 500
    letters = [line for line in found if line["event"] == "dead_letters"]
    assert letters[0]["query"] == "CSAS_GOOD"
    assert letters[-1]["total"] <= 5
    assert len(letters) <= 3, "what repeats itself is said ever more seldom"


@pytest.fixture
def flowql(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


def test_following_shows_what_comes_and_the_level_is_what_was_asked_for(flowql: Program, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    flowql("init", str(shop), "--template", "ksqldb")
    assert flowql("deploy", "--log-level", "debug", "-p", str(shop)).code == 0
    try:
        assert flowql("logs", "--level", "info", "-p", str(shop)).out.count("query.deployed") == 2
        program = "from flowql.cli import main; main()"
        arguments = ["-c", program, "logs", "-f", "--query", "ctas_spent_per_hour", "-p", str(shop)]
        heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background process ignores Ctrl-C
        terminal = pexpect.spawn(sys.executable, arguments, timeout=WAIT_S, encoding="utf-8", preexec_fn=heard)
        terminal.expect("query.deployed +CTAS_SPENT_PER_HOUR")
        flowql("pause", "large_orders", "-p", str(shop))
        flowql("pause", "spent_per_hour", "-p", str(shop))
        terminal.expect("query.paused +CTAS_SPENT_PER_HOUR")
        assert "LARGE_ORDERS" not in terminal.before
        terminal.sendintr()
        terminal.expect(pexpect.EOF)
        terminal.close()
        assert terminal.exitstatus == 130
    finally:
        flowql("stop", "-p", str(shop))
    found = {(line["event"], line["level"]) for line in lines(shop / ".flowql" / "default")}
    assert ("commit", "debug") in found


def test_what_follows_comes_through_a_pipe_at_once(flowql: Program, tmp_path: Path) -> None:
    """Lines waited in the pipe's buffer for 8 KB of others."""
    shop = tmp_path / "shop"
    flowql("init", str(shop), "--template", "ksqldb")
    log = shop / ".flowql" / "default" / FILE
    log.parent.mkdir(parents=True)
    log.write_text('{"level": "info", "event": "query.paused", "message": "the only line"}\n')
    program = "from flowql.cli import main; main()"
    arguments = [sys.executable, "-c", program, "logs", "-f", "-p", str(shop)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], WAIT_S)
        process.kill()
        assert readable
        assert "the only line" in process.stdout.read()


def test_lines_of_every_generation_are_those_of_the_query() -> None:
    wanted = Wanted("info", "ctas_a")
    lines = [{"level": "info", "query": q} for q in ("CTAS_A", "CTAS_A@2", "CTAS_A@12", "CTAS_AB", "CTAS_AB@2", None)]
    assert [wanted(line) for line in lines] == [True, True, True, False, False, False]
