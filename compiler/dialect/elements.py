"""The parts of a CREATE: the column list and the WITH properties."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from flowql.compiler.dialect.ast import ColumnDef, Property
from flowql.compiler.dialect.cursor import Cursor, Tok
from flowql.compiler.dialect.numbers import at_number, parse_number
from flowql.compiler.dialect.type_refs import parse_type_ref

Role = Literal["value", "key", "primary_key", "header"]
# The role of a column that does not fit the kind of its relation: the mark that is written, and the right one.
WRONG_KEYS = {("table", "key"): ("KEY", "PRIMARY KEY"), ("stream", "primary_key"): ("PRIMARY KEY", "KEY")}
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}


def parse_columns(cur: Cursor, kind: Literal["stream", "table"]) -> tuple[ColumnDef, ...]:
    """`(id INT KEY, name STRING, h BYTES HEADER('trace'))`."""
    cur.expect_op("(")
    columns = [parse_column(cur, kind)]
    while cur.accept_op(","):
        if cur.tok.op == ")":
            cur.expected("another column after the comma", help="remove the comma before `)`")
        columns.append(parse_column(cur, kind))
    cur.expect_op(")", label="a comma or `)` goes here")
    return tuple(columns)


def parse_column(cur: Cursor, kind: Literal["stream", "table"]) -> ColumnDef:
    """`id INT KEY`."""
    start = cur.tok
    name = cur.expect_name("the name of a column")
    if cur.tok.op in (",", ")"):
        cur.fail("FQ1007", f"column `{name}` has no type", at=cur.span_of(start), help=f"write  {start.text} STRING")
    ref = parse_type_ref(cur)
    role: Role = "value"
    header_key = ""
    at = cur.tok
    if cur.accept_words("PRIMARY", "KEY"):
        role = "primary_key"
    elif cur.accept_words("KEY"):
        role = "key"
    elif cur.accept_words("HEADERS"):
        role = "header"
    elif cur.tok.upper == "HEADER" and cur.after.op == "(":
        role = "header"
        cur.next()
        cur.next()
        header_key = cur.expect_string("the name of a header in quotes")
        cur.expect_op(")")
    _check_role(cur, kind, name, role, at)
    properties = parse_properties(cur) if cur.tok.upper == "WITH" else ()
    return ColumnDef(name, ref, role, header_key, cur.span_since(start), properties)


def _check_role(cur: Cursor, kind: str, name: str, role: Role, at: Tok) -> None:
    if (kind, role) in WRONG_KEYS:
        written, right = WRONG_KEYS[kind, role]
        why, help = "the key of a table names one row, the key of a stream does not", f"write  {right}  for a {kind}"
        title = f"column `{name}` of a {kind} is marked {written}"
        cur.fail("FQ1011", title, at=cur.span_since(at), why=why, help=help)


def parse_properties(cur: Cursor) -> tuple[Property, ...]:
    """`WITH (kafka_topic='t', partitions=3)`; names are folded to upper case."""
    cur.expect_word("WITH")
    cur.expect_op("(", help="write  WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON')")
    properties: list[Property] = []
    while cur.tok.op != ")":
        if properties:
            cur.expect_op(",", label="a comma or `)` goes here")
        properties.append(_property(cur))
    cur.expect_op(")")
    return tuple(properties)


def _property(cur: Cursor) -> Property:
    start = cur.tok
    if start.kind not in ("word", "quoted", "string"):
        cur.expected("the name of a property")
    cur.next()
    name = start.text
    while cur.accept_op("."):
        name += f".{cur.expect_name('the rest of the name of a property')}"
    span = cur.span_since(start)
    cur.expect_op("=", help=f"write  {name}='value'")
    at = cur.tok
    value = _constant(cur, at)
    return Property(name.upper(), value, span, cur.span_since(at))


def _constant(cur: Cursor, start: Tok) -> int | float | str | bool | Decimal | None:
    if start.kind == "string":
        return cur.next().text
    if cur.tok.upper in _CONSTANTS:
        return _CONSTANTS[cur.next().upper]
    negative = cur.tok.op == "-" and cur.after.kind == "number"
    if negative:
        cur.next()
    if at_number(cur):
        return parse_number(cur, start, negative=negative).value
    if start.kind in ("word", "quoted"):
        cur.expected("a constant", help=f"write it in quotes: '{start.text}'")
    cur.expected("a constant", help="a property is a string in quotes, a number, TRUE or FALSE")


def check_window_properties(cur: Cursor, properties: tuple[Property, ...]) -> None:
    """Refuse window properties that contradict each other, as ksqlDB's parser does."""
    by_name = {p.name: p for p in properties}
    kind, size = by_name.get("WINDOW_TYPE"), by_name.get("WINDOW_SIZE")
    if kind is None:
        return
    name = str(kind.value).upper()
    if name == "SESSION" and size is not None:
        cur.fail(
            "FQ1012",
            "WINDOW_SIZE is not for SESSION windows",
            at=size.span,
            label="a session is as long as its rows make it",
            help="remove WINDOW_SIZE",
        )
    if name in ("TUMBLING", "HOPPING") and size is None:
        cur.fail(
            "FQ1012",
            f"WINDOW_SIZE is missing for {name} windows",
            at=kind.span,
            help="add  WINDOW_SIZE='10 SECONDS'",
        )
