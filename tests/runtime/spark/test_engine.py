"""A project on Spark as a whole: batches and streams give what the runtime gives, keep their place, and fail alone."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from flowql.compiler.plan.topology import Plan
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.spark.engine import work
from flowql.runtime.spark.engine.instance import Mode, SparkInstance
from flowql.runtime.spark.errors import CheckpointLost, CheckpointOfOtherQuery
from flowql.runtime.spark.log_append import Writer
from flowql.runtime.spark.settings import SparkSettings
from tests.crash.contents import records_of
from tests.crash.project import append
from tests.runtime.spark.conftest import TEST_SETTINGS
from tests.runtime.spark.logs import records
from tests.runtime.spark.test_engine_order import plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
WAIT_S = 300.0
SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=2, VALUE_FORMAT='JSON');
CREATE STREAM A WITH (PRIORITY='high') AS SELECT * FROM S WHERE V > 1;
CREATE TABLE N AS SELECT V, COUNT(*) AS N FROM A GROUP BY V;
INSERT INTO S (K, V) VALUES ('a', 5);
INSERT INTO S (K, V) VALUES ('b', 5);
INSERT INTO S (K, V) VALUES ('c', 0);
"""


Open = Callable[..., SparkInstance]


@pytest.fixture
def opened(spark: SparkSession, tmp_path: Path) -> Iterator[Open]:
    """Opens instances on one folder; what is left open is closed."""
    left: list[SparkInstance] = []

    def make(mode: Mode, settings: SparkSettings = TEST_SETTINGS) -> SparkInstance:
        instance = SparkInstance(tmp_path / "log", tmp_path / "state", settings, "app", mode=mode)
        left.append(instance)
        instance.start()
        return instance

    yield make
    for instance in left:
        instance.stop()


def run(
    opened: Open,
    plan: Plan,
    mode: Mode,
    *,
    rebuild: bool = False,
    watch: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, Any]]:
    """The plan once over; the status of its queries. watch: called now and then."""
    instance = opened(mode)
    instance.deploy(plan, rebuild=rebuild)
    instance.run_until_caught_up(lambda _status: watch())
    status = {q["id"]: q for q in instance.status()["queries"]}
    instance.stop()
    return status


def table(folder: Path, topic: str) -> dict[int, Any]:
    """The last value of each key, an INT."""
    log = EmbeddedLog(folder / "log")
    found = {int.from_bytes(r["key"]): r["value"] for _, r in records_of(log, topic)}
    log.close()
    return {k: v for k, v in found.items() if v is not None}


def stream(folder: Path, topic: str) -> Counter[Any]:
    log = EmbeddedLog(folder / "log")
    found = Counter((r["key"], r["value"]) for _, r in records_of(log, topic))
    log.close()
    return found


def insert(folder: Path, *rows: tuple[str, int]) -> None:
    log = EmbeddedLog(folder / "log")
    keys, values = [k.encode() for k, _ in rows], [f'{{"V": {v}}}'.encode() for _, v in rows]
    append(log, [(TopicPartition("s", 0), records(values, keys))])
    log.close()


@pytest.mark.turns("spark")
@pytest.mark.parametrize("gathered", [0, work.GATHERED_ROWS_MAX])
def test_a_stream_goes_on_where_it_was_and_says_how_far_it_is(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gathered: int
) -> None:
    """Whether workers stage what a micro-batch gives, or the driver gathers it."""
    monkeypatch.setattr(work, "GATHERED_ROWS_MAX", gathered)
    plan = plan_of(SQL)
    status = run(opened, plan, "caught up")
    assert table(tmp_path, "N") == {5: b'{"N":2}'}
    a = status["CSAS_A"]
    assert (a["records_in"], a["records_out"], a["lag"], a["batch"]) == (3, 2, 0, 0)
    assert (a["engine"], a["priority"], a["state"], a["form"]) == ("spark", "high", "running", "stream")
    insert(tmp_path, ("d", 5), ("e", 7))
    again = opened("caught up")
    assert {q["id"]: q["lag"] for q in again.status()["queries"]} == {"CSAS_A": 2, "CTAS_N": 0}
    again.deploy(plan)
    again.run_until_caught_up()
    assert again.commits == 2
    snapshot = again.snapshot()
    (store,) = [s.name for s in snapshot.stores() if s.name.startswith("CTAS_N-aggregate")]
    assert {k: v[0] for k, v in snapshot.scan(store)} == {(5,): 3, (7,): 1}
    assert snapshot.get(store, (7,)) is not None
    snapshot.close()
    again.stop()
    assert table(tmp_path, "N") == {5: b'{"N":3}', 7: b'{"N":1}'}
    assert sum(stream(tmp_path, "A").values()) == 4


@pytest.mark.turns("spark")
def test_what_no_longer_fits_is_refused_and_rebuilt_when_asked(opened: Open, tmp_path: Path) -> None:
    run(opened, plan_of(SQL), "caught up")
    changed = plan_of(SQL.replace("V > 1", "V >= 0"))
    instance = opened("caught up")
    with pytest.raises(CheckpointOfOtherQuery, match="CSAS_A has changed"):
        instance.deploy(changed)
    instance.deploy(changed, rebuild=True)
    instance.run_until_caught_up()
    instance.stop()
    assert table(tmp_path, "N") == {5: b'{"N":2}', 0: b'{"N":1}'}
    assert sum(stream(tmp_path, "A").values()) == 3
    shutil.rmtree(tmp_path / "state" / "queries" / "CTAS_N")
    again = opened("continuous")
    lost = next(q for q in again.status()["queries"] if q["id"] == "CTAS_N")
    assert (lost["state"], "CheckpointLost: the checkpoint of CTAS_N" in lost["last_error"]) == ("error", True)
    with pytest.raises(CheckpointLost, match="CTAS_N"):
        again.deploy(changed)


@pytest.mark.turns("spark")
def test_batches_compute_everything_again(opened: Open, tmp_path: Path) -> None:
    right: dict[int, Any] = {5: b'{"N":2}'}
    seen: list[Any] = []
    for _ in range(2):
        status = run(opened, plan_of(SQL), "bounded", watch=lambda: seen.append(table(tmp_path, "N")))
        assert table(tmp_path, "N") == right
        assert sum(stream(tmp_path, "A").values()) == 2
        assert {q["lag"] for q in status.values()} == {0}
        assert status["CTAS_N"]["form"] == "batch"
    first = seen.index(right)
    assert all(s == right for s in seen[first:]), "results take the place of earlier ones at once"


@pytest.mark.turns("spark")
def test_a_failing_query_is_restarted_alone(opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, broken = Writer.append, [True]

    def append_or_fail(writer: Writer, *rest: Any) -> Any:
        if writer.target.query == "CTAS_N" and broken[0]:
            raise OSError(28, "No space left on device")
        return real(writer, *rest)

    monkeypatch.setattr(Writer, "append", append_or_fail)
    instance = opened("continuous")
    instance.deploy(plan_of(SQL))

    def query(name: str) -> dict[str, Any]:
        return next(q for q in instance.status()["queries"] if q["id"] == name)

    def wait(condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + WAIT_S
        while not condition():
            assert instance.fatal is None
            assert time.monotonic() < limit, instance.status()
            time.sleep(0.05)

    full = "OSError: [Errno 28] No space left on device"
    wait(lambda: query("CTAS_N")["errors"] >= 2 and query("CTAS_N")["last_error"] == full)
    wait(lambda: query("CSAS_A")["lag"] == 0)
    assert query("CSAS_A")["last_error"] != full
    broken[0] = False
    wait(lambda: query("CTAS_N")["lag"] == 0)
    instance.stop()
    assert table(tmp_path, "N") == {5: b'{"N":2}'}
