"""WATERMARK FOR of a source: its time column, and how far behind the latest row a row may be."""

from __future__ import annotations

from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Func, Lit, Name
from flowql.compiler.dialect.standard import statement_tree as st
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.intervals import duration_ms
from flowql.compiler.dialect.standard.refuse import fail, unsupported
from flowql.compiler.plan.watermarks import Watermark

_TIMES = ("timestamp", "timestamptz")
_NUMBERS = ("int", "bigint")


def watermark_of(s: st.CreateTable) -> Watermark | None:
    """The watermark of a source, if it has one. Raises CompileError."""
    if not s.watermarks:
        return None
    if len(s.watermarks) > 1:
        unsupported(
            "more than one WATERMARK", s.watermarks[1].span, "keep the one of the time that windows are made of"
        )
    (written,) = s.watermarks
    types = {c.name: c.type.name for c in s.columns}
    found = types.get(written.column)
    if found is None:
        title = f"WATERMARK names {written.column}, which is not a column of the table"
        fail("FQ2002", title, written.span, label="unknown column", help=f"columns are {', '.join(types)}")
    if found not in (*_TIMES, *_NUMBERS):
        title = f"WATERMARK is of a time; {written.column} is {found.upper()}"
        fail("FQ2005", title, written.span, label="not a time", help=f"write  {written.column} TIMESTAMP")
    digits = next((c.type.parameters for c in s.columns if c.name == written.column), ())
    if digits and digits[0] > 3:
        help = f"write  {written.column} {found.upper()}(3)"
        unsupported(f"WATERMARK of a {found.upper()}({digits[0]})", written.span, help)
    if s.kind == "table" and (s.primary_key or any(c.role in ("key", "primary_key") for c in s.columns)):
        unsupported(
            "WATERMARK of a table with a PRIMARY KEY",
            written.span,
            "leave the key out: rows need none, and ON of FOR SYSTEM_TIME AS OF names the key of versions",
        )
    return Watermark(written.column, _delay(written, is_time=found in _TIMES))


def _delay(written: st.Watermark, *, is_time: bool) -> int:
    bound = written.bound
    if _is_column(bound, written.column):
        return 0
    delay = "INTERVAL '5' SECOND" if is_time else "5"
    help = f"write  WATERMARK FOR {written.column} AS {written.column} - {delay}"
    if isinstance(bound, Func) and bound.name == "sub":
        if not _is_column(bound.args[0], written.column):
            fail("FQ2005", f"WATERMARK FOR {written.column} is not of {written.column}", bound.args[0].span, help=help)
        if is_time and isinstance(bound.args[1], t.Interval):
            return _not_negative(duration_ms(bound.args[1]), bound.args[1].span)
        if not is_time and isinstance(bound.args[1], Lit) and str(bound.args[1].value).isdigit():
            return int(str(bound.args[1].value))
    unsupported("a WATERMARK that is not its column less a constant", bound.span, help)


def _not_negative(ms: int, span: Span) -> int:
    if ms < 0:
        fail(
            "FQ2005",
            "the delay of a WATERMARK is negative",
            span,
            label="before nothing",
            help="write how long to wait",
        )
    return ms


def _is_column(node: t.Expr, name: str) -> bool:
    return isinstance(node, Name) and node.parts == (name,)
