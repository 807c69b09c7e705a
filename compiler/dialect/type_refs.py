"""Types as written: `BIGINT`, `DECIMAL(4, 2)`, `MAP<STRING, ARRAY<INT>>`, `STRUCT<a INT>`, or a custom type's name."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import TypeRef
from flowql.compiler.dialect.cursor import Cursor, Tok
from flowql.compiler.plan import types as t
from flowql.compiler.plan.types import SqlType

_KNOWN: dict[str, SqlType] = {
    "BOOLEAN": t.BOOLEAN,
    "BOOL": t.BOOLEAN,
    "INT": t.INT,
    "INTEGER": t.INT,
    "BIGINT": t.BIGINT,
    "DOUBLE": t.DOUBLE,
    "STRING": t.STRING,
    "VARCHAR": t.STRING,
    "BYTES": t.BYTES,
    "DATE": t.DATE,
    "TIME": t.TIME,
    "TIMESTAMP": t.TIMESTAMP,
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")


def parse_type_ref(cur: Cursor) -> TypeRef:
    """A type. Unknown names become custom types, which the analyzer looks up."""
    start = cur.tok
    cur.enter()
    ref = _base(cur, start)
    cur.leave()
    while cur.tok.upper == "ARRAY":  # the older spelling `INT ARRAY`
        cur.next()
        ref = container_of("ARRAY", (ref,), cur.span_since(start))
    return ref


def _base(cur: Cursor, start: Tok) -> TypeRef:
    if start.kind == "word" and cur.after.op == "<":
        if start.upper == "ARRAY":
            return _array(cur, start)
        if start.upper == "MAP":
            return _map(cur, start)
        if start.upper == "STRUCT":
            return _struct(cur, start)
    if cur.tok.upper == "STRUCT" and cur.after.op == "<>":  # one token to the tokenizer
        cur.next()
        cur.next()
        return TypeRef(known=t.struct(), span=cur.span_since(start))
    if start.upper in _DECIMALS:
        return _decimal(cur, start)
    if start.upper in ("ARRAY", "MAP", "STRUCT"):
        cur.next()
        cur.expect_op("<", help=f"write the element types: {_SHAPES[start.upper]}")
    if not cur.tok.is_name:
        cur.fail("FQ1007", f"expected a type, found {start.shown()}", label="not a type", help=_TYPE_HELP)
    cur.next()
    known = _KNOWN.get(start.upper) if start.kind == "word" else None
    if known is not None:
        if cur.tok.op == "(":
            _length(cur, start)
        return TypeRef(known=known, span=cur.span_since(start))
    return TypeRef(start.name, span=cur.span_since(start))


_SHAPES = {"ARRAY": "ARRAY<INT>", "MAP": "MAP<STRING, INT>", "STRUCT": "STRUCT<name INT>"}
_TYPE_HELP = (
    "a type is BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), STRING, BYTES, DATE, TIME, TIMESTAMP,\n"
    "ARRAY<...>, MAP<..., ...>, STRUCT<name ..., ...> or one made with CREATE TYPE"
)


def _length(cur: Cursor, name: Tok) -> None:
    """`(10)` after a type: accepted and without effect, as in ksqlDB."""
    cur.expect_op("(")
    tok = cur.tok
    if not ((tok.kind == "number" and tok.text.isdigit()) or cur.tok.upper == "STRING"):
        cur.fail(
            "FQ1007",
            f"the parameter of {name.upper} must be a whole number, found {tok.shown()}",
            help=f"write  {name.upper}  alone; a key column is marked by KEY without parentheses",
        )
    cur.next()
    cur.expect_op(")")


def _decimal(cur: Cursor, start: Tok) -> TypeRef:
    cur.next()
    if cur.tok.op != "(":
        cur.fail(
            "FQ1007",
            f"{start.upper} needs a precision and a scale",
            at=cur.span_of(start),
            help="write  DECIMAL(10, 2)",
        )
    cur.expect_op("(")
    precision = _digits(cur, "the precision")
    cur.expect_op(",", help="write precision and scale: DECIMAL(10, 2)")
    scale = _digits(cur, "the scale")
    cur.expect_op(")")
    span = cur.span_since(start)
    if precision < 1 or scale > precision:
        cur.fail(
            "FQ1007",
            f"DECIMAL({precision}, {scale}) is not a type: precision must be at least 1 and at least the scale",
            at=span,
        )
    return TypeRef(known=t.decimal(precision, scale), span=span)


def _digits(cur: Cursor, what: str) -> int:
    if cur.tok.kind != "number" or not cur.tok.text.isdigit():
        cur.expected(f"{what}, a whole number")
    return int(cur.next().text)


def _array(cur: Cursor, start: Tok) -> TypeRef:
    cur.next()
    cur.expect_op("<")
    element = parse_type_ref(cur)
    cur.expect_op(">")
    return container_of("ARRAY", (element,), cur.span_since(start))


def _map(cur: Cursor, start: Tok) -> TypeRef:
    cur.next()
    cur.expect_op("<")
    key = parse_type_ref(cur)
    cur.expect_op(",", help="a map has a key and a value type: MAP<STRING, INT>")
    value = parse_type_ref(cur)
    cur.expect_op(">")
    return container_of("MAP", (key, value), cur.span_since(start))


def container_of(kind: str, args: Sequence[TypeRef], span: Span) -> TypeRef:
    """An ARRAY or a MAP of types."""
    known = [a.known for a in args if a.known is not None]
    if len(known) < len(args):
        return TypeRef(kind, args=tuple(args), span=span)
    return TypeRef(known=t.array(*known) if kind == "ARRAY" else t.map_of(*known), span=span)


def struct_of(fields: Sequence[tuple[str, TypeRef]], span: Span) -> TypeRef:
    """A STRUCT of named types."""
    known = [(name, ref.known) for name, ref in fields if ref.known is not None]
    if len(known) < len(fields):
        return TypeRef("STRUCT", fields=tuple(fields), span=span)
    return TypeRef(known=t.struct(*known), span=span)


def _struct(cur: Cursor, start: Tok) -> TypeRef:
    cur.next()
    cur.expect_op("<")
    fields: list[tuple[str, TypeRef]] = []
    while cur.tok.op != ">":
        if fields:
            cur.expect_op(",", label="a comma or `>` goes here")
        at = cur.tok
        name = cur.expect_name("the name of a field")
        if any(name == other for other, _ in fields):
            cur.fail("FQ2004", f"two fields of the STRUCT are called {name}", at=cur.span_of(at), label="a name twice")
        fields.append((name, parse_type_ref(cur)))
    cur.expect_op(">")
    return struct_of(fields, cur.span_since(start))
