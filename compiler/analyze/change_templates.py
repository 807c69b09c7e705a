"""Statements that change rows and differ from a bound one in constants alone: they are made from it, and are neither parsed nor bound.

A constant of the text may have another value if it is a `Literal` of the bound statement at the same place, and nothing else was decided by it: it is
a whole value of VALUES or SET, or an operand beside something that is not constant, of an operator whose type does not depend on the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from flowql.compiler.analyze.literals import bind_literal
from flowql.compiler.analyze.values import stored
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Lit
from flowql.compiler.dialect.constants import Constant
from flowql.compiler.plan.expr import Call, Column, Expr, Literal, walk
from flowql.compiler.plan.logical import NamedExpr
from flowql.compiler.plan.tables import ChangeForm, TableChange
from flowql.compiler.plan.types import BIGINT, DOUBLE, INT, SPAN, STRING, UUID, SqlType

_THROUGH = frozenset(("and", "or", "not", "cast"))  # their own arguments are no constants that vary
_OPERATORS = frozenset(
    ("sql_eq", "sql_ne", "sql_lt", "sql_le", "sql_gt", "sql_ge", "sql_in", "sql_add", "sql_sub", "sql_mul")
)
_TEXTS, _NUMBERS = (STRING, UUID), (INT, BIGINT, DOUBLE)  # operands whose type does not depend on their digits
_RANGES = {INT: range(-(2**31), 2**31), BIGINT: range(-(2**63), 2**63)}


@dataclass(frozen=True, slots=True)
class _Slot(Expr):
    """Where a constant of this number comes in. is_value: it is a whole value, which assignment converts to the type."""

    number: int
    is_negative: bool
    is_value: bool


class _Other(Exception):
    """The statement is not the bound one with other constants."""


class ChangeTemplate:
    """Any thread."""

    def __init__(self, change: TableChange) -> None:
        self._change = change
        self._same = {f.name: getattr(change, f.name) for f in fields(change) if f.name != "form"}
        in_rows = [e for e in walk(*(e for row in change.rows for e in row)) if isinstance(e, _Slot)]
        self._rows = bool(in_rows)
        self._slots = [e for e in walk(*_exprs(change)) if isinstance(e, _Slot)]
        self._by_number = sorted((*in_rows, *self._slots), key=lambda s: s.number)
        names = tuple(f"\0{n}" for n in range(len(self._slots)))  # no column is named so
        columns = {s: Column(s.type, n) for s, n in zip(self._slots, names, strict=True)}
        settings = tuple(NamedExpr(s.name, _apart(s.expr, columns)) for s in change.settings)
        where = None if change.where is None else _apart(change.where, columns)
        self._form = ChangeForm(names, settings, where) if names else None

    @property
    def target(self) -> str:
        return self._change.target

    def filled(self, constants: Sequence[Constant]) -> TableChange | None:
        """The statement with these constants, without its text and places in it. None if it has to be bound by itself."""
        change, made = self._change, self._same.copy()
        try:
            literals = list(map(_literal, self._by_number, constants))
        except _Other:
            return None
        if self._rows:
            made["rows"] = tuple(tuple(_filled(e, literals) for e in row) for row in change.rows)
        if self._slots:
            made["settings"] = tuple(NamedExpr(s.name, _filled(s.expr, literals)) for s in change.settings)
            made["where"] = None if change.where is None else _filled(change.where, literals)
            made["constants"] = tuple(literals[slot.number].value for slot in self._slots)
        return TableChange(**made, form=self._form)


def template_of(change: TableChange, text: str, constants: Sequence[Constant]) -> ChangeTemplate | None:
    """The template that a statement is; None if its constants decide more than values. text: of the statement. constants: all of its strings and
    numbers. change: bound in standard SQL.
    """
    if change.select or change.copied is not None:
        return None
    places = _Places(text, constants)
    rows = tuple(tuple(places.value(e) for e in row) for row in change.rows)
    settings = tuple(NamedExpr(s.name, places.value(s.expr)) for s in change.settings)
    where = None if change.where is None else places.operand(change.where)
    if sorted(places.used) != list(range(len(constants))):
        return None
    made = ChangeTemplate(replace(change, rows=rows, settings=settings, where=where, statement=""))  # it may be long
    return made if made.filled(constants) == replace(change, statement="") else None


class _Places:
    """Finds the constants of a text among the literals of a bound statement. used: the numbers of those that were found."""

    def __init__(self, text: str, constants: Sequence[Constant]) -> None:
        self._text, self._constants = text, constants
        self._numbers: Mapping[int, int] = {c.start + c.width: n for n, c in enumerate(constants)}
        self._lines = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        self.used = list[int]()

    def value(self, e: Expr) -> Expr:
        """A value of VALUES or SET."""
        if isinstance(e, Literal):
            return self._slot(e, is_value=True) if e.type != SPAN else e
        return self.operand(e)

    def operand(self, e: Expr) -> Expr:
        """A part of an expression."""
        if not isinstance(e, Call):
            return e
        if e.name in _THROUGH or e.name.startswith("sql_to_"):
            return replace(e, args=tuple(self.operand(a) for a in e.args))
        if e.name not in _OPERATORS or not any(isinstance(n, Column) for n in walk(*e.args)):
            return e  # it may fail for every row
        args = (self._slot(a, is_value=False) if isinstance(a, Literal) else self.operand(a) for a in e.args)
        return replace(e, args=tuple(args))

    def _slot(self, e: Literal, *, is_value: bool) -> Expr:
        span: Span = e.span
        if span.path or not 0 < span.line <= len(self._lines):  # a default has its place in the definition of the table
            return e
        start = self._lines[span.line - 1] + span.column - 1
        number = self._numbers.get(start + span.length)
        if number is None:
            return e
        constant = self._constants[number]
        is_negative = not constant.is_string and self._text[start : constant.start].strip() == "-"
        if start != constant.start and not is_negative:
            return e
        if not is_value and not _is_operand(constant, e.type) and e.type != _natural(constant, is_negative).type:
            return e
        self.used.append(number)
        return _Slot(e.type, number, is_negative, is_value)


def _exprs(change: TableChange) -> list[Expr]:
    """Those that are computed over the rows of the table."""
    return [*(s.expr for s in change.settings), *([] if change.where is None else [change.where])]


def _apart(e: Expr, columns: Mapping[_Slot, Column]) -> Expr:
    """With a column for each constant."""
    if isinstance(e, _Slot):
        return columns[e]
    if isinstance(e, Call):
        return replace(e, args=tuple(_apart(a, columns) for a in e.args))
    return e


def _filled(e: Expr, literals: Sequence[Literal]) -> Expr:
    """literals: by the numbers of the slots."""
    if isinstance(e, _Slot):
        return literals[e.number]
    if isinstance(e, Call):
        return Call(e.type, e.name, tuple(_filled(a, literals) for a in e.args))
    return e


def _literal(slot: _Slot, constant: Constant) -> Literal:
    to = slot.type
    if constant.is_string and to == STRING:
        return Literal(to, constant.written)
    allowed = _RANGES.get(to)
    if allowed is not None and constant.written.isdecimal() and not constant.is_string:
        value = -int(constant.written) if slot.is_negative else int(constant.written)
        if value not in allowed:
            raise _Other
        return Literal(to, value)
    made: Expr | None = _natural(constant, slot.is_negative)
    if made is not None and made.type != to:
        made = stored(made, to) if slot.is_value or _is_operand(constant, to) else None
    if not isinstance(made, Literal):  # it fails, or is no constant
        raise _Other
    return made


def _is_operand(constant: Constant, t: SqlType) -> bool:
    return t in (_TEXTS if constant.is_string else _NUMBERS)


def _natural(constant: Constant, is_negative: bool) -> Literal:
    """The constant by itself."""
    if constant.is_string:
        return Literal(STRING, constant.written)
    return bind_literal(Lit("number", "-" * is_negative + constant.written))
