"""FROM and WHERE: relations, joins and what filters them. The queries inside are bound by `query.QueryBinder`, which adds the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relations.asof import asof_joined, is_asof
from flowql.compiler.analyze.relations.definitions import NO_TABLES, Tables, in_place, rows_of
from flowql.compiler.analyze.relations.dependent import Dependent, check_repeatable, dependent, named, same
from flowql.compiler.analyze.relations.expressions import Correlated, Misnamed, Placeholders, RelBinder
from flowql.compiler.analyze.relations.gap_fill import gap_filled, is_gap_fill
from flowql.compiler.analyze.relations.grouping import check_own, has_aggregates, is_aggregate
from flowql.compiler.analyze.relations.joins import all_conjuncts, joined, joined_all
from flowql.compiler.analyze.relations.misnamed import misnamed
from flowql.compiler.analyze.relations.relation import (
    OUTER,
    Names,
    Rel,
    RelColumn,
    column_of,
    copied,
    filtered,
    renamed_source,
    scanned,
    with_identity,
    with_row,
)
from flowql.compiler.analyze.relations.row_sources import as_query, from_function, gives_rows, one_row
from flowql.compiler.analyze.relations.set_operations import united
from flowql.compiler.analyze.relations.subqueries import Filtered, Subqueries
from flowql.compiler.analyze.relations.temporal import (
    as_of_time,
    is_temporal,
    present,
    temporally_joined,
    version_joined,
)
from flowql.compiler.analyze.relations.time_bounds import compares_times
from flowql.compiler.analyze.relations.time_windows import (
    in_windows,
    is_session,
    is_time_window,
    session_query,
    source_of,
)
from flowql.compiler.analyze.relations.tree_parts import and_parts
from flowql.compiler.analyze.relations.using import equal, merged_columns, names_of
from flowql.compiler.catalog.catalog import Catalog, find_source
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import Lit
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.file_functions import FILE_FUNCTIONS
from flowql.compiler.dialect.standard.reader import plain_name
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.plan.expr import Column, Expr, columns_of
from flowql.compiler.plan.topology import NO_ROWS, SourceDef
from flowql.compiler.plan.visit import substitute

TRUE = Lit("bool", True)
INLINED_MAX = 64


@dataclass(slots=True)
class _From:
    """FROM while it is read. factors: relations to be joined; columns: of all, as written; on, where: conditions they are joined by."""

    outer: RelBinder | None
    tables: Tables
    where: Sequence[t.Expr]
    factors: list[Rel] = field(default_factory=list)
    columns: list[RelColumn] = field(default_factory=list)
    on: list[t.Expr] = field(default_factory=list)
    ties: list[Expr] = field(default_factory=list)

    def add(self, rel: Rel) -> None:
        """Adds a relation. Columns of the outer query that it and earlier relations carry are compared as equal."""
        carried = {c.name: c for c in self.columns if c.source == OUTER}
        self.ties += [same(carried[c.name].expr(), c.expr()) for c in rel.carried if c.name in carried]
        self.factors.append(rel)
        self.columns += [c for c in rel.columns if c.source != OUTER or c.name not in carried]


class FromBinder(ABC):
    """Reads FROM and WHERE."""

    def __init__(self, catalog: Catalog, anchor: SourceDef = NO_ROWS) -> None:
        """anchor: the table that a row comes from that is in no table."""
        self.catalog, self._anchor = catalog, anchor
        self.names = Names()
        self.placeholders = Placeholders()
        self.inlined = self._nested = 0
        self.bare: set[str] = set()  # names without a qualifier: some may mean whole rows
        self.follows_watermark = False

    @abstractmethod
    def query(self, query: t.Query, tables: Tables = NO_TABLES, outer: RelBinder | None = None) -> Rel:
        """The relation of a whole query; its columns are those selected, in order. outer: of a sub-query, for its messages."""

    @abstractmethod
    def with_tables(self, query: t.Query, tables: Tables) -> Tables:
        """The common table expressions that names inside the query may mean."""

    @abstractmethod
    def body(
        self, select: t.Select, order_by: Sequence[t.OrderItem], rel: Rel, tables: Tables, outer: RelBinder | None
    ) -> Any:
        """Groups, HAVING, sub-queries and window functions of a SELECT over what FROM and WHERE give."""

    def _start(self, outer: RelBinder | None) -> Rel:
        """The input of a query without FROM: one row, or one for each row of the domain that it is answered for."""
        if isinstance(outer, Dependent):
            return outer.factor(self.names)
        return one_row(self._anchor, self.names)

    def _united(self, sides: Sequence[Rel]) -> Rel:
        return united(sides, self.names)

    def filtered(self, select: t.Select, tables: Tables, outer: RelBinder | None) -> Filtered:
        """FROM and WHERE. Conditions that name columns of `outer` are returned for the caller."""
        written = and_parts(select.where) if select.where is not None else []
        given = _From(outer, tables, written)
        if select.source is None or isinstance(outer, Dependent):
            given.add(self._start(outer))
        if select.source is not None:
            self._flatten(select.source, given)
        binder = self._binder(given.columns, "WHERE", outer, select)
        parts = [*(p for n in given.on for p in and_parts(n)), *written]
        for part in parts:
            if has_aggregates(part):
                for n in walks.walk(part):
                    if is_aggregate(n):
                        check_own(n, binder)
                raise mistake("FQ2020", "aggregate functions are not allowed in WHERE", part.span, help="use HAVING")
        plain = [p for p in parts if not walks.contains(p, t.Query)]
        own = list(given.ties)
        correlated: list[Expr] = []
        known = frozenset(n for f in given.factors for n in f.names)
        for part in plain:
            for condition in all_conjuncts(binder.condition(part)):
                (own if columns_of(condition) <= known else correlated).append(condition)
        rel = replace(joined_all(given.factors, own, self.names), columns=tuple(given.columns))
        rest = [p for p in parts if walks.contains(p, t.Query)]
        rel, conditions = Subqueries(self, tables).conditions(rel, rest, binder)
        inside = [c for c in conditions if columns_of(c) <= rel.names]
        correlated += [c for c in conditions if c not in inside]
        return Filtered(filtered(rel, inside), tuple(correlated))

    def _binder(
        self, columns: Sequence[RelColumn], clause: str, outer: RelBinder | None, select: t.Select | None = None
    ) -> RelBinder:
        """select: of the clause, for messages."""
        made = RelBinder(columns, self.catalog, clause, outer=outer, given=self.placeholders.exprs)
        if select is not None:
            made.misnamed = self._misnamed(select, clause, outer)
        return made

    def _misnamed(self, select: t.Select, clause: str, outer: RelBinder | None) -> Misnamed:
        return partial(misnamed, select=select, clause=clause, catalog=self.catalog, inside=outer is not None)

    def _flatten(self, relation: t.Relation, given: _From) -> None:
        """Inner joins are taken apart: their conditions are like those of WHERE."""
        if (
            isinstance(relation, t.Join)
            and relation.kind in ("inner", "cross", "comma")
            and not (relation.using or relation.natural or is_temporal(relation) or is_asof(relation))
        ):
            self._check_join(relation)
            self._flatten(relation.left, given)
            self._flatten(relation.right, given)
            if relation.on is not None:
                given.on.append(relation.on)
        elif isinstance(relation, t.TableFunction) and gives_rows(relation):
            self._function(relation, given)
        elif isinstance(relation, t.Derived):
            self._derived(relation, given)
        else:
            given.add(self._relation(relation, given.tables, given.outer, given.where))

    def _function(self, function: t.TableFunction, given: _From) -> None:
        """A function of FROM may name the columns of all that stands before it."""
        wanted = named(function.call, self._binder(given.columns, "FROM", given.outer))
        left = self._taken(given, frozenset(c.name for c in wanted)) or self._start(None)
        binder = self._binder(left.columns, "FROM", given.outer)
        made, columns = from_function(function, left, binder, self.names, kept=False)
        if binder.uses_outer:
            raise Correlated
        given.factors.append(replace(made, columns=(*left.columns, *columns)))
        given.columns += columns

    def _derived(self, derived: t.Derived, given: _From) -> None:
        """A query of FROM names what stands before it if it is LATERAL, and in any case what the query is carried for."""
        before = given.columns if derived.lateral else [c for c in given.columns if c.source == OUTER]
        binder = self._binder(before, "FROM", given.outer)
        wanted = frozenset(c.name for c in named(derived.query, binder))
        left = self._taken(given, wanted)
        if left is None:
            given.add(self._named(self.query(derived.query, given.tables, binder), derived))
            return
        inner, ties = dependent(self, left, derived.query, given.tables, binder)
        inner = _own(self._named(inner, derived))
        given.columns += inner.columns
        made = [joined("inner", left, inner, ties, self.names)] if ties else [left, inner]
        given.factors += made

    def _named(self, rel: Rel, derived: t.Derived) -> Rel:
        return self._aliased(rel, derived.alias.name if derived.alias is not None else "", derived.alias)

    def _taken(self, given: _From, columns: frozenset[str]) -> Rel | None:
        """The relations of FROM so far that have these columns, joined, and taken out of it; None if none has."""
        chosen = [f for f in given.factors if f.names & columns]
        if not chosen:
            return None
        given.factors = [f for f in given.factors if not f.names & columns]
        if len(chosen) == 1:
            return chosen[0]
        known = frozenset(n for f in chosen for n in f.names)
        binder = self._binder([c for f in chosen for c in f.columns], "WHERE", given.outer)
        conditions: list[Expr] = []
        for part in (p for n in (*given.on, *given.where) for p in and_parts(n) if not walks.contains(p, t.Query)):
            with suppress(CompileError):  # it names what comes later
                conditions += [c for c in all_conjuncts(binder.condition(part)) if columns_of(c) <= known]
        return joined_all(chosen, conditions, self.names)

    def _check_join(self, join: t.Join) -> None:
        if join.variant and not is_asof(join):
            unsupported(f"{join.variant} JOIN", join.at)
        if join.within is not None:
            help = "compare the times in ON:  a.ts BETWEEN b.ts - INTERVAL '1' HOUR AND b.ts"
            unsupported("WITHIN in a view", join.at, help)

    def _relation(self, relation: t.Relation, tables: Tables, outer: RelBinder | None, where: Sequence[t.Expr]) -> Rel:
        match relation:
            case t.Table():
                return self._table(relation, tables)
            case t.Join():
                return self._outer_join(relation, tables, outer, where)
            case t.TableFunction() if is_time_window(relation) or is_gap_fill(relation):
                source = source_of(relation)
                if is_gap_fill(relation):
                    rel = self.query(gap_filled(relation, source, self._table(source, tables)), tables)
                elif is_session(relation):
                    rel = self.query(session_query(relation), tables)
                else:
                    rel = in_windows(relation, self._table(source, tables), self.catalog, self.names)
                alias = relation.alias.name if relation.alias is not None else source.name[-1]
                return self._aliased(rel, alias, relation.alias)
        assert isinstance(relation, t.TableFunction)
        name = relation.call.name[-1].upper()
        help = "load the file into a local table:  flowql import FILE --table t" if name in FILE_FUNCTIONS else ""
        help = "write  UNNEST(array)" if name in ("EXPLODE", "FLATTEN") else help
        if name in ("JSONB_TO_RECORDSET", "JSON_TO_RECORDSET"):
            help = "write  JSONB_ARRAY_ELEMENTS(j) AS e(item)  here, and  CAST(item ->> 'a' AS INT)  for each column"
        unsupported(f"the table function {name}(...) in FROM", relation.span, help)

    def _table(self, table: t.Table, tables: Tables) -> Rel:
        if table.as_of is not None:
            unsupported(
                "FOR SYSTEM_TIME AS OF anywhere but on the right side of a join",
                table.as_of.span,
                "leave it out: a view always shows current rows",
            )
        name = plain_name(table.name, table.span)
        alias = table.alias.name if table.alias is not None else name
        common = tables.get(name) if len(table.name) == 1 else None
        if common is not None:
            rel = renamed_source(rows_of(self, common, table), name, common.definition.columns)
            return self._aliased(rel, alias, table.alias)
        source = find_source(self.catalog, name, table.span)
        if source.schema.window is not None:
            help = "read it in a project of  dialect: ksql,  and write it to a topic without windows"
            unsupported("a topic whose keys have windows", table.span, help)
        defined = in_place(self, source, table) if self.follows_watermark else None
        return self._aliased(defined or scanned(source, alias, self.names), alias, table.alias)

    def count_inlined(self, table: t.Table, times: int = 1) -> None:
        """Another query is put in the place of a name."""
        self.inlined += times
        if self.inlined > INLINED_MAX:
            title = f"common table expressions and views are named more than {INLINED_MAX} times in one query"
            raise mistake("FQ1013", title, table.span, help="make one of them a separate view")

    def _aliased(self, rel: Rel, alias: str, written: t.Alias | None) -> Rel:
        columns = written.columns if written is not None else ()
        if len(columns) > len(rel.shown):
            assert written is not None
            raise mistake(
                "FQ2004", f"{alias} has {len(rel.shown)} columns, not {len(columns)}", written.span, "too many names"
            )
        rel = renamed_source(rel, alias, columns)
        return with_row(rel, alias, self.names) if alias in self.bare else rel

    def _outer_join(self, join: t.Join, tables: Tables, outer: RelBinder | None, where: Sequence[t.Expr]) -> Rel:
        """An outer join, or one with USING or NATURAL: both sides first, then their pairs. where: conditions of the query around."""
        self._check_join(join)
        if is_asof(join) and (is_temporal(join) or walks.contains(join.on, t.Query) or _depends(join.right)):
            unsupported("such a right side or condition of ASOF JOIN", join.at, "put it into a separate view")
        as_of = as_of_time(join)
        self.follows_watermark |= as_of is not None
        left = self._side(join.left, tables, outer)
        kind: Any = join.kind if join.kind in ("left", "right", "full") else "inner"
        ties: list[Expr] = []
        if isinstance(join.right, t.TableFunction) and gives_rows(join.right):
            if kind == "left" and join.on == TRUE:
                binder = self._binder(left.columns, "FROM", outer)
                made, columns = from_function(join.right, left, binder, self.names, kept=True)
                if binder.uses_outer:
                    raise Correlated
                return replace(made, columns=(*left.columns, *columns))
            join = replace(join, right=as_query(join.right))
        if isinstance(join.right, t.Derived) and join.right.lateral:
            if kind in ("right", "full"):
                unsupported(f"LATERAL on the right side of a {kind.upper()} JOIN", join.right.span)
            binder = self._binder(left.columns, "FROM", outer)
            right, ties = dependent(self, left, join.right.query, tables, binder)
            right = _own(self._named(right, join.right))
        else:
            right = self._side(present(join.right, tables) if is_temporal(join) else join.right, tables, outer)
        using = names_of(join, left, right)
        if join.on is not None:
            if walks.contains(join.on, t.Query):
                return self._joined_by_queries(join, join.on, (left, right), ties, tables, outer)
            binder = self._binder((*left.columns, *right.columns), "ON", outer)
            conditions = all_conjuncts(binder.condition(join.on))
            if binder.uses_outer:
                left, right = self._carrying(kind, left, right, outer, join)
                binder = self._binder((*left.columns, *right.columns), "ON", outer)
                conditions = all_conjuncts(binder.condition(join.on))
        else:
            conditions = [equal(name, left, right, join, self.catalog) for name in using]
            conditions += self._bounds(where, left, right, outer) if kind == "inner" else []
        if as_of is not None:
            time = self._binder(left.columns, "FOR SYSTEM_TIME AS OF", outer).bind(as_of)
            assert isinstance(join.right, t.Table)
            versions = find_source(self.catalog, plain_name(join.right.name, join.right.span), join.right.span)
            made = version_joined(join, left, right, conditions, self.names, time, versions)
        elif is_temporal(join):
            made = temporally_joined(join, left, right, conditions, self.names)
        elif is_asof(join):
            made = asof_joined(join, left, right, conditions, self.names)
        else:
            made = joined(kind, left, right, [*ties, *conditions], self.names)
        return merged_columns(kind, left, right, using, made, self.names) if using else made

    def _bounds(self, where: Sequence[t.Expr], left: Rel, right: Rel, outer: RelBinder | None) -> list[Expr]:
        """Conditions of WHERE that compare times of both sides: a join without ON has them nowhere else."""
        binder = self._binder((*left.columns, *right.columns), "WHERE", outer)
        found: list[Expr] = []
        for part in (p for p in where if not walks.contains(p, t.Query)):
            with suppress(CompileError):  # it names other relations, or a column that is merged
                found += [c for c in all_conjuncts(binder.condition(part)) if compares_times(c)]
        return [c for c in found if columns_of(c) & left.names and columns_of(c) & right.names]

    def _carrying(self, kind: str, left: Rel, right: Rel, outer: RelBinder | None, join: t.Join) -> tuple[Rel, Rel]:
        """Both sides, where the one that is kept is there once for each row of the domain, which ON names."""
        if not isinstance(outer, Dependent):
            raise Correlated
        if kind == "full" or left.carried or right.carried:
            unsupported("a column of the query around in ON of such a join", join.span, "put the join into a view")
        kept = right if kind == "right" else left
        factor = outer.factor(self.names)
        made = replace(joined_all([factor, kept], [], self.names), columns=(*kept.columns, *factor.columns))
        return (left, made) if kind == "right" else (made, right)

    def _joined_by_queries(
        self,
        join: t.Join,
        on: t.Expr,
        sides: tuple[Rel, Rel],
        ties: Sequence[Expr],
        tables: Tables,
        outer: RelBinder | None,
    ) -> Rel:
        """An outer join with sub-queries in ON: each row of the side that is kept, with the pairs of an inner join that it is in."""
        if join.kind == "full" or is_temporal(join):
            unsupported("a sub-query in ON of a FULL or temporal join", on.span, "put it into a separate view")
        at = 1 if join.kind == "right" else 0
        check_repeatable(sides[at].node, on.span)
        kept = Rel(with_identity(sides[at].node, self.names), sides[at].columns)
        other = sides[1 - at]
        again, names = copied(kept, self.names), [f.name for f in kept.node.schema.key]
        binder = self._binder((*again.columns, *other.columns), "ON", outer)
        parts = and_parts(on)
        plain = [c for p in parts if not walks.contains(p, t.Query) for c in all_conjuncts(binder.condition(p))]
        renamed = {c.column: copy.expr() for c, copy in zip(kept.columns, again.columns, strict=True)}
        pairs = joined("inner", again, other, [*(substitute(c, renamed) for c in ties), *plain], self.names)
        pairs, conditions = Subqueries(self, tables).conditions(
            pairs, [p for p in parts if walks.contains(p, t.Query)], binder
        )
        if binder.uses_outer:
            raise Correlated
        same_row = [same(Column(f.type, n), column_of(f)) for n, f in zip(names, again.node.schema.key, strict=True)]
        made = joined("left", kept, filtered(pairs, conditions), same_row, self.names)
        return replace(made, columns=(*sides[0].columns, *sides[1].columns))

    def _side(self, relation: t.Relation, tables: Tables, outer: RelBinder | None) -> Rel:
        """One side of an outer join."""
        given = _From(outer, tables, [])
        self._flatten(relation, given)
        binder = self._binder(given.columns, "ON", given.outer)
        conditions = [c for n in given.on for p in and_parts(n) for c in all_conjuncts(binder.condition(p))]
        if binder.uses_outer or any(f.carried for f in given.factors):
            raise Correlated
        return replace(joined_all(given.factors, conditions, self.names), columns=tuple(given.columns))


def _own(rel: Rel) -> Rel:
    """The relation without names for the columns that it carries."""
    return replace(rel, columns=tuple(c for c in rel.columns if c.source != OUTER))


def _depends(relation: t.Relation) -> bool:
    """Whether its rows may depend on those in front of it."""
    return isinstance(relation, t.TableFunction) or (isinstance(relation, t.Derived) and relation.lateral)
