"""Workers that do not fit are named before a query starts."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowql.runtime.spark import folders, storage, workers
from flowql.runtime.spark.engine.deployed import Deployed
from flowql.runtime.spark.errors import StorageFailed, WorkersUnfit
from flowql.runtime.spark.folders import HadoopPath, folder_at
from flowql.runtime.spark.settings import SparkSettings, TopicFiles
from flowql.runtime.spark.workers import INSTANCE, Shared, check_workers, check_writing, compare, here, shared_folders
from tests.spark_here import skip_without_spark

pytestmark = pytest.mark.turns("long")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FOLDERS = shared_folders(Path("/data/log"), Path("/data/state"))


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"python": "3.9.1"}, "worker w1 has Python 3.9, the driver"),
        ({"pyarrow": "1.0"}, r"worker w1 has pyarrow 1\.0, the driver"),
        ({"flowql": ""}, "worker w1 has no FlowQL, the driver"),
        ({"lacks": "msgspec"}, "worker w1 has no Python module msgspec, which FlowQL needs"),
        ({"unseen": ("/data/log",)}, "worker w1 cannot read /data/log, the embedded log of the target on"),
        ({"unseen": ("/data/state",)}, "worker w1 cannot read and write /data/state, the folder of checkpoints"),
    ],
)
def test_what_differs_is_named_with_its_host(other: dict[str, object], why: str) -> None:
    driver = here()
    same = replace(driver, host="w0", python=f"{driver.python}+build")
    with pytest.raises(WorkersUnfit, match=why):
        compare(driver, [same, replace(driver, host="w1", **other)], FOLDERS)  # type: ignore[arg-type]
    compare(driver, [same], FOLDERS)


def test_over_kafka_workers_must_see_where_state_and_results_are_written() -> None:
    """An address is no folder, and files of this machine are: workers would write results into folders of their own."""
    (found,) = shared_folders(object(), Path("/data/state"))
    assert found == FOLDERS[1]
    assert "checkpoint: 's3a://" in found.help
    assert "flowql spark package" in found.help
    there = folder_at("s3a://lake/flowql", lambda: pytest.fail("no session is needed"), "shop")
    files = {"orders": TopicFiles("parquet", "/nowhere/in"), "SPENT": TopicFiles("parquet", "s3a://lake/spent")}
    (found,) = shared_folders(object(), there, files)
    assert (found.folder, found.what, found.written) == ("/", "where files of topic orders are", False)


def test_a_folder_that_only_others_may_write_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(Path, "write_text", refuse)
    for folder, expected in ((tmp_path, ()), (tmp_path / "gone", (str(tmp_path / "gone"),))):
        with workers._marked([Shared(str(folder), "files", "share them")]) as marked:
            ((*_, unseen, _),) = workers._probe(marked)([])
        assert unseen == expected
    with pytest.raises(PermissionError), workers._marked([Shared(str(tmp_path), "state", "share it", written=True)]):
        pass


def test_a_folder_of_the_same_name_is_not_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has a data_dir of its own there read and wrote it, and results were missing without a word."""
    folder = Shared(str(tmp_path), "state", "share it", written=True)
    with workers._marked([folder]) as marked:
        ((*_, unseen, _),) = workers._probe(marked)([])
        assert unseen == ()
        assert [p.name.startswith(workers.MARK) for p in tmp_path.iterdir()] == [True]
        for p in tmp_path.iterdir():
            p.unlink()
        ((*_, unseen, _),) = workers._probe(marked)([])
        assert unseen == (str(tmp_path),)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_workers_cannot_write_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", refuse)
    for written, expected in ((False, ()), (True, (str(tmp_path),))):
        with workers._marked([Shared(str(tmp_path), "state", "share it", written=written)]) as marked:
            ((*_, unseen, _),) = workers._probe(marked)([])
        assert unseen == expected


def test_a_package_that_cannot_be_imported_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its metadata are there, as of an installation that links to a folder of another machine."""
    ((*_, pyarrow, flowql, _, lacks),) = workers._probe([], INSTANCE)([])
    assert (pyarrow, flowql, lacks) == (here().pyarrow, here().flowql, "")
    monkeypatch.setitem(sys.modules, "flowql.runtime", None)
    ((*_, pyarrow, flowql, _, lacks),) = workers._probe([])([])
    assert (pyarrow, flowql, lacks) == (here().pyarrow, "", "")


def test_a_package_that_flowql_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said that FlowQL itself is missing."""
    monkeypatch.setitem(sys.modules, "msgspec", None)
    for name in [m for m in sys.modules if m.startswith("flowql.runtime.spark.stage")]:
        monkeypatch.delitem(sys.modules, name)
    ((*_, flowql, _, lacks),) = workers._probe([], INSTANCE)([])
    assert (flowql, lacks) == (here().flowql, "msgspec")


FAILED = "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times: Lost task 0.3 in stage 0.0 (TID 7) (w1 executor 0): "


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that "
            "in driver: 3.11, PySpark cannot run with different minor versions.",
            r"worker w1 has Python 3\.12, the driver \S+ has 3\.",
        ),
        (
            'java.io.IOException: Cannot run program "python-of-nowhere": error=2, No such file or directory\n\tat java.base/java.lang.X',
            r"worker w1 cannot run python-of-nowhere: No such file or directory\nhelp: .*spark\.pyspark\.python",
        ),
        (
            "org.apache.spark.SparkException: \nError from python worker:\n  Traceback (most recent call last):\n"
            "  ModuleNotFoundError: No module named 'numpy'\nPYTHONPATH was:\n  /opt\n\tat org.apache.spark.api.python.X",
            r"worker w1 cannot run Python tasks: ModuleNotFoundError: No module named 'numpy'\nhelp: install",
        ),
    ],
)
def test_a_worker_that_cannot_run_python_is_named(said: str, why: str) -> None:
    """With the cause. It was the first line of what Java says, which is that a job was aborted."""
    error = RuntimeError(f": org.apache.spark.SparkException: {FAILED}{said}")
    found = workers._unanswered("spark://m:7077", error, ["w1", "w2"], None)
    assert re.match(why, str(found)), found
    found = workers._unanswered("spark://m:7077", RuntimeError(said), ["w1", "w2"], None)
    assert re.match(why.replace("worker w1", r"a worker of spark://m:7077 \(w1, w2\)"), str(found)), found


def test_an_instance_that_was_refused_at_start_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what stands against its workers would be hidden by a failure to stop."""
    skip_without_spark()
    from flowql.runtime.spark.engine import instance  # with PySpark

    session, closed = object(), []

    def refuse(_spark: object, _shared: Sequence[Shared], _modules: Sequence[str]) -> None:
        raise WorkersUnfit("worker w1 has no FlowQL")

    monkeypatch.setattr(instance, "open_session", lambda *_: session)
    monkeypatch.setattr(instance, "close_session", closed.append)
    monkeypatch.setattr(instance, "check_workers", refuse)
    settings = SparkSettings(master="spark://elsewhere:7077")
    made = instance.SparkInstance(tmp_path / "log", tmp_path / "state", settings, "app", mode="bounded")
    with pytest.raises(WorkersUnfit):
        made.start()
    made.stop()
    assert closed == [session]


def _busy(*_: object) -> Callable[[Iterable[int]], Iterable[int]]:
    """In place of the workers that are asked: workers that are long in answering."""

    def told(rows: Iterable[int]) -> Iterable[int]:
        time.sleep(60)
        return rows

    return told


@pytest.mark.spark
def test_workers_answer_for_themselves(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_workers(spark, shared_folders(tmp_path, tmp_path))
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(workers, "_probe", _busy)
    monkeypatch.setattr(workers, "ANSWER_S", 50.0)
    spark.conf.set(storage.START_TIMEOUT, "1s")
    with pytest.raises(WorkersUnfit, match=r"no worker of local\[2\] has answered within 1 s\n.*startTimeout: 2min"):
        check_workers(spark)
    spark.conf.unset(storage.START_TIMEOUT)


def test_executors_that_register_meanwhile_are_asked_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, asked = iter([1, 3, 3]), []
    monkeypatch.setattr(workers, "_executors", lambda _: next(counts))

    def answers(_spark: object, _marked: object, executors: int, _modules: object) -> list[workers.Worker]:
        asked.append(executors)
        return [here(), replace(here(), host="late", flowql="")] if executors == 3 else [here()]

    monkeypatch.setattr(workers, "_asked", answers)
    with pytest.raises(WorkersUnfit, match="worker late has no FlowQL"):
        check_workers(object())  # type: ignore[arg-type]
    assert asked == [1, 3]


@pytest.mark.spark
def test_a_trial_that_fails_leaves_no_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of executors that could write stayed at the address where another one could not."""
    from pyspark.sql import DataFrameWriter

    write = DataFrameWriter.parquet

    def refused(self: DataFrameWriter, path: str) -> None:
        write(self, path)
        assert list((tmp_path / "app").rglob("*.parquet"))
        raise RuntimeError("Lost task 1.0 in stage 0.0 (w1 executor 1): java.nio.file.AccessDeniedException: 403")

    there = HadoopPath(lambda: spark, f"file://{tmp_path}/app")
    check_writing(spark, there)
    monkeypatch.setattr(DataFrameWriter, "parquet", refused)
    monkeypatch.setattr(storage, "is_remote", lambda _: True)
    with pytest.raises(StorageFailed, match=r"worker w1 cannot write there: .* access is refused"):
        check_writing(spark, there)
    assert list((tmp_path / "app").iterdir()) == []


@pytest.mark.spark
@pytest.mark.parametrize("temporary", [True, False])
def test_what_is_temporary_at_an_address_goes_with_the_instance(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: bool
) -> None:
    """`flowql verify` left a folder at the address of checkpoints for each of its runs."""
    from flowql.runtime.spark.engine import instance

    for module in (folders, instance):
        monkeypatch.setattr(module, "is_remote", lambda _: True)
    monkeypatch.setattr(instance, "open_session", lambda *_: spark)
    monkeypatch.setattr(instance, "close_session", lambda _: None)
    there = tmp_path / "there"
    settings = SparkSettings("local[2]", checkpoint=f"file://{there}", temporary=temporary)
    made = instance.SparkInstance(tmp_path / "log", tmp_path / "state", settings, "app", mode="bounded")
    made.start()
    made.site.save(Deployed())
    assert (there / "app").is_dir()
    made.stop()
    assert there.exists() is not temporary
