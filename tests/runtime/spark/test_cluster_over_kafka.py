"""`flowql run` over Kafka on a cluster whose machines share nothing but a bucket and the broker. Skipped without the jars of `tests.s3`.

Nexmark's and the quickstart's queries, as batches and as streams, give what the runtime gives of the same input: in Kafka and in Delta tables of the bucket.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from flowql.bench.engines import NEXMARK
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.config.project import Project
from flowql.config.storage import log_at
from flowql.deploy.engine import open_instance
from flowql.deploy.settings import settings_of
from flowql.kafka.broker import Broker
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import Log
from flowql.runtime.spark.files_sink import whole_schema
from flowql.verify.report import MISSING
from flowql.verify.run import Side, compare_held
from flowql.verify.values import Columns
from tests.crash.contents import records_of
from tests.crash.object_store import table
from tests.pipelines.test_nexmark import PARTITIONS, write_events
from tests.runtime.spark.test_cluster import BARE, PYTHON, _typed, checkouts
from tests.runtime.spark.test_s3a import properties, with_delta
from tests.s3 import KEY, S3, SECRET, s3_jars, s3_server
from tests.spark_cluster import Cluster, cluster
from tests.spark_here import skip_without_spark
from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
QUICKSTART = ROOT / "pipelines" / "quickstart"
FLIGHTS, HOURS = 1_500, 300
EMPTY: frozenset[str] = frozenset()  # results without rows over this input
WAIT_S = 420
START_S = 30  # of a process, and of Spark, on a machine with other work
# A Python of another version, if this names one: it needs no packages.
OTHER_PYTHON = os.environ.get("FLOWQL_OTHER_PYTHON")
UNFIT = {
    "other plan": (
        r"error\[FQ4112\]: CSAS_BIG has changed .* \(s3a://lake/flowql/cluster/shop/queries/CSAS_BIG\)",
        "help: --rebuild",
    ),
    "other": (r"error\[FQ4118\]: (a )?worker .* has Python 3\.\d+, the driver \S+ has 3\.\d+",),
    "bare": (r"error\[FQ4118\]: worker \S+ has no pyarrow",),
    "gone": (r"error\[FQ4118\]: worker \S+ cannot run python-of-nowhere: No such file",),
    "forbidden": (r"error\[FQ4120\]: s3a://forbidden/flowql cannot be used: access is refused",),
    "silent": (r"error\[FQ4120\]: s3a://silent/flowql cannot be used: its server 127\.0\.0\.1:1 does not answer",),
    "missing": (r"error\[FQ4120\]: s3a://missing/flowql\S* cannot be used: there is no such bucket",),
    "jarless": (r"error\[FQ4113\]: worker \S+ cannot write there: s3a://lake/flowql/cluster/\S+ cannot be used",),
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
        folder.mkdir(exist_ok=True)
        said = {
            "name": name,
            "dialect": dialect,
            "sql": sql,
            "defaults": {"partitions": PARTITIONS},
            "targets": {"default": {}},
        }
        (folder / "flowql.yaml").write_text(json.dumps(said))
        self.point(folder, "cluster", **more)
        return folder

    def point(self, folder: Path, target: str, **more: Any) -> None:
        """Adds a target on the cluster to a project. more: of `spark`."""
        conf = {**with_delta(properties(self.s3)), **self.workers.conf, "spark.pyspark.python": PYTHON}
        spark = {"master": self.workers.master, "conf": conf, "checkpoint": f"s3a://lake/flowql/{target}", **more}
        kafka = {"bootstrap": self.bootstrap, "app_id": folder.name}
        said = json.loads((folder / "flowql.yaml").read_text())
        said["targets"][target] = {"engine": "spark", "log": "kafka", "kafka": kafka, "spark": spark}
        (folder / "flowql.yaml").write_text(json.dumps(said))

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
    sql = sorted((NEXMARK if name == "nexmark" else QUICKSTART).glob("*.sql"))
    said = [f.name for f in sql], "ksql"
    folder = world.write(name, *said)
    for file in sql:
        shutil.copy(file, folder)
    topics = [s.topic for s in results_of(compile_sources(load_project(folder)).plan)]
    world.point(folder, "cluster", files={t: {"format": "delta", "path": f"s3a://lake/cluster/{t}"} for t in topics})
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
    subprocess.run([PYTHON, str(QUICKSTART / "data.py"), str(folder)], check=True, capture_output=True)
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


def assert_equal(folder: Path, target: str = "cluster") -> None:
    """What is in the topics of a target and of the runtime."""
    plan = compile_sources(load_project(folder)).plan
    sides = [Side(t, settings_of(load_project(folder, target=t))) for t in ("default", target)]
    (report,) = compare_held(plan, sides, _Quiet())
    assert report.equal, report.to_data()
    assert {s.name for s in report.sinks if s.rows} == {q.sink for q in plan.queries} - EMPTY


def results_of(plan: Plan) -> list[SourceDef]:
    """What queries write, without the topics that hold results for others of them alone."""
    sinks = [s for q in plan.queries if (s := plan.source(q.sink)) is not None]
    return [s for s in sinks if not s.topic.endswith("-q5-counts")]


def assert_equal_in_delta(folder: Path, s3: S3, target: str = "cluster") -> None:
    """What is in the tables of a target in the bucket, and in the topics of the runtime."""
    settings = settings_of(load_project(folder))
    with closing(log_at(settings.log_dir, settings.kafka, folder.name)) as log:
        for source in results_of(compile_sources(load_project(folder)).plan):
            held = rows_held(log, source)
            names = [f.name for f in whole_schema(source)]
            found = Counter(_row(r, names) for r in table(s3, source.topic, target).to_pylist())
            assert found == held, (source.name, list((found - held).items())[:3], list((held - found).items())[:3])
            assert held or source.name in EMPTY, source.name


def rows_held(log: Log, source: SourceDef) -> Counter[tuple[Any, ...]]:
    """The rows of a stream, or those of a table that are not deleted."""
    columns, names = Columns(source), [f.name for f in whole_schema(source)]
    is_table = source.kind == "table"
    last = {
        r["key"] if is_table else n: (r["key"], r["value"]) for n, (_, r) in enumerate(records_of(log, source.topic))
    }
    rows = ({**(columns.value(value) or {}), **columns.key(key)} for key, value in last.values() if value is not None)
    return Counter(_row(r, names) for r in rows)


def _row(row: dict[str, Any], names: list[str]) -> tuple[Any, ...]:
    return tuple(_plain(row.get(n)) for n in names)


def _plain(value: Any) -> Any:
    """As rows of files and of topics have it. Doubles may be added in another order."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, datetime):
        return round(value.replace(tzinfo=UTC).timestamp() * 1000)
    return None if value is MISSING else value


class _Quiet:
    """Implements `flowql.verify.run.Watch`."""

    def begin(self, title: str, total: int) -> None: ...

    def advance(self, n: int) -> None: ...

    def ran(self, target: str, query: Any) -> None: ...


def test_streams_give_what_the_runtime_gives(both: Path, world: World) -> None:
    """And then batches do. Executors of both workers ran tasks of one exact query over a topic of four partitions."""
    world.typed(both, "run", "--until-caught-up")
    assert_equal(both)
    assert_equal_in_delta(both, world.s3)
    query = "CTAS_Q7" if both.name == "nexmark" else "CTAS_DELAYS_BY_CARRIER"
    tasks = world.workers.tasks(query)
    assert len(tasks) == 2, tasks
    world.typed(both, "run", "--bounded", "--rebuild")
    assert_equal(both)


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_streams_over_a_lake_give_what_the_runtime_gives(both: Path, world: World, form: str) -> None:
    """The input is in the bucket alone; results go to Kafka and to Delta tables of the bucket."""
    plan = compile_sources(load_project(both)).plan
    inputs = {s.topic: s.name for s in plan.sources if s.query is None}
    place = f"s3a://lake/inputs/{both.name}"
    for topic, name in inputs.items():
        rows, asked = both / f"{topic}.parquet", f'SELECT *, ROWTIME FROM "{name}" ORDER BY ROWTIME'
        world.typed(both, "query", asked, "-o", str(rows), target="default")
        world.s3.write(f"inputs/{both.name}/parquet/{topic}/rows.parquet", pq.read_table(rows))
    if form == "delta":
        conf = {**with_delta(properties(world.s3)), "spark.master": "local[1]"}
        copies = {f"{place}/parquet/{t}": f"{place}/delta/{t}" for t in inputs}
        code, said = _typed(both, "tests.runtime.spark.copy_job", json.dumps(conf), json.dumps(copies))
        assert code == 0, said
    files = {t: {"format": form, "path": f"{place}/{form}/{t}"} for t in inputs}
    files |= {s.topic: {"format": "delta", "path": f"s3a://lake/{form}/{s.topic}"} for s in results_of(plan)}
    world.point(both, form, files=files)
    _forget_topics(load_project(both, target=form))
    world.typed(both, "run", "--until-caught-up", target=form)
    assert_equal(both, form)
    assert_equal_in_delta(both, world.s3, form)


def _forget_topics(project: Project) -> None:
    """Of the broker: those of another target of the same queries."""
    settings = settings_of(project)
    with closing(log_at(settings.log_dir, settings.kafka, project.name)) as log:
        for topic in log.admin().topics():
            log.admin().delete_topic(topic)


def test_another_machine_goes_on_with_a_stream(world: World) -> None:
    """The folder of the driver is lost; what it has deployed and committed is at the address and in the log. An edited query is refused there.

    The first micro-batch waits at the address, from where tasks write it into files, too.
    """
    to = {t: {"format": form, "path": f"s3a://lake/shop/{t}"} for t, form in (("BIG", "parquet"), ("SPENT", "delta"))}
    folder = world.write("shop", ["shop.sql"], "ksql", files=to)
    (folder / "shop.sql").write_text(SHOP)
    total = Counter[str]()
    for portion, n in enumerate((60_000, 200)):
        rows = [
            {"CUSTOMER": f"c{i % 20}", "AMOUNT": i, "AT": 1_700_000_000_000 + 1_000 * portion + i} for i in range(n)
        ]
        total.update(BIG=n - 11, N=n, TOTAL=n * (n - 1) // 2)
        file = folder / f"orders{portion}.jsonl"
        file.write_text("".join(f"{json.dumps(r)}\n" for r in rows))
        world.typed(folder, "topic", "import", "orders", file.name, "--key", "CUSTOMER", "--timestamp", "AT")
        world.typed(folder, "run", "--until-caught-up")
        asked = "SELECT (SELECT COUNT(*) FROM BIG) AS BIG, SUM(N) AS N, SUM(TOTAL) AS TOTAL FROM SPENT"
        (row,) = json.loads(world.typed(folder, "query", "-o", "json", asked))
        assert row == total
        spent = table(world.s3, "SPENT", "shop")
        found = {name: pc.sum(spent.column(name)).as_py() for name in ("N", "TOTAL")}
        assert {"BIG": world.s3.read("shop/BIG").num_rows, **found} == total
        shutil.rmtree(folder / ".flowql")
        queries = json.loads(world.typed(folder, "status", "-o", "json"))["queries"]
        assert {q["id"]: (q["state"], q["lag"]) for q in queries} == {
            "CSAS_BIG": ("stopped", 0),
            "CTAS_SPENT": ("stopped", 0),
        }
        shutil.rmtree(folder / ".flowql")
    (folder / "shop.sql").write_text(SHOP.replace("AMOUNT > 10", "AMOUNT > 20"))
    began = time.monotonic()
    text = world.typed(folder, "run", "--until-caught-up", code=1)
    seconds = time.monotonic() - began
    assert all(re.search(part, text) for part in UNFIT["other plan"]), text
    assert seconds < START_S + 30, seconds


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
    if OTHER_PYTHON:
        wrong["other"] = changed({}, {"spark.pyspark.python": OTHER_PYTHON})
    (folder / "flowql.yaml").write_text(json.dumps({**said, "targets": wrong}))
    for target in wrong:
        began = time.monotonic()
        text = world.typed(folder, "run", "--until-caught-up", code=1, target=target)
        found[target] = (text, time.monotonic() - began)
    for target, (text, seconds) in found.items():
        assert all(re.search(part, text) for part in (*UNFIT[target], "help: ")), (target, text)
        assert seconds < START_S + 30, (target, seconds)
