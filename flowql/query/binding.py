"""Relations as the binder of standard SQL has them, and constants of bound queries as values."""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.analyze.relations.asked import Readable
from flowql.compiler.functions.folding import folded as folded_constants
from flowql.compiler.functions.user_rows import folded
from flowql.compiler.plan.expr import Call, Column, Expr
from flowql.compiler.plan.schema import WINDOW_END, WINDOW_START, Schema
from flowql.compiler.plan.types import BIGINT, INT
from flowql.query.relations import Relation, StoreRelation, TopicRelation
from flowql.query.views import ROWTIME

_SYSTEM = (ROWTIME, WINDOW_START, WINDOW_END, "KEY", "VALUE")


def readable_of(relation: Relation) -> Readable:
    """As the dialect names it: names that the system gives are read without quotes."""
    given = isinstance(relation, TopicRelation | StoreRelation)
    fields = [
        replace(f, name=f.name.lower(), type=folded(f.type, str.lower)) if not given or f.name in _SYSTEM else f
        for f in relation.schema
    ]
    names = {f.name for f in fields}
    key: tuple[str, ...] = ()
    if isinstance(relation, TopicRelation) and relation.source.kind == "table":
        key = tuple(f.name for f in relation.source.schema.key)
    elif isinstance(relation, StoreRelation):
        key = tuple(f.name if f is not None else "" for f in relation.view.key)
    hidden = (ROWTIME.lower(),) if isinstance(relation, TopicRelation) else ()
    return Readable(Schema(tuple(fields)), key if key and names.issuperset(key) else (), hidden)


def plain(e: Expr) -> Expr:
    """A constant as its value, and a column that is widened for a comparison as it is."""
    if isinstance(e, Call) and e.name == "cast" and e.type == BIGINT and e.args[0].type == INT:
        (given,) = e.args
        return given if isinstance(given, Column) else folded_constants(e)
    return folded_constants(e)
