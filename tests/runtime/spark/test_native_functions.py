"""Every Spark lowering gives what the reference gives, and fails where it fails: one wide frame, many expressions per job."""

from __future__ import annotations

import math
import os
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowql.compiler.functions.casts import can_cast
from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.functions.registry import all_functions
from flowql.compiler.functions.spark_casts import spark_cast
from flowql.compiler.functions.spark_sql import SparkSql, lower, lower_predicate
from flowql.compiler.functions.spark_text import INSTANT_MAX
from flowql.compiler.plan.expr import ROWTIME, Call, Column, Expr, Literal
from flowql.compiler.plan.logical import NamedExpr
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIME,
    TIMESTAMP,
    Kind,
    SqlType,
    array,
    decimal,
    map_of,
    struct,
)
from flowql.runtime.batch import to_arrow, to_python
from flowql.runtime.spark.configuration import FIXED
from flowql.runtime.spark.frames.nodes import ERRORS, REFERENCE, compute
from flowql.runtime.spark.native.frames import from_spark, to_spark
from tests.property.function_calls import (
    DEC,
    NAMES,
    PAIR,
    SCHEMA,
    SPECIAL,
    TYPES,
    alike,
    calls,
    column,
    everything,
    named,
    names,
    rows_of,
    written,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.turns("sessions")]
ROWS, PER_JOB, SEED = 400, 60, 20
SPARSE = 8
c = column


def lowered_names() -> list[str]:
    return [n for n, f in all_functions().items() if f.spark is not None and not f.table]


def signature_cases() -> list[Expr]:
    """Each function over up to five of the argument lists that it takes as they are and lowers."""
    return [e for n in lowered_names() if n not in SPECIAL for e in calls(n, 5, lambda e: lower(e) is not None)]


def call(name: str, result: SqlType, *args: Expr) -> Call:
    return Call(result, name, args)


def lit(value: Any, t: SqlType = STRING) -> Literal:
    return Literal(t, value)


def special_cases() -> list[Expr]:
    """Calls with constants, containers, and failing parts inside lazy ones."""
    i, j, s, d, ts, xs, m = c(INT), c(INT, 1), c(STRING), c(DOUBLE), c(TIMESTAMP), c(array(INT)), c(map_of(STRING, INT))
    ratio = call("div", INT, i, j)
    units = ("DAYS", "HOUR", "MILLISECONDS")
    made = call("struct", PAIR, i, s)
    return [
        *(call(n, BOOLEAN, s, lit(p)) for n in ("like", "not_like") for p in ("%a%", "_", "a_%", "%.%", "")),
        *(call("REPLACE", STRING, s, lit(p), lit("<$>")) for p in ("a", ".", "aX")),
        *(call("SPLIT", array(STRING), s, lit(p)) for p in (".", "a", "XX")),
        *(call("SUBSTRING", STRING, s, lit(p, INT), lit(3, INT)) for p in (-3, 0, 1, 2)),
        *(call(n, STRING, s, lit(6_000_000, INT), lit("가")) for n in ("LPAD", "RPAD")),  # 18 MB
        call("TO_BYTES", BYTES, s, lit("UTF-8")),
        call("FROM_BYTES", STRING, c(BYTES), lit("hex")),
        *(call(n, TIMESTAMP, lit(u), c(INT), ts) for u in units for n in ("TIMESTAMPADD", "TIMESTAMPSUB")),
        *(call(n, TIME, lit(u), c(INT), c(TIME)) for u in units for n in ("TIMEADD", "TIMESUB")),
        *(
            call(n, DATE, lit(u), call("mod", INT, i, lit(9999, INT)), c(DATE))
            for u in units
            for n in ("DATEADD", "DATESUB")
        ),
        call("FORMAT_TIMESTAMP", STRING, ts, lit("yyyy-MM-dd HH:mm:ss.SSS")),
        call("TIMESTAMPTOSTRING", STRING, c(BIGINT), lit("dd/MM/yyyy'T'HH")),
        call("FORMAT_DATE", STRING, c(DATE), lit("yyyy/MM/dd")),
        call("DATETOSTRING", STRING, i, lit("yyyyMMdd")),
        call("in", BOOLEAN, i, lit(1, INT), lit(None, INT), lit(-2, INT)),
        call("not_in", BOOLEAN, s, lit("a"), lit("$"), lit("\\")),
        call("ARRAY_SORT", array(INT), xs, lit("desc")),
        *(call("ENTRIES", array(struct(("K", STRING), ("V", INT))), m, lit(flag, BOOLEAN)) for flag in (True, False)),
        call("subscript", INT, xs, call("mod", INT, i, lit(4, INT))),
        call("subscript", INT, xs, c(BIGINT)),
        call("subscript", INT, m, s),
        call("array", array(INT), i, lit(5, INT), j),
        made,
        call("field", STRING, made, lit("b c")),
        call("field", INT, c(PAIR), lit("A")),
        call("case", INT, call("gt", BOOLEAN, i, j), i, call("is_null", BOOLEAN, s), lit(3, INT), lit(None, INT)),
        # A failure inside makes the whole value NULL, unless nothing comes to it.
        call("COALESCE", INT, ratio, i),
        call("COALESCE", INT, i, ratio),
        call("eq", BOOLEAN, ratio, i),
        call("not", BOOLEAN, call("eq", BOOLEAN, ratio, i)),
        call("case", INT, call("ne", BOOLEAN, j, lit(0, INT)), ratio, lit(0, INT)),
        call("case", INT, call("gt", BOOLEAN, ratio, lit(0, INT)), i, call("gt", BOOLEAN, i, j), ratio, j),
        call("and", BOOLEAN, call("gt", BOOLEAN, j, lit(0, INT)), call("gt", BOOLEAN, ratio, lit(1, INT))),
        call("or", BOOLEAN, call("le", BOOLEAN, j, lit(0, INT)), call("gt", BOOLEAN, ratio, lit(1, INT))),
        call("CONCAT", STRING, call("cast", STRING, ratio), s),
        call("add", INT, i, ratio),
        call("mul", DOUBLE, call("cast", DOUBLE, s), d),
        *(
            Literal(t, v)
            for t, v in [(INT, -(2**31)), (BIGINT, -(2**63)), (BIGINT, 5), (DOUBLE, 0.908), (DOUBLE, -0.0)]
        ),
        *(
            Literal(t, v)
            for t, v in [(DOUBLE, math.inf), (STRING, "a'\\${b}\n"), (BYTES, b"\0x"), (DEC, Decimal("-1.500"))]
        ),
        *(Literal(t, v) for t, v in [(DATE, -3), (TIME, 5), (TIMESTAMP, -12345), (BOOLEAN, True), (TIMESTAMP, None)]),
    ]


def cast_cases() -> list[Expr]:
    targets = (*TYPES, decimal(38, 5))
    pairs = [(s, t) for s in TYPES for t in targets if s != t and spark_cast("x", s, t)]
    assert all(can_cast(s, t) for s, t in pairs)
    return [Call(t, "cast", (c(s),)) for s, t in pairs]


def world(count: int) -> tuple[list[tuple[Any, ...]], pa.Table]:
    rows = rows_of(count, SEED)
    return rows, arrow_of(rows)


def arrow_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    arrays = [to_arrow([row[i] for row in rows], t) for i, (_, t) in enumerate(NAMES)]
    return pa.table([to_spark(a, t) for a, (_, t) in zip(arrays, NAMES, strict=True)], [n for n, _ in NAMES])


# What Spark's own operators and casts go by: as FlowQL's sessions have it, and three times otherwise. The hours that New York leaves out in
# March are among the values; Lord Howe moves its clocks by half an hour.
SETTINGS = {
    "ours": {},
    "others": {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.caseSensitive": "false",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
    },
    "without ANSI": {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "Australia/Lord_Howe",
        "spark.sql.caseSensitive": "false",
    },
    "with ANSI": {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "Asia/Kolkata",
        "spark.sql.caseSensitive": "true",
    },
}
MISSING_HOUR = 1_583_634_600_000  # 2020-03-08T02:30


@pytest.mark.parametrize("settings", SETTINGS)
def test_lowerings_equal_the_reference(spark: SparkSession, settings: str, tmp_path: Path) -> None:
    rows, _ = world(ROWS)
    at = [n for n, _ in NAMES].index("T0")
    rows[:2] = [(*row[:at], MISSING_HOUR + i, *row[at + 1 :]) for i, row in enumerate(rows[:2])]
    table = arrow_of(rows).append_column("row__", pa.array(range(len(rows))))
    pq.write_table(table, tmp_path / "rows.parquet")  # an Arrow table would be moved to the zone of the session
    session = spark.newSession()
    for key, value in {**FIXED, **SETTINGS[settings]}.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    frame = session.read.parquet(str(tmp_path)).coalesce(1).cache()
    wrong: list[str] = []
    exprs = [*special_cases(), *cast_cases(), *signature_cases(), *(e for e in written() if lower(e) is not None)]
    if settings != "others" and os.environ.get("TURNS") != "all":  # the texts are the same: a part of them shows that
        exprs = exprs[::SPARSE]
    for start in range(0, len(exprs), PER_JOB):
        wrong += differences(frame, rows, exprs[start : start + PER_JOB])
    frame.unpersist()
    assert not wrong, f"{len(wrong)} differences, such as\n" + "\n".join(wrong[:20])


def test_what_is_not_lowered_is_the_reference(spark: SparkSession) -> None:
    """One Arrow UDF for all of it: what differs, differs on the way into Python and back."""
    rows, table = world(ROWS // 4)
    exprs = [e for e in everything(2) if lower(e) is None]
    assert set(names()) - named(exprs) <= {*lowered_names(), "field"}
    frame = spark.createDataFrame(table.append_column(ROWTIME, pa.array(range(len(rows))))).coalesce(1)
    made = compute(frame, SCHEMA, [NamedExpr(f"v{i}", e) for i, e in enumerate(exprs)]).frame
    result = made.select(ROWTIME, f"{REFERENCE}.*").toArrow().combine_chunks().sort_by(ROWTIME)
    wrong = []
    for i, e in enumerate(exprs):
        kernel = compile_row([e], [n for n, _ in NAMES])
        values = to_python(from_spark(result[f"v{i}"].combine_chunks(), e.type), e.type)
        wrong += [
            f"{e}: {x!r}, Spark {v!r}" for row, v in zip(rows, values, strict=True) if not alike(x := kernel(row)[0], v)
        ]
    assert not wrong, f"{len(wrong)} differences, such as\n" + "\n".join(wrong[:20])
    failures = [0] * len(rows)
    kernel = compile_row(exprs, [n for n, _ in NAMES], on_error=lambda _i, _e: failed.append(1))
    for n, row in enumerate(rows):
        failed: list[int] = []
        kernel(row)
        failures[n] = len(failed)
    assert [len(x) for x in result[ERRORS].to_pylist()] == failures


def differences(frame: Any, rows: list[tuple[Any, ...]], exprs: list[Expr]) -> list[str]:
    lowered: list[SparkSql] = []
    for e in exprs:
        found = lower(e)
        assert found is not None, e
        lowered.append(found)
    texts = [f"{x.sql} AS v{i}" for i, x in enumerate(lowered)]
    texts += [f"{x.fails} AS f{i}" for i, x in enumerate(lowered) if x.fails is not None]
    result = frame.selectExpr("row__", *texts).toArrow().combine_chunks().sort_by("row__")
    wrong = []
    for i, (e, x) in enumerate(zip(exprs, lowered, strict=True)):
        failed: list[int] = []
        kernel = compile_row([e], [n for n, _ in NAMES], on_error=lambda _i, _e, failed=failed: failed.append(1))  # type: ignore[misc]
        values = to_python(from_spark(result[f"v{i}"].combine_chunks(), e.type), e.type)
        fails = result[f"f{i}"].to_pylist() if x.fails is not None else [False] * len(rows)
        for row, v, fail in zip(rows, values, fails, strict=True):
            failed.clear()
            expected = kernel(row)[0]
            if e.type.kind is Kind.TIMESTAMP and expected is not None and abs(expected) > INSTANT_MAX:
                expected = None  # Spark's timestamps are microseconds: 285,000 years
            if not alike(expected, v) or fail is not bool(failed):
                given = {n.name: row[[k for k, _ in NAMES].index(n.name)] for n in _columns(e)}
                wrong.append(
                    f"{e.name if isinstance(e, Call) else e} of {given}: {expected!r} ({bool(failed)}), Spark {v!r} ({fail})\n  {x.sql}"[
                        :1500
                    ]
                )
                break
    return wrong


def _columns(e: Expr) -> list[Column]:
    return [e] if isinstance(e, Column) else [x for a in e.args for x in _columns(a)] if isinstance(e, Call) else []


def test_every_lowering_is_tested() -> None:
    tested = {x.name for x in (*special_cases(), *signature_cases(), *cast_cases()) if isinstance(x, Call)}
    assert set(lowered_names()) <= tested
    assert len(lowered_names()) > 90


def test_what_is_not_exact_has_no_lowering() -> None:
    assert lower(call("cast", STRING, c(DOUBLE))) is None
    assert lower(call("like", BOOLEAN, c(STRING), c(STRING, 1))) is None
    assert lower(call("REGEXP_LIKE", BOOLEAN, c(STRING), lit("a+"))) is None


@pytest.mark.parametrize(
    ("pattern", "native"),
    [("a%", True), ("%a_b%", True), ("a%b", True), ("a%%b%", True), ("ab", True), ("%", True), ("%a%b", False), ("%a%b%", False), ("%a%a%a%b", False)],
)  # fmt: skip
def test_like_is_native_where_java_reads_a_string_once(pattern: str, native: bool) -> None:
    """Spark gives other patterns to java.util.regex, which reads a string again for each further %."""
    assert (lower(call("like", BOOLEAN, c(STRING), lit(pattern))) is not None) is native
    assert (lower(call("not_like", BOOLEAN, c(STRING), lit(pattern))) is not None) is native


def test_a_predicate_keeps_comparisons_bare() -> None:
    lowered = lower_predicate(call("eq", BOOLEAN, call("mod", BIGINT, c(BIGINT), lit(123, BIGINT)), lit(0, BIGINT)))
    assert lowered == SparkSql("((`B0` % 123L) = 0L)")
