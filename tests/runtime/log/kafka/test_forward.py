"""Texts that go forward on a real broker, with a single instance: the recorded offsets tell which text each record goes through."""

from __future__ import annotations

import time
import uuid
from collections import Counter

import orjson
import pyarrow as pa
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.deploy.engine import open_on
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog

pytestmark = pytest.mark.kafka
WAIT_S = 120.0
SQL = """CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='{app}-s', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM BIG WITH (KAFKA_TOPIC='{app}-big') AS SELECT K, V * {over} AS W, V FROM S WHERE V % {over} = 0;
CREATE TABLE BY_REST WITH (KAFKA_TOPIC='{app}-by-rest') AS SELECT V % 3 AS R, COUNT(*) AS N FROM S WHERE V % {over} = 0 GROUP BY V % 3;
"""


class ForwardHarness:
    def __init__(self, bootstrap, folder):
        self.app, self.sent, self.bootstrap = f"f{uuid.uuid4().hex[:8]}", 0, bootstrap
        self.outside = KafkaLog(Connection(bootstrap), f"{self.app}-outside")
        self.start(folder)
        self.producer = self.outside.producer(f"{self.app}-feed")

    def start(self, folder):
        """With the state of a folder, which may be empty."""
        log = KafkaLog(Connection(self.bootstrap), self.app)
        self.instance = open_on(log, folder / "state", InstanceConfig(self.app, changelogs=True))
        self.instance.start()
        self.instance.resume()

    def deploy(self, over):
        compiled = compile_project([SourceText("t.sql", SQL.format(app=self.app, over=over))])
        assert compiled.ok, compiled.diagnostics
        onward = [q.id for q in self.instance.plan.queries]
        return [c.action for c in self.instance.deploy(compiled.plan, forward=onward)]

    def send(self, n):
        self.producer.begin()
        for p in range(2):
            mine = [v for v in range(self.sent, self.sent + n) if v % 2 == p]
            columns = [
                [1000 + v for v in mine],
                [b"k"] * len(mine),
                [b'{"V":%d}' % v for v in mine],
                [None] * len(mine),
            ]
            arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA)
            self.producer.send(TopicPartition(f"{self.app}-s", p), batch)
        self.producer.commit()
        self.sent += n

    def settle(self):
        ends, limit = source_ends(self.instance), time.monotonic() + WAIT_S
        while not caught_up(self.instance, ends):
            assert time.monotonic() < limit, "never caught up"
            time.sleep(0.02)

    def records(self, topic):
        """(partition, offset, V or the row)."""
        for p in range(2):
            reader = self.outside.reader(TopicPartition(f"{self.app}-{topic}", p), EARLIEST)
            while (batch := reader.read(10_000, 1 << 24)) is not None:
                for row in batch.records.select(["offset", "value"]).to_pylist():
                    yield p, row["offset"], orjson.loads(row["value"])

    def by_definitions(self, query, overs):
        """What a query lets through, and by which text."""
        begins = [{(t, p): at for t, p, at in f.reads} for f in self.instance.deployed.forwards if f.query == query]
        for p, offset, value in self.records("s"):
            over = overs[sum(offset >= b[f"{self.app}-s", p] for b in begins)]
            if value["V"] % over == 0:
                yield value["V"], over

    def wrong(self, overs):
        found = Counter((v["V"], v["W"]) for _, _, v in self.records("big"))
        expected = Counter((v, v * over) for v, over in self.by_definitions("CSAS_BIG", overs))
        counts = dict(self.instance.snapshot().scan("BY_REST"))
        wanted = Counter(v % 3 for v, _ in self.by_definitions("CTAS_BY_REST", overs))
        return found != expected, {k[0]: v[0] for k, v in counts.items()} != wanted


def test_the_old_text_below_the_recorded_offsets_and_the_new_one_above(kafka, tmp_path):
    world = ForwardHarness(kafka, tmp_path / "one")
    world.deploy(2)
    overs = [2]
    for over in (5, 3):
        for _ in range(5):
            world.send(300)
        assert world.deploy(over) == ["forward", "forward"]
        overs.append(over)
    world.send(300)
    world.settle()
    assert world.wrong(overs) == (False, False)
    world.instance.stop()
    world.start(tmp_path / "another")  # its state comes from changelogs, of all texts
    assert len(world.instance.deployed.forwards) == 4
    world.send(300)
    world.settle()
    assert world.wrong(overs) == (False, False)
    world.instance.stop()
