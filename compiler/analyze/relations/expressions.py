"""Expressions over relations: which column a name means, and expressions that something else has computed before."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from flowql.compiler.analyze.bind import Binder
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.operators import taken
from flowql.compiler.analyze.relations.relation import OUTER, WHOLE, RelColumn
from flowql.compiler.analyze.scope import Scope, ScopeColumn, resolve
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.dialect.ast import Ast, Func, Lit, Name
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.dialect.standard.write_queries import WRITER
from flowql.compiler.dialect.texts import text_of
from flowql.compiler.functions.registry import AggregateFunction, Function
from flowql.compiler.plan.expr import Call, Column, Expr, Literal, columns_of
from flowql.compiler.plan.temporal_filters import DAY_MS
from flowql.compiler.plan.types import DATE, SPAN, TIMESTAMP, TIMESTAMPTZ
from flowql.compiler.plan.visit import substitute

_MARK = "\0"  # in the name of what stands for an expression that is bound already
CLOCK = ("sql_now", "sql_localtimestamp", "sql_current_date")
# A value of the present moment would change in every row at each tick. A condition on it changes once for each row, so WHERE permits it.
_ASKED = (
    "write a condition as two queries:  SELECT id, TRUE AS past FROM t WHERE ts < NOW() UNION ALL SELECT id, FALSE FROM t WHERE ts >= NOW();  "
    "compute other values where the view is read:  SELECT NOW() - ts FROM the_view"
)

# Aggregates of ksqlDB, which depend on the order of records or keep what they cannot take out again.
_OF_KSQL = {
    "COLLECT_LIST": "write  ARRAY_AGG(x)",
    "COLLECT_SET": "write  ARRAY_AGG(DISTINCT x)",
    "COUNT_DISTINCT": "write  COUNT(DISTINCT x)",
    "CORRELATION": "write  CORR(x, y)",
    "EARLIEST_BY_OFFSET": "write  FIRST_VALUE(x ORDER BY time)",
    "LATEST_BY_OFFSET": "write  LAST_VALUE(x ORDER BY time)",
    "HISTOGRAM": "group by the value, and count",
    "TOPK": "write  ARRAY_AGG(x ORDER BY x DESC)",
    "TOPKDISTINCT": "write  ARRAY_AGG(DISTINCT x ORDER BY x DESC)",
    "ATTR": "write  MIN(x)  and  MAX(x), and compare them",
}

Misnamed = Callable[[Name], CompileError | None]  # the mistake behind a name that is no column, where it is known


class Correlated(Exception):
    """A query names columns of the query around it elsewhere than where a join can compare them. It is then answered by `dependent`."""


class OuterAggregate(CompileError):
    """An aggregate in a sub-query names columns of a query around alone: it is one of that query. owner: binds over the rows that query groups."""

    def __init__(self, node: t.Call, owner: RelBinder) -> None:
        title = "an aggregate of the query around is not allowed here"
        super().__init__(*mistake("FQ2020", title, node.span, "only of its columns").diagnostics)
        self.node, self.owner = node, owner


class RelBinder(Binder):
    """Binds expressions over a relation. outer: the query around a sub-query, whose columns it may name, too.

    given: what a placeholder (`Placeholders`) stands for. uses_outer: whether an expression has named a column of `outer` that the
    relation does not carry. carried_used: plan names, in the query around, of those it does carry and that were named.
    """

    def __init__(
        self,
        columns: Sequence[RelColumn],
        catalog: Catalog,
        clause: str,
        *,
        outer: RelBinder | None = None,
        given: Mapping[str, Expr] | None = None,
    ) -> None:
        super().__init__(_scope(columns), catalog, clause)
        self.columns, self.outer, self.catalog = tuple(columns), outer, catalog
        self.given: Mapping[str, Expr] = {} if given is None else given
        self.uses_outer = False
        self.misnamed: Misnamed = lambda _name: None
        self.carried_used: set[str] = outer.carried_used if outer is not None else set()
        self._carried = {c.name: c.expr() for c in columns if c.source == OUTER}

    @property
    def ungrouped(self) -> RelBinder:
        """The binder over the rows before they are grouped."""
        return self

    @property
    def clause(self) -> str:
        return self._clause

    def _name(self, node: Name) -> Expr:
        if node.parts[0].startswith(_MARK):
            return self._given(node)
        if len(node.parts) == 1 and any(node.parts[0] in frame for frame in self._lambda):
            return super()._name(node)
        found = self.find(node)
        if found is None and self.outer is not None:
            around = self.outer.seen(node)
            found = around and self._of_outer(around)
        if found is not None:
            return taken(Column(found.type, found.name, node.span))
        around_here: RelBinder | None = self
        while around_here is not None:
            if (known := around_here.misnamed(node)) is not None:
                raise known
            around_here = around_here.outer
        resolve(self._scope, node, self._clause)
        raise AssertionError("a name that is not found is an error")

    def meant(self, node: Name) -> Expr | None:
        """The meaning of a name or placeholder, here or in an outer query; None for an unknown one. Raises for an ambiguous one."""
        return self._given(node) if node.parts[0].startswith(_MARK) else self.seen(node)

    def seen(self, node: Name) -> Column | None:
        """The column that a name means here or in a query around, as this query has it. Raises for an ambiguous one."""
        found = self.find(node)
        if found is not None or self.outer is None:
            return found
        around = self.outer.seen(node)
        mine = self._carried.get(around.name) if around is not None else None
        return self._carried_as(mine) if mine is not None else around

    def _of_outer(self, column: Column) -> Column:
        mine = self._carried.get(column.name)
        if mine is None:
            assert self.outer is not None
            self.uses_outer = True
            self.outer.note(column)
            return column
        self.carried_used.add(column.name)
        return self._carried_as(mine)

    def note(self, column: Column) -> None:
        """A query inside names this column of here or of a query around: where it is carried, it is needed."""
        name = next((n for n, c in self._carried.items() if self._carried_as(c).name == column.name), None)
        if name is not None:
            self.carried_used.add(name)
        elif self.outer is not None:
            self.outer.note(column)

    def _carried_as(self, column: Column) -> Column:
        return column

    @property
    def carried(self) -> list[Expr]:
        """The carried columns as they are where expressions are bound, in order."""
        return [self._carried_as(c) for c in self._carried.values()]

    def _given(self, node: Name) -> Expr:
        found, around = self.given.get(node.parts[0]), self.outer
        while found is None and around is not None:
            found, around = around.given.get(node.parts[0]), around.outer
        if found is None:
            raise mistake(
                "FQ2005", f"{node.parts[0].split(_MARK)[-1]} cannot be used here", node.span, "not known here"
            )
        e = self.as_here(found)
        owner = self.given.owners.get(node.parts[0]) if isinstance(self.given, Given) else None
        if owner is not None and self.ungrouped is not owner and self.outer is not None:
            for name in columns_of(found) & columns_of(e):  # it is not carried
                self.uses_outer = True
                self.outer.note(Column(found.type, name))
        return e

    def as_here(self, e: Expr) -> Expr:
        """An expression over a query around, over the columns that are carried of it."""
        if self.outer is not None:
            e = self.outer.as_here(e)
        named = {n: self._of_outer(Column(c.type, n)) for n, c in self._carried.items() if n in columns_of(e)}
        return substitute(e, named) if named else e

    def _function(self, node: Func) -> Expr:
        """A whole row IS NULL where all of its fields are, and IS NOT NULL where none is."""
        if (
            node.name in ("is_null", "is_not_null")
            and isinstance(node.args[0], Name)
            and (row := self._row(node.args[0]))
        ):
            tests: list[Ast] = [Func(node.name, (Name((c.source, c.name), node.span),), node.span) for c in row]
            return self.bind(reduce(lambda a, b: Func("and", (a, b), node.span), tests))
        return super()._function(node)

    def _row(self, node: Name) -> list[RelColumn]:
        """The columns of the relation whose whole row a name means, here or in a query around; none if it means none."""
        marked = len(node.parts) > 1 or node.parts[0].startswith(_MARK)
        found = None if marked else self.seen(node)
        here: RelBinder | None = self
        while found is not None and here is not None:
            if any(c.source == WHOLE and c.name == node.parts[0] for c in here.columns):
                return [c for c in here.columns if c.source == node.parts[0]]
            here = here.outer
        return []

    def _call(self, node: Func, function: Function) -> Expr:
        """A row that goes must be computed as it was when it came (`physical.unrepeatable` looks at other functions). With arguments
        UNIX_TIMESTAMP and its like are of these alone.
        """
        if self.catalog.now_ms is not None:
            return _moment(function.name, self.catalog.now_ms) or super()._call(node, function)
        in_time = function.name in CLOCK and self._clause == "WHERE"  # `clock` turns the condition
        if function.name in CLOCK and not function.deterministic and not node.args and not in_time:
            unsupported(f"{node.name.upper()}, which gives another value each time, in a view", node.span, _ASKED)
        return super()._call(node, function)

    def _aggregate(self, node: Func, function: AggregateFunction) -> Expr:
        if node.name.upper() in _OF_KSQL:
            unsupported(f"the aggregate {node.name.upper()} in a view", node.span, _OF_KSQL[node.name.upper()])
        return super()._aggregate(node, function)

    def _table_call(self, node: Func, function: Function) -> Expr:
        unsupported(f"the table function {node.name.upper()} in a view", node.span, "write  UNNEST(array)")

    def find(self, node: Name) -> Column | None:
        """The column that a name means in this relation alone; None if it has none. Raises for an ambiguous one."""
        *qualifier, name = node.parts
        if len(qualifier) > 1:
            return None
        found = [
            c for c in self.columns if c.name == name and (c.source == qualifier[0] if qualifier else not c.qualified)
        ]
        if not found and not qualifier:
            found = [c for c in self.columns if c.source == WHOLE and c.name == name]
            _refuse_intervals(found, node)
        if (
            not found and qualifier and name == "value"
        ):  # of a function of JSONB in FROM, whose one column has the name of its alias
            of_source = [c for c in self.columns if c.source == qualifier[0]]
            found = of_source if len(of_source) == 1 and of_source[0].name == qualifier[0] else []
        if not found:
            return None
        if len(found) > 1:
            resolve(self._scope, node, self._clause)
        return found[0].expr()


class GroupedBinder(RelBinder):
    """Binds what stands behind GROUP BY: over the groups' expressions and aggregates.

    below: binds over the rows that are grouped. groups: (expression over these rows, column of the result). ungrouped: how to group by a
    column as well.
    """

    def __init__(
        self,
        below: RelBinder,
        groups: Sequence[tuple[Expr, Expr]],
        clause: str,
        given: Mapping[str, Expr],
        ungrouped: Callable[[str], Edit | None] = lambda _text: None,
    ) -> None:
        super().__init__(below.columns, below.catalog, clause, outer=below.outer, given=given)
        self._below, self._groups, self._ungrouped = below, groups, ungrouped

    @property
    def ungrouped(self) -> RelBinder:
        return self._below

    def _carried_as(self, column: Column) -> Column:
        found = next((g for e, g in self._groups if e == column), column)
        assert isinstance(found, Column)
        return found

    def bind(self, node: Ast) -> Expr:
        if isinstance(node, Name) and node.parts[0].startswith(_MARK):
            given = self._name(node)
            return next((g for group, g in self._groups if group == given), given)
        if not isinstance(node, Lit):
            whole = self._as_group(node)
            if whole is not None:
                return whole
        return super().bind(node)

    def find(self, node: Name) -> Column | None:
        found = self._below.find(node)
        if found is None:
            return None
        grouped = next((g for e, g in self._groups if e == found), None)
        if grouped is None:
            title = f'column "{text_of(node)}" must appear in the GROUP BY clause or be used in an aggregate function'
            hint, edit = "group by it, or use MIN or MAX of it", self._ungrouped(text_of(node))
            raise mistake("FQ2021", title, node.span, "not of the group", help=hint, edit=edit)
        assert isinstance(grouped, Column)
        return grouped

    def _as_group(self, node: Ast) -> Expr | None:
        if isinstance(node, Name):
            return None
        try:
            e = self._below.bind(node)
        except CompileError:
            return None
        return next((g for group, g in self._groups if group == e and not isinstance(e, Literal)), None)


def _refuse_intervals(whole: Sequence[RelColumn], node: Name) -> None:
    for name in (n for c in whole for n, of in c.type.fields if of == SPAN):
        what = f"the whole row of {node.parts[0]}, whose column {name} is an INTERVAL,"
        unsupported(what, node.span, f"name the columns, and  CAST({name} AS TEXT)")


def _moment(function: str, now_ms: Callable[[], int]) -> Literal | None:
    """The present moment, or its date, as a function of the clock gives it; None for another function."""
    types = dict(zip(CLOCK, (TIMESTAMPTZ, TIMESTAMP, DATE), strict=True))
    if function not in types:
        return None
    return Literal(types[function], now_ms() // DAY_MS if types[function] == DATE else now_ms())


def _scope(columns: Sequence[RelColumn]) -> Scope:
    """For messages about names that are unknown or ambiguous."""
    named = [c for c in columns if c.source not in (OUTER, WHOLE)]
    aliases = tuple(dict.fromkeys(c.source for c in named if c.source))
    return Scope(tuple(ScopeColumn(c.source, c.name, c.type, c.column, "value") for c in named), aliases)


class Given(dict[str, Expr]):
    """The expressions that placeholders stand for. owners: for each aggregate of an enclosing query, the binder over the rows it aggregates."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: dict[str, RelBinder] = {}


class Placeholders:
    """Names that stand in a tree for expressions that are bound before it: aggregates, sub-queries, window functions."""

    def __init__(self) -> None:
        self.exprs = Given()

    def add(self, node: t.Expr, e: Expr, owner: RelBinder | None = None) -> Name:
        """A reference to `e` in the place of `node`, whose text it shows in messages. owner: see `Given`."""
        key = f"{_MARK}{len(self.exprs)}{_MARK}{WRITER.expr(node)}"
        self.exprs[key] = e
        if owner is not None:
            self.exprs.owners[key] = owner
        return Name((key,), span=node.span)

    def exchange(self, old: Expr, new: Expr) -> None:
        """Makes the placeholder of `old` stand for `new`."""
        for key, e in self.exprs.items():
            if e == old:
                self.exprs[key] = new
            elif isinstance(old, Column) and isinstance(e, Call) and old.name in columns_of(e):
                self.exprs[key] = substitute(e, {old.name: new})


def without_marks(text: str) -> str:
    """A message with the texts of what placeholders stand for."""
    return re.sub(f"{_MARK}\\d+{_MARK}", "", text)
