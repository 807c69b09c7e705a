"""TUMBLE, HOP, CUMULATE and SESSION in FROM: the same query as with a WINDOW clause."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.functions import dialects
from tests.compiler.sql import columns

SOURCE = """CREATE STREAM e (k STRING KEY, v INT, ts BIGINT)
    WITH (KAFKA_TOPIC='e', VALUE_FORMAT='JSON', TIMESTAMP='ts');"""
MINUTE = "INTERVAL '1' MINUTE"
SAME = {
    f"TABLE(TUMBLE(TABLE e, DESCRIPTOR(ts), {MINUTE}))": "TUMBLING (SIZE 1 MINUTE)",
    f"tumble(e, ts, {MINUTE})": "TUMBLING (SIZE 1 MINUTE)",
    f"TABLE(TUMBLE(TABLE e, DESCRIPTOR(ts), {MINUTE}, GRACE => INTERVAL 5 SECONDS))":
        "TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 5 SECONDS)",
    f"HOP(TABLE e, DESCRIPTOR(ts), {MINUTE}, INTERVAL '1' HOUR)": "HOPPING (SIZE 1 HOUR, ADVANCE BY 1 MINUTE)",
    f"HOP(SIZE => INTERVAL '1' HOUR, DATA => TABLE e, TIMECOL => DESCRIPTOR(ts), SLIDE => {MINUTE})":
        "HOPPING (SIZE 1 HOUR, ADVANCE BY 1 MINUTE)",
    f"TABLE(CUMULATE(TABLE e, DESCRIPTOR(ts), {MINUTE}, INTERVAL '1' DAY))":
        "CUMULATING (SIZE 1 DAY, ADVANCE BY 1 MINUTE)",
    f"TABLE(SESSION(TABLE e, DESCRIPTOR(rowtime), {MINUTE}))": "SESSION (1 MINUTE)",
}  # fmt: skip


def _compile(query: str):
    return compile_project([SourceText("q.sql", f"{SOURCE}\nCREATE TABLE t AS {query};")], dialect="standard")


@pytest.mark.parametrize("function", SAME)
def test_a_window_function_is_a_window_clause(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function of milliseconds that windows call has no name in standard SQL; the test gives it one."""
    windowed = f"FROM {function} GROUP BY window_start, k, window_end"
    end = "WINDOWEND" if "SESSION" not in function else "WINDOWEND + 60000"
    made = _compile(f"SELECT k, window_start, window_end, COUNT(*) AS n {windowed}")
    monkeypatch.setitem(dialects._STANDARD, "FROM_UNIXTIME", "FROM_UNIXTIME")
    same = _compile(
        f"SELECT k, FROM_UNIXTIME(WINDOWSTART) AS window_start, FROM_UNIXTIME({end}) AS window_end, COUNT(*) AS n "
        f"FROM e WINDOW {SAME[function]} GROUP BY k"
    )
    assert made.ok, made.diagnostics
    assert made.plan.queries[0].definition == same.plan.queries[0].definition


def test_a_group_of_the_window_alone_has_a_constant_key() -> None:
    made = _compile(f"SELECT window_time, COUNT(*) AS n FROM TUMBLE(e, ts, {MINUTE}) GROUP BY window_start, window_end")
    assert made.ok, made.diagnostics
    assert columns(made.plan.sources[-1].schema) == "window_key INT KEY, window_time TIMESTAMP, n BIGINT"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (f"SELECT k, COUNT(*) AS n FROM TUMBLE(e, ts, {MINUTE}) GROUP BY k", "FQ1014"),
        (f"SELECT k, COUNT(*) AS n FROM CUMULATE(e, ts, {MINUTE}, {MINUTE}) GROUP BY k, window_start", "FQ1014"),
        (f"SELECT k, COUNT(*) AS n FROM TUMBLE(e, {MINUTE}) GROUP BY k, window_start", "FQ1009"),
        ("SELECT k, COUNT(*) AS n FROM HOP(e, ts, INTERVAL '1' MINUTE) GROUP BY k, window_start", "FQ1009"),
        ("SELECT k, COUNT(*) AS n FROM TUMBLE(e, ts, 5) GROUP BY k, window_start", "FQ1001"),
        (f"SELECT k, COUNT(*) AS n FROM TUMBLE(e, v, {MINUTE}) GROUP BY k, window_start", "FQ2011"),
        (
            f"SELECT k, COUNT(*) AS n FROM CUMULATE(e, ts, {MINUTE}, INTERVAL 90 SECONDS) "
            "GROUP BY k, window_start, window_end",
            "FQ2011",
        ),
        (f"SELECT k, COUNT(*) AS n FROM SESSION(e PARTITION BY k, ts, {MINUTE}) GROUP BY k, window_start", "FQ1009"),
    ],
)
def test_mistakes_point_at_their_place(query: str, code: str) -> None:
    (found,) = _compile(query).diagnostics
    assert (found.code, found.span.line) == (code, 3)
