"""Tables over topics with Debezium's change events: what the source's table holds, whatever is repeated, compacted or broken."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.task.dead_letters import topic_name
from tests.runtime.log.records import produce, read_all
from tests.slt.session import APPLICATION, Shape, SqlSession

TABLE = (
    "CREATE TABLE c (id INT PRIMARY KEY, name TEXT, v BIGINT) "
    "WITH ('connector' = 'kafka', 'topic' = 'db.c', 'format' = 'debezium-json')"
)
Record = tuple[bytes | None, bytes | None]
KEY_SCHEMA = {"type": "struct", "fields": [{"field": "id", "type": "int32"}]}


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    """The part of a record that describes it."""
    return {"type": "struct", "fields": [{"field": side, "fields": list(fields)} for side in ("before", "after")]}


def event(before: Any, after: Any, op: str, described: Any = None) -> bytes:
    payload = {"before": before, "after": after, "source": {"name": "db", "lsn": 7}, "op": op, "ts_ms": 1}
    return json.dumps({"schema": described, "payload": payload} if described is not None else payload).encode()


def key_of(row_id: int, described: bool = False) -> bytes:
    payload = {"id": row_id}
    return json.dumps({"schema": KEY_SCHEMA, "payload": payload} if described else payload).encode()


class Topic:
    """A world with tables, and their topics."""

    def __init__(self, *statements: str, partitions: int = 1, vector: bool | None = None) -> None:
        self.world = SqlSession(Shape(vector=vector, partitions=partitions))
        self.partitions = partitions
        for statement in statements:
            self.world.execute(statement)

    def write(self, *records: Record, topic: str = "db.c") -> None:
        for key, value in records:
            partition = partition_for(key, self.partitions) if key is not None else 0
            produce(self.world._log, "connector", (TopicPartition(topic, partition), [(1_700_000_000_000, key, value)]))

    def rows(self, view: str = "w") -> Counter[tuple[Any, ...]]:
        found = self.world.contents([view])[view]
        return Counter(zip(*(c.to_pylist() for c in found.columns), strict=True))

    def letters(self) -> list[dict[str, Any]]:
        self.world.settle()
        found = read_all(self.world._log, TopicPartition(topic_name(APPLICATION), 0))
        return [json.loads(value) for *_, value in found]


def change(rng: random.Random, table: dict[int, dict[str, Any]], described: bool) -> list[Record]:
    """One change of the source's table, and the records that its connector writes."""
    row_id = rng.randrange(8)
    before, part = table.get(row_id), schema({"field": "id", "type": "int32"}) if described else None
    key = key_of(row_id, described)
    if before is not None and rng.random() < 0.4:
        del table[row_id]
        full = before if rng.random() < 0.5 else {"id": row_id, "name": None, "v": None}
        old = full if rng.random() < 0.9 else None  # REPLICA IDENTITY NOTHING
        return [(key, event(old, None, "d", part)), (key, None)]
    after = {"id": row_id, "name": rng.choice(["ann", "bob", None]), "v": rng.choice([None, 3, -1, 2**40])}
    table[row_id] = after
    if before is None:
        return [(key, event(None, after, rng.choice("cr"), part))]
    return [(key, event(rng.choice([before, None]), after, "u", part))]


@pytest.mark.parametrize("seed", range(6))
def test_a_table_is_what_the_source_s_table_is(seed: int) -> None:
    """Records are repeated, as a connector does that is restarted; the world restarts as well."""
    rng = random.Random(seed)
    topic = Topic(
        TABLE,
        "CREATE VIEW w AS SELECT * FROM c",
        "CREATE VIEW g AS SELECT name, count(*) AS n, sum(v) AS s FROM c GROUP BY name",
        "CREATE VIEW j AS SELECT a.id, b.v FROM c a JOIN c b ON a.name = b.name AND a.id <= b.id",
        partitions=1 + seed % 3,
        vector=(None, True, False)[seed % 3],
    )
    table: dict[int, dict[str, Any]] = {}
    written: list[Record] = []
    for _ in range(30):
        records = change(rng, table, described=seed % 2 == 0)
        topic.write(*records)
        written += records
        if rng.random() < 0.2:
            topic.write(*written[-rng.randrange(1, 6) :])
        if rng.random() < 0.1:
            topic.world.restart()
        rows = list(table.values())
        assert topic.rows() == Counter((r["id"], r["name"], r["v"]) for r in rows), f"seed {seed}"
    groups: dict[Any, list[Any]] = {}
    for r in rows:
        groups.setdefault(r["name"], []).append(r["v"])
    sums = [[v for v in g if v is not None] for g in groups.values()]
    expected = [(n, len(g), sum(s) if s else None) for (n, g), s in zip(groups.items(), sums, strict=True)]
    assert topic.rows("g") == Counter(expected)
    pairs = [
        (a["id"], b["v"]) for a in rows for b in rows if a["name"] and a["name"] == b["name"] and a["id"] <= b["id"]
    ]
    assert topic.rows("j") == Counter(pairs)
    assert not topic.letters()
    asked = topic.world.ask("SELECT id, name, v FROM c").to_pylist()
    assert Counter(map(tuple, map(dict.values, asked))) == topic.rows()
    topic.world.close()


def test_a_tombstone_deletes_where_compaction_removed_the_deletion() -> None:
    topic = Topic(TABLE, "CREATE VIEW w AS SELECT id FROM c")
    topic.write((key_of(1), event(None, {"id": 1}, "c")), (key_of(2), event(None, {"id": 2}, "c")), (key_of(1), None))
    assert topic.rows() == Counter([(2,)])
    topic.write((b"other", None), (None, None), (key_of(2, described=True), None))
    assert topic.rows() == Counter()
    assert not topic.letters()
    topic.world.close()


BROKEN = {
    b'{"op": ': "not JSON",
    b"[1]": "not an object",
    b'{"id": 1, "v": 2}': "it has no `op`",
    event(None, None, "t"): "TRUNCATE",
    event(None, None, "m"): "pg_logical_emit_message",
    event(None, None, "x"): "not c, r, u or d",
    event(None, None, "c"): "without a row in `after`",
    event(None, '{"_id": 1}', "c"): "MongoDB",
    event({"name": "ann"}, None, "d"): "neither in `before`",
    event(None, {"name": "ann"}, "c"): "needs a key",
    event({"id": 1}, {"id": 2}, "u"): "changes id",
    event(None, {"id": 1, "v": "much"}, "u"): "v",
    event(None, {"id": 2**31}, "u"): "not a valid INT",
    event(None, {"id": 1, "name": "__debezium_unavailable_value"}, "u"): "REPLICA IDENTITY FULL",
    b'{"status": "BEGIN", "id": "571", "event_count": null}': "transaction",
    b'{"ddl": "ALTER TABLE c", "databaseName": "db"}': "schema at the source",
    b'{"op": ["c"], "after": {"id": 1}}': "not c, r, u or d",
}


@pytest.mark.parametrize("value", BROKEN)
def test_what_is_no_change_of_a_row_is_a_dead_letter_with_its_bytes(value: bytes) -> None:
    topic = Topic(TABLE, "CREATE VIEW w AS SELECT id, name, v FROM c")
    topic.write((key_of(1), event(None, {"id": 1, "name": "x", "v": 1}, "c")), (b"?", value))
    topic.write((key_of(3), event(None, {"id": 3, "name": "x", "v": 1}, "c")))
    assert topic.rows() == Counter([(1, "x", 1), (3, "x", 1)])
    (letter,) = topic.letters()
    assert BROKEN[value] in letter["MESSAGE"]
    assert (base64.b64decode(letter["KEY"]), base64.b64decode(letter["VALUE"])) == (b"?", value)
    topic.world.close()


MARK = "__debezium_unavailable_value"
UNAVAILABLE = {
    "names": [["ann", MARK], ["1" * 3, "ae4e3e72-0b2c-3bd6-9ae0-0d6b0e5e5d0e"]],
    "numbers": [list(MARK.encode()), [95, 95]],
    "entries": [{MARK: MARK}, {"a": "b"}],
    "data": [MARK.encode().hex(), "5f5f"],
}


@pytest.mark.parametrize("column", UNAVAILABLE)
def test_an_unchanged_value_that_the_log_did_not_hold_is_no_data_inside_other_values(column: str) -> None:
    """The first value of each pair stands for a TOASTed column that did not change; the second is data."""
    topic = Topic(
        "CREATE TABLE c (id INT PRIMARY KEY, names TEXT[], numbers BIGINT[], entries MAP<TEXT, TEXT>, data TEXT) "
        "WITH ('connector' = 'kafka', 'topic' = 'db.c', 'format' = 'debezium-json')",
        f"CREATE VIEW w AS SELECT id, {column} IS NOT NULL AS known FROM c",
    )
    missing, known = UNAVAILABLE[column]
    topic.write((key_of(1), event(None, {"id": 1, column: known}, "c")))
    topic.write((key_of(1), event(None, {"id": 1, column: missing}, "u")))
    assert topic.rows() == Counter([(1, True)])
    (letter,) = topic.letters()
    assert "REPLICA IDENTITY FULL" in letter["MESSAGE"]
    topic.world.close()


def test_a_column_that_no_view_reads_spoils_no_record() -> None:
    topic = Topic(TABLE, "CREATE VIEW w AS SELECT id FROM c")
    topic.write((key_of(1), event(None, {"id": 1, "name": "__debezium_unavailable_value", "v": "much"}, "u")))
    assert topic.rows() == Counter([(1,)])
    topic.world.close()


TYPED = (
    "CREATE TABLE c (id INT PRIMARY KEY, d DATE, t TIME, at TIMESTAMP, z TIMESTAMPTZ, price NUMERIC(12, 3), said TEXT, ok BOOLEAN) "
    "WITH (connector = 'kafka', topic = 'db.c') FORMAT DEBEZIUM ENCODE JSON"
)
AT = datetime(2024, 5, 1, 12, 0, 0, 123_000)
ENCODED = {
    "adaptive": (
        schema(
            {"field": "d", "name": "io.debezium.time.Date"},
            {"field": "t", "name": "io.debezium.time.MicroTime"},
            {"field": "at", "name": "io.debezium.time.MicroTimestamp"},
            {"field": "z", "name": "io.debezium.time.ZonedTimestamp"},
            {"field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
            {"field": "said", "name": "io.debezium.data.VariableScaleDecimal"},
        ),
        {
            "d": 19_844, "t": 43_200_123_456, "at": 1_714_564_800_123_456, "z": "2024-05-01T14:00:00.123456+02:00", "price": "APo=",
            "said": {"scale": 3, "value": "/w=="}, "ok": 1,
        },
        "-0.001",
    ),
    "connect": (
        schema(
            {"field": "d", "name": "org.apache.kafka.connect.data.Date"},
            {"field": "t", "name": "org.apache.kafka.connect.data.Time"},
            {"field": "at", "name": "org.apache.kafka.connect.data.Timestamp"},
            {"field": "z", "name": "org.apache.kafka.connect.data.Timestamp"},
        ),
        {"d": 19_844, "t": 43_200_123, "at": 1_714_564_800_123, "z": 1_714_564_800_123, "price": "2.50", "said": 7, "ok": True},
        "7",
    ),
    "nanoseconds": (
        schema(
            {"field": "t", "name": "io.debezium.time.NanoTime"},
            {"field": "at", "name": "io.debezium.time.NanoTimestamp"},
            {"field": "z", "name": "io.debezium.time.NanoTimestamp"},
        ),
        {
            "d": 19_844, "t": 43_200_123_456_789, "at": 1_714_564_800_123_456_789, "z": 1_714_564_800_123_999_999, "price": 2.5, "said": "x",
            "ok": True,
        },
        "x",
    ),
    "without a schema": (
        None,
        {
            "d": "2024-05-01", "t": "12:00:00.123456Z", "at": "2024-05-01 12:00:00.123456", "z": 1_714_564_800_123, "price": 2.5, "said": "x",
            "ok": True,
        },
        "x",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", ENCODED)
def test_times_and_decimals_as_the_schema_says(how: str) -> None:
    described, row, said = ENCODED[how]
    topic = Topic(TYPED, "CREATE VIEW w AS SELECT d, t, at, z, price, said, ok FROM c")
    topic.write((None, event(None, {"id": 1, **row}, "c", described)))
    assert not topic.letters()
    ((d, t, at, z, price, found, ok),) = topic.rows()
    assert (d, t, at, z) == (AT.date(), AT.time(), AT, AT)
    assert (price, found, ok) == (Decimal("2.500"), said, True)
    topic.world.close()


@pytest.mark.parametrize("how", ENCODED)
def test_microseconds_are_kept_by_columns_that_have_them(how: str) -> None:
    described, row, _ = ENCODED[how]
    exact = TYPED.replace("TIMESTAMP,", "TIMESTAMP(6),").replace("TIMESTAMPTZ,", "TIMESTAMPTZ(6),")
    topic = Topic(exact, "CREATE VIEW w AS SELECT at, z FROM c")
    topic.write((None, event(None, {"id": 1, **row}, "c", described)))
    if how == "without a schema":  # a number that is one of milliseconds, or of a time near 1970
        (letter,) = topic.letters()
        assert "time near 1970" in letter["MESSAGE"]
    else:
        finer = AT if how == "connect" else AT.replace(microsecond=123_456)
        ((at, z),) = topic.rows()
        assert (at, z) == (finer, AT.replace(microsecond=123_999) if how == "nanoseconds" else finer)
    topic.world.close()


@pytest.mark.parametrize("at", [1_714_564_800_123_456, -(10**15)])
def test_a_number_that_may_be_microseconds_is_a_dead_letter(at: int) -> None:
    topic = Topic(TYPED, "CREATE VIEW w AS SELECT id, at FROM c")
    topic.write((None, event(None, {"id": 1, "at": at}, "c")))
    (letter,) = topic.letters()
    assert "time.precision.mode" in letter["MESSAGE"]
    topic.world.close()


def test_records_that_replace_each_other_have_an_object_as_key() -> None:
    """Flink's upsert-kafka and RisingWave's FORMAT UPSERT."""
    for clause in (
        "WITH ('connector' = 'upsert-kafka', 'topic' = 'db.c', 'key.format' = 'json', 'value.format' = 'json')",
        "WITH (connector = 'kafka', topic = 'db.c') FORMAT UPSERT ENCODE JSON",
    ):
        topic = Topic(
            f"CREATE TABLE c (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED) {clause}",
            "CREATE VIEW w AS SELECT * FROM c",
            partitions=2,
        )
        topic.write(
            (key_of(1), b'{"id": 1, "v": 2}'), (key_of(2, described=True), b'{"v": 3}'), (key_of(1), b'{"v": 4}')
        )
        assert topic.rows() == Counter([(1, 4), (2, 3)])
        topic.write((key_of(2, described=True), None), (b"7", b'{"v": 3}'))
        assert topic.rows() == Counter([(1, 4)])
        assert len(topic.letters()) == 1
        topic.world.close()


def test_what_is_inserted_into_such_a_table_is_read_again() -> None:
    topic = Topic(
        "CREATE TABLE c (id INT PRIMARY KEY, v INT) WITH (KAFKA_TOPIC = 'db.c', KEY_FORMAT = 'JSON_OBJECT', VALUE_FORMAT = 'JSON')",
        "CREATE VIEW w AS SELECT * FROM c",
        "INSERT INTO c VALUES (1, 2), (2, 3), (1, 4)",
    )
    assert topic.rows() == Counter([(1, 4), (2, 3)])
    ((*_, key, _value), *_) = read_all(topic.world._log, TopicPartition("db.c", 0))
    assert key == b'{"id":1}'
    topic.world.close()


def test_plain_records_are_rows_that_only_come() -> None:
    topic = Topic(
        "CREATE TABLE c (id INT, v INT) WITH ('connector' = 'kafka', 'topic' = 'db.c', 'format' = 'json')",
        "CREATE VIEW w AS SELECT id, count(*) AS n FROM c GROUP BY id",
    )
    topic.write((None, b'{"id": 1, "v": 2}'), (None, b'{"id": 1, "v": 2}'))
    assert topic.world.ask("SELECT id, n FROM w").to_pylist() == [{"id": 1, "n": 2}]
    topic.world.close()


@pytest.mark.parametrize(
    ("statement", "code", "named"),
    [
        ("INSERT INTO c VALUES (1, 'x', 2)", "FQ2040", "whose rows Debezium writes"),
        ("DELETE FROM c", "FQ", "c"),
        ("CREATE VIEW w WITH (VALUE_FORMAT = 'DEBEZIUM_JSON') AS SELECT * FROM c", "FQ2090", "not written"),
        (TABLE.replace("TABLE c", "TABLE d").replace(" PRIMARY KEY", ""), "FQ2022", "PRIMARY KEY"),
        (TABLE.replace("TABLE c", "STREAM d").replace(" PRIMARY KEY", ""), "FQ2025", "a stream"),
        (
            "CREATE TABLE d (id INT PRIMARY KEY) WITH (KAFKA_TOPIC = 'd', KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'DEBEZIUM_JSON')",
            "FQ2011",
            "JSON_OBJECT",
        ),
        (
            "CREATE TABLE d (id INT PRIMARY KEY, v INT WITH (ON_ERROR = 'null')) WITH (KAFKA_TOPIC = 'd', VALUE_FORMAT = 'DEBEZIUM_JSON')",
            "FQ2090",
            "ON_ERROR",
        ),
        ("CREATE TABLE d (id INT PRIMARY KEY) WITH (KAFKA_TOPIC = 'd', VALUE_FORMAT = 'JSON_OBJECT')", "FQ2013", "value"),
        ("CREATE TABLE d (id INT) WITH (connector = 'jdbc', topic = 'd', format = 'json')", "FQ1901", "'jdbc'"),
        ("CREATE TABLE d (id INT) WITH (connector = 'kafka', format = 'json')", "FQ2014", "topic"),
        ("CREATE TABLE d (id INT) WITH (connector = 'kafka', topic = 'd')", "FQ2014", "format"),
        ("CREATE TABLE d (id INT) WITH (connector = 'kafka', topic = 'd', format = 'maxwell-json')", "FQ1901", "maxwell"),
        ("CREATE TABLE d (id INT) WITH (connector = 'kafka', topic = 'd') FORMAT CANAL ENCODE JSON", "FQ1901", "CANAL"),
    ],
)  # fmt: skip
def test_what_such_a_table_is_not(statement: str, code: str, named: str) -> None:
    topic = Topic(TABLE)
    with pytest.raises(CompileError) as refused:
        topic.world.execute(statement)
    (found,) = refused.value.diagnostics
    assert found.code.startswith(code)
    assert named in found.title
    assert found.span.line == 1
    topic.world.close()
