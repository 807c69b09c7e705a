"""The result of a part of a query: a node, and the names by which an expression may call its columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from flowql.compiler.analyze.relation import retracting, scan
from flowql.compiler.plan.changes import SortKey
from flowql.compiler.plan.expr import ROWTIME, Call, Column, Expr, Literal
from flowql.compiler.plan.logical import Filter, NamedExpr, Node, Project
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.tables import HIDDEN
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import BIGINT, BOOLEAN, INT, SqlType, struct
from flowql.compiler.plan.watermarks import AppendOnly

OUTER = "\0outer"  # the source of columns that are carried through a sub-query: `Rel.carried`
WHOLE = "\0whole"  # the source of columns that hold the whole row of a relation, and have the name of its alias


@dataclass(frozen=True, slots=True)
class RelColumn:
    """A column as an expression names it (`source`.`name`; source is empty for a computed one) and as the plan does (`column`).

    qualified: it has a name only together with its source, because USING or NATURAL made one column of two.
    key: plan names of the columns of a PRIMARY KEY on which its value depends; empty without such a key. is_hidden: `*` does not show it.
    """

    source: str
    name: str
    type: SqlType
    column: str
    qualified: bool = False
    key: tuple[str, ...] = ()
    is_hidden: bool = False

    @property
    def is_shown(self) -> bool:
        """Whether it is one of the relation's own columns."""
        return self.source not in (OUTER, WHOLE)

    def expr(self) -> Column:
        return Column(self.type, self.column)


@dataclass(frozen=True, slots=True)
class Rel:
    """A relation: rows of `node`, whose key columns are the row identity. columns: in the order of `*`. Plan names are unique in a query."""

    node: Node
    columns: tuple[RelColumn, ...]

    @property
    def names(self) -> frozenset[str]:
        """Plan names of everything an expression over it may read."""
        return frozenset(self.node.schema.names)

    @property
    def shown(self) -> tuple[RelColumn, ...]:
        """The columns but those that are carried, and whole rows."""
        return tuple(c for c in self.columns if c.is_shown)

    @property
    def carried(self) -> tuple[RelColumn, ...]:
        """The columns of a dependent sub-query that tell for which row of the outer query a row is.

        `name` is the plan name of the column there.
        """
        return tuple(c for c in self.columns if c.source == OUTER)


@dataclass(frozen=True, slots=True)
class WindowBound:
    """A bound of a time window: `column` is the time that it was made of, the last time of the window is `last_ms` after the bound."""

    column: str
    last_ms: int


@dataclass(slots=True)
class Names:
    """Plan names, each given once: the name that a person would expect, with a number behind it when it is taken.

    windows: which of them are bounds of time windows.
    """

    _given: dict[str, int] = field(default_factory=dict)
    windows: dict[str, WindowBound] = field(default_factory=dict)

    def fresh(self, stem: str) -> str:
        stem = re.sub(r"\W", "_", stem) or "column"
        while True:
            count = self._given.get(stem, 0)
            self._given[stem] = count + 1
            name = stem if not count else f"{stem}_{count + 1}"
            if not count or name not in self._given:
                self._given.setdefault(name, 1)
                return name


def column_of(f: Field) -> Column:
    return Column(f.type, f.name)


def scanned(source: SourceDef, alias: str, names: Names) -> Rel:
    """All columns of a table, a view or a stream, under names of this query, in front of them the row identity."""
    node, visible = _changes(source), source.visible
    fields = {f.name: f for f in source.schema.fields}
    identity = [(Field(names.fresh(f"__{alias}"), f.type, "key"), column_of(f)) for f in _identity(node, source)]
    columns: list[RelColumn] = []
    exprs: list[NamedExpr] = []
    for name in visible:
        f = fields[name]
        columns.append(RelColumn(alias, name, f.type, names.fresh(name)))
        exprs.append(NamedExpr(columns[-1].column, column_of(f)))
    for f in source.schema.fields:
        if f.name not in visible and not f.name.startswith(HIDDEN):
            columns.append(RelColumn(alias, f.name, f.type, names.fresh(f.name), is_hidden=True))
            exprs.append(NamedExpr(columns[-1].column, column_of(f)))
    for name, e in _of_records(node, source):
        columns.append(RelColumn(alias, name, e.type, names.fresh(name), is_hidden=True))
        exprs.append(NamedExpr(columns[-1].column, e))
    key = tuple(c.column for f in source.schema.key for c in columns if c.name == f.name)
    if len(key) == len(source.schema.key):
        columns = [replace(c, key=key) for c in columns]
    return Rel(projected(node, identity, exprs), tuple(columns))


def _changes(source: SourceDef) -> Node:
    """The rows of a source as changes. Where rows are only added nothing of them has to be kept."""
    node = scan(source, {})
    rules = source.rules
    if source.kind == "table" and not (
        rules is not None and rules.append_only and rules.on_duplicate not in ("replace", "fill")
    ):
        return retracting(node)
    return Node(AppendOnly(source.watermark), (node,), node.schema, "retract")


def _of_records(node: Node, source: SourceDef) -> list[tuple[str, Column]]:
    """The system columns of a stream: ROWTIME, ROWPARTITION and ROWOFFSET of each record."""
    if source.kind == "table" or source.value_format.name == "NONE":  # the rows of an interactive query are in no topic
        return []
    found = [("ROWTIME", Column(BIGINT, ROWTIME)), *((f.name, column_of(f)) for f in node.schema if f.role == "pseudo")]
    return [(name, e) for name, e in found if source.schema.get(name) is None]


def _identity(node: Node, source: SourceDef) -> Sequence[Field]:
    """The fields that tell rows apart: the key of a table; of a stream the places of its records."""
    return node.schema.key if source.kind == "table" else [f for f in node.schema if f.role == "pseudo"]


def projected(node: Node, identity: Sequence[tuple[Field, Expr]], columns: Sequence[NamedExpr]) -> Node:
    """A projection with this row identity. identity: (field, what it is) in order."""
    exprs = (*(NamedExpr(f.name, e) for f, e in identity), *columns)
    schema = Schema((*(f for f, _ in identity), *(Field(c.name, c.expr.type) for c in columns)))
    return Node(Project(exprs), (node,), schema, "retract")


def kept_identity(node: Node) -> list[tuple[Field, Expr]]:
    """The row identity of a node as it is."""
    return [(f, column_of(f)) for f in node.schema.key]


def extended(rel: Rel, computed: Sequence[NamedExpr]) -> Rel:
    """The relation with more columns behind its own, which `*` does not show."""
    if not computed:
        return rel
    own = [NamedExpr(f.name, column_of(f)) for f in rel.node.schema if f.role != "key"]
    return Rel(projected(rel.node, kept_identity(rel.node), [*own, *computed]), rel.columns)


def as_columns(rel: Rel, exprs: Sequence[Expr], names: Names, stem: str) -> tuple[Rel, list[str]]:
    """The relation with a column for each expression, and the names of these; a column stands for itself."""
    found: list[str] = []
    computed: list[NamedExpr] = []
    for e in exprs:
        if isinstance(e, Column) and e.name in rel.names:
            found.append(e.name)
            continue
        same = next((c for c in computed if c.expr == e), None)
        if same is None:
            same = NamedExpr(names.fresh(stem), e)
            computed.append(same)
        found.append(same.name)
    return extended(rel, computed), found


def filtered(rel: Rel, conditions: Iterable[Expr]) -> Rel:
    """Rows for which every condition is true."""
    node = rel.node
    for condition in conditions:
        if condition == Literal(BOOLEAN, True):
            continue
        node = Node(Filter(condition), (node,), node.schema, "retract")
    return replace(rel, node=node)


def with_row(rel: Rel, alias: str, names: Names) -> Rel:
    """The relation with its whole row as a column, which is NULL where an outer join shows no row of it."""
    own = [c for c in rel.shown if not c.is_hidden]
    row = struct(*((c.name, c.type) for c in own))
    column = RelColumn(WHOLE, alias, row, names.fresh(alias), qualified=True)
    made = extended(rel, [NamedExpr(column.column, Call(row, "struct", tuple(c.expr() for c in own)))])
    return replace(made, columns=(*rel.columns, column))


def renamed_source(rel: Rel, alias: str, columns: Sequence[str] = ()) -> Rel:
    """The relation under an alias, its first columns under new names."""
    shown = [c for c in rel.shown if not c.qualified]
    made = [
        replace(c, source=alias, name=columns[i] if i < len(columns) else c.name, qualified=False)
        for i, c in enumerate(shown)
    ]
    return Rel(rel.node, (*made, *rel.carried))


def selected(rel: Rel, items: Sequence[tuple[str, Expr]], names: Names) -> Rel:
    """The relation of these columns and those that are carried, each under a plan name of its own."""
    columns = [RelColumn("", name, e.type, names.fresh(name)) for name, e in items]
    exprs = [NamedExpr(c.column, e) for c, (_, e) in zip(columns, items, strict=True)]
    for c in rel.carried:
        columns.append(replace(c, column=names.fresh(c.name)))
        exprs.append(NamedExpr(columns[-1].column, c.expr()))
    return Rel(projected(rel.node, kept_identity(rel.node), exprs), tuple(columns))


def copied(rel: Rel, names: Names) -> Rel:
    """The same rows once more, under other plan names."""
    identity = [(replace(f, name=names.fresh(f.name)), column_of(f)) for f in rel.node.schema.key]
    columns = [replace(c, column=names.fresh(c.column), key=()) for c in rel.columns]
    exprs = [NamedExpr(c.column, old.expr()) for c, old in zip(columns, rel.columns, strict=True)]
    return Rel(projected(rel.node, identity, exprs), tuple(columns))


def with_identity(node: Node, names: Names) -> Node:
    """A node whose rows have an identity: the single row of an aggregation without keys has a constant one."""
    if node.schema.key:
        return node
    own = [NamedExpr(f.name, column_of(f)) for f in node.schema]
    return projected(node, [(Field(names.fresh("__row"), INT, "key"), Literal(INT, 0))], own)


@dataclass(frozen=True, slots=True)
class Order:
    """One expression to order by; `nulls_first` is decided."""

    expr: Expr
    descending: bool
    nulls_first: bool

    def key(self, column: str) -> SortKey:
        return SortKey(column, self.descending, self.nulls_first)
