"""INSERT, UPDATE and DELETE of a table of one's own."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from flowql.compiler.analyze.bind import Binder
from flowql.compiler.analyze.certain_failures import refuse_failing, refuse_failing_values
from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.analyze.returning import bind_returning, named_beside, with_beside
from flowql.compiler.analyze.scope import Scope, ScopeColumn
from flowql.compiler.analyze.tables import key_of, span_of
from flowql.compiler.analyze.values import assigned
from flowql.compiler.catalog.catalog import Catalog, find_source
from flowql.compiler.catalog.names import correction, did_you_mean, listing
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Ast, Statement
from flowql.compiler.dialect.standard.file_functions import reads_files
from flowql.compiler.dialect.standard.query_statements import InsertSelect
from flowql.compiler.dialect.table_statements import (
    CopyRows,
    DeleteRows,
    InsertRows,
    OnConflict,
    RowsQuery,
    Setting,
    UpdateRows,
)
from flowql.compiler.plan.expr import Expr, Literal
from flowql.compiler.plan.logical import NamedExpr
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.tables import EXCLUDED, OnDuplicate, TableChange, TableRules
from flowql.compiler.plan.topology import SourceDef


def bind_insert(statement: InsertRows, target: SourceDef, catalog: Catalog, at: Span) -> TableChange:
    """Rows of VALUES, each with all columns that can be given."""
    named = statement.columns
    fields = _given(named, target, at, statement.span)
    defaults, generated = _defaults(target), _generated(target)
    binder = Binder(Scope((), ()), catalog, "VALUES")
    rows, numbers = list[tuple[Expr, ...]](), 0
    for row in statement.rows:
        fewer = not named and len(row) < len(fields)  # SQL: the columns that come last get their defaults
        if len(row) != len(fields) and not fewer:
            title = (
                f"expected {len(fields)} values for {target.name} ({', '.join(f.name for f in fields)}), got {len(row)}"
            )
            where = span_of(row[-1] if row else None, at)
            raise mistake("FQ2040", title, where, "another number of values", help="name the columns that are given")
        given = {f.name: v for f, v in zip(fields, row, strict=False)}
        for name in generated & given.keys():
            _refuse_generated(target, name, given[name], at)
        rows.append(tuple(_stored(f, given.get(f.name), binder, defaults) for f in _visible(target)))
        numbers += _gives_number(target, given)
    columns, rows = _without_numbers(target, rows, numbers, at)
    _refuse_null(target, columns, rows, at)
    refuse_failing_values(columns, rows)
    scope = _scope(target, statement.alias)
    returning = bind_returning(statement.returning, scope, catalog)
    made = TableChange(target.name, "insert", columns, tuple(rows), statement=statement.normal, returning=returning)
    return _with_conflict(made, statement.on_conflict, target, scope, catalog)


def bind_insert_select(statement: InsertSelect, target: SourceDef, catalog: Catalog, at: Span) -> TableChange:
    """Rows of a query, which is asked when the statement runs."""
    columns = statement.columns or _not_generated(target, at)
    for field in _given(columns, target, at, statement.span):
        _refuse_generated(target, field.name, statement, at)
    scope = _scope(target, statement.alias)
    returning = bind_returning(statement.returning, scope, catalog)
    made = TableChange(
        target.name,
        "insert",
        columns,
        select=statement.select,
        statement=statement.text,
        returning=returning,
        reads_files=statement.query is not None and reads_files(statement.query),
    )
    return _with_conflict(made, statement.on_conflict, target, scope, catalog)


def bind_copy(statement: CopyRows, catalog: Catalog, at: Span) -> TableChange:
    """Rows of a file or of a client, which are read when the statement runs."""
    target = find_source(catalog, statement.target, at)
    refuse_view(target, at, "COPY")
    if not target.is_own_table:
        title = f"COPY into {target.name} is not supported: it is over the topic {target.topic}"
        raise unsupported(
            title, at, f"a {target.kind} over a topic", help=f"write  flowql topic import {target.name} FILE"
        )
    columns = statement.columns or _not_generated(target, at)
    for field in _given(columns, target, at, statement.span):
        _refuse_given(target, field.name, at)
    return TableChange(
        target.name,
        "insert",
        columns,
        statement=statement.text,
        on_duplicate=_rules(target).on_duplicate,
        copied=replace(statement.origin, listed=bool(statement.columns)),
    )


def bind_update(statement: UpdateRows, catalog: Catalog, at: Span) -> TableChange:
    target = _changeable(statement.target, catalog, at, "UPDATE")
    scope = _scope(target, statement.alias)
    binder = Binder(scope, catalog, "SET")
    if statement.query is not None:
        defaults = _settings(statement.settings, target, binder)
        return _by_query(statement, statement.query, target, scope, catalog, defaults)
    settings = _settings(statement.settings, target, binder)
    where = _where(statement.where, scope, catalog)
    refuse_failing_values([s.name for s in settings], [[s.expr for s in settings]])
    refuse_failing([where] if where is not None else [])
    returning = bind_returning(statement.returning, scope, catalog)
    text = statement.normal
    return TableChange(target.name, "update", settings=settings, where=where, statement=text, returning=returning)


def bind_delete(statement: DeleteRows, catalog: Catalog, at: Span) -> TableChange:
    target = _changeable(statement.target, catalog, at, "DELETE")
    scope = _scope(target, statement.alias)
    if statement.query is not None:
        return _by_query(statement, statement.query, target, scope, catalog, ())
    where = _where(statement.where, scope, catalog)
    refuse_failing([where] if where is not None else [])
    returning = bind_returning(statement.returning, scope, catalog)
    return TableChange(target.name, "delete", where=where, statement=statement.normal, returning=returning)


def _by_query(
    statement: UpdateRows | DeleteRows,
    query: RowsQuery,
    target: SourceDef,
    scope: Scope,
    catalog: Catalog,
    defaults: tuple[NamedExpr, ...],
) -> TableChange:
    """Values that come from the rows of a query, which runs with the statement. defaults: of columns that get theirs."""
    given = {d.name for d in defaults}
    for s in query.settings:
        _refuse_setting(s, target, given)
        _refuse_given(target, s.column, s.span)
        given.add(s.column)
    whole = with_beside(scope, statement.returning, query.beside, catalog) if statement.returning else scope
    returning = bind_returning(statement.returning, whole, catalog)
    beside = named_beside(returning, whole)
    return TableChange(
        target.name,
        "update" if isinstance(statement, UpdateRows) else "delete",
        columns=(*target.identity, *(s.column for s in query.settings)),
        select=query.text(target.identity, [(c.source, c.name) for c in beside]),
        settings=defaults,
        statement=statement.normal,
        returning=returning,
        beside=tuple(Field(c.column, c.type) for c in beside),
    )


def refuse_view(target: SourceDef, at: Span, verb: str) -> None:
    """Rows of a view are those of its query."""
    if target.relation and not target.is_own_table:
        title = f"{target.name} is a view: {verb} changes the rows of tables"
        raise mistake("FQ2041", title, at, "a view", help="change the tables that its query reads")


def _changeable(name: str, catalog: Catalog, at: Span, verb: str) -> SourceDef:
    target = find_source(catalog, name, at)
    refuse_view(target, at, verb)
    if target.rules is None and target.query is not None:
        title = f"{name} is made by a query: {verb} changes rows of local tables only"
        raise mistake("FQ2041", title, at, "made by a query", help="change what the query reads")
    if target.rules is None:
        title = f"{name} is over the topic {target.topic}: {verb} changes rows of local tables only"
        help = "create the table without KAFKA_TOPIC, or write records:  flowql topic produce"
        raise mistake("FQ2041", title, at, f"a {target.kind} over a topic", help=help)
    if target.rules.append_only:
        title = f"{name} is APPEND ONLY: its rows are inserted, and never updated or deleted"
        raise mistake("FQ2041", title, at, "append only", help="create the table without APPEND ONLY")
    return target


def _visible(target: SourceDef) -> list[Field]:
    fields = {f.name: f for f in target.schema}
    return [fields[n] for n in target.visible]


def _given(names: Sequence[str], target: SourceDef, at: Span, within: Span) -> list[Field]:
    """The columns that values are given for: those named, or all."""
    fields = {f.name: f for f in _visible(target)}
    for name in names:
        if name not in fields:
            raise _unknown(name, target, at, within)
    if len(set(names)) < len(names):
        raise mistake("FQ2004", f"a column of {target.name} is given twice", at, "given twice")
    return [fields[n] for n in names] if names else [*fields.values()]


def _unknown(name: str, target: SourceDef, at: Span, within: Span) -> Exception:
    """within: where the name stands first."""
    hint = did_you_mean(name, target.visible) or f"columns are {listing(target.visible)}"
    title, edit = f"column {name} does not exist in {target.name}", correction(within, name, target.visible, first=True)
    return mistake("FQ2002", title, at, "unknown column", help=hint, edit=edit)


def _rules(target: SourceDef) -> TableRules:
    assert target.rules is not None
    return target.rules


def _defaults(target: SourceDef) -> dict[str, Expr]:
    return {d.name: d.expr for d in _rules(target).defaults}


def _generated(target: SourceDef) -> frozenset[str]:
    """Columns that statements give no value."""
    numbered = _rules(target).numbered
    always = {numbered[0]} if numbered is not None and numbered[1] == "always" else set()
    return frozenset({g.name for g in _rules(target).generated} | always)


def _refuse_generated(target: SourceDef, name: str, value: Ast | Statement | None, at: Span) -> None:
    """value: None for DEFAULT."""
    if value is not None:
        _refuse_given(target, name, span_of(value, at))


def _refuse_given(target: SourceDef, name: str, at: Span) -> None:
    if name in _generated(target):
        computed = any(g.name == name for g in _rules(target).generated)
        why = "is computed from other columns" if computed else "is GENERATED ALWAYS AS IDENTITY"
        title = f"column {name} of {target.name} {why}: it is given no value"
        raise mistake("FQ2040", title, at, "computed", help="leave it out, or write DEFAULT")


def _not_generated(target: SourceDef, at: Span) -> tuple[str, ...]:
    """The columns that the rows of a query are for if it names none: those before the first computed one, which has to be the last."""
    made = _generated(target)
    given = tuple(n for n in target.visible if n not in made)
    if given != target.visible[: len(given)]:
        title = f"columns of {target.name} that are computed come before others: list the columns that you give"
        help = f"write  INSERT INTO {target.name} ({', '.join(given)}) SELECT ..."
        raise mistake("FQ2040", title, at, "which columns?", help=help)
    return given


def _stored(field: Field, node: Ast | None, binder: Binder, defaults: dict[str, Expr]) -> Expr:
    """node: None for DEFAULT, also of a column that is not given."""
    return assigned(node, binder, field) if node is not None else defaults.get(field.name, Literal(field.type, None))


def _gives_number(target: SourceDef, given: Mapping[str, Ast | None]) -> bool:
    """Whether a row has a value of its own for the identity column."""
    column = _rules(target).identity_column
    return column is not None and given.get(column) is not None


def _without_numbers(
    target: SourceDef, rows: list[tuple[Expr, ...]], given: int, at: Span
) -> tuple[tuple[str, ...], list[tuple[Expr, ...]]]:
    """Columns and rows without the identity column, unless all rows give it. given: how many do."""
    name = _rules(target).identity_column
    if name is None or given == len(rows):
        return target.visible, rows
    place = target.visible.index(name)
    if given:
        title = f"some rows give {name} of {target.name}, and others do not"
        raise mistake("FQ2040", title, at, "given, or numbered?", help="write a statement for each kind of rows")
    return tuple(n for n in target.visible if n != name), [(*r[:place], *r[place + 1 :]) for r in rows]


def _refuse_null(target: SourceDef, names: Sequence[str], rows: Sequence[Sequence[Expr]], at: Span) -> None:
    """A NULL that is written is found before anything runs."""
    wanted = [i for i, n in enumerate(names) if n in _rules(target).not_null and n not in _generated(target)]
    for number, row in enumerate(rows, 1):
        for i in wanted:
            e = row[i]
            if isinstance(e, Literal) and e.value is None:
                what = "of the PRIMARY KEY" if names[i] in key_of(target) else "NOT NULL"
                title = f"column {names[i]} of {target.name} is {what}: it has no NULL"
                title += f", and row {number} gives it one" if len(rows) > 1 else ""
                raise mistake("FQ2040", title, span_of(e, at), "is NULL", help="give a value")


def _scope(target: SourceDef, alias: str | None) -> Scope:
    name = alias or target.name
    return Scope(tuple(ScopeColumn(name, f.name, f.type, f.name, "value") for f in _visible(target)), (name,))


def _settings(settings: Sequence[Setting], target: SourceDef, binder: Binder) -> tuple[NamedExpr, ...]:
    fields = {f.name: f for f in _visible(target)}
    defaults = _defaults(target)
    found: dict[str, NamedExpr] = {}
    for s in settings:
        _refuse_setting(s, target, found)
        _refuse_generated(target, s.column, s.value, s.span)
        if s.value is None and s.column == _rules(target).identity_column:
            raise unsupported(
                f"DEFAULT of the identity column {s.column} in an UPDATE is not supported",
                s.span,
                "its row has a number",
                help="leave it out",
            )
        if s.column in _generated(target):
            continue
        e = _stored(fields[s.column], s.value, binder, defaults)
        if isinstance(e, Literal) and e.value is None and s.column in _rules(target).not_null:
            raise mistake("FQ2040", f"column {s.column} of {target.name} has no NULL", s.span, "is NULL")
        found[s.column] = NamedExpr(s.column, e)
    return tuple(found.values())


def _refuse_setting(s: Setting, target: SourceDef, found: Container[str]) -> None:
    """found: the columns that are set before it."""
    if s.column not in target.visible:
        raise _unknown(s.column, target, s.span, s.span)
    if s.column in found:
        raise mistake("FQ2004", f"column {s.column} is set twice", s.span, "set twice")


def _where(node: Ast | None, scope: Scope, catalog: Catalog) -> Expr | None:
    return Binder(scope, catalog, "WHERE").condition(node) if node is not None else None


def _with_conflict(
    made: TableChange, conflict: OnConflict | None, target: SourceDef, there: Scope, catalog: Catalog
) -> TableChange:
    """there: the columns of the existing row."""
    if conflict is None:
        return replace(made, on_duplicate=_rules(target).on_duplicate)
    keys = key_of(target)
    if conflict.columns and set(conflict.columns) != set(keys):
        title = f"ON CONFLICT ({', '.join(conflict.columns)}) is not the PRIMARY KEY of {target.name}"
        help = f"write  ON CONFLICT ({', '.join(keys)})" if keys else f"{target.name} has no PRIMARY KEY"
        raise mistake("FQ2040", title, conflict.span, "another key", help=help)
    if not conflict.settings:
        return replace(made, on_duplicate="nothing")
    if not keys:
        title = f"ON CONFLICT DO UPDATE: {target.name} has no PRIMARY KEY"
        raise mistake("FQ2040", title, conflict.span, "no key", help="write PRIMARY KEY after its column")
    if _rules(target).append_only:
        title = f"{target.name} is APPEND ONLY: its rows are inserted, and never updated or deleted"
        raise mistake("FQ2041", title, conflict.span, "append only", help="write  ON CONFLICT DO NOTHING")
    other = tuple(ScopeColumn(EXCLUDED, c.name, c.type, f"{EXCLUDED}.{c.name}", "value") for c in there.columns)
    scope = Scope((*there.columns, *other), (*there.aliases, EXCLUDED))
    settings = _settings(conflict.settings, target, Binder(scope, catalog, "SET"))
    where = _where(conflict.where, scope, catalog)
    on_duplicate: OnDuplicate = "update"
    return replace(made, settings=settings, where=where, on_duplicate=on_duplicate)
