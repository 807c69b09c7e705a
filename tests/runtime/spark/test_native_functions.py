"""Every Spark lowering gives what the reference gives, and fails where it fails: one wide frame, many expressions per job."""

from __future__ import annotations

import itertools
import math
import random
import struct as packing
import unicodedata
from collections.abc import Callable
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from compiler.functions.casts import can_cast
from compiler.functions.evaluate import compile_row
from compiler.functions.registry import FunctionTypeError, all_functions
from compiler.functions.spark_casts import has_spark_cast
from compiler.functions.spark_sql import SparkSql, lower, lower_predicate
from compiler.functions.spark_text import INSTANT_MAX
from compiler.plan.expr import Call, Column, Expr, Literal
from compiler.plan.types import (
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
from runtime.batch import to_arrow, to_python
from runtime.spark.native.frames import from_spark, to_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROWS, PER_JOB, SEED = 400, 60, 20
EXACT = Context(prec=60)

DEC, SMALL, WIDE = decimal(9, 3), decimal(4, 1), decimal(30, 6)
PAIR = struct(("A", INT), ("b c", STRING))
TYPES = (
    INT,
    BIGINT,
    DOUBLE,
    STRING,
    DEC,
    BOOLEAN,
    DATE,
    TIMESTAMP,
    TIME,
    BYTES,
    array(INT),
    array(STRING),
    map_of(STRING, INT),
    PAIR,
    SMALL,
    WIDE,
)
INTS = [0, 1, -1, 2, -2, 7, 3, 2**31 - 1, -(2**31)]
BIGS = [*INTS, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
DOUBLES = [0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 0.7, -0.7, 1e308, 5e-324, 2.0**31, 2.0**63, 4503599627370495.5, 0.1]
DOUBLES += [math.inf, -math.inf, math.nan]
TEXTS = ["", " ", "a", "A", "ab", "aXb", "é", "ß", "😀", "İ", "ΑΣ", "ﬁ", "\t a ", "a%b", "a_", "12", "-7", "1.5", "+3"]
TEXTS += ["\\", "%", "$", "${x}", "1e3", "1.", ".5", "1.5f", "2D", "99999999999999999999", "2147483648", "NaN", "true"]
TEXTS += ["-Infinity", "+Infinity", "YES ", "'", '"', "\n", "x" * 40, "a.b.c", "00012", " 5\x1c", "\xa07", "1_0", "٣"]
LETTERS = [c for c in map(chr, (*range(1, 0xD800), *range(0xE000, 0x20000))) if unicodedata.category(c) != "Cn"]


def some_text(r: random.Random) -> str:
    return "".join(r.choice(LETTERS) if r.random() < 0.3 else chr(r.randint(32, 126)) for _ in range(r.randint(0, 6)))


def some_double(r: random.Random) -> float:
    if r.random() < 0.5:
        return round(r.uniform(-100, 100), r.randint(0, 4))
    found: float = packing.unpack("<d", r.randbytes(8))[0]
    return found


def digits(t: SqlType) -> Callable[[random.Random], Decimal]:
    top = 10**t.precision - 1
    edges = [0, 1, -1, top, -top]
    return lambda r: Decimal(r.choice([*edges, r.randint(-top, top), r.randint(-2500, 2500)])).scaleb(-t.scale, EXACT)


SOME: dict[Kind, Callable[[random.Random], Any]] = {
    Kind.INT: lambda r: (
        r.choice(INTS) if r.random() < 0.5 else r.choice([r.randint(-5, 12), r.randint(-(2**31), 2**31 - 1)])
    ),
    Kind.BIGINT: lambda r: (
        r.choice(BIGS) if r.random() < 0.5 else r.choice([r.randint(-5, 12), r.randint(-(2**63), 2**63 - 1)])
    ),
    Kind.DOUBLE: lambda r: r.choice(DOUBLES) if r.random() < 0.5 else some_double(r),
    Kind.STRING: lambda r: r.choice(TEXTS) if r.random() < 0.6 else some_text(r),
    Kind.BOOLEAN: lambda r: r.random() < 0.5,
    Kind.DATE: lambda r: r.choice([0, -1, 1, -719162, -719163, 2932896, 2932897, r.randint(-700_000, 2_900_000)]),
    Kind.TIMESTAMP: lambda r: r.choice(
        [0, -1, 1, 999, 253402300799999, 253402300800000, r.randint(-(6 * 10**13), 25 * 10**13)]
    ),
    Kind.TIME: lambda r: r.choice([0, 86_399_999, r.randint(0, 86_399_999)]),
    Kind.BYTES: lambda r: r.randbytes(r.randint(0, 4)),
}


def some(t: SqlType, r: random.Random) -> Any:
    if r.random() < 0.1:
        return None
    if t.kind is Kind.ARRAY:
        return [some(t.element, r) for _ in range(r.randint(0, 4))]
    if t.kind is Kind.MAP:
        return {str(r.choice(TEXTS)): some(t.args[1], r) for _ in range(r.randint(0, 3))}
    if t.kind is Kind.STRUCT:
        return {n: some(f, r) for n, f in t.fields}
    return digits(t)(r) if t.kind is Kind.DECIMAL else SOME[t.kind](r)


NAMES = [(f"c{i}_{j}", t) for i, t in enumerate(TYPES) for j in range(3)]


def columns(types: tuple[SqlType, ...]) -> tuple[Expr, ...]:
    """A column of the frame for each type; different ones for the same type."""
    seen: dict[SqlType, int] = {}
    found = []
    for t in types:
        j = seen[t] = seen.get(t, -1) + 1
        found.append(Column(t, f"c{TYPES.index(t)}_{j}"))
    return tuple(found)


SPECIAL = {"cast", "struct", "field", "array", "subscript", "case"}


def lowered_names() -> list[str]:
    return [n for n, f in all_functions().items() if f.spark is not None and not f.table]


def signature_cases() -> list[Expr]:
    """Each function over up to five of the argument lists that it takes as they are and lowers."""
    found: list[Expr] = []
    for name in lowered_names():
        if name in SPECIAL:
            continue
        function, here = all_functions()[name], []
        for n in range(1 if name.islower() else 0, 4):
            for types in itertools.product(TYPES, repeat=n):
                if n == 3 and len(set(types)) > 2:
                    continue
                try:
                    r = function.resolve(types)
                except (FunctionTypeError, ValueError, IndexError):
                    continue
                call = Call(r.result, name, columns(types))
                if r.args == types and lower(call) is not None:
                    here.append(call)
        found += [here[i * len(here) // 5] for i in range(5)] if len(here) > 5 else here
    return found


def call(name: str, result: SqlType, *args: Expr) -> Call:
    return Call(result, name, args)


def lit(value: Any, t: SqlType = STRING) -> Literal:
    return Literal(t, value)


def c(t: SqlType, j: int = 0) -> Column:
    return Column(t, f"c{TYPES.index(t)}_{j}")


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
    pairs = [(s, t) for s in TYPES for t in targets if s != t and has_spark_cast(s, t)]
    assert all(can_cast(s, t) for s, t in pairs)
    return [Call(t, "cast", (c(s),)) for s, t in pairs]


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return packing.pack("<d", a) == packing.pack("<d", b) or (a != a and b != b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(alike(v, b[k]) for k, v in a.items())
    return type(a) is type(b) and a == b and str(a) == str(b)


def world() -> tuple[list[tuple[Any, ...]], pa.Table]:
    r = random.Random(SEED)
    rows = [tuple(some(t, r) for _, t in NAMES) for _ in range(ROWS)]
    arrays = [to_arrow([row[i] for row in rows], t) for i, (_, t) in enumerate(NAMES)]
    return rows, pa.table([to_spark(a, t) for a, (_, t) in zip(arrays, NAMES, strict=True)], [n for n, _ in NAMES])


def test_lowerings_equal_the_reference(spark: SparkSession) -> None:
    rows, table = world()
    table = table.append_column("row__", pa.array(range(len(rows))))
    frame = spark.createDataFrame(table).coalesce(1).cache()
    wrong: list[str] = []
    exprs = [*special_cases(), *cast_cases(), *signature_cases()]
    for start in range(0, len(exprs), PER_JOB):
        wrong += differences(frame, rows, exprs[start : start + PER_JOB])
    frame.unpersist()
    assert not wrong, f"{len(wrong)} differences, such as\n" + "\n".join(wrong[:20])


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


def test_a_predicate_keeps_comparisons_bare() -> None:
    lowered = lower_predicate(call("eq", BOOLEAN, call("mod", BIGINT, c(BIGINT), lit(123, BIGINT)), lit(0, BIGINT)))
    assert lowered == SparkSql("((`c1_0` % 123L) = 0L)")
