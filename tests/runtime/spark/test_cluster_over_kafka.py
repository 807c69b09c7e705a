"""`flowql run` over Kafka on a cluster whose machines share nothing but a bucket and the broker. Skipped without the jars of `tests.s3`.

Nexmark's and the quickstart's queries, as batches and as streams, give what the runtime gives of the same input.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.config.storage import log_at
from flowql.deploy.engine import open_instance
from flowql.deploy.settings import settings_of
from flowql.kafka.broker import Broker
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.config import InstanceConfig
from flowql.verify.run import Side, compare_held
from tests.pipelines.test_nexmark import PARTITIONS, write_events
from tests.runtime.spark.test_cluster import BARE, PYTHON, checkouts
from tests.runtime.spark.test_s3a import properties
from tests.s3 import KEY, S3, SECRET, s3_jars, s3_server
from tests.spark_cluster import Cluster, cluster
from tests.spark_here import skip_without_spark
from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
PIPELINES = ROOT / "pipelines"
FLIGHTS, HOURS = 1_500, 300
EMPTY: frozenset[str] = frozenset()  # results without rows over this input
WAIT_S = 420
START_S = 30  # of a process, and of Spark, on a machine with other work
UNFIT = {
    "bare": (r"error\[FQ4118\]: worker \S+ has no pyarrow",),
    "gone": (r"error\[FQ4118\]: workers of spark:\S+ cannot run Python tasks: .*python-of-nowhere",),
    "forbidden": (r"error\[FQ4120\]: s3a://forbidden/flowql cannot be used: access is refused",),
    "silent": (r"error\[FQ4120\]: s3a://silent/flowql cannot be used: its server 127\.0\.0\.1:1 does not answer",),
    "missing": (r"error\[FQ4120\]: s3a://missing/flowql\S* cannot be used: there is no such bucket",),
    "jarless": (r"error\[FQ4113\]: worker \S+ cannot write there: s3a://lake/flowql/unfit/\S+ cannot be used",),
    "local": (r"error\[FQ4118\]: worker \S+ cannot read \S+, where files of topic SPENT are", r"s3a://"),
    "embedded": (r"error\[FQ4118\]: worker \S+ cannot read \S+, the embedded log of the target", r"use Kafka"),
}
SHOP = """
CREATE STREAM ORDERS (CUSTOMER STRING KEY, AMOUNT BIGINT) WITH (KAFKA_TOPIC='orders', PARTITIONS=4, VALUE_FORMAT='JSON');
CREATE STREAM BIG AS SELECT CUSTOMER, AMOUNT FROM ORDERS WHERE AMOUNT > 10;
CREATE TABLE SPENT AS SELECT CUSTOMER, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL FROM ORDERS
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 1 DAY) GROUP BY CUSTOMER;
"""


@dataclass(frozen=True, slots=True)
class World:
    """Machines that share a bucket and a broker. project: a folder that workers do not see."""

    workers: Cluster
    s3: S3
    bootstrap: str
    project: Path

    def write(self, name: str, sql: list[str], dialect: str, **more: Any) -> Path:
        """A project with the targets `default` (the runtime) and `cluster`."""
        folder = self.project / name
        folder.mkdir()
        conf = {**properties(self.s3), **self.workers.conf, "spark.pyspark.python": PYTHON}
        spark = {"master": self.workers.master, "conf": conf, "checkpoint": "s3a://lake/flowql", **more}
        kafka = {"bootstrap": self.bootstrap, "app_id": name}
        targets = {"default": {}, "cluster": {"engine": "spark", "log": "kafka", "kafka": kafka, "spark": spark}}
        said = {
            "name": name,
            "dialect": dialect,
            "sql": sql,
            "defaults": {"partitions": PARTITIONS},
            "targets": targets,
        }
        (folder / "flowql.yaml").write_text(json.dumps(said))
        return folder

    def typed(self, folder: Path, *words: str, code: int = 0, target: str = "cluster") -> str:
        env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
        command = [PYTHON, "-m", "flowql", *words, "-t", target]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        assert not [secret for secret in (KEY, SECRET) if secret in said]
        return said


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, kafka_broker: Broker) -> Iterator[World]:
    s3_jars()
    skip_without_spark()
    running = kafka_broker.running()
    assert running is not None
    folder = tmp_path_factory.mktemp("world")
    project = folder / "project"
    project.mkdir()
    hidden = [project, *checkouts()]
    with (
        s3_server(folder / "s3") as s3,
        cluster(folder / "cluster", hidden, {"PYSPARK_PYTHON": PYTHON}) as workers,
    ):
        yield World(workers, s3, running.bootstrap, project)


@pytest.fixture(scope="module", params=["nexmark", "quickstart"])
def both(world: World, request: pytest.FixtureRequest) -> Path:
    """A project whose input is in both logs, and whose results the runtime has computed."""
    name: str = request.param
    sql = sorted((PIPELINES / name).glob("*.sql"))
    folder = world.write(name, [f.name for f in sql], "standard" if name == "nexmark" else "ksql")
    for file in sql:
        shutil.copy(file, folder)
    here, there = (settings_of(load_project(folder, target=t)) for t in ("default", "cluster"))
    plan = compile_sources(load_project(folder)).plan
    if name == "nexmark":
        for settings in (here, there):
            with closing(log_at(settings.log_dir, settings.kafka, name)) as log:
                write_events(log)
    else:
        _flights(folder)
    instance = open_instance(here.log_dir, here.state_dir, InstanceConfig(application_id=name, threads=2))
    instance.start()
    instance.deploy(plan)
    ends = source_ends(instance)
    while not caught_up(instance, ends):
        assert instance.fatal is None, instance.fatal
        time.sleep(0.05)
    instance.stop()
    return folder


def _flights(folder: Path) -> None:
    """The first flights of the year, and what was known then."""
    subprocess.run([PYTHON, str(PIPELINES / "quickstart" / "data.py"), str(folder)], check=True, capture_output=True)
    tables = {"flights": ("CARRIER", "SCHED_DEP_TIME", FLIGHTS), "weather": ("STATION_HOUR", "TIME_HOUR", HOURS)}
    tables |= {"planes": ("TAILNUM", "LOADED_AT", 1 << 20), "airlines": ("CARRIER", "LOADED_AT", 1 << 20)}
    for topic, (key, at, rows) in tables.items():
        file = folder / f"{topic}.jsonl"
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:rows]))
        for target in ("default", "cluster"):
            words = [topic, file.name, "--key", key, "--timestamp", at, "--partitions", "2", "-t", target]
            command = [PYTHON, "-m", "flowql", "topic", "import", *words]
            subprocess.run(
                command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True
            )


def assert_equal(folder: Path) -> None:
    """What is in the topics of both targets."""
    plan = compile_sources(load_project(folder)).plan
    sides = [Side(target, settings_of(load_project(folder, target=target))) for target in ("default", "cluster")]
    (report,) = compare_held(plan, sides, _Quiet())
    assert report.equal, report.to_data()
    assert {s.name for s in report.sinks if s.rows} == {q.sink for q in plan.queries} - EMPTY


class _Quiet:
    """Implements `flowql.verify.run.Watch`."""

    def begin(self, title: str, total: int) -> None: ...

    def advance(self, n: int) -> None: ...

    def ran(self, target: str, query: Any) -> None: ...


def test_streams_give_what_the_runtime_gives(both: Path, world: World) -> None:
    """And then batches do. Executors of both workers ran tasks of one exact query over a topic of four partitions."""
    world.typed(both, "run", "--until-caught-up")
    assert_equal(both)
    query = "CTAS_q7" if both.name == "nexmark" else "CTAS_DELAYS_BY_CARRIER"
    tasks = world.workers.tasks(query)
    assert len(tasks) == 2, tasks
    world.typed(both, "run", "--bounded", "--rebuild")
    assert_equal(both)


def test_another_machine_goes_on_with_a_stream(world: World) -> None:
    """The folder of the driver is lost; what it has deployed and committed is at the address and in the log."""
    folder = world.write("shop", ["shop.sql"], "ksql")
    (folder / "shop.sql").write_text(SHOP)
    for portion in range(2):
        rows = [
            {"CUSTOMER": f"c{n % 20}", "AMOUNT": n, "AT": 1_700_000_000_000 + 1_000 * portion + n} for n in range(200)
        ]
        file = folder / f"orders{portion}.jsonl"
        file.write_text("".join(f"{json.dumps(r)}\n" for r in rows))
        world.typed(folder, "topic", "import", "orders", file.name, "--key", "CUSTOMER", "--timestamp", "AT")
        world.typed(folder, "run", "--until-caught-up")
        asked = "SELECT (SELECT COUNT(*) FROM BIG) AS BIG, SUM(N) AS N, SUM(TOTAL) AS TOTAL FROM SPENT"
        (row,) = json.loads(world.typed(folder, "query", "-o", "json", asked))
        times = portion + 1
        assert row == {"BIG": 189 * times, "N": 200 * times, "TOTAL": 19_900 * times}
        shutil.rmtree(folder / ".flowql")


def test_what_does_not_fit_is_named_within_seconds(world: World) -> None:
    """With the host or the address, and what to do. Seconds count from the start of the process: most of them are Spark's start."""
    folder = world.write("unfit", ["shop.sql"], "ksql")
    (folder / "shop.sql").write_text(SHOP)
    said = json.loads((folder / "flowql.yaml").read_text())
    cluster, found = said["targets"]["cluster"], {}

    def changed(spark: dict[str, Any], conf: dict[str, str]) -> dict[str, Any]:
        return {**cluster, "spark": {**cluster["spark"], **spark, "conf": {**cluster["spark"]["conf"], **conf}}}

    wrong = {
        "bare": changed({}, {"spark.pyspark.python": BARE}),
        "gone": changed({}, {"spark.pyspark.python": "python-of-nowhere"}),
        "forbidden": changed({"checkpoint": "s3a://forbidden/flowql"}, {}),
        "silent": changed({"checkpoint": "s3a://silent/flowql"}, {}),
        "missing": changed({"checkpoint": "s3a://missing/flowql"}, {}),
        "jarless": changed({}, {"spark.executor.extraClassPath": ""}),
        "local": changed({"files": {"SPENT": {"format": "parquet", "path": "out"}}}, {}),
        "embedded": {"engine": "spark", "spark": cluster["spark"]},
    }
    (folder / "flowql.yaml").write_text(json.dumps({**said, "targets": wrong}))
    for target in wrong:
        began = time.monotonic()
        text = world.typed(folder, "run", "--until-caught-up", code=1, target=target)
        found[target] = (text, time.monotonic() - began)
    for target, parts in UNFIT.items():
        text, seconds = found[target]
        assert all(re.search(part, text) for part in (*parts, "help: ")), (target, text)
        assert seconds < START_S + 30, (target, seconds)
