"""Views of standard SQL over streams: which are streams themselves, with which key, and what is said of windows."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Compiled, compile_project

SOURCES = """
CREATE STREAM s (k TEXT KEY, v INT, a INT[]) WITH (kafka_topic='s', value_format='json');
CREATE STREAM timed (v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (kafka_topic='timed', value_format='json');
CREATE TABLE t (id INT PRIMARY KEY, n INT);
CREATE TABLE added (id INT PRIMARY KEY, n INT) APPEND ONLY;
"""
WINDOWS = "SELECT window_start, COUNT(*) AS n FROM TUMBLE({source}, {time}, INTERVAL '1' MINUTE) GROUP BY window_start"


def compiled(query: str) -> Compiled:
    made = compile_project([SourceText("q.sql", f"{SOURCES}CREATE VIEW made AS {query};")], dialect="standard")
    assert made.ok, made.diagnostics
    return made


@pytest.mark.parametrize(
    ("query", "kind", "key"),
    [
        ("SELECT k, v + 1 AS w FROM s WHERE v > 1", "stream", ["k"]),
        ("SELECT k AS id, v FROM s", "stream", ["id"]),
        ("SELECT v FROM s", "stream", []),
        ("SELECT UPPER(k) AS k, v FROM s", "stream", []),
        ("SELECT k, UNNEST(a) AS x FROM s", "stream", ["k"]),
        ("SELECT k, v FROM (SELECT k, v FROM s WHERE v < 9) AS low", "stream", ["k"]),
        ("SELECT DISTINCT k FROM s", "table", None),
        ("SELECT k, COUNT(*) AS n FROM s GROUP BY k", "table", None),
        ("SELECT v FROM timed", "stream", []),
        ("SELECT v, k FROM s UNION ALL SELECT v + 1, k FROM s", "stream", ["k"]),
        ("SELECT v, k FROM s UNION ALL SELECT v, k || 'x' FROM s", "stream", []),
        ("SELECT v FROM timed UNION SELECT v FROM s", "table", None),
        ("SELECT a.v FROM timed AS a JOIN timed AS b ON a.v = b.v", "stream", []),
        ("SELECT a.v FROM timed AS a LEFT JOIN timed AS b ON a.v = b.v", "table", None),
        ("SELECT s.k, t.n FROM s LEFT JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON s.v = t.id", "stream", []),
        ("SELECT s.k, t.n FROM s JOIN t ON s.v = t.id", "table", None),
        ("SELECT v FROM timed WHERE ts > NOW() - INTERVAL '1' DAY", "table", None),
        (f"{WINDOWS.format(source='timed', time='ts')} EMIT ON WINDOW CLOSE", "stream", []),
        (WINDOWS.format(source="timed", time="ts"), "table", None),
        ("SELECT n FROM added", "table", None),
    ],
)
def test_a_view_is_a_stream_where_rows_of_streams_are_only_added(query: str, kind: str, key: list[str] | None) -> None:
    (made,) = (s for s in compiled(query).plan.sources if s.name == "made")
    assert made.kind == kind
    if key is not None:
        assert [f.name for f in made.schema.key] == key


@pytest.mark.parametrize(("source", "time", "codes"), [("s", "rowtime", ["FQ2091"]), ("timed", "ts", [])])
def test_a_windowed_view_without_a_watermark_says_that_it_keeps_all_windows(
    source: str, time: str, codes: list[str]
) -> None:
    said = compiled(WINDOWS.format(source=source, time=time)).diagnostics
    assert [d.code for d in said if d.severity == "hint"] == codes
