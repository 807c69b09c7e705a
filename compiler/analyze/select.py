"""The select list: stars expanded, every item named and bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flowql.compiler.analyze.bind import Binder
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.scope import Scope, ScopeColumn
from flowql.compiler.analyze.sources import RESERVED
from flowql.compiler.catalog.names import did_you_mean, listing
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Ast, Func, Lit, Name, SelectItem, Star
from flowql.compiler.dialect.texts import text_of
from flowql.compiler.plan.expr import Expr
from flowql.compiler.plan.types import Kind


@dataclass(frozen=True, slots=True)
class Item:
    """One output column. `copy`: written as AS_VALUE(...), never a key column."""

    name: str
    expr: Expr
    node: Ast
    copy: bool = False

    @property
    def span(self) -> Span:
        return self.node.span

    @property
    def text(self) -> str:
        return text_of(self.node)


def star_columns(scope: Scope, alias: str | None) -> list[ScopeColumn]:
    """Columns of `*` or `alias.*`: the own columns of the sources, and a synthetic join key for a bare star."""
    hidden = ("pseudo",) if scope.joined else ("pseudo", "window")  # joins of windowed sources show their bounds
    wanted = [c for c in scope.columns if c.role not in hidden and not c.hidden]
    return [c for c in wanted if (c.source == alias if alias is not None else True)]


def bind_items(
    select: Sequence[SelectItem], scope: Scope, binder: Binder, star: Sequence[Item] | None = None
) -> list[Item]:
    """All output columns in order. `star` replaces a bare `*` where the query changes the key."""
    names = _Names(scope, select)
    items: list[Item] = []
    for s in select:
        if isinstance(s.expr, Star) and s.expr.struct_of is not None:
            items += _struct_fields(s.expr, s.expr.struct_of, binder, names)
        elif isinstance(s.expr, Star):
            whole = list(star) if star is not None and s.expr.source is None else _star(s.expr, scope)
            items += whole
        else:
            items.append(_item(s, scope, binder, names))
    _check_names(items)
    return items


class _Names:
    """Gives names to columns without one: KSQL_COL_0, KSQL_COL_1, ... and struct fields."""

    def __init__(self, scope: Scope, select: Sequence[SelectItem]) -> None:
        self._taken = {c.name for c in scope.columns} | {s.alias for s in select if s.alias}
        self._next = 0
        self._fields: set[str] = {s.alias for s in select if s.alias}

    def generated(self) -> str:
        while f"KSQL_COL_{self._next}" in self._taken:
            self._next += 1
        self._next += 1
        return f"KSQL_COL_{self._next - 1}"

    def of_field(self, name: str) -> str:
        candidate, n = name, 0
        while candidate in self._fields:
            n += 1
            candidate = f"{name}_{n}"
        self._fields.add(candidate)
        return candidate


def _item(s: SelectItem, scope: Scope, binder: Binder, names: _Names) -> Item:
    node = s.expr
    copy = isinstance(node, Func) and node.name == "AS_VALUE"
    if s.alias is not None and _is_reserved(s.alias, binder):
        title = f"`{s.alias}` is a reserved column name and cannot be the alias of a column"
        raise mistake("FQ2008", title, s.span, "reserved", help="choose another alias")
    expr = binder.bind(node)
    name = s.alias
    if name is None:
        name = _default_name(node, scope, names)
    if _is_reserved(name, binder):
        title = f"reserved column name in select: `{name}`"
        raise mistake(
            "FQ2008",
            title,
            node.span,
            "reserved",
            help=f"remove the column or give it an alias, as in {name} AS MY_{name}",
        )
    if expr.type.kind is Kind.NULL:
        raise mistake(
            "FQ2005", f"column {name} is NULL and has no type", s.span, "of which type?", help="write CAST(NULL AS ...)"
        )
    return Item(name, expr, node, copy)


def _is_reserved(name: str, binder: Binder) -> bool:
    """KsqlDB compares names of pseudo columns without regard to case, also in quotes."""
    return (name if binder.standard else name.upper()) in RESERVED


def _default_name(node: Ast, scope: Scope, names: _Names) -> str:
    if isinstance(node, Name):
        column = node.parts[-1]
        if not scope.joined:
            return column
        owners = [
            c.source for c in scope.columns if c.name == column and (len(node.parts) == 1 or c.source == node.parts[0])
        ]
        return f"{owners[0]}_{column}" if owners and scope.is_ambiguous(column) else column
    if isinstance(node, Func) and node.name == "field" and isinstance(node.args[1], Lit):
        return names.of_field(str(node.args[1].value))
    return names.generated()


def _star(node: Star, scope: Scope) -> Iterable[Item]:
    if node.source is not None and node.source not in scope.aliases:
        hint = did_you_mean(node.source, scope.aliases) or f"sources here are {listing(scope.aliases)}"
        raise mistake(
            "FQ2001",
            f"'{node.source}' is not a valid stream/table name or alias",
            node.span,
            "unknown source",
            help=hint,
        )
    return [item_of(c, scope, node.span) for c in star_columns(scope, node.source)]


def item_of(c: ScopeColumn, scope: Scope, span: Span) -> Item:
    """A column as `*` gives it: with the alias in front in a join."""
    name = f"{c.source}_{c.name}" if scope.joined and c.source else c.name
    parts = (c.source, c.name) if c.source else (c.name,)
    return Item(name, c.expr(), Name(parts, span))


def _struct_fields(star: Star, base: Ast, binder: Binder, names: _Names) -> Iterable[Item]:
    bound = binder.bind(base)
    if bound.type.kind is not Kind.STRUCT:
        title = f"{text_of(base)} is {bound.type}, not a STRUCT: it has no fields to expand with ->*"
        raise mistake("FQ2005", title, star.span, f"this is {bound.type}")
    for field, _ in bound.type.fields:
        node = Func("field", (base, Lit("string", field, star.span)), star.span)
        yield Item(names.of_field(field), binder.bind(node), node)


def _check_names(items: Sequence[Item]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.name in seen:
            raise mistake(
                "FQ2004",
                f"the projection has two columns named {item.name}",
                item.span,
                "named like another",
                help="give it an alias with AS",
            )
        seen.add(item.name)
