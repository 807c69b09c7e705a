"""GROUP BY: aggregates taken out of expressions, group keys named, windows.

The plan is Project (keys and arguments) -> Rekey -> Aggregate -> [Filter] -> Project.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal as OneOf

from flowql.compiler.analyze.bind import AGGREGATE_PREFIX, Binder, Collected
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.projection import choose_keys, final_projection
from flowql.compiler.analyze.relation import (
    KeyColumn,
    Relation,
    filtered,
    may_have_null_group,
    project,
    rekey,
    retracting,
    times_of,
)
from flowql.compiler.analyze.scope import Scope, ScopeColumn
from flowql.compiler.analyze.select import Item, bind_items
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.source import NOWHERE
from flowql.compiler.dialect.ast import Ast, Func, LambdaFn, Name, Query, WindowClause
from flowql.compiler.dialect.texts import text_of
from flowql.compiler.dialect.walks import walk
from flowql.compiler.functions.registry import lookup_aggregate
from flowql.compiler.functions.user import plain_name
from flowql.compiler.plan.event_times import EventTimes
from flowql.compiler.plan.expr import Call, Column, Expr, Lambda, Literal
from flowql.compiler.plan.logical import Aggregate, AggregateCall, NamedExpr, Node, Window
from flowql.compiler.plan.schema import WINDOW_END, WINDOW_FIELDS, WINDOW_START, Field, KeyWindow, Schema
from flowql.compiler.plan.types import BIGINT

_BOUNDS = Scope(tuple(ScopeColumn("", n, BIGINT, n, "window") for n in (WINDOW_START, WINDOW_END)), ())
# A state row, and a result, for each window that a row is in: an advance of a millisecond in a window of a day is a mistake of units.
WINDOWS_MAX = 10_000
_KEY = "__key_"


@dataclass(frozen=True, slots=True)
class _Group:
    """One GROUP BY expression."""

    node: Ast
    expr: Expr


def has_aggregates(node: Ast, catalog: Catalog) -> bool:
    """Whether an expression calls an aggregate anywhere."""
    return any(isinstance(n, Func) and catalog.aggregate(n.name) is not None for n in walk(node, LambdaFn))


def aggregate_query(query: Query, relation: Relation, catalog: Catalog, session: Mapping[str, str], sink: str) -> Node:
    """The plan of a query with GROUP BY, over a relation that WHERE has filtered already."""
    groups = _groups(query, relation, catalog)
    collected = Collected()
    bounds = _BOUNDS if query.window is not None else None
    binder = Binder(relation.scope, catalog, "SELECT", collected=collected, bounds=bounds, session=session)
    items = bind_items(query.select, relation.scope, binder)
    having = _having(query, Binder(relation.scope, catalog, "HAVING", collected=collected, session=session))
    if not collected.aggregates:
        raise mistake(
            "FQ2020",
            "GROUP BY requires aggregate functions in either the SELECT or HAVING clause",
            query.span,
            "nothing is aggregated",
            help="add COUNT(*), or write SELECT without GROUP BY",
        )
    if collected.table_functions:
        raise mistake(
            "FQ2020",
            f"table functions cannot be used with aggregations: {_table_functions(collected)}",
            query.span,
            "gives several rows",
        )
    items = _grouped_items(items, groups)
    keys = [KeyColumn((f"{_KEY}{i}",), (text_of(g.node),)) for i, g in enumerate(groups)]
    chosen = choose_keys(items, keys, sink, "grouping expression", query.span)
    _check_source(query, relation, collected)
    keyed = {f"{_KEY}{i}": item.name for i, (item, _) in enumerate(chosen)}
    names = {**_own_names(items), **keyed}
    collected.aggregates = [replace(a, name=names.get(a.name, a.name)) for a in collected.aggregates]
    node = _aggregate_node(query, relation, groups, list(keyed.values()), collected, standard=catalog.standard)
    if having is not None:
        predicate = _rewrite(having, groups)
        _check_grouped([predicate], query.having, "HAVING", groups)
        node = filtered(node, _rename(predicate, names))
    taken = [i for i, _ in chosen]
    values = [replace(i, expr=_rename(i.expr, names)) for i in items if i not in taken]
    return final_projection(
        node, [(n, Column(g.expr.type, n)) for n, g in zip(keyed.values(), groups, strict=True)], values, query.span
    )


def _table_functions(collected: Collected) -> str:
    calls = [plain_name(c.expr.name) for c in collected.table_functions if isinstance(c.expr, Call)]
    return listing(calls)


def _groups(query: Query, relation: Relation, catalog: Catalog) -> list[_Group]:
    binder = Binder(relation.scope, catalog, "GROUP BY")
    groups: list[_Group] = []
    for node in query.group_by:
        if query.window is not None:
            _refuse_bounds(node)
        expr = binder.bind(node)
        if any(g.expr == expr for g in groups):
            raise mistake(
                "FQ2004",
                f"duplicate GROUP BY expression: {text_of(node)}",
                node.span,
                "given before",
            )
        groups.append(_Group(node, expr))
    return groups


def _refuse_bounds(node: Ast) -> None:
    for n in walk(node, LambdaFn):
        if isinstance(n, Name) and n.parts[-1] in (WINDOW_START, WINDOW_END):
            title = f"window bounds column {n.parts[-1]} can only be used in the SELECT clause of windowed aggregations"
            raise mistake("FQ2020", title, n.span, "only in SELECT", why="the window is part of the group already")


def _having(query: Query, binder: Binder) -> Expr | None:
    if query.having is None:
        return None
    if query.window is not None:
        _refuse_bounds(query.having)
    return binder.condition(query.having)


def _grouped_items(items: Sequence[Item], groups: Sequence[_Group]) -> list[Item]:
    """The items over the output of the aggregation. Raises for columns outside GROUP BY, all at once."""
    rewritten = [replace(i, expr=_rewrite(i.expr, groups)) for i in items]
    wrong = [i for i in rewritten if _loose_columns(i.expr)]
    if wrong:
        title = f"non-aggregate SELECT expression(s) not part of GROUP BY: {', '.join(i.text for i in wrong)}"
        raise mistake(
            "FQ2021",
            title,
            wrong[0].span,
            "not grouped",
            why=f"rows of one group may differ in {listing(_loose_names(wrong))}",
            help="add it to GROUP BY, or put it into an aggregate",
        )
    return rewritten


def _check_grouped(exprs: Sequence[Expr], node: Ast | None, clause: str, groups: Sequence[_Group]) -> None:
    loose = [n for e in exprs for n in _loose_columns(e)]
    if loose:
        span = node.span if node is not None else NOWHERE
        title = f"non-aggregate {clause} expression not part of GROUP BY: {listing(loose)}"
        raise mistake(
            "FQ2021", title, span, "not grouped", help=f"grouped are {listing([text_of(g.node) for g in groups])}"
        )


def _loose_names(items: Sequence[Item]) -> list[str]:
    return list(dict.fromkeys(n for i in items for n in _loose_columns(i.expr)))


def _own_names(items: Sequence[Item]) -> dict[str, str]:
    """Aggregates that are output columns as they are get the column's name, so that their store reads like the table."""
    named: dict[str, str] = {}
    for i in items:
        if isinstance(i.expr, Column) and i.expr.name.startswith(AGGREGATE_PREFIX):
            named.setdefault(i.expr.name, i.name)
    return named


def _rewrite(e: Expr, groups: Sequence[_Group]) -> Expr:
    for i, g in enumerate(groups):
        if e == g.expr:
            return Column(e.type, f"{_KEY}{i}")
    return _map_children(e, lambda c: _rewrite(c, groups))


def _rename(e: Expr, names: dict[str, str]) -> Expr:
    if isinstance(e, Column):
        return replace(e, name=names.get(e.name, e.name))
    return _map_children(e, lambda c: _rename(c, names))


def _map_children(e: Expr, change: Callable[[Expr], Expr]) -> Expr:
    if isinstance(e, Call):
        return replace(e, args=tuple(change(a) for a in e.args))
    return replace(e, body=change(e.body)) if isinstance(e, Lambda) else e


def _loose_columns(e: Expr) -> list[str]:
    """Columns of the source that are left after keys and aggregates were replaced."""
    if isinstance(e, Column):
        known = e.name.startswith((_KEY, AGGREGATE_PREFIX)) or e.name in (WINDOW_START, WINDOW_END)
        return [] if known else [e.name]
    if isinstance(e, Call):
        return [n for a in e.args for n in _loose_columns(a)]
    return _loose_columns(e.body) if isinstance(e, Lambda) else []


def _check_source(query: Query, relation: Relation, collected: Collected) -> None:
    kafka = [s.name for s in relation.sources if s.value_format.name == "KAFKA"]
    if kafka:
        title = f"source(s) {', '.join(kafka)} use the 'KAFKA' value format, which does not support GROUP BY"
        raise mistake(
            "FQ2013", title, query.source.span, "KAFKA values have no column names", help="use another VALUE_FORMAT"
        )
    if query.window is None:
        if query.emit == "final":
            raise mistake(
                "FQ2025",
                "EMIT FINAL is only supported for windowed aggregations",
                query.span,
                "no window ever closes",
                help="add a WINDOW, or write EMIT CHANGES",
            )
    elif relation.is_table:
        raise mistake(
            "FQ2025",
            f"WINDOW is not supported on a table: {relation.sources[0].name}",
            query.window.span,
            "a table has no events",
            help="aggregate the stream instead",
        )
    nested = not relation.sources[0].topic  # its rows come with what they replace, window by window
    if relation.node.schema.window is not None and relation.is_table and not nested:
        raise mistake(
            "FQ2025",
            f"GROUP BY is not supported on the windowed table {relation.sources[0].name}",
            query.span,
            "a windowed table",
            why="windows of one key would have to be repartitioned together",
            help="group the stream that the table is made from",
        )
    if relation.is_table:
        why = "a row of a table that changes must be taken out of its group again"
        where, needed = "a table source, only to a stream source", "undo(self, accumulator, ...)"
        _check_have("undo", collected, query, where, "cannot be undone", why, needed)
    if query.window is not None and query.window.kind == "session":
        why = "a row between two sessions makes one of them"
        needed = "merge(self, accumulator, other)"
        _check_have("merge", collected, query, "session windows", "cannot be merged", why, needed)


def _check_have(
    part: OneOf["undo", "merge"], collected: Collected, query: Query, where: str, label: str, why: str, needed: str
) -> None:
    """Raises for aggregates that lack `undo` or `merge`. where: they need it there. needed: the method, as it is defined."""
    lacking = [plain_name(a.function) for a in collected.aggregates if not _has(a, part)]
    if lacking:
        named = f"function{'s' if len(lacking) > 1 else ''} {listing(dict.fromkeys(lacking))}"
        title = f"the aggregation {named} cannot be applied to {where}"
        raise mistake("FQ2020", title, query.span, label, why=why, help=f"a class of @udaf needs  def {needed}")


def _has(call: AggregateCall, part: OneOf["undo", "merge"]) -> bool:
    function = lookup_aggregate(call.function)
    return function is not None and getattr(function, part) is not None


def _aggregate_node(
    query: Query,
    relation: Relation,
    groups: Sequence[_Group],
    names: list[str],
    collected: Collected,
    *,
    standard: bool,
) -> Node:
    """standard: groups are those of SQL: NULL is one, and one whose last row has gone is none."""
    below = retracting(relation.node)
    columns = [NamedExpr(n, g.expr) for n, g in zip(names, groups, strict=True)]
    calls = [_with_columns(a, columns) for a in collected.aggregates]
    keyed = rekey(
        project(below, columns),
        [NamedExpr(n, Column(g.expr.type, n)) for n, g in zip(names, groups, strict=True)],
        drop_null=not standard,
    )
    keys = [Field(n, g.expr.type, "key") for n, g in zip(names, groups, strict=True)]
    window = _window(query.window, times_of(relation.node)) if query.window is not None else None
    bounds = WINDOW_FIELDS if window is not None else ()
    schema = Schema((*keys, *bounds, *(Field(c.name, c.type) for c in calls)), _key_window(window))
    spec = Aggregate(
        tuple(calls),
        window,
        query.emit == "final",
        null_groups=standard and any(_may_be_null(g.expr, relation.node) for g in groups),
        counted=standard and keyed.change != "append",
    )
    return Node(spec, (keyed,), schema, "upsert")


def _may_be_null(e: Expr, source: Node) -> bool:
    """Whether a group could be NULL: not a constant, nor the primary key of a table, nor the bounds of its windows."""
    if isinstance(e, Literal):
        return e.value is None
    field = source.schema.get(e.name) if isinstance(e, Column) else None
    if field is None or field.role == "value":
        return True
    return field.role == "key" and (source.change == "append" or may_have_null_group(source))


def _with_columns(call: AggregateCall, columns: list[NamedExpr]) -> AggregateCall:
    """The call with each argument computed before the shuffle, as a column added to `columns` if new."""
    args: list[Expr] = []
    for a in call.args:
        known = next((c for c in columns if c.expr == a), None)
        if known is None:
            taken = {c.name for c in columns}
            plain = a.name if isinstance(a, Column) and not a.name.startswith("__") and a.name not in taken else None
            known = NamedExpr(plain or f"__arg_{len(columns)}", a)
            columns.append(known)
        args.append(Column(a.type, known.name))
    return replace(call, args=tuple(args))


def _window(clause: WindowClause, times: EventTimes) -> Window:
    if clause.size_ms <= 0:
        raise mistake("FQ2011", "the window size must be greater than zero", clause.span, "of no length")
    advance = clause.advance_ms if clause.advance_ms is not None else clause.size_ms
    if advance <= 0 or advance > clause.size_ms:
        raise mistake(
            "FQ2011",
            f"ADVANCE BY {advance} ms must be above zero and at most SIZE {clause.size_ms} ms",
            clause.span,
            "windows would leave gaps",
        )
    if clause.kind == "cumulating" and clause.size_ms % advance:
        raise mistake(
            "FQ2011",
            f"SIZE {clause.size_ms} ms of a cumulating window must be a multiple of its step, {advance} ms",
            clause.span,
            "the last step would be cut short",
        )
    count = -(-clause.size_ms // advance)
    if count > WINDOWS_MAX:
        raise mistake(
            "FQ2011",
            f"each row would be in {count:,} windows, more than {WINDOWS_MAX:,}",
            clause.span,
            "too many windows",
            help="let windows advance further, or be shorter",
        )
    least = clause.size_ms + (clause.grace_ms or 0)
    if clause.retention_ms is not None and clause.retention_ms < least:
        title = f"RETENTION {clause.retention_ms} ms is shorter than the window and its grace period, {least} ms"
        raise mistake("FQ2011", title, clause.span, "gone before it is closed", help=f"RETENTION {least} MILLISECONDS")
    over_1970 = clause.kind == "hopping" and times.earliest_ms is not None and times.earliest_ms < 0
    return Window(clause.kind, clause.size_ms, advance, clause.grace_ms, clause.retention_ms, over_1970)


def _key_window(window: Window | None) -> KeyWindow | None:
    if window is None:
        return None
    # Windows of several lengths have both bounds in the key.
    several = window.kind in ("session", "cumulating")
    return KeyWindow("session") if several else KeyWindow("time", window.size_ms)
