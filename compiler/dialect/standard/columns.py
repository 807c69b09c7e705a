"""The list of CREATE TABLE: columns with their constraints, and constraints of the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from flowql.compiler.diagnostics.edits import Edit, behind
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.elements import parse_properties
from flowql.compiler.dialect.standard.expressions import OTHER, parse_expr
from flowql.compiler.dialect.standard.foreign_statements import FOREIGN_COLUMNS, refuse_in_column
from flowql.compiler.dialect.standard.reader import Reader
from flowql.compiler.dialect.standard.statement_tree import Check, ColumnDefinition, Watermark
from flowql.compiler.dialect.standard.tree import Expr
from flowql.compiler.dialect.standard.types import parse_type
from flowql.compiler.dialect.standard.words import BY_CODE_POINT

Role = Literal["value", "key", "primary_key", "header"]
_FOREIGN = ("AUTO_INCREMENT", "AUTOINCREMENT", "UNSIGNED", "SIGNED", "ZEROFILL")
_TABLE_CONSTRAINTS = ("UNIQUE", "FOREIGN", "EXCLUDE")


@dataclass(slots=True)
class ColumnList:
    """The parsed parts of a column list."""

    columns: list[ColumnDefinition] = field(default_factory=list)
    primary_key: tuple[str, ...] = ()
    watermarks: list[Watermark] = field(default_factory=list)
    constraints: list[tuple[str, Span]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)


def parse_column_list(cur: Reader) -> ColumnList:
    """`(id INT PRIMARY KEY, name VARCHAR NOT NULL, WATERMARK FOR ts AS ts)`. A comma may stand behind the last entry."""
    found = ColumnList()
    cur.expect_op("(")
    while cur.tok.op != ")":
        _entry(cur, found)
        if not cur.accept_op(","):
            break
    cur.expect_op(")", label="a comma or `)` goes here")
    if not found.columns and not found.watermarks:
        cur.expected("columns", help="write  (id INT PRIMARY KEY, name VARCHAR)")
    return found


def _entry(cur: Reader, found: ColumnList) -> None:
    start, name = cur.tok, ""
    if start.upper == "CONSTRAINT":
        cur.next()
        name = cur.expect_name("the name of a constraint")
    if cur.tok.upper == "PRIMARY" and cur.after.upper == "KEY":
        cur.pos += 2
        if found.primary_key:
            cur.fail("FQ1003", "a table has one PRIMARY KEY", at=cur.span_since(start), label="a second one")
        found.primary_key = cur.expect_names("the name of a column")
        _not_enforced(cur)
    elif cur.tok.upper == "CHECK":
        found.checks.append(_check(cur, name))
    elif cur.tok.upper in _TABLE_CONSTRAINTS:
        word = cur.next().upper
        _skip_constraint(cur)
        found.constraints.append(("FOREIGN KEY" if word == "FOREIGN" else word, cur.span_since(start)))
    elif cur.tok.upper == "LIKE":
        cur.unsupported("LIKE in a list of columns", help="list the columns")
    elif cur.tok.upper == "WATERMARK" and cur.after.upper == "FOR":
        found.watermarks.append(_watermark(cur))
    else:
        found.columns.append(parse_column(cur))


def _check(cur: Reader, name: str) -> Check:
    start = cur.next()
    cur.expect_op("(", help="write  CHECK (condition)")
    condition = parse_expr(cur)
    cur.expect_op(")")
    return Check(condition, name, span=cur.span_since(start))


def _not_enforced(cur: Reader) -> None:
    """Flink's words behind PRIMARY KEY: it trusts the key. Here it is enforced all the same."""
    negated = cur.tok.upper == "NOT"
    if (cur.after if negated else cur.tok).upper == "ENFORCED":
        cur.pos += 1 + negated


def _watermark(cur: Reader) -> Watermark:
    start = cur.next()
    cur.next()
    column = cur.expect_name("the name of the time column")
    cur.expect_word("AS", help=f"write  WATERMARK FOR {column} AS {column} - INTERVAL '5' SECOND")
    bound = parse_expr(cur)
    cur.accept_words("WITH", "TTL")
    return Watermark(column, bound, span=cur.span_since(start))


def _skip_constraint(cur: Reader) -> None:
    """Step to the comma or parenthesis that ends a constraint."""
    depth = 0
    while cur.tok.kind != "end" and not (depth == 0 and cur.tok.op in (",", ")")):
        depth += (cur.tok.op == "(") - (cur.tok.op == ")")
        cur.next()


def parse_column(cur: Reader) -> ColumnDefinition:
    """`id INT PRIMARY KEY`."""
    start = cur.tok
    name = cur.expect_name("the name of a column")
    if cur.tok.op in (",", ")"):
        cur.fail("FQ1007", f"column `{name}` has no type", at=cur.span_of(start), help=f"write  {start.text} VARCHAR")
    if cur.tok.upper in FOREIGN_COLUMNS:
        refuse_in_column(cur)
    if cur.tok.upper == "AS":
        cur.unsupported("a computed column", help="compute it in a view")
    type_ = parse_type(cur)
    made = _Constraints()
    while not (cur.tok.op in (",", ")") or cur.tok.kind == "end" or cur.tok.upper == "WITH"):
        if cur.tok.upper in FOREIGN_COLUMNS:
            refuse_in_column(cur)
        _constraint(cur, made)
    properties = parse_properties(cur) if cur.tok.upper == "WITH" else ()
    return ColumnDefinition(
        name,
        type_,
        made.role,
        made.header_key,
        cur.span_since(start),
        properties,
        made.default,
        made.generated,
        tuple(made.others),
        tuple(made.checks),
    )


@dataclass(slots=True)
class _Constraints:
    role: Role = "value"
    header_key: str = ""
    default: Expr | None = None
    generated: Expr | None = None
    others: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)


def _constraint(cur: Reader, made: _Constraints) -> None:
    name = cur.expect_name("the name of a constraint") if cur.tok.upper == "CONSTRAINT" and cur.next() else ""
    if cur.accept_words("PRIMARY", "KEY"):
        made.role = "primary_key"
        _not_enforced(cur)
    elif cur.accept_words("KEY"):
        made.role = "key"
    elif cur.accept_words("HEADERS"):
        made.role = "header"
    elif cur.tok.upper == "HEADER" and cur.after.op == "(":
        cur.pos += 2
        made.role, made.header_key = "header", cur.expect_string("the name of a header in quotes")
        cur.expect_op(")")
    elif cur.accept_words("NULL"):
        return
    elif cur.accept_words("NOT"):
        cur.expect_word("NULL")
        made.others.append("NOT NULL")
    elif cur.tok.upper in _FOREIGN:
        cur.unsupported(f"{cur.tok.upper} of a column", help="leave it out", edit=Edit(cur.span_of(cur.tok), ""))
    elif cur.accept_words("DEFAULT"):
        made.default = parse_expr(cur, OTHER)
    elif cur.accept_words("AS"):
        made.generated = parse_expr(cur)
    elif cur.tok.upper == "GENERATED":
        _generated(cur, made)
    elif cur.accept_words("COLLATE"):
        if cur.expect_dotted("the name of a collation")[-1] not in BY_CODE_POINT:
            made.others.append("COLLATE")
    elif cur.tok.upper == "CHECK":
        made.checks.append(_check(cur, name))
    elif cur.tok.upper in ("UNIQUE", "REFERENCES"):
        made.others.append(cur.next().upper)
        while cur.tok.is_name and cur.tok.upper not in ("KEY", "HEADERS"):
            cur.next()
        if cur.tok.op == "(":
            cur.next()
            _skip_constraint(cur)
            cur.expect_op(")")
    else:
        words = ("PRIMARY", "NOT", "DEFAULT", "KEY", "HEADERS")
        edit = behind(cur.span_of(cur.back(1)), ",") if cur.tok.is_name else None
        help = "is a comma missing?" if edit is not None else ""
        cur.expected(
            "a comma or `)` after the column", label="a comma or `)` goes here", help=help, words=words, edit=edit
        )


def _generated(cur: Reader, made: _Constraints) -> None:
    cur.next()
    by_default = bool(cur.accept_words("BY"))
    cur.expect_word("DEFAULT" if by_default else "ALWAYS")
    cur.expect_word("AS")
    if by_default or cur.tok.upper == "IDENTITY":
        cur.expect_word("IDENTITY", help="write  GENERATED ALWAYS AS (expression)  for a computed column")
        if cur.tok.op == "(":
            cur.unsupported("options of an identity column", help="leave them out: its numbers begin at 1 and rise")
        made.others.append(f"GENERATED {'BY DEFAULT' if by_default else 'ALWAYS'} AS IDENTITY")
        return
    cur.expect_op("(")
    made.generated = parse_expr(cur)
    cur.expect_op(")")
    if not cur.accept_words("STORED"):
        cur.accept_words("VIRTUAL")
