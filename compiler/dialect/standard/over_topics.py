"""CREATE STREAM and CREATE TABLE over a topic, and columns that ALTER adds, as in ksqlDB's dialect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from flowql.compiler.diagnostics.edits import renamed
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.diagnostics.suggest import closest
from flowql.compiler.dialect.ast import ColumnDef, CreateSource, Func, LambdaFn, Lit, Name, TypeRef
from flowql.compiler.dialect.standard import statement_tree as st
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import check_depth, fail, unsupported
from flowql.compiler.dialect.standard.types import REALS, SMALL
from flowql.compiler.dialect.standard.watermarks import watermark_of
from flowql.compiler.dialect.standard.write_expressions import write_type

_CONSTRAINTS = {
    "NOT NULL": "leave it out; a column may be NULL unless it is of the key",
    "UNIQUE": "a table has one key, its PRIMARY KEY",
}
_TEXTS = ("varchar", "char")
_ELEMENT = "__element"  # in the lambda of a limit


class Limit(NamedTuple):
    """A condition that no row of a table may break. what: the constraint as it is told to a person."""

    what: str
    condition: t.Expr
    span: Span


def is_own_table(s: st.CreateTable) -> bool:
    """Whether a table holds rows of its own: it is over no topic."""
    over_topic = not s.columns or s.read_only or any(p.name != "PARTITIONS" for p in s.properties)
    return s.kind == "table" and not over_topic and all(c.role != "header" for c in s.columns)


def over_topic(s: st.CreateTable) -> CreateSource:
    """The statement about the topic. Raises CompileError."""
    check_depth(s)
    watermark = watermark_of(s)
    keyed = s.primary_key or any(c.role in ("key", "primary_key") for c in s.columns)
    if s.append_only and keyed:
        unsupported("APPEND ONLY of a table over a topic with a PRIMARY KEY", s.name_span, "write  CREATE STREAM")
    kind = "stream" if s.append_only or watermark is not None else s.kind
    for check in (*s.checks, *(c for column in s.columns for c in column.checks)):
        unsupported("CHECK of a relation over a topic", check.span, "leave it out, and filter with WHERE")
    for constraint, span in s.constraints:
        unsupported(constraint, span, _CONSTRAINTS.get(constraint, "leave it out"))
    return CreateSource(
        s.text,
        s.span,
        name=s.name,
        kind=kind,
        columns=_columns(s),
        properties=s.properties,
        or_replace=s.or_replace,
        if_not_exists=s.if_not_exists,
        read_only=s.read_only,
        watermark=watermark,
        name_span=s.name_span,
    )


def _columns(s: st.CreateTable) -> tuple[ColumnDef, ...]:
    """Those of a key in the order in which it names them, each where it stands."""
    check_key(s)
    return tuple(_column(c, "primary_key" if c.name in s.primary_key else c.role) for c in s.columns)


def _column(c: st.ColumnDefinition, role: Literal["value", "key", "primary_key", "header"]) -> ColumnDef:
    if c.default is not None:
        unsupported("DEFAULT of a column", c.default.span, "give the value in INSERT")
    if c.generated is not None:
        unsupported("a generated column", c.generated.span, "compute it in a view")
    others = [o for o in c.constraints if not (o == "NOT NULL" and role in ("key", "primary_key"))]
    if others:
        unsupported(f"{others[0]} of a column", c.span, _CONSTRAINTS.get(others[0], "leave it out"))
    return replace(c, role=role)


def check_key(s: st.CreateTable) -> None:
    """Raises CompileError where the PRIMARY KEY names another column than those of the table."""
    names = [c.name for c in s.columns]
    for key in s.primary_key:
        if key not in names:
            title = f"the PRIMARY KEY names {key}, which is not a column of the table"
            help = f"columns are {', '.join(names)}"
            near = closest(key, names)
            edit = renamed(s.span, key, near[0]) if near else None
            fail("FQ2002", title, s.name_span, label="unknown key column", help=help, edit=edit)


def added_column(c: st.ColumnDefinition) -> ColumnDef:
    """A column of ALTER. Raises CompileError."""
    check_depth(c)
    for check in c.checks:
        unsupported("CHECK of a column that is added", check.span, "say it where the table is created")
    return _column(c, c.role)


def limits_of(columns: Iterable[ColumnDef]) -> Iterator[Limit]:
    """The limits that the types of columns set for values."""
    limited = ((c, _limit(Name((c.name,)), c.type)) for c in columns)
    return (Limit(f"{c.name} {write_type(c.type).upper()}", e, c.span) for c, e in limited if e is not None)


def _limit(value: t.Expr, made: TypeRef) -> t.Expr | None:
    """The limits that `VARCHAR(3)`, `SMALLINT` and `REAL` set for a value and its parts. A CHAR(n) is not filled up with blanks."""
    if made.name in _TEXTS and len(made.parameters) == 1:
        return Func("le", (t.Call(("char_length",), (value,)), Lit("number", str(made.parameters[0]))))
    if made.name in SMALL:
        return Func("between", (value, *(Lit("int", n) for n in SMALL[made.name])))
    if made.name in REALS:
        unchecked = Func("is_null", (value,))
        return Func("or", (unchecked, Func("is_not_null", (Func("sql_real", (value,)),))))
    if len(made.args) == 2:
        keys, values = (Func(name, (value,)) for name in ("MAP_KEYS", "MAP_VALUES"))
        found = [_elements_limit(keys, made.args[0]), _elements_limit(values, made.args[1])]
    elif made.args:
        found = [_elements_limit(value, made.args[0])]
    else:
        found = [_limit(Func("field", (value, Lit("string", name))), part) for name, part in made.fields]
    limits = tuple(limit for limit in found if limit is not None)
    return Func("and", limits) if len(limits) > 1 else next(iter(limits), None)


def _elements_limit(values: t.Expr, made: TypeRef) -> t.Expr | None:
    """No element of an array is beyond the limit of its type."""
    limit = _limit(Name((_ELEMENT,)), made)
    if limit is None:
        return None
    beyond = Func("FILTER", (values, LambdaFn((_ELEMENT,), Func("not", (limit,)))))
    return Func("eq", (t.Call(("cardinality",), (beyond,)), Lit("int", 0)))
