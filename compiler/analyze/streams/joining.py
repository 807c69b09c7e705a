"""Joins of streams as SELECTs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.streams.draft import Draft, conjunction, query_of
from flowql.compiler.analyze.streams.names import Resolver
from flowql.compiler.dialect.ast import Ast, Func, JoinClause, Name, TableRef
from flowql.compiler.streams.steps import Join, Step

CODE = "FQ2072"
_SYNTHETIC = "ROWKEY"  # the key of an outer join, which is a column of neither side


@dataclass(frozen=True, slots=True)
class _Side:
    """An input. alias: of its columns. on: what is equal to the other side; column: its name where it is a column as it is."""

    draft: Draft
    ref: TableRef
    alias: str
    on: Ast
    column: str | None

    def items(self) -> dict[str, Ast]:
        return {n: self.item(n) for n in self.draft.items}

    def item(self, name: str) -> Name:
        return Name((self.alias, self.draft.inner_name(name)))


def joined(step: Join, left: Draft, right: Draft, resolver: Resolver, is_table: Callable[[Step], bool]) -> Draft:
    """The join of two inputs. Raises CompileError."""
    by_name = left.is_chosen and right.is_chosen and left.source.name != right.source.name
    a = _side(step, left, step.on[0], resolver, left.source.name if by_name else "L")
    b = _side(step, right, step.on[1], resolver, right.source.name if by_name else "R")
    conditions: list[Ast] = [Func("eq", (a.on, b.on), step.at)]
    if step.prior:
        conditions.append(Func("lt", (Name((b.alias, "ROWTIME")), Name((a.alias, "ROWTIME"))), step.at))
    clause = JoinClause(step.kind, b.ref, conjunction(conditions, step.at), step.within, step.at)
    foreign = all(map(is_table, step.inputs)) and a.column not in left.keys
    keys, items = _columns(step, a, b, foreign=foreign)
    return Draft(a.ref, keys, items, joins=(clause,), at=step.at)


def _side(step: Join, draft: Draft, on: Ast | None, resolver: Resolver, alias: str) -> _Side:
    plain = draft.is_chosen
    name = draft.source.name if plain else ""
    query = None if plain else query_of(draft)
    ref = TableRef(name, None if name == alias else alias, query, step.at)
    if on is None:
        if len(draft.keys) != 1:
            title = f"join: {name or 'one side'} has {len(draft.keys) or 'no'} key columns"
            help = 'on="customer", a column of both sides, or on=("customer", "id")'
            raise mistake(CODE, title, step.at, "joined on what?", help=help)
        return _Side(draft, ref, alias, Name((alias, draft.inner_name(draft.keys[0]))), draft.keys[0])
    column = resolver.column(draft, on) if isinstance(on, Name) else None
    return _Side(draft, ref, alias, resolver.within(draft, on, (alias,)), column)


def _columns(step: Join, a: _Side, b: _Side, *, foreign: bool) -> tuple[tuple[str, ...], dict[str, Ast]]:
    """The key of the result, and its columns: the key, those of the left side, those of the right side without what is equal."""
    key: dict[str, Ast] = {}
    if foreign:
        key = {k: a.item(k) for k in a.draft.keys}
    elif step.kind == "full" or (a.column is None and b.column is None):
        key = {a.column or b.column or _SYNTHETIC: Name((_SYNTHETIC,))}
    elif a.column is not None:
        key = {a.column: a.item(a.column)}
    elif b.column is not None:
        key = {_free(b.column, a.items(), step): b.item(b.column)}
    items = {**key, **{n: e for n, e in a.items().items() if n not in key}}
    for name, expr in b.items().items():
        if name != b.column:
            items[_free(name, items, step)] = expr
    return tuple(key), items


def _free(name: str, taken: Mapping[str, Ast], step: Join) -> str:
    if name not in taken:
        return name
    if (made := name + step.suffix) not in taken and step.suffix:
        return made
    title = f"join: both sides have the column {name}"
    raise mistake(CODE, title, step.at, "names clash", help='suffix="_OTHER"')
