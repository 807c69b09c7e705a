"""A project on Kafka through the ordinary commands: the same results as on the embedded log, from run to run."""

from __future__ import annotations

import json
import random
import shutil
import uuid

import pytest

from flowql.config.load import load_project
from flowql.config.storage import open_log
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.murmur2 import partition_for
from tests.flowql.cli.conftest import flowql
from tests.runtime.log.records import batch
from tests.spark_here import skip_without_spark

__all__ = ["flowql"]

pytestmark = [pytest.mark.kafka, pytest.mark.turns("long")]
START_MS = 1_700_000_000_000
SINKS = ("TOTALS", "BIG", "CITY_HOURS", "VISITS")
SQL = """
CREATE STREAM ORDERS (ID STRING KEY, CUSTOMER STRING, AMOUNT BIGINT)
  WITH (KAFKA_TOPIC='${p}orders', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE CUSTOMERS (ID STRING PRIMARY KEY, CITY STRING)
  WITH (KAFKA_TOPIC='${p}customers', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE TOTALS WITH (KAFKA_TOPIC='${p}TOTALS') AS
  SELECT CUSTOMER, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL FROM ORDERS GROUP BY CUSTOMER EMIT CHANGES;
CREATE STREAM BIG WITH (KAFKA_TOPIC='${p}BIG') AS
  SELECT O.CUSTOMER AS CUSTOMER, O.ID AS ID, O.AMOUNT AS AMOUNT, C.CITY AS CITY
  FROM ORDERS O JOIN CUSTOMERS C ON O.CUSTOMER = C.ID WHERE O.AMOUNT > 500 EMIT CHANGES;
CREATE TABLE CITY_HOURS WITH (KAFKA_TOPIC='${p}CITY_HOURS') AS
  SELECT CITY, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL FROM BIG WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 DAY)
  GROUP BY CITY EMIT CHANGES;
CREATE TABLE VISITS WITH (KAFKA_TOPIC='${p}VISITS') AS
  SELECT CUSTOMER, COUNT(*) AS N FROM ORDERS WINDOW SESSION (5 MINUTES, GRACE PERIOD 1 DAY)
  GROUP BY CUSTOMER EMIT CHANGES;
"""
QUERY = "SELECT customer, n, total FROM totals ORDER BY customer"


class Project:
    def __init__(self, folder, bootstrap):
        self.folder, self.prefix = folder, f"run-{uuid.uuid4().hex[:6]}-"
        (folder / "demo.sql").write_text(SQL)
        (folder / "flowql.yaml").write_text(
            f"name: demo\nsql: demo.sql\nvars: {{p: {self.prefix}}}\ntargets:\n  default: {{log: embedded}}\n"
            f"  kafka: {{log: kafka, kafka: {{bootstrap: '{bootstrap}', app_id: {self.prefix}app}}}}\n"
            f"  spark:\n    engine: spark\n    log: kafka\n    kafka: {{bootstrap: '{bootstrap}', app_id: {self.prefix}spark}}\n"
            "    spark: {master: 'local[2]', shuffle_partitions: 2}\n"
        )

    def log(self, target):
        return open_log(load_project(self.folder, target=target))

    def append(self, target, topic, rows):
        """One transaction of (time, key, value), by partition: the same on every log."""
        log = self.log(target)
        log.admin().create_topic(self.prefix + topic, 2)
        producer = log.producer(f"{self.prefix}source")
        producer.begin()
        for p in (0, 1):
            mine = [(at, k.encode(), json.dumps(v).encode()) for at, k, v in rows if partition_for(k.encode(), 2) == p]
            producer.send(TopicPartition(self.prefix + topic, p), batch(mine))
        producer.commit()
        producer.close()
        log.close()

    def results(self, target, sinks=SINKS):
        """Append sinks as sorted records, upsert sinks by key."""
        log, out = self.log(target), {}
        for sink in sinks:
            records = []
            for p in range(log.admin().topics()[self.prefix + sink].partitions):
                reader = log.reader(TopicPartition(self.prefix + sink, p))
                while (raw := reader.read(10_000, 1 << 24)) is not None:
                    rows = raw.records.to_pylist()
                    records += [(p, r["timestamp"], r["key"], r["value"], r["headers"]) for r in rows]
            latest = {(r[0], r[2]): r for r in records}
            kept = {
                k: r for k, r in latest.items() if r[3] is not None
            }  # which sessions were merged away depends on timing
            out[sink] = sorted(records, key=str) if sink == "BIG" else kept
        log.close()
        return out


def orders(first, count):
    rng = random.Random(first)
    return [
        (
            START_MS + n * 7_000 - rng.choice((0, 0, 30_000)),
            f"o{n}",
            {"CUSTOMER": f"c{rng.randrange(30)}", "AMOUNT": rng.randrange(1000)},
        )
        for n in range(first, first + count)
    ]


@pytest.mark.turns("kafka")
def test_a_project_gives_on_kafka_what_it_gives_on_the_embedded_log(flowql, kafka, tmp_path):
    project = Project(tmp_path, kafka)
    customers = [(START_MS - 1, f"c{n}", {"CITY": f"city {n % 4}"}) for n in range(25)]
    answers = {}
    for target in ("default", "kafka"):
        project.append(target, "customers", customers)
    for first, count in ((0, 300), (300, 200), (500, 100)):
        for target in ("default", "kafka"):
            project.append(target, "orders", orders(first, count))
            if target == "kafka" and first == 500:  # all state comes back from changelogs
                shutil.rmtree(tmp_path / ".flowql" / "kafka" / "state")
            ran = flowql("run", "-p", str(tmp_path), "-t", target, "--until-caught-up")
            assert ran.code == 0, ran.err
            answers[target] = flowql("query", "-p", str(tmp_path), "-t", target, "-o", "json", QUERY).out
        assert answers["kafka"] == answers["default"]
        assert len(json.loads(answers["kafka"])) == 30
        assert project.results("kafka") == project.results("default")
    said = json.loads(flowql("status", "-p", str(tmp_path), "-t", "kafka", "-o", "json").out)
    assert said["instance"]["log"] == "kafka"
    assert [q["lag"] for q in said["queries"]] == [0] * 4


@pytest.mark.turns("spark")
@pytest.mark.spark
def test_a_project_gives_on_spark_over_kafka_what_it_gives_on_the_embedded_log(flowql, kafka, tmp_path):
    skip_without_spark()
    project, where = Project(tmp_path, kafka), ("-p", str(tmp_path))
    customers = [(START_MS - 1, f"c{n}", {"CITY": f"city {n % 4}"}) for n in range(25)]
    answers = {}
    for target in ("default", "spark"):
        project.append(target, "customers", customers)
        project.append(target, "orders", orders(0, 300))
        project.append(target, "orders", orders(300, 200))
        ran = flowql("run", *where, "-t", target, "--until-caught-up", "-s", "BIG", "-s", "VISITS")
        assert ran.code == 0, ran.err
        answers[target] = flowql("query", *where, "-t", target, "-o", "json", "SELECT * FROM visits ORDER BY ALL").out
    assert answers["spark"] == answers["default"]
    assert len(json.loads(answers["spark"])) > 30
    sinks = ("BIG", "VISITS")
    assert project.results("spark", sinks) == project.results("default", sinks)
    said = json.loads(flowql("status", *where, "-t", "spark", "-o", "json").out)
    assert (said["instance"]["engine"], said["instance"]["log"]) == ("spark", "kafka")
    assert {q["id"]: (q["lag"], q["records_in"]) for q in said["queries"]} == {
        "CSAS_BIG": (0, 525),
        "CTAS_VISITS": (0, 500),
    }


def test_topics_of_kafka_through_the_commands(flowql, kafka, tmp_path):
    project = Project(tmp_path, kafka)
    place = ("-p", str(tmp_path), "-t", "kafka")
    (tmp_path / "some.jsonl").write_text('{"ID": "o1", "CUSTOMER": "c1", "AMOUNT": 7}\n')
    done = flowql("topic", "import", f"{project.prefix}orders", str(tmp_path / "some.jsonl"), "--key", "ID", *place)
    assert done.code == 0, done.err
    read = flowql("topic", "consume", f"{project.prefix}orders", "--from", "earliest", "--limit", "1", *place)
    assert read.code == 0, read.err
    assert json.loads(read.out)["value"]["AMOUNT"] == 7
