"""Results in two logs, compared: what is equal, what is found, and how it is shown."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import SourceDef
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.verify.match import compare_sink
from flowql.verify.report import MISSING, SinkReport

pytestmark = pytest.mark.turns("long")

SOURCES = """
CREATE STREAM S (K STRING KEY, N INT, D DOUBLE) WITH (KAFKA_TOPIC='s', PARTITIONS=2, VALUE_FORMAT='JSON');
CREATE TABLE T (K STRING PRIMARY KEY, N INT, P DECIMAL(6, 2), A ARRAY<DOUBLE>) WITH (KAFKA_TOPIC='t', PARTITIONS=2, VALUE_FORMAT='JSON');
CREATE TABLE W AS SELECT K, COUNT(*) AS C FROM S WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY K;
"""
Given = tuple[str | None, Any, int]  # key, value (text is bytes as they are), time


def source(name: str) -> SourceDef:
    compiled = compile_project([SourceText("test.sql", SOURCES)])
    assert compiled.ok, compiled.diagnostics
    found = compiled.plan.source(name)
    assert found is not None
    return found


def log_of(topic: str, records: list[Given], partitions: int = 2) -> MemoryLog:
    log = MemoryLog()
    log.admin().create_topic(topic, partitions)
    producer = log.producer("test")
    producer.begin()
    for key, value, time in records:
        raw = None if key is None else key.encode("latin1")
        data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        record = {"timestamp": time, "key": raw, "value": data, "headers": None}
        partition = sum(raw or b"") % partitions
        producer.send(TopicPartition(topic, partition), pa.RecordBatch.from_pylist([record], PRODUCE_SCHEMA))
    producer.commit()
    return log


def check(name: str, first: list[Given], second: list[Given], tolerance: float = 1e-9) -> SinkReport:
    s = source(name)
    return compare_sink(s, log_of(s.topic, first), log_of(s.topic, second), tolerance)


def counts(report: SinkReport) -> tuple[int, int, int, int]:
    return report.rows, report.missing, report.extra, report.different


def test_a_stream_is_a_multiset() -> None:
    rows: list[Given] = [("a", {"N": 1, "D": 1.0}, 5), ("b", {"N": 2, "D": 1.0}, 6), ("a", {"N": 1, "D": 1.0}, 5)]
    assert check("S", rows, rows[::-1]).equal
    assert counts(check("S", rows, rows[:2])) == (3, 1, 0, 0)
    assert counts(check("S", rows[:2], rows)) == (2, 0, 1, 0)
    assert counts(check("S", rows, [*rows[:2], ("a", {"N": 1, "D": 1.0}, 7)])) == (3, 1, 1, 0)


def test_a_changed_row_of_a_stream_is_shown_beside_what_it_was() -> None:
    report = check("S", [("a", {"N": 1, "D": 2.0}, 5)], [("a", {"N": 3, "D": 2.0}, 5)])
    assert counts(report) == (1, 1, 1, 0)
    (example,) = report.examples
    assert example.key == {"K": "a", "ROWTIME": 5}
    assert example.columns == ("N",)
    assert (example.first, example.second) == ({"N": 1, "D": 2.0}, {"N": 3, "D": 2.0})


def test_a_table_is_its_final_rows() -> None:
    row = {"N": 1, "P": 1.5, "A": [1.0]}
    first: list[Given] = [("a", {**row, "N": 7}, 1), ("b", row, 2), ("a", row, 3), ("b", None, 4)]
    assert check("T", first, [("a", row, 99)]).equal
    report = check("T", first, [("a", {**row, "N": 2}, 1), ("c", row, 1)])
    assert counts(report) == (1, 0, 1, 1)
    different, extra = report.examples
    assert (different.key, different.columns) == ({"K": "a"}, ("N",))
    assert (extra.key, extra.first) == ({"K": "c"}, None)
    assert counts(check("T", first, [])) == (1, 1, 0, 0)


def test_values_are_compared_not_their_text() -> None:
    first: list[Given] = [("a", b'{"N": 1, "P": 1.50, "A": [1.0, 2e3]}', 1)]
    assert check("T", first, [("a", b'{"A": [1, 2000], "P": 1.5, "N": 1}', 1)]).equal
    assert not check("T", first, [("a", b'{"A": [2000, 1], "P": 1.5, "N": 1}', 1)]).equal


def test_null_and_a_column_that_is_not_there_differ() -> None:
    report = check("T", [("a", b'{"N": null, "P": 1, "A": null}', 1)], [("a", b'{"P": 1, "A": null}', 1)])
    assert counts(report) == (1, 0, 0, 1)
    assert report.examples[0].columns == ("N",)
    assert report.examples[0].first == {"N": None, "P": 1, "A": None}
    assert report.examples[0].second is not None
    assert report.examples[0].second["N"] is MISSING


@pytest.mark.parametrize(("tolerance", "equal"), [(1e-9, True), (0.0, False)])
def test_doubles_may_be_added_in_another_order(tolerance: float, equal: bool) -> None:
    one, other = {"N": 1, "D": 0.1 + 0.2 + 0.3}, {"N": 1, "D": 0.3 + 0.2 + 0.1}
    assert one != other
    assert check("S", [("a", one, 1)], [("a", other, 1)], tolerance).equal is equal
    far = {"N": 1, "D": 0.600001}
    assert not check("S", [("a", one, 1)], [("a", far, 1)], tolerance).equal


def test_keys_of_windows_are_shown_with_their_window() -> None:
    key = (b"a" + struct.pack(">q", 20_000)).decode("latin1")
    report = check("W", [(key, {"C": 1}, 1)], [(key, {"C": 2}, 1)])
    assert counts(report) == (1, 0, 0, 1)
    assert report.examples[0].key == {"K": "a", "WINDOWSTART": 20_000, "WINDOWEND": 30_000}


def test_records_that_cannot_be_read_are_compared_by_their_bytes() -> None:
    assert check("S", [("a", b"{broken", 1)], [("a", b"{broken", 1)]).equal
    assert counts(check("S", [("a", b"{broken", 1)], [("a", b"{wrong", 1)])) == (1, 1, 1, 0)


VALUES = st.fixed_dictionaries({"N": st.integers(0, 2), "D": st.sampled_from([None, 0.1 + 0.2, 0.3, 1e300])})
RECORDS = st.lists(st.tuples(st.sampled_from([None, "a", "b"]), VALUES, st.integers(0, 2)), max_size=12)


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.data())
def test_what_is_taken_away_and_added_is_counted(records: list[Given], data: st.DataObject) -> None:
    mixed = data.draw(st.permutations(records))
    assert check("S", records, mixed).equal
    lost = data.draw(st.integers(0, len(records)))
    added: list[Given] = [("new", {"N": 5, "D": None}, 0)] * data.draw(st.integers(0, 2))
    report = check("S", records, [*mixed[lost:], *added])
    assert counts(report) == (len(records), lost, len(added), 0)


def test_partners_are_found_when_the_first_double_says_nothing() -> None:
    near = 0.1 + 0.2

    def stream(*pairs: tuple[float, float]) -> list[Given]:
        return [("a", {"N": 1, "D": [x, y]}, 1) for x, y in pairs]

    sql = SOURCES.replace("D DOUBLE", "D ARRAY<DOUBLE>")
    compiled = compile_project([SourceText("test.sql", sql)])
    arrays = compiled.plan.source("S")
    assert arrays is not None
    first, second = (log_of("s", stream(*p)) for p in (((0.3, 5), (near, 1)), ((near, 5), (0.3, 1))))
    assert compare_sink(arrays, first, second, 1e-9).equal
