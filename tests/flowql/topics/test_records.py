"""Records as they are typed and as they are shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import SourceDef
from flowql.errors import CommandError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.topics.codecs import KeyWriter, RecordReader, ValueWriter
from flowql.topics.records import Record, json_lines, parse_record, read_records
from tests.flowql.topics.writing import write_records


def declared(sql: str) -> SourceDef:
    compiled = compile_project([SourceText("s", sql)])
    assert compiled.ok, compiled.diagnostics
    return compiled.plan.sources[0]


USERS = declared(
    "CREATE TABLE U (ID INT PRIMARY KEY, NAME STRING, X DECIMAL(20, 2)) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');"
)
COMMAS = declared("CREATE STREAM C (K STRING KEY, A INT, B STRING) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='DELIMITED');")
WINDOWED = declared(
    "CREATE STREAM W (K STRING KEY, N INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 SECOND');"
)


def parsed(text: str, source: SourceDef | None = None) -> Record:
    return parse_record(text, KeyWriter(source), ValueWriter(source), 7)


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("ada:null", None, Record(b"ada", None, 7)),
        ('ada:{"X": [1, 2]}', None, Record(b"ada", b'{"X":[1,2]}', 7)),
        ('ada:"hi: there"', None, Record(b"ada", b"hi: there", 7)),
        (":1", None, Record(b"", b"1", 7)),
        ("12:null", USERS, Record(b"\0\0\0\x0c", None, 7)),
        ('{"ID": 1, "NAME": "x"}', USERS, Record(b"\0\0\0\1", b'{"ID":1,"NAME":"x"}', 7)),
        ('{"NAME": "x"}', USERS, Record(None, b'{"NAME":"x"}', 7)),
        ('{"key": 1, "value": null, "timestamp": 9}', USERS, Record(b"\0\0\0\1", None, 9)),
        ('{"key": {"ID": 1}, "value": {}, "partition": 2}', USERS, Record(b"\0\0\0\1", b"{}", 7, (), 2)),
        ('{"key": {"base64": "/w=="}, "value": {"base64": "AA=="}}', None, Record(b"\xff", b"\0", 7)),
        ('{"value": 1, "headers": [{"key": "h", "value": "v"}]}', None, Record(None, b"1", 7, (("h", b"v"),))),
        ('k:{"A": 1, "B": "x"}', COMMAS, Record(b"k", b"1,x", 7)),
        ('{"value": 1, "other": 2}', None, Record(None, b'{"value":1,"other":2}', 7)),
    ],
)
def test_what_is_typed_is_a_record(text: str, source: SourceDef | None, expected: Record) -> None:
    assert parsed(text, source) == expected


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("ada", None),
        ("ada:lovelace", None),
        ("{", None),
        ("x:null", USERS),
        ('{"key": "x", "value": 1}', USERS),
        ('{"value":1,"timestamp":"now"}', None),
    ],
)
def test_what_is_no_record_is_refused(text: str, source: SourceDef | None) -> None:
    with pytest.raises(CommandError) as caught:
        parsed(text, source)
    assert caught.value.code == "FQ5011"


def test_keys_with_a_window_are_not_typed() -> None:
    with pytest.raises(CommandError):
        KeyWriter(WINDOWED)


@pytest.mark.parametrize(
    ("source", "key", "value", "shown_key", "shown_value"),
    [
        (USERS, b"\0\0\0\x0c", b'{"X":1.10}', 12, '{"X":1.10}'),
        (USERS, b"odd", b"not json", "odd", '"not json"'),
        (None, b"12", b"\xff\xfe", "12", '{"base64":"//4="}'),
        (None, None, None, None, "null"),
        (COMMAS, b"k", b'1,"a,b"', "k", '{"A":1,"B":"a,b"}'),
        (COMMAS, b"k", b"x", "k", '"x"'),
        (WINDOWED, b"k" + (5000).to_bytes(8, "big"), b"{}", {"K": "k", "WINDOWSTART": 5000, "WINDOWEND": 6000}, "{}"),
        (None, b"k", b'{"a":\n1}', "k", '{"a":1}'),
    ],
)
def test_records_are_shown(
    source: SourceDef | None, key: bytes | None, value: bytes | None, shown_key: Any, shown_value: str
) -> None:
    log = MemoryLog()
    log.create_topic("t", 1)
    write_records(log, "t", 1, [Record(key, value, 5, (("h", b"v"), ("n", None)))], "produce")
    tp = TopicPartition("t", 0)
    (batch,) = read_records(log, {tp: 0}, {tp: 1})
    assert batch is not None
    (line,) = json_lines(batch, RecordReader(source))
    assert line.endswith(b"\n")
    assert b'"value":' + shown_value.encode() in line
    assert json.loads(line) == {
        "topic": "t", "partition": 0, "offset": 0, "timestamp": 5, "key": shown_key, "value": json.loads(shown_value),
        "headers": [{"key": "h", "value": "v"}, {"key": "n", "value": None}],
    }  # fmt: skip


def test_what_is_shown_can_be_typed_again() -> None:
    log = MemoryLog()
    for topic in ("a", "b"):
        log.create_topic(topic, 2)
    write_records(log, "a", 2, [parsed(f'{n}:{{"NAME":"n{n}"}}', USERS) for n in range(20)], "p1")

    def shown(topic: str) -> list[bytes]:
        tps = [TopicPartition(topic, p) for p in range(2)]
        ends = {tp: log.end_offset(tp) for tp in tps}
        return [
            x for b in read_records(log, dict.fromkeys(tps, 0), ends) if b for x in json_lines(b, RecordReader(USERS))
        ]

    first = shown("a")
    assert len(first) == 20
    write_records(log, "b", 2, [parsed(line.decode(), USERS) for line in first], "p2")
    assert [x.replace(b'"b"', b'"a"', 1) for x in shown("b")] == first


def test_following_gives_what_comes_later() -> None:
    log = MemoryLog()
    log.create_topic("t", 1)
    stream = read_records(log, {TopicPartition("t", 0): 0}, None)
    assert next(stream) is None
    write_records(log, "t", 1, [Record(b"k", b"1", 5)], "p")
    batch = next(stream)
    assert batch is not None
    assert batch.records.num_rows == 1
    assert next(stream) is None
    stream.close()
