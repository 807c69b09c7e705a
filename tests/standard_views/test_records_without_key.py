"""Records of a stream without a key may be in any partition, and NULL is one group, whatever the query is."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest

from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from tests.slt.session import Shape, SqlSession

SOURCE = """CREATE STREAM s (k TEXT KEY, v INT, at TIMESTAMP(3){mark})
  WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=3)"""
MARK = ", WATERMARK FOR at AS at - INTERVAL '1' SECOND"
QUERIES = {
    "group": "SELECT k, COUNT(*) AS n FROM s GROUP BY k",
    "distinct": "SELECT DISTINCT k FROM s",
    "distinct counts": "SELECT k, COUNT(DISTINCT v) AS n FROM s GROUP BY k",
    "first": "SELECT k, v FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS place FROM s) q WHERE place = 1",
    "except": "SELECT k FROM s EXCEPT SELECT 'b'",
    "there": "SELECT k, COUNT(*) AS n FROM s WHERE k IS NOT NULL GROUP BY k",
}
ROWS = {
    "group": [(None, 6), ("a", 2)],
    "distinct": [(None,), ("a",)],
    "distinct counts": [(None, 2), ("a", 2)],
    "first": [(None, 0), ("a", 0)],
    "except": [(None,), ("a",)],
    "there": [("a", 2)],
}


@pytest.mark.parametrize("mark", ["", MARK], ids=["plain", "watermark"])
def test_null_is_one_group_over_all_partitions(mark: str) -> None:
    world = SqlSession(Shape(partitions=3))
    world.execute(SOURCE.format(mark=mark))
    for n, query in enumerate(QUERIES.values()):
        world.execute(f"CREATE VIEW v{n} AS {query}")
    producer = world.producer()
    producer.begin()
    for partition in range(3):
        for number in range(2):
            keys = [None, b"a"] if partition == 1 else [None]
            values = [orjson.dumps({"v": number, "at": 1_700_000_000_000})] * len(keys)
            rows = [{"timestamp": 0, "key": k, "value": v, "headers": None} for k, v in zip(keys, values, strict=True)]
            producer.send(TopicPartition("s", partition), pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA))
    producer.commit()
    try:
        for n, name in enumerate(QUERIES):
            answer = world.contents([f"v{n}"])[f"v{n}"]
            found = sorted(zip(*(c.to_pylist() for c in answer.columns), strict=True), key=repr)
            assert found == sorted(ROWS[name], key=repr), name
    finally:
        world.close()
