"""INSERT, UPDATE and DELETE of a local table."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Literal as OneOf

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
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import InsertRow, Name, Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.file_functions import reads_files
from flowql.compiler.dialect.standard.refuse import fail
from flowql.compiler.dialect.standard.refuse import unsupported as refuse
from flowql.compiler.dialect.standard.statement_tree import Assignment, Change, CopyRows, Insert, OnConflict, Update
from flowql.compiler.dialect.standard.write_expressions import quoted
from flowql.compiler.dialect.standard.write_queries import WRITER, names, query_sql, relation_sql, with_sql
from flowql.compiler.dialect.standard.write_statements import change_sql
from flowql.compiler.plan.expr import Expr, Literal
from flowql.compiler.plan.logical import NamedExpr
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.tables import EXCLUDED, OnDuplicate, TableChange, TableRules
from flowql.compiler.plan.topology import SourceDef

Rows = tuple[tuple[t.Expr, ...], ...]
_Setting = tuple[str, t.Expr, Span]
_ASKED = "__set"  # begins aliases of sub-queries; no column has such a name


def rows_given(statement: Insert) -> Rows | None:
    """The rows of VALUES, or one without values for DEFAULT VALUES; None where a query gives rows. Raises CompileError."""
    if statement.query is None:
        return ((),)
    query, body = statement.query, statement.query.body
    if not isinstance(body, t.Values):
        return None
    written: Sequence[tuple[object, str]] = (
        (query.with_, "WITH before VALUES"),
        (query.order_by, "ORDER BY of VALUES"),
        (query.limit, "LIMIT of VALUES"),
        (query.offset, "OFFSET of VALUES"),
        (query.emit, "EMIT of VALUES"),
    )
    for clause, named in written:
        if clause:
            refuse(named, query.span, "write only the rows")
    values = [value for row in body.rows for value in row]
    if not any(walks.contains(value, t.Query) for value in values):
        return body.rows
    for value in values:
        if isinstance(value, t.Default):
            refuse("DEFAULT beside a sub-query in VALUES", value.span, "leave the column out of the list of columns")
    return None


def row_statements(statement: Insert, rows: Rows) -> list[InsertRow] | None:
    """One statement per row, as ksqlDB has it; None where a value is DEFAULT."""
    if not all(rows) or any(isinstance(value, t.Default) for row in rows for value in row):
        return None
    s = statement
    return [InsertRow(s.text, s.span, s.target, s.columns, row, s.name_span) for row in rows]


def bind_insert(statement: Insert, given_rows: Rows, target: SourceDef, catalog: Catalog, at: Span) -> TableChange:
    """Rows of VALUES, each with all columns that can be given."""
    named = statement.columns
    fields = _given(named, target, at, statement.span)
    defaults, generated = _defaults(target), _generated(target)
    binder = Binder(Scope((), ()), catalog, "VALUES")
    rows, numbers = list[tuple[Expr, ...]](), 0
    for row in given_rows:
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
    made = TableChange(
        target.name, "insert", columns, tuple(rows), statement=change_sql(statement), returning=returning
    )
    return _with_conflict(made, statement.on_conflict, target, scope, catalog)


def bind_insert_select(statement: Insert, target: SourceDef, catalog: Catalog, at: Span) -> TableChange:
    """Rows of a query, or of VALUES with sub-queries, which is asked when the statement runs."""
    assert statement.query is not None
    select, body = statement.query_text, statement.query.body
    if isinstance(body, t.Values):
        select = " UNION ALL ".join(f"SELECT {WRITER.exprs(row)}" for row in body.rows)
    columns = statement.columns or _not_generated(target, at)
    for field in _given(columns, target, at, statement.span):
        _refuse_given(target, field.name, span_of(statement, at))
    scope = _scope(target, statement.alias)
    returning = bind_returning(statement.returning, scope, catalog)
    made = TableChange(
        target.name,
        "insert",
        columns,
        select=select,
        statement=statement.text,
        returning=returning,
        reads_files=reads_files(statement.query),
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


def bind_change(statement: Change, catalog: Catalog, at: Span) -> TableChange:
    """UPDATE or DELETE."""
    kind: OneOf["update", "delete"] = "update" if isinstance(statement, Update) else "delete"
    given = _assigned(statement.assignments) if isinstance(statement, Update) else []
    joined = _queries_of_several(statement) if isinstance(statement, Update) else []
    target = _changeable(statement.target, catalog, at, kind.upper())
    scope = _scope(target, statement.alias)
    written = (*(value for _, value, _ in given), statement.where)
    if joined or statement.source is not None or any(walks.contains(e, t.Query) for e in written):
        return _by_query(statement, kind, given, joined, target, scope, catalog)
    settings = _settings(given, target, Binder(scope, catalog, "SET"))
    where = _where(statement.where, scope, catalog)
    refuse_failing_values([s.name for s in settings], [[s.expr for s in settings]])
    refuse_failing([where] if where is not None else [])
    returning = bind_returning(statement.returning, scope, catalog)
    text = change_sql(statement)
    return TableChange(target.name, kind, settings=settings, where=where, statement=text, returning=returning)


def _by_query(
    statement: Change,
    kind: OneOf["update", "delete"],
    given: Sequence[_Setting],
    joined: Sequence[str],
    target: SourceDef,
    scope: Scope,
    catalog: Catalog,
) -> TableChange:
    """Values that come from the rows of a query, which runs with the statement; `DISTINCT`, as a row may meet several rows of FROM or USING.

    joined: relations behind the table that is changed.
    """
    for table in statement.with_:
        if table.name == statement.target:
            refuse("a table of WITH with the name of the table that is changed", table.span, "name it differently")
    plain = [s for s in given if isinstance(s[1], t.Default)]
    defaults = _settings(plain, target, Binder(scope, catalog, "SET"))
    asked = [s for s in given if not isinstance(s[1], t.Default)]
    found = {d.name for d in defaults}
    for s in asked:
        _refuse_setting(s, target, found)
        _refuse_given(target, s[0], s[2])
        found.add(s[0])
    common = {table.name for table in statement.with_}
    whole = with_beside(scope, statement.returning, statement.source, common, catalog)
    returning = bind_returning(statement.returning, whole, catalog)
    beside = named_beside(returning, whole)
    name = quoted(statement.alias or statement.target)
    values = [f"{name}.{quoted(n)}" for n in target.identity] + [WRITER.expr(value) for _, value, _ in asked]
    values += [f"{quoted(c.source)}.{quoted(c.name)}" for c in beside]
    items = ", ".join(f"{v} AS c{i}" for i, v in enumerate(values))
    source = f", {relation_sql(statement.source)}" if statement.source is not None else ""
    where = f" WHERE {WRITER.expr(statement.where)}" if statement.where is not None else ""
    with_ = f"{with_sql(statement.with_, recursive=statement.recursive)} ".lstrip()
    rows = f"{quoted(statement.target)} AS {name}{''.join(joined)}{source}"
    return TableChange(
        target.name,
        kind,
        columns=(*target.identity, *(column for column, _, _ in asked)),
        select=f"{with_}SELECT DISTINCT {items} FROM {rows}{where}",
        settings=defaults,
        statement=change_sql(statement),
        returning=returning,
        beside=tuple(Field(c.column, c.type) for c in beside),
    )


def _assigned(assignments: Sequence[Assignment]) -> list[_Setting]:
    """Each column with its value, and where it is set."""
    made: list[_Setting] = []
    for place, a in enumerate(assignments):
        if len(a.columns) == 1:
            made.append((a.columns[0], a.value, a.span))
        elif isinstance(a.value, t.ScalarQuery):
            made += [(n, Name((f"{_ASKED}{place}", f"v{i}")), a.span) for i, n in enumerate(a.columns)]
        elif t.is_row(a.value) and len(a.value.args) == len(a.columns):
            made += [(n, v, a.span) for n, v in zip(a.columns, a.value.args, strict=True)]
        else:
            help = f"write  {a.columns[0]} = ..., {a.columns[1]} = ..."
            refuse("SET of several columns to another number of values", a.span, help)
    return made


def _queries_of_several(statement: Update) -> list[str]:
    """`SET (a, b) = (SELECT ...)`: each sub-query as a relation that gives a row for each row of the table."""
    found: list[str] = []
    for place, a in enumerate(statement.assignments):
        if not isinstance(a.value, t.ScalarQuery) or len(a.columns) == 1:
            continue
        body = a.value.query.body
        if statement.source is not None:
            refuse("SET of several columns to a sub-query beside FROM", a.span, "join the query in FROM instead")
        if isinstance(body, t.Select) and not any(isinstance(i.expr, Star) for i in body.items):
            given, wanted = len(body.items), len(a.columns)
            if given != wanted:
                fail("FQ2040", f"{wanted} columns are set to a query of {given}", a.span, label="as many are needed")
        columns = names(tuple(f"v{i}" for i in range(len(a.columns))))
        found.append(f" LEFT JOIN LATERAL ({query_sql(a.value.query)}) AS {_ASKED}{place}{columns} ON TRUE")
    return found


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


def _refuse_generated(target: SourceDef, name: str, value: t.Expr, at: Span) -> None:
    if not isinstance(value, t.Default):
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


def _stored(field: Field, node: t.Expr | None, binder: Binder, defaults: dict[str, Expr]) -> Expr:
    """node: None for a column that is not given."""
    if node is None or isinstance(node, t.Default):
        return defaults.get(field.name, Literal(field.type, None))
    return assigned(node, binder, field)


def _gives_number(target: SourceDef, given: Mapping[str, t.Expr]) -> bool:
    """Whether a row has a value of its own for the identity column."""
    column = _rules(target).identity_column
    return column is not None and column in given and not isinstance(given[column], t.Default)


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


def _settings(settings: Sequence[_Setting], target: SourceDef, binder: Binder) -> tuple[NamedExpr, ...]:
    fields = {f.name: f for f in _visible(target)}
    defaults = _defaults(target)
    found: dict[str, NamedExpr] = {}
    for column, value, at in settings:
        _refuse_setting((column, value, at), target, found)
        _refuse_generated(target, column, value, at)
        if isinstance(value, t.Default) and column == _rules(target).identity_column:
            title = f"DEFAULT of the identity column {column} in an UPDATE is not supported"
            raise unsupported(title, at, "its row has a number", help="leave it out")
        if column in _generated(target):
            continue
        e = _stored(fields[column], value, binder, defaults)
        if isinstance(e, Literal) and e.value is None and column in _rules(target).not_null:
            raise mistake("FQ2040", f"column {column} of {target.name} has no NULL", at, "is NULL")
        found[column] = NamedExpr(column, e)
    return tuple(found.values())


def _refuse_setting(setting: _Setting, target: SourceDef, found: Container[str]) -> None:
    """found: the columns that are set before it."""
    column, _, at = setting
    if column not in target.visible:
        raise _unknown(column, target, at, at)
    if column in found:
        raise mistake("FQ2004", f"column {column} is set twice", at, "set twice")


def _where(node: t.Expr | None, scope: Scope, catalog: Catalog) -> Expr | None:
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
    if not conflict.assignments:
        return replace(made, on_duplicate="nothing")
    if not keys:
        title = f"ON CONFLICT DO UPDATE: {target.name} has no PRIMARY KEY"
        raise mistake("FQ2040", title, conflict.span, "no key", help="write PRIMARY KEY after its column")
    if _rules(target).append_only:
        title = f"{target.name} is APPEND ONLY: its rows are inserted, and never updated or deleted"
        raise mistake("FQ2041", title, conflict.span, "append only", help="write  ON CONFLICT DO NOTHING")
    other = tuple(ScopeColumn(EXCLUDED, c.name, c.type, f"{EXCLUDED}.{c.name}", "value") for c in there.columns)
    scope = Scope((*there.columns, *other), (*there.aliases, EXCLUDED))
    settings = _settings(_assigned(conflict.assignments), target, Binder(scope, catalog, "SET"))
    where = _where(conflict.where, scope, catalog)
    on_duplicate: OnDuplicate = "update"
    return replace(made, settings=settings, where=where, on_duplicate=on_duplicate)
