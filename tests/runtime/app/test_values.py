"""Every operator with nasty values: a query beside it is as in a run without them, and so is the query, but for dead letters.

What a value means is told elsewhere (functions, formats); here nothing may stop for one, and none may change the rows of others.
"""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest

from flowql.runtime.app.query_state import RUNNING
from flowql.runtime.log.base import TopicPartition
from tests.runtime.app.harness import InstanceHarness

SOURCES = """
CREATE STREAM S (K STRING KEY, L BIGINT, D DOUBLE, C DECIMAL(20, 4), T STRING, A DATE, AT TIMESTAMP, N STRUCT<X ARRAY<BIGINT>>)
  WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE TS (K STRING PRIMARY KEY, L BIGINT, D DOUBLE, C DECIMAL(20, 4), T STRING, A DATE, AT TIMESTAMP, N STRUCT<X ARRAY<BIGINT>>)
  WITH (KAFKA_TOPIC='ts', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM U (K STRING KEY, V BIGINT) WITH (KAFKA_TOPIC='u', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE BESIDE AS SELECT K, SUM(V) AS N FROM U GROUP BY K EMIT CHANGES;
"""
LONG_MAX, LONG_MIN = 2**63 - 1, -(2**63)
# Raw text of a column: what JSON can say and what it cannot.
NASTY = {
    "L": [str(LONG_MAX), str(LONG_MIN), str(2**63), "1e400", "-0.0", '""', "null"],
    "D": ["1.7976931348623157e308", "1e309", "-0.0", "5e-324", "NaN", '"NaN"', '"-Infinity"', "null"],
    "C": ["9999999999999999.9999", "99999999999999999999999999999999999999999.1", "0.00001", '"1E+30"', "null"],
    "T": ['""', '"\\u0000"', '"\\ud800"', '"' + "x" * 200_000 + '"', "[" * 500 + "]" * 500, "null"],
    "A": [str(2**31 - 1), str(-(2**31)), "2932896", '"9999-12-31"', str(LONG_MAX), "null"],
    "AT": [str(LONG_MAX), str(LONG_MIN), "253402300800000", '"0001-01-01"', "null"],
    "N": ['{"X": [' + ",".join([str(LONG_MAX)] * 3) + "]}", '{"X": null}', "[[[[]]]]", '{"X": [{}]}', "null"],
}
QUERIES = {
    "copy": "CREATE STREAM R AS SELECT K, {c} AS V FROM S EMIT CHANGES;",
    "group": "CREATE TABLE R WITH (KEY_FORMAT='JSON') AS SELECT {c} AS G, COUNT(*) AS V FROM S GROUP BY {c} EMIT CHANGES;",
    "window": "CREATE TABLE R AS SELECT K, LATEST_BY_OFFSET({c}) AS V FROM S WINDOW TUMBLING (SIZE 1 DAY) GROUP BY K EMIT CHANGES;",
    "session": "CREATE TABLE R AS SELECT K, COUNT({c}) AS V, COLLECT_LIST({c}) AS W FROM S WINDOW SESSION (1 DAY) GROUP BY K EMIT CHANGES;",
    "last": "CREATE TABLE R AS SELECT K, LATEST_BY_OFFSET({c}) AS V FROM S GROUP BY K EMIT CHANGES;",
    "distinct": "CREATE TABLE R AS SELECT K, COUNT_DISTINCT({c}) AS V FROM S GROUP BY K EMIT CHANGES;",
    "table": "CREATE TABLE R AS SELECT K, {c} AS V FROM TS EMIT CHANGES;",
    "stream-stream": "CREATE STREAM R AS SELECT S.K AS K, S.{c} AS V, U.V AS W FROM S LEFT JOIN U WITHIN 1 DAY ON S.K = U.K EMIT CHANGES;",
    "stream-table": "CREATE STREAM R AS SELECT U.K AS K, TS.{c} AS V FROM U LEFT JOIN TS ON U.K = TS.K EMIT CHANGES;",
    "table of table": "CREATE TABLE R WITH (KEY_FORMAT='JSON') AS SELECT {c} AS G, COUNT(*) AS V FROM TS GROUP BY {c} EMIT CHANGES;",
}
GOOD = '{"L": 1, "D": 1.5, "C": 2.25, "T": "a", "A": 3, "AT": 4, "N": {"X": [1]}}'


def record(column, text):
    """The good record with one column replaced by a raw text."""
    row = orjson.loads(GOOD)
    return (
        "{" + ",".join(f'"{c}": {text if c == column else orjson.dumps(v).decode()}' for c, v in row.items()) + "}"
    ).encode()


def send(world, topic, rows):
    world.send_text(topic, rows)


class TextHarness(InstanceHarness):
    """Its keys are texts."""

    def send_text(self, topic, rows):
        self.producer.begin()
        for key, value, at in rows:
            part = self.encode([(None, value, at)])
            data = None if key is None else key.encode("utf-8", "surrogatepass")
            part = part.set_column(1, part.schema.field(1), pa.array([data], pa.binary()))
            self.producer.send(TopicPartition(topic, 0), part)
        self.producer.commit()


def done(world):
    """Caught up, or somebody fails again and again."""
    for _ in range(60):
        world.driver.round()
    world.driver.commit()


def live(sql, column, texts, *, vector):
    world = TextHarness(SOURCES + sql, vector=vector)
    rows = [
        ("good", GOOD.encode(), 1),
        *((f"bad {n}", record(column, t), 2 + n) for n, t in enumerate(texts)),
        ("later", GOOD.encode(), 90),
    ]
    for topic in ("s", "ts"):
        send(world, topic, rows)
    send(world, "u", [(k, b'{"V": 5}', at) for k, _, at in rows])
    done(world)
    return world


def of_good_keys(world):
    """Results of the keys whose records are as they should be."""
    return [(k, v) for _, _, k, v, _ in world.records("R") if k.startswith((b"good", b"later"))]


@pytest.mark.turns("cases")
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("column", NASTY)
@pytest.mark.parametrize("query", QUERIES)
def test_no_value_stops_its_query_or_another(query, column, vector):
    world = live(QUERIES[query].format(c=column), column, NASTY[column], vector=vector)
    states = world.instance.query_states
    assert not world.instance.commit.blocked
    for name in world.instance.queries:
        assert states.of(name).state is RUNNING, states.of(name).reason
    assert world.table("BESIDE") == sorted(
        (k, 5) for k in ("good", "later", *(f"bad {n}" for n in range(len(NASTY[column]))))
    )
    if query not in ("group", "table of table"):
        assert of_good_keys(world) == of_good_keys(live(QUERIES[query].format(c=column), column, [], vector=vector))
    name = next(n for n in world.instance.queries if n.endswith("_R"))
    letters = [(x["TOPIC"], x["OFFSET"]) for x in world.dead_letters(name)]
    assert len(letters) == len(set(letters)), "a letter per record"


@pytest.mark.turns("cases")
@pytest.mark.parametrize("key", [None, "", "\x00", "\ud800", "x" * 100_000])
@pytest.mark.parametrize("query", QUERIES)
def test_no_key_does(query, key):
    world = TextHarness(SOURCES + QUERIES[query].format(c="L"))
    for topic in ("s", "ts"):
        send(world, topic, [(k, GOOD.encode(), n) for n, k in enumerate(("good", key, "later"))])
    send(world, "u", [(k, b'{"V": 5}', 9) for k in ("good", key, "later")])
    done(world)
    assert not world.instance.commit.blocked
    for name in world.instance.queries:
        assert world.instance.query_states.of(name).state is RUNNING, world.instance.query_states.of(name).reason
    assert {("good", 5), ("later", 5)} <= set(world.table("BESIDE"))
