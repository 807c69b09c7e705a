"""Expressions of the tree as text, with the parentheses they need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.expressions import (
    AND,
    COLLATION,
    COMPARISON,
    IS,
    LEVELS,
    NOT,
    OR,
    OTHER,
    POSTFIX,
    RANGE,
    SIGN,
    SUM,
    ZONE,
)
from flowql.compiler.dialect.standard.special_calls import SPECIAL_CALLS
from flowql.compiler.dialect.standard.words import NOT_NAMES
from flowql.compiler.dialect.words import SYSTEM_COLUMNS

_FORMS = {*SPECIAL_CALLS, "TRY_CAST", "EXISTS", "ROW", "MAP", "STRUCT", "INTERVAL", "VALUES"}
_SIMPLE = (t.Subscript, t.Slice, t.Field, t.Call, t.ScalarQuery)


def quoted(name: str) -> str:
    """A name as it must be written to be read back as it is."""
    plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name.upper() not in (*NOT_NAMES, *SYSTEM_COLUMNS)
    if plain or name in SYSTEM_COLUMNS:
        return name
    return '"' + name.replace('"', '""') + '"'


def dotted(parts: Iterable[str]) -> str:
    """A name of several parts."""
    return ".".join(map(quoted, parts))


def text(value: str) -> str:
    """A string literal."""
    return "'" + value.replace("'", "''") + "'"


def write_type(made: t.TypeName) -> str:
    """A type."""
    if made.name == "array" and made.args:
        return f"{write_type(made.args[0])}[]"
    if made.name in ("array", "map", "struct") and not made.parameters:
        inner = [f"{quoted(n)} {write_type(of)}" for n, of in made.fields] or list(map(write_type, made.args))
        return f"{made.name}<{', '.join(inner)}>"
    parameters = f"({', '.join(map(str, made.parameters))})" if made.parameters else ""
    return dotted(made.name.split(".")) + parameters


class Writer:
    """Writes expressions. query: writes the queries inside them."""

    def __init__(self, query: Callable[[t.Query], str]) -> None:
        self._query = query

    def expr(self, node: t.Expr, least: int = OR) -> str:
        """The expression, in parentheses if it binds less tightly than `least`."""
        written, level = self._rules[type(node)](self, node)
        return written if level >= least else f"({written})"

    def exprs(self, nodes: Sequence[t.Expr]) -> str:
        """A list."""
        return ", ".join(self.expr(n) for n in nodes)

    def order_items(self, items: Sequence[t.OrderItem]) -> str:
        """The text after ORDER BY."""
        return ", ".join(
            self.expr(i.expr)
            + (f" {i.direction.upper()}" if i.direction else "")
            + (f" NULLS {i.nulls.upper()}" if i.nulls else "")
            for i in items
        )

    def window(self, spec: t.WindowSpec) -> str:
        """The text after OVER."""
        if spec.bare:
            return quoted(spec.base)
        parts = [quoted(spec.base)] if spec.base else []
        if spec.partition_by:
            parts.append(f"PARTITION BY {self.exprs(spec.partition_by)}")
        if spec.order_by:
            parts.append(f"ORDER BY {self.order_items(spec.order_by)}")
        if spec.frame is not None:
            parts.append(self._frame(spec.frame))
        return f"({' '.join(parts)})"

    def _frame(self, frame: t.Frame) -> str:
        ends = self._bound(frame.start)
        if frame.end is not None:
            ends = f"BETWEEN {ends} AND {self._bound(frame.end)}"
        exclude = f" EXCLUDE {frame.exclude.upper()}" if frame.exclude else ""
        return f"{frame.unit.upper()} {ends}{exclude}"

    def _bound(self, bound: t.Bound) -> str:
        offset = f"{self.expr(bound.offset, OTHER)} " if bound.offset is not None else ""
        return offset + bound.kind.upper()

    # --- values ---

    def _column(self, node: t.ColumnRef) -> tuple[str, int]:
        return dotted(node.parts), POSTFIX

    def _constant(self, node: t.Constant) -> tuple[str, int]:
        if node.kind == "number":
            return node.value, POSTFIX
        return (text(node.value) if node.kind == "string" else node.value.upper()), POSTFIX

    def _typed(self, node: t.TypedText) -> tuple[str, int]:
        return f"{write_type(node.type)} {text(node.text)}", POSTFIX

    def _interval(self, node: t.Interval) -> tuple[str, int]:
        units = f" {' TO '.join(node.units)}" if node.units else ""
        return f"INTERVAL {text(node.text)}{units}", POSTFIX

    def _special(self, node: t.SpecialValue) -> tuple[str, int]:
        return node.name + (f"({node.precision})" if node.precision is not None else ""), POSTFIX

    def _default(self, node: t.Default) -> tuple[str, int]:
        return "DEFAULT", POSTFIX

    def _star(self, node: t.Star) -> tuple[str, int]:
        base = f"({self.expr(node.of)})." if node.of is not None else "".join(f"{quoted(q)}." for q in node.qualifier)
        excluded = f" EXCEPT ({self.exprs(node.excluded)})" if node.excluded else ""
        return f"{base}*{excluded}", POSTFIX

    # --- operators ---

    def _unary(self, node: t.Unary) -> tuple[str, int]:
        sign = node.op in ("+", "-")
        operand = self.expr(node.operand, SIGN if sign else SUM)
        blank = " " if operand[0] in "+-~@|" else ""  # `--` begins a comment
        return f"{node.op}{blank}{operand}", SIGN if sign else OTHER

    def _binary(self, node: t.Binary) -> tuple[str, int]:
        level = LEVELS[node.op]
        left = self.expr(node.left, RANGE if level == COMPARISON else level)
        return f"{left} {node.op.upper()} {self.expr(node.right, level + 1)}", level

    def _logical(self, node: t.Logical) -> tuple[str, int]:
        level = OR if node.op == "or" else AND
        return f" {node.op.upper()} ".join(self.expr(o, level + 1) for o in node.operands), level

    def _not(self, node: t.Not) -> tuple[str, int]:
        return f"NOT {self.expr(node.operand, NOT)}", NOT

    def _is_test(self, node: t.IsTest) -> tuple[str, int]:
        return f"{self.expr(node.operand, COMPARISON)} IS {_not(node)}{node.test.upper()}", IS

    def _distinct(self, node: t.Distinct) -> tuple[str, int]:
        left, right = self.expr(node.left, COMPARISON), self.expr(node.right, COMPARISON)
        return f"{left} IS {_not(node)}DISTINCT FROM {right}", IS

    def _between(self, node: t.Between) -> tuple[str, int]:
        word = "BETWEEN SYMMETRIC" if node.symmetric else "BETWEEN"
        low, high = self.expr(node.low, OTHER), self.expr(node.high, OTHER)
        return f"{self.expr(node.operand, OTHER)} {_not(node)}{word} {low} AND {high}", RANGE

    def _like(self, node: t.Like) -> tuple[str, int]:
        word = "SIMILAR TO" if node.kind == "similar" else node.kind.upper()
        escape = f" ESCAPE {self.expr(node.escape, OTHER)}" if node.escape is not None else ""
        operand, pattern = self.expr(node.operand, OTHER), self.expr(node.pattern, OTHER)
        return f"{operand} {_not(node)}{word} {pattern}{escape}", RANGE

    def _in_list(self, node: t.InList) -> tuple[str, int]:
        return f"{self.expr(node.operand, OTHER)} {_not(node)}IN ({self.exprs(node.items)})", RANGE

    def _in_query(self, node: t.InQuery) -> tuple[str, int]:
        return f"{self.expr(node.operand, OTHER)} {_not(node)}IN ({self._query(node.query)})", RANGE

    def _quantified(self, node: t.Quantified) -> tuple[str, int]:
        level = LEVELS.get(node.op, RANGE)
        left = self.expr(node.operand, RANGE if level == COMPARISON else OTHER)
        of = self._query(node.of) if isinstance(node.of, t.Query) else self.expr(node.of)
        return f"{left} {node.op.upper()} {node.quantifier.upper()} ({of})", level

    def _exists(self, node: t.Exists) -> tuple[str, int]:
        return f"EXISTS ({self._query(node.query)})", POSTFIX

    def _scalar_query(self, node: t.ScalarQuery) -> tuple[str, int]:
        return f"({self._query(node.query)})", POSTFIX

    def _cast(self, node: t.Cast) -> tuple[str, int]:
        if node.safe:
            return f"TRY_CAST({self.expr(node.operand)} AS {write_type(node.type)})", POSTFIX
        bare = isinstance(node.operand, (t.ColumnRef, t.Constant, t.Cast, *_SIMPLE))
        operand = self.expr(node.operand)
        return f"{operand if bare else f'({operand})'}::{write_type(node.type)}", POSTFIX

    def _case(self, node: t.Case) -> tuple[str, int]:
        subject = f" {self.expr(node.subject)}" if node.subject is not None else ""
        whens = "".join(f" WHEN {self.expr(w)} THEN {self.expr(v)}" for w, v in node.whens)
        otherwise = f" ELSE {self.expr(node.otherwise)}" if node.otherwise is not None else ""
        return f"CASE{subject}{whens}{otherwise} END", POSTFIX

    def _extract(self, node: t.Extract) -> tuple[str, int]:
        return f"EXTRACT({text(node.part)} FROM {self.expr(node.source)})", POSTFIX

    def _zone(self, node: t.AtTimeZone) -> tuple[str, int]:
        return f"{self.expr(node.operand, ZONE)} AT TIME ZONE {self.expr(node.zone, COLLATION)}", ZONE

    def _collate(self, node: t.Collate) -> tuple[str, int]:
        return f"{self.expr(node.operand, COLLATION)} COLLATE {dotted(node.name)}", COLLATION

    # --- containers ---

    def _array(self, node: t.ArrayItems) -> tuple[str, int]:
        return f"ARRAY[{self.exprs(node.items)}]", POSTFIX

    def _array_query(self, node: t.ArrayQuery) -> tuple[str, int]:
        return f"ARRAY({self._query(node.query)})", POSTFIX

    def _row(self, node: t.Row) -> tuple[str, int]:
        return f"{'ROW' if node.explicit else ''}({self.exprs(node.items)})", POSTFIX

    def _map(self, node: t.MapItems) -> tuple[str, int]:
        return f"MAP({', '.join(f'{self.expr(k)} := {self.expr(v)}' for k, v in node.items)})", POSTFIX

    def _struct(self, node: t.StructItems) -> tuple[str, int]:
        return f"STRUCT({', '.join(f'{quoted(n)} := {self.expr(v)}' for n, v in node.items)})", POSTFIX

    def _base(self, base: t.Expr) -> str:
        written = self.expr(base)
        return written if isinstance(base, _SIMPLE) else f"({written})"

    def _subscript(self, node: t.Subscript) -> tuple[str, int]:
        return f"{self._base(node.base)}[{self.expr(node.index)}]", POSTFIX

    def _slice(self, node: t.Slice) -> tuple[str, int]:
        low = self.expr(node.low) if node.low is not None else ""
        high = self.expr(node.high) if node.high is not None else ""
        return f"{self._base(node.base)}[{low}:{high}]", POSTFIX

    def _field(self, node: t.Field) -> tuple[str, int]:
        return f"{self._base(node.base)}.{quoted(node.name)}", POSTFIX

    def _named(self, node: t.Named) -> tuple[str, int]:
        return f"{quoted(node.name)} => {self.expr(node.value)}", OR

    def _lambda(self, node: t.LambdaExpr) -> tuple[str, int]:
        return f"({', '.join(map(quoted, node.parameters))}) => {self.expr(node.body)}", OR

    def _table(self, node: t.TableArgument) -> tuple[str, int]:
        partition = f" PARTITION BY {self.exprs(node.partition_by)}" if node.partition_by else ""
        return f"TABLE {dotted(node.name)}{partition}", OR

    # --- calls ---

    def call(self, node: t.Call) -> str:
        """A call with everything behind it."""
        (name,) = node.name
        named = f'"{name}"' if name.upper() in _FORMS else quoted(name)
        inner = "*" if node.star else self.exprs(node.args)
        if node.distinct:
            inner = f"DISTINCT {inner}"
        if node.order_by:
            inner += f" ORDER BY {self.order_items(node.order_by)}"
        made = f"{named}({inner})"
        if node.within_group:
            made += f" WITHIN GROUP (ORDER BY {self.order_items(node.within_group)})"
        if node.filter is not None:
            made += f" FILTER (WHERE {self.expr(node.filter)})"
        if node.nulls:
            made += f" {node.nulls.upper()} NULLS"
        return f"{made} OVER {self.window(node.over)}" if node.over is not None else made

    def _call(self, node: t.Call) -> tuple[str, int]:
        return self.call(node), POSTFIX

    _rules: ClassVar[dict[type, Callable[[Writer, Any], tuple[str, int]]]] = {
        t.ColumnRef: _column,
        t.Constant: _constant,
        t.TypedText: _typed,
        t.Interval: _interval,
        t.SpecialValue: _special,
        t.Default: _default,
        t.Star: _star,
        t.Unary: _unary,
        t.Binary: _binary,
        t.Logical: _logical,
        t.Not: _not,
        t.IsTest: _is_test,
        t.Distinct: _distinct,
        t.Between: _between,
        t.Like: _like,
        t.InList: _in_list,
        t.InQuery: _in_query,
        t.Quantified: _quantified,
        t.Exists: _exists,
        t.ScalarQuery: _scalar_query,
        t.Cast: _cast,
        t.Case: _case,
        t.Extract: _extract,
        t.AtTimeZone: _zone,
        t.Collate: _collate,
        t.ArrayItems: _array,
        t.ArrayQuery: _array_query,
        t.Row: _row,
        t.MapItems: _map,
        t.StructItems: _struct,
        t.Subscript: _subscript,
        t.Slice: _slice,
        t.Field: _field,
        t.Named: _named,
        t.LambdaExpr: _lambda,
        t.TableArgument: _table,
        t.Call: _call,
    }


def _not(node: t.IsTest | t.Distinct | t.Between | t.Like | t.InList | t.InQuery) -> str:
    return "NOT " if node.negated else ""
