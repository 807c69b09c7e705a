"""`flowql.connect(URL)` to an instance in a process of its own, which is stopped and killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import flowql
from tests.flowql.api.shop import free_port, wait
from tests.flowql.api.test_connection import ORDERS, SQL, until

pytestmark = [pytest.mark.slow, pytest.mark.turns("long")]

TOKEN = "a-token-of-this-test-4711"
MODULE = "from flowql import udf\n\n@udf\ndef net(a: int) -> int:\n    return a + {}\n"


@dataclass
class Process:
    """`flowql run` in a folder that programs know nothing of."""

    folder: Path
    port: int
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, folder: Path, port: int) -> Process:
        program = [sys.executable, "-c", "from flowql.cli import main; main()", "run", "-p", str(folder)]
        env = {**os.environ, "SHOP_TOKEN": TOKEN}
        return cls(folder, port, subprocess.Popen(program, env=env, stderr=subprocess.PIPE, text=True))

    def connect(self) -> flowql.Connection:
        limit = time.monotonic() + 60
        while True:
            try:
                return flowql.connect(f"http://localhost:{self.port}", token=TOKEN)
            except flowql.CommandError as error:
                if error.code != "FQ5302" or self.process.poll() is not None or time.monotonic() > limit:
                    raise
                time.sleep(0.05)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Process]:
    folder, port = tmp_path / "there", free_port()
    folder.mkdir()
    (folder / "flowql.yaml").write_text(
        f"name: shop\nsql: [shop.sql]\nfunctions: [f]\n"
        f"targets:\n  main: {{log_level: debug, api: {{port: {port}, token: '${{SHOP_TOKEN}}'}}}}\n"
    )
    (folder / "shop.sql").write_text(SQL)
    (folder / "f.py").write_text(MODULE.format(0))
    made = Process.start(folder, port)
    yield made
    made.process.kill()
    made.process.communicate()


def test_a_day_of_a_program_elsewhere(running: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = running.connect()
    wait(lambda: len(shop.status()["queries"]) == 3)  # it deploys its project
    assert shop.produce("ORDERS", ORDERS) == 3
    until(shop, "SELECT SUM(N)::INT FROM SPENT", 3)
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    here = tmp_path / "here"
    here.mkdir()
    (here / "flowql.yaml").write_text((running.folder / "flowql.yaml").read_text())
    (here / "shop.sql").write_text(SQL + "CREATE STREAM NETS AS SELECT CUSTOMER, NET(ID) AS N FROM ORDERS;")
    (here / "f.py").write_text(MODULE.format(1))
    with pytest.raises(
        flowql.CommandError, match="the instance has another version of NET than this project"
    ) as refused:
        shop.deploy(project=here)
    assert refused.value.code == "FQ3012"
    (here / "f.py").write_text(MODULE.format(0))
    assert shop.deploy(project=here)["applied"]
    with shop.subscribe("NETS", start="earliest", limit=3) as changes:
        assert sorted(c.row["N"] for c in changes if isinstance(c, flowql.Change)) == [1, 2, 3]

    # The token is in nothing that the instance writes or shows.
    shown = repr([shop.status(), shop.deployments(), psutil.Process(running.process.pid).cmdline()])
    assert TOKEN not in shown
    files = [f for f in running.folder.rglob("*") if f.is_file()]
    assert any(f.name == "instance.log" for f in files)
    assert not [f for f in files if TOKEN.encode() in f.read_bytes()]

    subscription = shop.subscribe("LARGE")
    told: list[object] = []
    reader = threading.Thread(target=lambda: told.extend(subscription))
    reader.start()
    running.process.send_signal(signal.SIGTERM)
    _, err = running.process.communicate(timeout=60)
    assert (running.process.returncode, TOKEN in err, "Traceback" in err) == (0, False, False), err
    reader.join(60)
    assert not reader.is_alive()
    shop.close()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("localhost", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_killed_instance(running: Process) -> None:
    shop = running.connect()
    wait(lambda: len(shop.status()["queries"]) == 3)
    shop.produce("ORDERS", ORDERS)
    answer = shop.batches(f"SELECT i, '{'x' * 1000}' AS x FROM range(10000000) t(i)")
    assert next(answer).num_rows
    with shop.subscribe("LARGE", start="earliest") as changes:
        told = iter(changes)
        assert {next(told).row["ID"] for _ in range(2)} == {2, 3}  # type: ignore[union-attr]
        threading.Timer(0.5, running.process.kill).start()
        with pytest.raises(flowql.CommandError, match=r"the subscription at http://localhost:\d+ broke off") as lost:
            next(told)
        assert (lost.value.code, bool(lost.value.help)) == ("FQ5302", True)
    with pytest.raises(flowql.CommandError, match="does not answer") as cut:
        list(answer)
    assert cut.value.code == "FQ5302"
    wait(lambda: not listens(running.port))  # the gateway ends behind its instance
    with pytest.raises(flowql.CommandError, match="nothing listens on port") as gone:
        shop.produce("ORDERS", ORDERS)
    assert gone.value.code == "FQ5302"
    again = Process.start(running.folder, running.port)
    try:
        again.connect().close()
        assert shop.sql("SELECT COUNT(*) FROM ORDERS").one() == 3, "nothing was written twice"
    finally:
        again.process.kill()
        again.process.communicate()
    shop.close()
