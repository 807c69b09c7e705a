"""Joins by the names of columns: USING and NATURAL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.operators import taken
from flowql.compiler.analyze.relations.expressions import RelBinder
from flowql.compiler.analyze.relations.relation import Names, Rel, RelColumn, as_columns
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.catalog.names import correction, did_you_mean, listing
from flowql.compiler.dialect.ast import Func, Name
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.functions.coercion import unify
from flowql.compiler.plan.expr import Call, Expr


def names_of(join: t.Join, left: Rel, right: Rel) -> list[str]:
    """The columns of USING, or those that NATURAL finds in both relations."""
    names = list(join.using)
    if join.natural:
        there = [c.name for c in right.columns if not c.qualified]
        names = [c.name for c in left.columns if not (c.qualified or c.is_hidden) and c.name in there]
    for name in names:
        for side in (left, right):
            count = sum(c.name == name and not c.qualified for c in side.columns)
            if count != 1:
                what = "is there more than once on one side" if count else "is not in both relations"
                title = f"the column {name} of USING {what}"
                both = [c.name for c in left.columns if c.name in {r.name for r in right.columns}]
                hint = did_you_mean(name, both) or (f"both have {listing(both)}" if both else "write  ON a.x = b.y")
                edit = correction(join.span, name, both)
                raise mistake("FQ2002", title, join.span, "cannot be joined by", help=hint, edit=edit)
    return names


def equal(name: str, left: Rel, right: Rel, join: t.Join, catalog: Catalog) -> Expr:
    """The condition that both columns of the name are equal."""
    sides = [next(c for c in r.columns if c.name == name and not c.qualified) for r in (left, right)]
    given = {f"\0{i}\0{name}": taken(c.expr()) for i, c in enumerate(sides)}
    a, b = (Name((k,), span=join.span) for k in given)
    return RelBinder((), catalog, "USING", given=given).condition(Func("eq", (a, b), join.span))


def merged_columns(kind: str, left: Rel, right: Rel, names: Sequence[str], joined_rel: Rel, fresh: Names) -> Rel:
    """The join with one column in the place of each pair of USING or NATURAL; those of the sides need their source's name.

    It is that of the side all of whose rows are there, in the common type of both; a full join takes whichever is not NULL.
    """
    merged: dict[str, RelColumn] = {}
    computed: dict[str, Expr] = {}
    for name in names:
        a = next(c for c in left.columns if c.name == name and not c.qualified)
        b = next(c for c in right.columns if c.name == name and not c.qualified)
        chosen = b if kind == "right" else a
        merged[name] = RelColumn("", name, chosen.type, chosen.column)
        common, (x, y) = unify((a.expr(), b.expr()), strict=True)
        if kind == "full":
            computed[name] = Call(common, "COALESCE", (x, y))
        elif common != chosen.type:
            computed[name] = y if kind == "right" else x
    if computed:
        joined_rel, columns = as_columns(joined_rel, [*computed.values()], fresh, names[0])
        merged |= {n: RelColumn("", n, e.type, c) for (n, e), c in zip(computed.items(), columns, strict=True)}
    rest = [replace(c, qualified=True) if c.name in names and not c.qualified else c for c in joined_rel.columns]
    return Rel(joined_rel.node, (*merged.values(), *rest))
