"""Tests in SQL: rows are inserted, and records of results asserted, in order.

    --@test: counts per key
    INSERT INTO ORDERS (ID, AMOUNT, ROWTIME) VALUES (1, 5, 0);
    ASSERT VALUES TOTALS (ID, N) VALUES (1, 1);
    ASSERT NULL VALUES TOTALS (ID) VALUES (1);
    --@test: a mistake
    --@expect_error: FQ2001
    CREATE STREAM X AS SELECT * FROM NOWHERE;

The n-th ASSERT of a result checks its n-th record. Other statements are added to those of the project.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from flowql.compiler.analyze.constants import constants
from flowql.compiler.analyze.row_changes import row_statements, rows_given
from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.source import NOWHERE, SourceText, Span
from flowql.compiler.dialect.ast import AssertRow, InsertRow, Statement
from flowql.compiler.dialect.cursor import Positions
from flowql.compiler.dialect.parser import parse_statements
from flowql.compiler.dialect.standard.statement_tree import CreateTable, Insert
from flowql.compiler.driver import DialectName
from flowql.compiler.plan.topology import Plan
from flowql.testing.case import Case, Expected, ExpectedError, Given, Row
from flowql.testing.feed import find_source
from flowql.topics.codecs import shown

_TEST = re.compile(r"^--@test:[ \t]*(.*)$", re.MULTILINE)
_ERROR = re.compile(r"^--@expect_error:[ \t]*(\w+)(?:[ \t]+(.*))?$", re.MULTILINE)


@dataclass(slots=True)
class _Parts:
    """The rows of a test's statements, by source and by result in the order of their first row."""

    given: dict[str, list[Row]] = field(default_factory=dict)
    expect: dict[str, list[Row]] = field(default_factory=dict)
    rows: list[Span] = field(default_factory=list)


def read_sql(path: str, text: str, plan: Plan, dialect: DialectName) -> tuple[list[Case], list[Diagnostic]]:
    """The tests of a file, and every mistake in it."""
    cases: list[Case] = []
    mistakes: list[Diagnostic] = []
    for name, line, body in _blocks(text):
        case, found = _case(path, name, line, body, plan, dialect)
        mistakes += found
        if not found:
            cases.append(case)
    return cases, mistakes


def _blocks(text: str) -> Iterator[tuple[str, int, str]]:
    """Name, line and statements of each test. What stands before the first one belongs to no test and is a comment."""
    starts = list(_TEST.finditer(text))
    for n, match in enumerate(starts):
        end = starts[n + 1].start() if n + 1 < len(starts) else len(text)
        yield match[1].strip() or f"test {n + 1}", text.count("\n", 0, match.start()) + 1, text[match.end() : end]


def _case(
    path: str, name: str, line: int, body: str, plan: Plan, dialect: DialectName
) -> tuple[Case, list[Diagnostic]]:
    error = _ERROR.search(body)
    source = SourceText(path, body, line_offset=line - 1)
    statements, mistakes = parse_statements(source, dialect)
    parts = _Parts()
    if error is None or not mistakes:
        own = {s.name for s in statements if isinstance(s, CreateTable)}
        own |= {s.name for s in plan.sources if s.is_own_table}
        for s in statements:
            try:
                rows = _rows_of(s, own)
                parts.rows += [s.span] if rows else []
                for row in rows:
                    _row(row, parts, plan, dialect)
            except CompileError as e:
                mistakes += e.diagnostics
    case = Case(
        name,
        path,
        line,
        given=tuple(Given(n, tuple(rows), rows[0].span) for n, rows in parts.given.items()),
        when=source if error else replace(source, text=_without(source, parts.rows)),
        expect=tuple(Expected(n, tuple(rows), "exact", rows[0].span) for n, rows in parts.expect.items()),
        error=ExpectedError(error[1], text=(error[2] or "").strip()) if error else None,
    )
    return case, [] if error else mistakes


def _rows_of(statement: Statement, own: Collection[str]) -> Sequence[InsertRow | AssertRow]:
    """The rows that a statement gives or expects. Rows of local tables are changed by the statement itself."""
    if isinstance(statement, InsertRow | AssertRow):
        return [statement]
    if isinstance(statement, Insert) and statement.target not in own and statement.on_conflict is None:
        rows = rows_given(statement)
        return [] if rows is None else row_statements(statement, rows) or []
    return []


def _without(source: SourceText, spans: Iterable[Span]) -> str:
    """The text without these statements; all others, DEFINE and SET among them, stay on their lines. Empty for none."""
    positions, text = Positions(source), source.text
    for span in spans:
        start = positions.offset(span)
        end = start + span.length
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return text if re.sub(r"--[^\n]*|[\s;]", "", text) else ""


def _row(statement: InsertRow | AssertRow, parts: _Parts, plan: Plan, dialect: DialectName) -> None:
    constant = constants(statement.values, standard=dialect == "standard")
    values = dict(zip(_columns(statement, plan), map(shown, constant), strict=True))
    rowtime = values.pop("ROWTIME", None)
    deleted = isinstance(statement, AssertRow) and statement.deleted
    row = Row(values, rowtime, deleted, span=statement.span)
    to = parts.expect if isinstance(statement, AssertRow) else parts.given
    to.setdefault(statement.target, []).append(row)


def _columns(statement: InsertRow | AssertRow, plan: Plan) -> tuple[str, ...]:
    source = find_source(plan, statement.target)
    names = statement.columns
    if not names and source is not None:
        fields = source.schema.key if isinstance(statement, AssertRow) and statement.deleted else source.shown
        names = tuple(f.name for f in fields if f.role in ("key", "value"))
    if len(names) == len(statement.values):
        return names
    title = f"{len(statement.values)} values for {len(names) or 'unnamed'} columns"
    raise CompileError(Diagnostic("FQ2040", title, _at(statement), help="name the columns:  (ID, N) VALUES (1, 2)"))


def _at(statement: InsertRow | AssertRow) -> Span:
    return statement.span if statement.span is not NOWHERE else statement.name_span
