"""Files into topics: bytes, keys, times, partitions; and what is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.errors import CommandError
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.topics import import_files, importing
from flowql.topics.import_files import file_format
from flowql.topics.import_job import Job, make_topic
from flowql.topics.importing import ImportResult, group_of, import_file

NOW = 1_000


def source(columns: str, *, kind: str = "STREAM", **properties: str) -> SourceDef:
    given = {"KAFKA_TOPIC": "t", "VALUE_FORMAT": "JSON", **properties}
    options = ", ".join(f"{k}='{v}'" for k, v in given.items())
    compiled = compile_project([SourceText("s", f"CREATE {kind} S ({columns}) WITH ({options});")])
    assert compiled.ok, compiled.diagnostics
    return compiled.plan.sources[0]


def imported(file: Path, text: str, *, partitions: int = 1, **options: Any) -> list[dict[str, Any]]:
    """The records of all partitions, partition by partition."""
    file.write_text(text)
    log = MemoryLog()
    job = Job("t", partitions, file, file_format(file), options.pop("source", None), NOW, **options)
    count = run(log, job).records
    found: list[dict[str, Any]] = []
    for p in range(partitions):
        reader = log.reader(TopicPartition("t", p))
        while (batch := reader.read(10_000, 1 << 20)) is not None:
            found += [{**r, "partition": p} for r in batch.records.to_pylist()]
    assert count == len(found)
    return found


def run(log: Log, job: Job) -> ImportResult:
    make_topic(log, job)
    return import_file(log, job, lambda n: None)


def lines(rows: list[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(r) + "\n" for r in rows)


def test_lines_are_kept_as_they_are(tmp_path: Path) -> None:
    text = '{"A": 1.10, "B":"é\\n"}\r\n\n  {"A":12345678901234567890.123}'
    found = imported(tmp_path / "a.jsonl", text)
    assert [r["value"] for r in found] == [
        b'{"A": 1.10, "B":"\xc3\xa9\\n"}',
        b'{"A":12345678901234567890.123}',
    ]
    assert [(r["key"], r["timestamp"], r["offset"]) for r in found] == [(None, NOW, 0), (None, NOW, 1)]


def test_records_go_where_kafka_would_send_them_and_keep_their_order(tmp_path: Path) -> None:
    chance = random.Random(5)
    rows = [{"K": f"k{chance.randrange(50)}", "N": n} for n in range(500)]
    found = imported(tmp_path / "a.jsonl", lines(rows), partitions=3, keys=("k",))
    assert {r["partition"] for r in found} == {0, 1, 2}
    for r in found:
        assert r["partition"] == partition_for(r["key"], 3)
        assert json.loads(r["value"])["K"].encode() == r["key"]
    for p in range(3):
        numbers = [json.loads(r["value"])["N"] for r in found if r["partition"] == p]
        assert numbers == sorted(numbers)


def test_pieces_of_a_file_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = lines([{"K": f"k{n % 7}", "N": n, "T": n} for n in range(300)]).rstrip("\n")
    whole = imported(tmp_path / "a.jsonl", text, partitions=2, keys=("K",), timestamp="T")
    for size in (40, 1000):
        monkeypatch.setattr(import_files, "CHUNK_BYTES", size)
        assert imported(tmp_path / "a.jsonl", text, partitions=2, keys=("K",), timestamp="T") == whole


def test_keys_are_encoded_as_declared(tmp_path: Path) -> None:
    text = lines([{"K": 258, "V": 1}, {"K": None}, {}])
    for fmt, key in (("KAFKA", b"\0\0\1\2"), ("JSON", b"258"), ("DELIMITED", b"258")):
        declared = source("K INT KEY, V INT", KEY_FORMAT=fmt)
        assert [r["key"] for r in imported(tmp_path / "a.jsonl", text, source=declared, keys=("K",))] == [
            key,
            None,
            None,
        ]
        assert imported(tmp_path / "a.jsonl", text, source=declared)[0]["key"] == key, "the declared key is the default"
    several = source("A STRING KEY, B INT KEY, V INT", KEY_FORMAT="JSON")
    found = imported(tmp_path / "a.jsonl", lines([{"A": "x", "B": 1}]), source=several, keys=("B", "A"))
    assert found[0]["key"] == b'{"A":"x","B":1}'
    renamed = source("K STRING KEY, V INT")
    assert imported(tmp_path / "a.jsonl", lines([{"id": "x"}]), source=renamed, keys=("id",))[0]["key"] == b"x"
    assert imported(tmp_path / "a.jsonl", lines([{"K": "x"}]), keys=("K",), key_format="json")[0]["key"] == b'"x"'


def test_csv_is_typed_as_declared(tmp_path: Path) -> None:
    declared = source('ZIP STRING KEY, N INT, D DECIMAL(30, 2), B BOOLEAN, "low" STRING')
    text = 'zip,n,d,b,low,extra\n01234,7,12345678901234567890.10,TRUE,"a ""q"", b",1.5\n99,,,,,\n'
    found = imported(tmp_path / "a.csv", text, source=declared, keys=("zip",))
    assert [r["key"] for r in found] == [b"01234", b"99"]
    assert found[0]["value"] == (
        b'{"ZIP":"01234","N":7,"D":12345678901234567890.10,"B":true,"low":"a \\"q\\", b","extra":1.5}'
    )
    assert found[1]["value"] == b'{"ZIP":"99","N":null,"D":null,"B":null,"low":null,"extra":null}'


def test_csv_without_a_declaration_is_typed_by_its_columns(tmp_path: Path) -> None:
    found = imported(tmp_path / "a.csv", "id,zip,ok\n1,01234,true\n2,x,false\n")
    assert [r["value"] for r in found] == [b'{"id":1,"zip":"01234","ok":true}', b'{"id":2,"zip":"x","ok":false}']


@pytest.mark.parametrize(
    ("time", "ms"),
    [
        ("1767225600123", 1_767_225_600_123),
        ("-5", -5),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("2026-01-01 00:00:00.5", 1_767_225_600_500),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600_000),
        ("2026-01-01", 1_767_225_600_000),
    ],
)
def test_times(tmp_path: Path, time: str, ms: int) -> None:
    assert imported(tmp_path / "a.jsonl", lines([{"T": time}]), timestamp="T")[0]["timestamp"] == ms
    assert imported(tmp_path / "a.csv", f"T,U\n{time},1\n", timestamp="t")[0]["timestamp"] == ms


def test_values_of_other_formats_are_encoded(tmp_path: Path) -> None:
    declared = source("K STRING KEY, A INT, B STRING", VALUE_FORMAT="DELIMITED")
    found = imported(tmp_path / "a.jsonl", lines([{"K": "k", "A": 1, "B": "x,y"}]), source=declared)
    assert found[0]["value"] == b'1,"x,y"'


@pytest.mark.parametrize(
    ("name", "text", "options", "says"),
    [
        ("a.jsonl", '{"A":1}\n\n{"A":\n', {}, "a.jsonl:3: this line is not a JSON object"),
        ("a.jsonl", "[1]\n", {}, "a.jsonl:1: this line is not a JSON object"),
        ("a.jsonl", '{"K":1}\n', {"keys": ("KK",)}, "no column `KK`"),
        ("a.jsonl", '{"K":1}\n', {"keys": ("K", "L")}, "--key names 2 columns"),
        ("a.jsonl", '{"T":1}\n{"T":"soon"}\n', {"timestamp": "T"}, "a.jsonl:2: `T` is not a time"),
        ("a.jsonl", '{"T":1}\n{}\n', {"timestamp": "T"}, "a.jsonl:2: `T` is not a time"),
        (
            "a.jsonl",
            '{"K":1}\n{"K":"x"}\n',
            {"source": source("K INT KEY, V INT"), "keys": ("K",)},
            "a.jsonl:2: the key",
        ),
        ("a.csv", "T,U\nx,1\n", {"timestamp": "T"}, "a.csv:2: `T` is not a time"),
    ],
)
def test_what_cannot_be_imported_is_named_and_nothing_is_written(
    tmp_path: Path, name: str, text: str, options: dict[str, Any], says: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    log = MemoryLog()
    options = {"source": None, **options}
    with pytest.raises(CommandError) as caught:
        run(log, Job("t", 1, file, file_format(file), now_ms=NOW, **options))
    assert says in caught.value.title
    assert log.end_offset(TopicPartition("t", 0)) == 0


def test_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"A":1}\n{"A":"\xff"}\n')
    with pytest.raises(CommandError) as caught:
        run(MemoryLog(), Job("t", 1, file, "jsonl", None, NOW))
    assert "a.jsonl:2" in caught.value.title


def test_a_large_file_is_several_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_files, "CHUNK_BYTES", 200)
    monkeypatch.setattr(importing, "TRANSACTION_BYTES", 1000)
    log = MemoryLog()
    file = tmp_path / "a.jsonl"
    file.write_text(lines([{"N": n} for n in range(200)]))
    seen: list[int] = []
    job = Job("t", 1, file, "jsonl", None, NOW)
    make_topic(log, job)
    import_file(log, job, lambda n: seen.append(n))
    assert log.last_sequence(group_of(job)) > 1
    assert sum(seen) == file.stat().st_size
    assert log.end_offset(TopicPartition("t", 0)) == 200


def test_parquet_is_read_back_as_it_was(tmp_path: Path) -> None:
    """Every type a declared column may have, against what its own decoder reads."""
    columns = (
        "K STRING KEY, I INT, B BIGINT, D DOUBLE, F BOOLEAN, S STRING, C DECIMAL(20, 4), T TIMESTAMP, DA DATE, TI TIME, "
        "X BYTES, L ARRAY<INT>, N STRUCT<A INT, Z STRING>, SN STRING, ST STRING, MS BIGINT"
    )
    at = datetime(2026, 1, 2, 3, 4, 5, 678000)
    rows = [
        {
            "K": "k", "I": 1, "B": 2**60, "D": 0.1, "F": True, "S": 'quo"te', "C": Decimal("1234567890123456.7891"),
            "T": at, "DA": at.date(), "TI": time(1, 2, 3), "X": b"\x00\xff", "L": [1, None], "N": {"A": 7, "Z": "z"},
            "SN": 12, "ST": at, "MS": at,
        },
        {"K": None, **dict.fromkeys(("I", "B", "D", "F", "S", "C", "T", "DA", "TI", "X", "L", "N", "SN", "ST", "MS"))},
    ]  # fmt: skip
    file = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    log, declared = MemoryLog(), source(columns)
    job = Job("t", 1, file, file_format(file), declared, NOW)
    assert run(log, job).records == 2
    raw = log.reader(TopicPartition("t", 0)).read(10, 1 << 20)
    assert raw is not None
    found = Decoder(scan_of(declared), declared.schema).decode(raw, MicroBatchContext(NO_STATE)).arrow().to_pylist()
    expected = dict(rows[0], SN="12", ST="2026-01-02 03:04:05.678", MS=ms(at))
    assert {k: ms(v) if isinstance(v, datetime) else v for k, v in found[0].items()} == dict(expected, T=ms(at))
    assert set(found[1].values()) == {None}


def ms(at: datetime) -> int:
    return round(at.replace(tzinfo=UTC).timestamp() * 1000)


def test_parquet_without_a_declaration_is_json(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"ID": [1, 2], "AT": [datetime(2026, 1, 2), datetime(2026, 1, 3)]}), file)
    log = MemoryLog()
    run(log, Job("t", 1, file, "parquet", None, NOW, ("ID",), "AT"))
    raw = log.reader(TopicPartition("t", 0)).read(10, 1 << 20)
    assert raw is not None
    records = raw.records.to_pylist()
    assert [r["timestamp"] for r in records] == [1767312000000, 1767398400000]
    assert [json.loads(r["value"]) for r in records] == [
        {"ID": r["ID"], "AT": r["AT"]} for r in ({"ID": 1, "AT": 1767312000000}, {"ID": 2, "AT": 1767398400000})
    ]
    assert [r["key"] for r in records] == [b"1", b"2"]


def test_what_is_no_parquet_is_said(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_text("ID\n1\n")
    with pytest.raises(CommandError, match=r"a\.parquet"):
        run(MemoryLog(), Job("t", 1, file, "parquet", None, NOW))
