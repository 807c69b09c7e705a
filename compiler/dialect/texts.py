"""Expressions as text, for messages: canonical, upper-case function names, fully parenthesised operators."""

from __future__ import annotations

import re

from flowql.compiler.dialect.ast import (
    Ast,
    CastTo,
    Func,
    JoinClause,
    LambdaFn,
    Lit,
    Name,
    Query,
    SelectItem,
    Star,
    TableRef,
)
from flowql.compiler.dialect.generator import type_sql, window_text, within_text
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.expressions import POSTFIX
from flowql.compiler.dialect.standard.write_queries import WRITER
from flowql.compiler.plan.explain import call_text

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "concat": "||",
    "eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "is_distinct": "IS DISTINCT FROM", "is_not_distinct": "IS NOT DISTINCT FROM", "like": "LIKE", "not_like": "NOT LIKE",
}  # fmt: skip


_OF_STANDARD = ("between_symmetric", "ilike", "similar", "case_of", "plus")
_TEST = re.compile("is_(not_)?(true|false|unknown)")


def text_of(node: Ast) -> str:
    """`node` as a person would write it."""
    if isinstance(node, Name):
        return ".".join(node.parts)
    if isinstance(node, Lit):
        return _literal(node)
    if isinstance(node, CastTo):
        return f"CAST({text_of(node.operand)} AS {type_sql(node.type, str.upper, str)})"
    if isinstance(node, LambdaFn):
        params = node.params[0] if len(node.params) == 1 else f"({', '.join(node.params)})"
        return f"{params} => {text_of(node.body)}"
    if isinstance(node, Star):
        if node.struct_of is not None:
            return f"{text_of(node.struct_of)}->*"
        return f"{node.source}.*" if node.source else "*"
    if isinstance(node, t.Call):
        return call_text(node.name[-1].upper(), [text_of(a) for a in node.args])
    return _function(node) if isinstance(node, Func) and not _is_standard(node) else WRITER.expr(node, POSTFIX)


def _is_standard(node: Func) -> bool:
    """Whether it is an operator of standard SQL, or a form of it."""
    known = node.name.isidentifier() and node.name.removeprefix("not_") not in _OF_STANDARD
    return not known or _TEST.fullmatch(node.name) is not None


def _literal(node: Lit) -> str:
    if node.value is None:
        return "NULL"
    if node.kind == "string":
        return "'" + str(node.value).replace("'", "''") + "'"
    return str(node.value).lower() if node.kind == "bool" else str(node.value)


def _function(node: Func) -> str:
    args = [text_of(a) for a in node.args]
    match node.name:
        case "and" | "or":
            return f"({f' {node.name.upper()} '.join(args)})"
        case name if name in _BINARY and len(args) >= 2:
            escape = f" ESCAPE {args[2]}" if len(args) > 2 else ""
            return f"({args[0]} {_BINARY[name]} {args[1]}{escape})"
        case "row":
            return f"ROW({', '.join(args)})"
        case "sql_interval":
            return f"INTERVAL '{args[0]} months {args[1]} days {args[2]} us'"
        case "neg":
            return f"-{args[0]}"
        case "not":
            return f"(NOT {args[0]})"
        case "is_null":
            return f"({args[0]} IS NULL)"
        case "is_not_null":
            return f"({args[0]} IS NOT NULL)"
        case "in" | "not_in":
            return f"({args[0]} {'NOT IN' if node.name == 'not_in' else 'IN'} ({', '.join(args[1:])}))"
        case "between" | "not_between":
            return f"({args[0]} {'NOT BETWEEN' if node.name == 'not_between' else 'BETWEEN'} {args[1]} AND {args[2]})"
        case "subscript":
            return f"{args[0]}[{args[1]}]"
        case "field":
            return f"{args[0]}->{_bare(node.args[1])}"
        case "case":
            pairs = " ".join(f"WHEN {w} THEN {t}" for w, t in zip(args[0:-1:2], args[1::2], strict=False))
            return f"(CASE {pairs}{f' ELSE {args[-1]}' if len(args) % 2 else ''} END)"
        case "array":
            return f"ARRAY[{', '.join(args)}]"
        case "map":
            return f"MAP({', '.join(f'{k}:={v}' for k, v in zip(args[::2], args[1::2], strict=False))})"
        case "struct":
            names = [_bare(a) for a in node.args[::2]]
            return f"STRUCT({', '.join(f'{k}:={v}' for k, v in zip(names, args[1::2], strict=False))})"
    return call_text(node.name.upper(), args)


def _bare(node: Ast) -> str:
    return str(node.value) if isinstance(node, Lit) else text_of(node)


def statement_text(name: str, kind: str, query: Query, *, insert: bool = False) -> str:
    """A persistent query as canonical text: the same for SQL and for a structured definition, without properties."""
    head = f"INSERT INTO {name}" if insert else f"CREATE {kind.upper()} {name} AS"
    return f"{head} {query_text(query)}"


def query_text(query: Query) -> str:
    """A SELECT on one line."""
    parts = ["SELECT " + ", ".join(_item(s) for s in query.select), "FROM " + _source(query.source)]
    parts += [_join(j) for j in query.joins]
    if query.window is not None:
        parts.append(window_text(query.window))
    if query.where is not None:
        parts.append(f"WHERE {text_of(query.where)}")
    if query.group_by:
        parts.append("GROUP BY " + ", ".join(map(text_of, query.group_by)))
    if query.partition_by:
        parts.append("PARTITION BY " + ", ".join(map(text_of, query.partition_by)))
    if query.having is not None:
        parts.append(f"HAVING {text_of(query.having)}")
    parts.append(f"EMIT {(query.emit or 'changes').upper()}")
    return " ".join(parts)


def _item(item: SelectItem) -> str:
    return text_of(item.expr) + (f" AS {item.alias}" if item.alias else "")


def _source(ref: TableRef) -> str:
    name = f"({query_text(ref.query)})" if ref.query is not None else ref.name
    return name + (f" {ref.alias}" if ref.alias else "")


def _join(join: JoinClause) -> str:
    kind = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}[join.kind]
    within = f" {within_text(join.within)}" if join.within is not None else ""
    return f"{kind} {_source(join.right)}{within} ON {text_of(join.on)}"
