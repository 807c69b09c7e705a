"""Expressions of the tree as text, with the parentheses they need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from flowql.compiler.dialect.ast import CastTo, Func, LambdaFn, Lit, Name, Star, TypeRef
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
from flowql.compiler.dialect.standard.words import NOT_NAMES, SPECIAL_VALUES
from flowql.compiler.dialect.words import SYSTEM_COLUMNS

_FORMS = {*SPECIAL_CALLS, "TRY_CAST", "EXISTS", "ROW", "MAP", "STRUCT", "INTERVAL", "VALUES"}
_POSTFIXED = ("subscript", "SLICE", "field")


def _is_simple(node: t.Expr) -> bool:
    return isinstance(node, (t.Call, t.ScalarQuery)) or (isinstance(node, Func) and node.name in _POSTFIXED)


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


def write_type(made: TypeRef) -> str:
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
        if frame.unit == "session":
            assert frame.end is not None
            assert frame.end.offset is not None
            return f"SESSION WITH GAP {self.expr(frame.end.offset, OTHER)}"
        ends = self._bound(frame.start)
        if frame.end is not None:
            ends = f"BETWEEN {ends} AND {self._bound(frame.end)}"
        exclude = f" EXCLUDE {frame.exclude.upper()}" if frame.exclude else ""
        return f"{frame.unit.upper()} {ends}{exclude}"

    def _bound(self, bound: t.Bound) -> str:
        offset = f"{self.expr(bound.offset, OTHER)} " if bound.offset is not None else ""
        return offset + bound.kind.upper()

    # --- values ---

    def _column(self, node: Name) -> tuple[str, int]:
        return dotted(node.parts), POSTFIX

    def _literal(self, node: Lit) -> tuple[str, int]:
        if node.kind == "string":
            return text(str(node.value)), POSTFIX
        return (
            "NULL" if node.value is None else str(node.value).upper() if node.kind == "bool" else str(node.value)
        ), POSTFIX

    def _typed(self, node: t.TypedText) -> tuple[str, int]:
        return f"{write_type(node.type)} {text(node.text)}", POSTFIX

    def _interval(self, node: t.Interval) -> tuple[str, int]:
        units = f" {' TO '.join(node.units)}" if node.units else ""
        return f"INTERVAL {text(node.text)}{units}", POSTFIX

    def _default(self, node: t.Default) -> tuple[str, int]:
        return "DEFAULT", POSTFIX

    def _star(self, node: Star) -> tuple[str, int]:
        base = (
            f"({self.expr(node.struct_of)})."
            if node.struct_of is not None
            else "".join(f"{quoted(q)}." for q in node.qualifier)
        )
        excluded = f" EXCEPT ({self.exprs(node.excluded)})" if node.excluded else ""
        return f"{base}*{excluded}", POSTFIX

    # --- operators ---

    def _function(self, node: Func) -> tuple[str, int]:
        sign, args = t.sign_of(node.name), node.args
        if node.name in self._forms:
            return self._forms[node.name](self, node)
        if sign in LEVELS and len(args) == 2:
            level = LEVELS[sign]
            left = self.expr(args[0], RANGE if level == COMPARISON else level)
            return f"{left} {sign.upper()} {self.expr(args[1], level + 1)}", level
        if sign in t.PREFIXES:
            return self._prefixed(sign, self.expr(args[0], SUM)), OTHER
        if node.name.startswith("is_"):
            test = node.name.replace("distinct", "distinct from").replace("_", " ").upper()
            right = "".join(f" {self.expr(a, COMPARISON)}" for a in args[1:])
            return f"{self.expr(args[0], COMPARISON)} {test}{right}", IS
        if node.name in SPECIAL_VALUES:
            return node.name + (f"({self.exprs(args)})" if args else ""), POSTFIX
        return self._ranged(node), RANGE

    def _prefixed(self, sign: str, operand: str) -> str:
        return f"{sign}{' ' if operand[0] in '+-~@|' else ''}{operand}"  # `--` begins a comment

    def _ranged(self, node: Func) -> str:
        """BETWEEN, IN, and LIKE and its like, which may have NOT in front."""
        words = node.name.replace("_", " ").upper().replace("SIMILAR", "SIMILAR TO")
        operand, *args = node.args
        if words.endswith("IN"):
            return f"{self.expr(operand, OTHER)} {words} ({self.exprs(args)})"
        others = (" AND " if "BETWEEN" in words else " ESCAPE ").join(self.expr(a, OTHER) for a in args)
        return f"{self.expr(operand, OTHER)} {words} {others}"

    def _sign(self, node: Func) -> tuple[str, int]:
        return self._prefixed("-" if node.name == "neg" else "+", self.expr(node.args[0], SIGN)), SIGN

    def _logical(self, node: Func) -> tuple[str, int]:
        level = OR if node.name == "or" else AND
        return f" {node.name.upper()} ".join(self.expr(o, level + 1) for o in node.args), level

    def _not(self, node: Func) -> tuple[str, int]:
        return f"NOT {self.expr(node.args[0], NOT)}", NOT

    def _in_query(self, node: t.InQuery) -> tuple[str, int]:
        return f"{self.expr(node.operand, OTHER)} {'NOT ' if node.negated else ''}IN ({self._query(node.query)})", RANGE

    def _quantified(self, node: t.Quantified) -> tuple[str, int]:
        level = LEVELS.get(node.op, RANGE)
        left = self.expr(node.operand, RANGE if level == COMPARISON else OTHER)
        of = self._query(node.of) if isinstance(node.of, t.Query) else self.expr(node.of)
        return f"{left} {node.op.upper()} {node.quantifier.upper()} ({of})", level

    def _exists(self, node: t.Exists) -> tuple[str, int]:
        return f"EXISTS ({self._query(node.query)})", POSTFIX

    def _scalar_query(self, node: t.ScalarQuery) -> tuple[str, int]:
        return f"({self._query(node.query)})", POSTFIX

    def _cast(self, node: CastTo) -> tuple[str, int]:
        if node.safe:
            return f"TRY_CAST({self.expr(node.operand)} AS {write_type(node.type)})", POSTFIX
        bare = isinstance(node.operand, (Name, Lit, CastTo)) or _is_simple(node.operand)
        operand = self.expr(node.operand)
        return f"{operand if bare else f'({operand})'}::{write_type(node.type)}", POSTFIX

    def _case(self, node: Func) -> tuple[str, int]:
        *parts, last = map(self.expr, node.args)
        subject = f" {parts.pop(0)}" if node.name == "case_of" else ""
        otherwise = f" ELSE {last}" if len(parts) % 2 == 0 else ""
        values = parts if otherwise else [*parts, last]
        whens = "".join(f" WHEN {w} THEN {v}" for w, v in zip(values[::2], values[1::2], strict=True))
        return f"CASE{subject}{whens}{otherwise} END", POSTFIX

    def _extract(self, node: Func) -> tuple[str, int]:
        return f"EXTRACT({self.expr(node.args[0])} FROM {self.expr(node.args[1])})", POSTFIX

    def _zone(self, node: Func) -> tuple[str, int]:
        zone, operand = node.args
        return f"{self.expr(operand, ZONE)} AT TIME ZONE {self.expr(zone, COLLATION)}", ZONE

    def _collate(self, node: t.Collate) -> tuple[str, int]:
        return f"{self.expr(node.operand, COLLATION)} COLLATE {dotted(node.name)}", COLLATION

    # --- containers ---

    def _array(self, node: Func) -> tuple[str, int]:
        return f"ARRAY[{self.exprs(node.args)}]", POSTFIX

    def _array_query(self, node: t.ArrayQuery) -> tuple[str, int]:
        return f"ARRAY({self._query(node.query)})", POSTFIX

    def _row(self, node: Func) -> tuple[str, int]:
        return f"{'ROW' if node.name == 'ROW' else ''}({self.exprs(node.args)})", POSTFIX

    def _pairs(self, node: Func) -> tuple[str, int]:
        keys = map(_bare if node.name == "struct" else self.expr, node.args[::2])
        pairs = ", ".join(f"{k} := {self.expr(v)}" for k, v in zip(keys, node.args[1::2], strict=True))
        return f"{node.name.upper()}({pairs})", POSTFIX

    def _postfixed(self, node: Func) -> tuple[str, int]:
        base, *args = node.args
        written = self.expr(base) if _is_simple(base) else f"({self.expr(base)})"
        if node.name == "field":
            return f"{written}.{_bare(args[0])}", POSTFIX
        bounds = ("" if isinstance(a, Lit) and a.kind == "int" else self.expr(a) for a in args)
        return f"{written}[{':'.join(bounds)}]", POSTFIX

    def _named(self, node: t.Named) -> tuple[str, int]:
        return f"{quoted(node.name)} => {self.expr(node.value)}", OR

    def _lambda(self, node: LambdaFn) -> tuple[str, int]:
        return f"({', '.join(map(quoted, node.params))}) => {self.expr(node.body)}", OR

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

    _forms: ClassVar[dict[str, Callable[[Writer, Func], tuple[str, int]]]] = {
        **dict.fromkeys(("neg", "plus"), _sign),
        **dict.fromkeys(("and", "or"), _logical),
        "not": _not,
        **dict.fromkeys(("case", "case_of"), _case),
        "EXTRACT": _extract,
        "TIMEZONE": _zone,
        "array": _array,
        **dict.fromkeys(("row", "ROW"), _row),
        **dict.fromkeys(("map", "struct"), _pairs),
        **dict.fromkeys(_POSTFIXED, _postfixed),
    }
    _rules: ClassVar[dict[type, Callable[[Writer, Any], tuple[str, int]]]] = {
        Name: _column,
        Lit: _literal,
        Func: _function,
        LambdaFn: _lambda,
        t.TypedText: _typed,
        t.Interval: _interval,
        t.Default: _default,
        Star: _star,
        t.InQuery: _in_query,
        t.Quantified: _quantified,
        t.Exists: _exists,
        t.ScalarQuery: _scalar_query,
        CastTo: _cast,
        t.Collate: _collate,
        t.ArrayQuery: _array_query,
        t.Named: _named,
        t.TableArgument: _table,
        t.Call: _call,
    }


def _bare(name: t.Expr) -> str:
    """The name of a field."""
    assert isinstance(name, Lit)
    return quoted(str(name.value))
