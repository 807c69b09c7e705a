"""Folders at addresses, as Spark's own file systems have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.spark import folders
from flowql.runtime.spark.engine.checkpoints import Progress, check_fits, positions_after, progress_of
from flowql.runtime.spark.engine.deployed import Deployed, Record, load
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.errors import CheckpointLost, CheckpointOfOtherQuery
from flowql.runtime.spark.folders import HadoopPath, folder_at, remove
from flowql.runtime.spark.log_address import KafkaAddress
from flowql.runtime.spark.log_append import CommittedEpochs
from flowql.runtime.spark.log_sink import results_of
from flowql.runtime.spark.log_staging import Staging, staging_of
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.spark.shapes import NOTE, SINK
from tests.runtime.app.harness import plan_of
from tests.runtime.spark.logs import emitted, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_folder_at_an_address_is_read_as_one_of_this_machine(spark: SparkSession, tmp_path: Path) -> None:
    there = HadoopPath(lambda: spark, f"file://{tmp_path}/a b/")
    with pytest.raises(FileNotFoundError):
        list(there.iterdir())
    with pytest.raises(FileNotFoundError):
        (there / "1").read_text("utf-8")
    remove(there)
    for name, text in (("1", "\u00fc\n"), ("2", "old"), ("2", "new")):
        (there / name).write_bytes(text.encode())
    here = tmp_path / "a b"
    assert sorted(f.name for f in there.iterdir()) == ["1", "2"]
    assert [(there / n).read_text("utf-8") for n in ("1", "2")] == ["\u00fc\n", "new"]
    (there / "2").copy_to(tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "new"
    assert not list(tmp_path.glob(".*")), "Hadoop leaves no checksums beside it"
    remove(there)
    assert not here.exists()


def test_a_checkpoint_at_an_address_is_compared_with_its_query(spark: SparkSession, tmp_path: Path) -> None:
    """As one of this machine: FQ4111 where it is gone or older than the log, FQ4112 where the query is another one."""
    there = HadoopPath(lambda: spark, f"file://{tmp_path}/there")
    assert progress_of(there) == Progress()
    for name in ("offsets/0", "offsets/1", "commits/0"):
        (there / name).write_bytes(b'v1\n{}\n{"s": {"0": 7}}')
    assert progress_of(there) == Progress(1, 0)
    assert (positions_after(there, 1), positions_after(there, 2)) == ({"s": {"0": 7}}, {})
    query = plan_of(
        "CREATE STREAM S (K STRING KEY, V BIGINT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON'); CREATE STREAM A AS SELECT K, V FROM S;"
    ).queries[0]
    record = Record(query.definition, "run", "stream")
    check_fits(query, record, CommittedEpochs("run", 1), there)
    with pytest.raises(CheckpointLost, match="does not fit its results in the log"):
        check_fits(query, record, CommittedEpochs("run", 3), there)
    with pytest.raises(CheckpointOfOtherQuery, match="has changed since its checkpoint was made"):
        check_fits(query, replace(record, definition="other"), CommittedEpochs("run", 1), there)


def test_results_pass_through_an_address(spark: SparkSession, tmp_path: Path) -> None:
    """Workers write there, and the driver maps a copy: nothing is left at either place."""
    rows = [(SINK, "t", p, p, 0, records([b"%d" % p] * 3)) for p in range(4)]
    note = (NOTE, "q", 0, 0, 9, '{"records_in": 12}')
    frame = spark.createDataFrame(pa.Table.from_batches([emitted(*rows, note)])).repartition(3)
    staging = Staging(tmp_path / "here", HadoopPath(lambda: spark, f"file://{tmp_path}/there"))
    with results_of(frame, staging, "Q/1", staged=True) as results:
        found = {TopicPartition(p.topic, p.partition): p.records.column("value").to_pylist() for p in results.pieces}
        assert found == {TopicPartition("t", p): [b"%d" % p] * 3 for p in range(4)}
        assert results.notes == [{"records_in": 12}]
    assert list(staging_of(staging.folder, "Q/1").iterdir()) == []
    assert list(staging.at_of("Q/1").iterdir()) == []  # type: ignore[union-attr]
    staging.clear("Q/1")


def test_what_is_deployed_stands_beside_checkpoints_at_an_address(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So another machine goes on with it."""
    assert isinstance(folder_at(f"file://{tmp_path}", lambda: spark, "app"), Path)
    monkeypatch.setattr(folders, "is_remote", lambda _: True)
    log = EmbeddedLog(tmp_path / "log")
    address = f"file://{tmp_path}/there"
    settings = SparkSettings(master="spark://elsewhere:7077", checkpoint=address)
    deployed = Deployed(records={"Q": Record("definition", "run", "stream")})
    first = Site(tmp_path / "log", tmp_path / "first", log, "app", settings)
    other = Site(tmp_path / "log", tmp_path / "other", log, "app", settings)
    for site in (first, other):
        site.use(spark)
    assert first.shared == first.state_dir, "dead letters of native streams go through it, as the log is embedded"
    over_kafka = replace(first, address=KafkaAddress(KafkaSettings("localhost:9092"), "app"))
    assert (str(over_kafka.shared), over_kafka.writes_letters_to_topic) == (f"{address}/app", True)
    assert first.newest(Deployed()) == Deployed()
    first.save(deployed)
    assert other.newest(load(other.state_dir)) == deployed
    assert str(other.checkpoint("Q/1")) == f"{address}/app/queries/Q%2F1"
    log.close()
