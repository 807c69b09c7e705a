"""Expressions back to SQL of ksqlDB's dialect, with the parentheses they need: `parse_expression(to_sql(ast)) == ast`."""

from __future__ import annotations

import re
from decimal import Decimal

from flowql.compiler.dialect.ast import Ast, CastTo, Func, LambdaFn, Lit, Name, Star
from flowql.compiler.dialect.generator import quote_name, type_sql
from flowql.compiler.dialect.words import RESERVED

# How tightly each form binds; an operand that binds less gets parentheses.
_OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _UNARY, _PRIMARY = range(8)
_INFIX = {
    "or": ("OR", _OR),
    "and": ("AND", _AND),
    "add": ("+", _SUM),
    "sub": ("-", _SUM),
    "concat": ("||", _SUM),
    "mul": ("*", _PRODUCT),
    "div": ("/", _PRODUCT),
    "mod": ("%", _PRODUCT),
}
_COMPARE = {
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "is_distinct": "IS DISTINCT FROM",
    "is_not_distinct": "IS NOT DISTINCT FROM",
    "like": "LIKE",
    "not_like": "NOT LIKE",
}
_POSTFIX = {"is_null": "IS NULL", "is_not_null": "IS NOT NULL"}


def to_sql(ast: Ast) -> str:
    """The expression as SQL."""
    return _Printer().expr(ast)


class _Printer:
    """One method per family of nodes."""

    def expr(self, ast: Ast, least: int = _OR) -> str:
        text, binding = self._any(ast)
        return text if binding >= least else f"({text})"

    def _any(self, ast: Ast) -> tuple[str, int]:
        if isinstance(ast, Func):
            return self._func(ast)
        if isinstance(ast, Name):
            return ".".join(quote_name(part) for part in ast.parts), _PRIMARY
        if isinstance(ast, Lit):
            text = _literal(ast)
            return text, _UNARY if text.startswith("-") else _PRIMARY
        if isinstance(ast, CastTo):
            return f"CAST({self.expr(ast.operand)} AS {type_sql(ast.type)})", _PRIMARY
        if isinstance(ast, LambdaFn):
            return f"({', '.join(map(quote_name, ast.params))}) => {self.expr(ast.body)}", _PRIMARY
        return self._star(ast), _PRIMARY

    def _func(self, f: Func) -> tuple[str, int]:
        if f.name in _INFIX:
            sign, level = _INFIX[f.name]
            return f"{self.expr(f.args[0], level)} {sign} {self.expr(f.args[1], level + 1)}", level
        if f.name in _COMPARE:
            left, right = (self.expr(a, _SUM) for a in f.args[:2])
            escape = f" ESCAPE {self.expr(f.args[2])}" if len(f.args) == 3 else ""
            return f"{left} {_COMPARE[f.name]} {right}{escape}", _PREDICATE
        if f.name in _POSTFIX:
            return f"{self.expr(f.args[0], _SUM)} {_POSTFIX[f.name]}", _PREDICATE
        if f.name in ("between", "not_between", "in", "not_in"):
            return self._range(f), _PREDICATE
        if f.name == "not":
            return f"NOT {self.expr(f.args[0], _NOT)}", _NOT
        if f.name == "neg":  # `-5` and `-5->x` would be read with a negative literal, and `--` as a comment
            operand = self.expr(f.args[0], _PRIMARY)
            return f"-({operand})" if operand[0] in "0123456789.-" else f"-{operand}", _UNARY
        return self._shaped(f), _PRIMARY

    def _range(self, f: Func) -> str:
        subject = self.expr(f.args[0], _SUM)
        word = f.name.upper().replace("_", " ")
        if f.name.endswith("between"):
            return f"{subject} {word} {self.expr(f.args[1], _SUM)} AND {self.expr(f.args[2], _SUM)}"
        return f"{subject} {word} ({self._list(f.args[1:])})"

    def _shaped(self, f: Func) -> str:
        """Forms with brackets of their own, and ordinary calls."""
        args = f.args
        if f.name == "subscript":
            return f"{self.expr(args[0], _PRIMARY)}[{self.expr(args[1], _SUM)}]"
        if f.name == "field":
            return f"{self.expr(args[0], _PRIMARY)}->{self._field_name(args[1])}"
        if f.name == "array":
            return f"ARRAY[{self._list(args)}]"
        if f.name == "map":
            pairs = zip(args[::2], args[1::2], strict=True)
            return f"MAP({', '.join(f'{self.expr(k)} := {self.expr(v)}' for k, v in pairs)})"
        if f.name == "struct":
            fields = zip(args[::2], args[1::2], strict=True)
            return f"STRUCT({', '.join(f'{self._field_name(k)} := {self.expr(v)}' for k, v in fields)})"
        if f.name == "case":
            return self._case(f)
        name = f.name if re.fullmatch(r"[A-Z_][A-Z0-9_]*", f.name) and f.name not in RESERVED else f"`{f.name}`"
        inner = "*" if f.name == "COUNT" and not args else self._list(args)
        distinct = "DISTINCT " if f.distinct else ""
        condition = f" FILTER (WHERE {self.expr(f.filter)})" if f.filter is not None else ""
        return f"{name}({distinct}{inner}){condition}"

    def _case(self, f: Func) -> str:
        last = len(f.args) - len(f.args) % 2
        whens = zip(f.args[:last:2], f.args[1:last:2], strict=True)
        text = "".join(f" WHEN {self.expr(when)} THEN {self.expr(then)}" for when, then in whens)
        otherwise = f" ELSE {self.expr(f.args[-1])}" if len(f.args) % 2 else ""
        return f"CASE{text}{otherwise} END"

    def _star(self, star: Star) -> str:
        if star.struct_of is not None:
            return f"{self.expr(star.struct_of, _PRIMARY)}->*"
        return f"{quote_name(star.source)}.*" if star.source is not None else "*"

    def _list(self, items: tuple[Ast, ...]) -> str:
        return ", ".join(self.expr(item) for item in items)

    def _field_name(self, ast: Ast) -> str:
        assert isinstance(ast, Lit), "a field is named by a literal"
        return quote_name(str(ast.value))


def _literal(lit: Lit) -> str:
    value = lit.value
    if lit.kind == "null":
        return "NULL"
    if lit.kind == "bool":
        return "TRUE" if value else "FALSE"
    if lit.kind == "string":
        return "'" + str(value).replace("'", "''") + "'"
    if lit.kind == "interval":
        return f"INTERVAL {value} MILLISECONDS"
    if lit.kind == "double":
        text = repr(value)
        return text if "e" in text else text + "e0"
    if isinstance(value, Decimal):
        text = format(value, "f")
        return text if "." in text else text + "."
    return str(value)
