"""What Spark is started with."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS
from flowql.runtime.spark.configuration import FIXED, LOG_LEVEL, Scratch, allocation, pool_of, properties
from flowql.runtime.spark.session import spark_home
from flowql.runtime.spark.settings import SparkSettings

pytestmark = pytest.mark.turns("long")

ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    made = Scratch(tmp_path / "spark")
    made.make()
    return made


def written(scratch: Scratch, **given: str) -> dict[str, str]:
    """The lines of the properties file, not unescaped."""
    file = scratch.write_configuration({k.replace("_", "."): v for k, v in given.items()}, 700)
    pairs = (line.split("=", 1) for line in file.read_text(encoding="utf-8").splitlines())
    return {k: v for k, v in pairs}


def test_a_pool_for_every_class() -> None:
    pools = {p.get("name"): p for p in ElementTree.fromstring(allocation())}
    assert {name: int(p.findtext("weight") or 0) for name, p in pools.items()} == PRIORITY_WEIGHTS
    assert {p.findtext("schedulingMode") for p in pools.values()} == {"FAIR"}
    # With equal shares of nothing Spark goes by name, and 'batch' would come before all others.
    assert {name for name, p in pools.items() if p.findtext("minShare") == "0"} == {"batch"}
    assert [pool_of(p) for p in PRIORITY_WEIGHTS] == list(PRIORITY_WEIGHTS)


def test_a_pool_of_no_class() -> None:
    with pytest.raises(ValueError, match="urgent"):
        pool_of("urgent")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers import for themselves")
def test_python_workers_are_forked_with_their_modules(scratch: Scratch) -> None:
    """Of a local master: elsewhere FlowQL may come with the first task. A process that has more threads than one must not be forked."""
    at, settings = "spark.python.daemon.module", SparkSettings(conf={"spark.python.daemon.module": "mine"})
    assert at not in properties(SparkSettings(master="spark://a:1"), "shop", scratch)
    assert properties(settings, "shop", scratch)[at] == "mine"
    named = properties(SparkSettings(), "shop", scratch)[at]
    text = (
        f"import os, sys, {named} as daemon; daemon.prepare(); print(len(os.listdir('/proc/self/task')), "
        "all(m in sys.modules for m in daemon.MODULES), 'pyarrow' in sys.modules, 'confluent_kafka' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True", "True", "False"]


@pytest.mark.skipif(os.name != "posix", reason="Spark's own folder is used elsewhere")
def test_python_processes_of_a_local_master_do_not_compile_the_archive_of_pyspark(scratch: Scratch) -> None:
    """Spark puts `python/lib/pyspark.zip` of its folder before other modules. Where workers may have no PySpark of their own it stays."""
    pytest.importorskip("pyspark")
    elsewhere = (SparkSettings(master="spark://a:1"), SparkSettings(conf={"spark.pyspark.python": "/other/python"}))
    assert all((spark_home(s, scratch) / "python" / "lib" / "pyspark.zip").exists() for s in elsewhere)
    home = spark_home(SparkSettings(), scratch)
    assert (home / "bin" / "spark-submit").exists()
    assert (home / "jars").is_dir()
    assert not (home / "python").exists()


def test_what_is_fixed_beats_what_is_given(scratch: Scratch) -> None:
    settings = SparkSettings(conf={"spark.sql.session.timeZone": "utc", "spark.ui.enabled": "true", "a.b": "c"})
    made = properties(settings, "shop", scratch)
    assert made.items() >= FIXED.items()
    assert (made["spark.ui.enabled"], made["a.b"], made["spark.app.name"]) == ("true", "c", "shop")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (SparkSettings(master="local[3]"), "3"),
        (SparkSettings(master="local[3]", shuffle_partitions=7), "7"),
        (SparkSettings(master="yarn"), None),
        (SparkSettings(master="yarn", conf={"spark.sql.shuffle.partitions": "50"}), "50"),
    ],
)
def test_shuffle_partitions(scratch: Scratch, settings: SparkSettings, expected: str | None) -> None:
    assert properties(settings, "x", scratch).get("spark.sql.shuffle.partitions") == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (SparkSettings(memory_bytes=2 << 30), ("true", "512")),
        (SparkSettings(memory_bytes=256 << 20), ("true", "128")),
        (SparkSettings(conf={f"{ROCKSDB}.maxMemoryUsageMB": "900"}), ("true", "900")),
        (SparkSettings(master="yarn"), ("true", None)),  # memory of executors is not the target's
    ],
)
def test_memory_of_state_is_bounded(scratch: Scratch, settings: SparkSettings, expected: tuple[str, str]) -> None:
    made = properties(settings, "x", scratch)
    assert (made[f"{ROCKSDB}.boundedMemoryUsage"], made.get(f"{ROCKSDB}.maxMemoryUsageMB")) == expected


def test_the_file_is_private_and_escaped(scratch: Scratch) -> None:
    lines = written(scratch, spark_secret="a=b: #c\\d\ne!")
    assert lines["spark.secret"] == r"a\=b\:\ \#c\\d\ne\!"
    assert lines["spark.driver.memory"] == "700m"
    mode = (scratch.run / "spark.properties").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_options_for_java_of_the_user_come_last(scratch: Scratch) -> None:
    options = written(scratch, spark_driver_extraJavaOptions="-XX:+UseZGC")["spark.driver.extraJavaOptions"]
    assert options.endswith(r"-XX\:+UseZGC")
    assert "-Duser.timezone\\=UTC" in options


@pytest.mark.parametrize(("level", "root", "where"), [(None, "warn", "kept"), ("INFO", "info", "asked")])
def test_messages(scratch: Scratch, monkeypatch: pytest.MonkeyPatch, level: str | None, root: str, where: str) -> None:
    monkeypatch.delenv(LOG_LEVEL, raising=False)
    if level:
        monkeypatch.setenv(LOG_LEVEL, level)
    written(scratch)
    lines = (scratch.run / "log4j2.properties").read_text(encoding="utf-8").splitlines()
    assert f"rootLogger.level = {root}" in lines
    assert f"rootLogger.appenderRef.only.ref = {where}" in lines


def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    scratch = Scratch(tmp_path / "spark")
    left, living = scratch.run.with_name(str(dead.pid)), scratch.run.with_name("1")
    for folder in (left, living):
        (folder / "tmp").mkdir(parents=True)
    scratch.make()
    assert not left.exists()
    assert living.exists()
    assert scratch.temporary.exists()
