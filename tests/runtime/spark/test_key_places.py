"""Topics whose writers place keys differently: an exact query on Spark that needs rows of one key together stops, as on the runtime."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from flowql.runtime.errors import KeysMisplaced, RuntimeFailure
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.spark.engine.instance import SparkInstance
from flowql.runtime.spark.key_places import PlacesOfKeys
from flowql.runtime.spark.shapes import NOTE, Row, to_ipc
from flowql.runtime.spark.stage.layout import layout_of, loads
from tests.crash.contents import records_of
from tests.runtime.app.test_key_places import PARTITIONS, Place, crc32
from tests.runtime.spark.conftest import TEST_SETTINGS
from tests.runtime.spark.stage_local import LocalStages
from tests.runtime.spark.test_engine import Open, opened
from tests.runtime.spark.test_engine_order import plan_of

__all__ = ["opened"]

pytestmark = pytest.mark.turns("sessions")

WAIT_S = 120.0
KEYS = [f"customer-{n}" for n in range(60)]
SOURCES = f"""
CREATE STREAM A (K STRING KEY, V INT) WITH (KAFKA_TOPIC='a', PARTITIONS={PARTITIONS}, VALUE_FORMAT='JSON');
CREATE STREAM B (K STRING KEY, V INT) WITH (KAFKA_TOPIC='b', PARTITIONS={PARTITIONS}, VALUE_FORMAT='JSON');
CREATE STREAM C (K STRING KEY, V INT) WITH (KAFKA_TOPIC='c', PARTITIONS={PARTITIONS}, VALUE_FORMAT='JSON');
"""
JOINED = SOURCES + "CREATE STREAM J AS SELECT A.K AS K, B.V AS V FROM A JOIN B WITHIN {within} ON A.K = B.K;\n"
JOIN, FOR_GOOD = JOINED.format(within="1 HOUR"), JOINED.format(within="110000 DAYS")
COUNTS = SOURCES + "CREATE TABLE N AS SELECT K, COUNT(*) AS N FROM A GROUP BY K;\n"
HOURS = "CREATE TABLE H AS SELECT K, COUNT(*) AS N FROM C WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY K;\n"
OTHER = "CREATE STREAM OTHER AS SELECT * FROM A WHERE V >= 0;\n"


def records_in(place: Place) -> dict[int, pa.RecordBatch]:
    """A record of each key, by partition."""
    found: dict[int, list[dict[str, Any]]] = {}
    for n, key in enumerate(KEYS):
        row = {"timestamp": n, "key": key.encode(), "value": json.dumps({"V": n}).encode(), "headers": None}
        found.setdefault(place(key.encode(), PARTITIONS), []).append(row)
    return {p: pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA) for p, rows in found.items()}


def put(folder: Path, topic: str, place: Place) -> None:
    log = EmbeddedLog(folder / "log")
    if topic not in log.topics():
        log.create_topic(topic, PARTITIONS)
    producer = log.producer("test")
    producer.begin()
    for p, batch in records_in(place).items():
        producer.send(TopicPartition(topic, p), batch)
    producer.commit()
    producer.close()
    log.close()


def results(folder: Path, topic: str) -> Counter[str]:
    log = EmbeddedLog(folder / "log")
    found = Counter(r["key"].decode() for _, r in records_of(log, topic))
    log.close()
    return found


# -- tasks, without Spark


def stages(sql: str) -> LocalStages:
    plan = plan_of(sql)
    layout = layout_of(plan, plan.queries[0], {"a": PARTITIONS, "b": PARTITIONS})
    return LocalStages(loads(layout.dumps()))


def portion(topic: str, place: Place, first: int = 0) -> list[dict[str, Any]]:
    out = []
    for p, batch in records_in(place).items():
        offsets = pa.array(range(first, first + batch.num_rows), pa.int64())
        records = pa.RecordBatch.from_arrays([offsets, *batch.columns], ["offset", *batch.schema.names])
        at = {"first_offset": first, "next_offset": first + batch.num_rows}
        out.append({"topic": topic, "partition": p, **at, "ipc": to_ipc(records)})
    return out


def notes(rows: list[Row]) -> list[dict[str, Any]]:
    return [json.loads(bytes(r.ipc)) for r in rows if r.kind == NOTE]


@pytest.mark.parametrize("bounded", [False, True])
def test_a_task_finds_out_that_its_topics_are_placed_differently(bounded: bool) -> None:
    here = stages(JOIN)
    both = [*portion("a", crc32), *portion("b", partition_for)]
    with pytest.raises(KeysMisplaced, match="so that rows of one key do not meet"):
        (here.bounded if bounded else here.batch)(both)


def test_a_task_knows_what_it_has_found_out_in_earlier_batches() -> None:
    """Another process may run the next one."""
    here = stages(JOIN)
    here.batch(portion("b", partition_for))
    here.restart()
    with pytest.raises(KeysMisplaced, match="whose keys are in the partitions of murmur2"):
        here.batch(portion("a", crc32))


def test_topics_that_are_placed_alike_are_joined() -> None:
    here = stages(JOIN)
    rows = here.batch([*portion("a", crc32), *portion("b", crc32)])
    PlacesOfKeys("Q").check(notes(rows))
    assert sum(n["records_out"] for n in notes(rows)) == len(KEYS)


def test_a_key_in_two_partitions_is_found_by_what_tasks_tell() -> None:
    """Each counts the records of its partition, and knows of no other."""
    here, places = stages(COUNTS), PlacesOfKeys("CTAS_N")
    places.check(notes(here.batch(portion("a", crc32))))
    told = notes(here.batch(portion("a", partition_for, len(KEYS))))
    with pytest.raises(KeysMisplaced, match="CTAS_N reads a, in which records of the key 'customer-"):
        places.check(told)


def test_of_topics_whose_keys_need_not_meet_nothing_is_told() -> None:
    assert not any("keys" in n for n in notes(stages(SOURCES + OTHER).batch(portion("a", crc32))))


# -- in Spark


def wait(instance: SparkInstance, done: Callable[[dict[str, dict[str, Any]]], bool]) -> None:
    limit = time.monotonic() + WAIT_S
    while not done(found := {q["id"]: q for q in instance.status()["queries"]}):
        assert instance.fatal is None
        assert time.monotonic() < limit, found
        time.sleep(0.05)


@pytest.mark.spark
def test_a_batch_does_not_join_topics_that_are_placed_differently(opened: Open, tmp_path: Path) -> None:
    """A fourth of the rows met, and nothing was said."""
    put(tmp_path, "a", crc32)
    put(tmp_path, "b", partition_for)
    for place in (crc32, partition_for):
        put(tmp_path, "c", place)
    instance = opened("bounded")
    instance.deploy(plan_of(JOIN + HOURS + OTHER))
    with pytest.raises(RuntimeFailure, match="FQ4066"):
        instance.run_until_caught_up()
    found = {q["id"]: q for q in instance.status()["queries"]}
    instance.stop()
    said = {name: q["last_error"] for name, q in found.items()}
    assert {name: (q["state"], q["errors"]) for name, q in found.items() if q["last_error"]} == dict.fromkeys(
        ("CSAS_J", "CTAS_H"), ("error", 1)
    )
    assert said["CSAS_J"].startswith("KeysMisplaced: CSAS_J reads ")
    assert said["CSAS_J"].endswith("flowql explain FQ4066")
    assert said["CTAS_H"].startswith("KeysMisplaced: CTAS_H reads c, in which records of the key 'customer-")
    assert [sum(results(tmp_path, t).values()) for t in ("J", "H", "OTHER")] == [0, 0, len(KEYS)]


@pytest.mark.spark
@pytest.mark.turns("spark")
def test_a_stream_stops_at_a_key_in_two_partitions_and_others_go_on(opened: Open, tmp_path: Path) -> None:
    put(tmp_path, "a", crc32)
    instance = opened("continuous")
    instance.deploy(plan_of(COUNTS + OTHER))
    wait(instance, lambda found: all(q["lag"] == 0 for q in found.values()))
    put(tmp_path, "a", partition_for)
    wait(instance, lambda found: found["CTAS_N"]["state"] == "error" and found["CSAS_OTHER"]["lag"] == 0)
    (query,) = (q for q in instance.status()["queries"] if q["id"] == "CTAS_N")
    instance.stop()
    assert query["last_error"].startswith("KeysMisplaced: CTAS_N reads a, in which records of the key 'customer-")
    assert results(tmp_path, "N") == Counter(KEYS), "what was known to be wrong is not committed"


@pytest.mark.spark
@pytest.mark.turns("spark")
def test_native_queries_join_by_the_keys_themselves(opened: Open, tmp_path: Path) -> None:
    put(tmp_path, "a", crc32)
    put(tmp_path, "b", partition_for)
    instance = opened("caught up", replace(TEST_SETTINGS, streams="native"))
    instance.deploy(plan_of(FOR_GOOD))
    instance.run_until_caught_up()
    (query,) = instance.status()["queries"]
    instance.stop()
    assert (query["how"], query["last_error"]) == ("native", None)
    assert results(tmp_path, "J") == Counter(KEYS)
