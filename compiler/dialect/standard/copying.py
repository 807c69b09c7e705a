"""COPY ... FROM: loads a file, or rows that a client sends, into a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.standard.names import expect_relation
from flowql.compiler.dialect.standard.reader import Reader
from flowql.compiler.dialect.table_statements import CopyRows
from flowql.compiler.plan.tables import CopyFrom, RowFormat

_FORMATS: dict[str, RowFormat] = {
    "CSV": "csv",
    "TEXT": "text",
    "BINARY": "binary",
    "JSON": "json",
    "JSONL": "json",
    "PARQUET": "parquet",
}
_OPTIONS = ("FORMAT", "HEADER", "DELIMITER", "NULL", "ENCODING", "QUOTE", "ESCAPE")
_ON, _OFF = ("TRUE", "ON", "1"), ("FALSE", "OFF", "0")
_FIXED = {"ENCODING": ("utf8", "utf-8"), "QUOTE": ('"',), "ESCAPE": ('"',)}


def parse_copy(cur: Reader, start: Tok) -> CopyRows:
    """`COPY target [(columns)] FROM 'file' | STDIN [[WITH] (option [value], ...)]`; options may have no parentheses, as in PostgreSQL 8."""
    cur.next()
    if cur.tok.op == "(":
        _refuse_to(cur)
    target, name_span = expect_relation(cur, "the name of a table")
    columns = cur.expect_names("the name of a column") if cur.tok.op == "(" else ()
    if cur.tok.upper == "TO":
        _refuse_to(cur)
    cur.expect_word("FROM", help="write  COPY t FROM 'file.csv'")
    path = ""
    if cur.tok.kind == "string":
        path = cur.next().text
        if not path:
            cur.expected("the name of a file")
    elif not cur.accept_words("STDIN"):
        if cur.tok.upper == "PROGRAM":
            cur.unsupported("COPY FROM PROGRAM", help="write its output into a file")
        cur.expected("the name of a file in quotes", help="write  COPY t FROM 'file.csv'", words=["STDIN"])
    made = _options(cur, CopyFrom(path))
    if made.format == "binary" and (made.header != "no" or made.delimiter is not None or made.null is not None):
        cur.fail(
            "FQ2090", "COPY in binary format has neither HEADER nor DELIMITER nor NULL", help="leave the option out"
        )
    if cur.tok.upper == "WHERE":
        cur.unsupported("WHERE of COPY", help="write  INSERT INTO t SELECT ... FROM read_csv('file.csv') WHERE ...")
    return CopyRows(cur.text_since(start), cur.span_since(start), target, columns, made, name_span)


def _refuse_to(cur: Reader) -> None:
    cur.unsupported("COPY ... TO", help="write  flowql query 'SELECT ...' -o file.csv")


def _options(cur: Reader, made: CopyFrom) -> CopyFrom:
    cur.accept_words("WITH")
    closed = cur.tok.op == "("
    if closed:
        cur.next()
    while cur.tok.kind == "word" and cur.tok.upper != "WHERE":
        made = _option(cur, made)
        if closed and cur.tok.op != ")":
            cur.expect_op(",", label="a comma or `)` goes here")
    if closed:
        cur.expect_op(")")
    return made


def _option(cur: Reader, made: CopyFrom) -> CopyFrom:
    at = cur.next()
    name = at.upper
    if name in _FORMATS and name != "FORMAT":
        return replace(made, format=_FORMATS[name])
    if name not in _OPTIONS:
        cur.unsupported(
            f"the option {at.text} of COPY", at=cur.span_of(at), help=f"options are {', '.join(_OPTIONS[:4])}"
        )
    if name == "HEADER":
        return replace(made, header=_header(cur))
    cur.accept_words("AS")
    tok = cur.tok
    value = cur.next().text if tok.kind in ("string", "word", "quoted") else None
    if value is None:
        cur.expected(f"the value of {name}", help=f"write  {name} 'value'")
    if name == "FORMAT":
        found = _FORMATS.get(value.upper())
        if found is None:
            cur.unsupported(
                f"the format {value} of COPY", at=cur.span_of(tok), help="formats are csv, text, json and parquet"
            )
        return replace(made, format=found)
    if name in _FIXED:
        if value.casefold() not in _FIXED[name]:
            cur.unsupported(
                f"COPY with {name} {value}", at=cur.span_of(tok), help=f"only {_FIXED[name][0]} is supported"
            )
        return made
    if name == "NULL":
        return replace(made, null=value)
    if len(value.encode()) != 1 or value in '"\n\r\\':
        cur.fail("FQ2090", f"the delimiter of COPY is one ASCII character, not {value!r}", help="write  DELIMITER ';'")
    return replace(made, delimiter=value)


def _header(cur: Reader) -> Literal["no", "yes", "match"]:
    word = cur.tok.text.upper() if cur.tok.kind in ("word", "number", "string") else ""
    if word == "MATCH" or word in (*_ON, *_OFF):
        cur.next()
        return "match" if word == "MATCH" else "yes" if word in _ON else "no"
    return "yes"
