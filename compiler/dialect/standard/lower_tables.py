"""Tables of one's own, and statements that change rows, as those the analyzer reads."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.diagnostics.edits import renamed
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.diagnostics.suggest import closest
from flowql.compiler.dialect.ast import Ast, InsertInto, Statement
from flowql.compiler.dialect.standard import statement_tree as st
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.lower_expressions import lower_expr
from flowql.compiler.dialect.standard.lower_queries import lower_query
from flowql.compiler.dialect.standard.lower_types import lower_type
from flowql.compiler.dialect.standard.lower_watermarks import lower_watermark
from flowql.compiler.dialect.standard.names import plain_name
from flowql.compiler.dialect.standard.refuse import fail, unsupported
from flowql.compiler.dialect.standard.write_expressions import dotted, quoted
from flowql.compiler.dialect.standard.write_queries import WRITER, relation_sql
from flowql.compiler.dialect.standard.write_statements import to_sql
from flowql.compiler.dialect.table_statements import (
    CreateTable,
    DeleteRows,
    InsertRows,
    InsertSelect,
    OnConflict,
    RowsQuery,
    Setting,
    TableColumn,
    UpdateRows,
)
from flowql.compiler.plan.tables import OnDuplicate

_CONSTRAINTS = {
    "UNIQUE": "a table has one key, its PRIMARY KEY",
    "CHECK": "leave it out, and filter with WHERE",
    "GENERATED AS IDENTITY": "leave the key out: a table without one keeps equal rows apart",
}


def is_own_table(s: st.CreateTable) -> bool:
    """Whether a table holds rows of its own: it is over no topic."""
    topic_properties = {p.name for p in s.properties} - {"PARTITIONS"}
    over_topic = s.columns is None or s.read_only or bool(topic_properties)
    columns = s.columns or ()
    return s.kind == "table" and s.query is None and not over_topic and all(c.role != "header" for c in columns)


def lower_table(s: st.CreateTable, name: str) -> Statement:
    """CREATE TABLE without a topic."""
    watermark = lower_watermark(s)
    on_duplicate: OnDuplicate = "error"
    for constraint, span in s.constraints:
        if not constraint.startswith("ON CONFLICT"):
            unsupported(constraint, span, _CONSTRAINTS.get(constraint, "leave it out"))
        on_duplicate = _table_conflict(constraint, span)
    columns = s.columns or ()
    return CreateTable(
        s.text,
        s.span,
        name=name,
        columns=tuple(map(_column, columns)),
        primary_key=_primary_key(s, columns),
        append_only=s.append_only or watermark is not None,
        watermark=watermark,
        on_duplicate=on_duplicate,
        properties=s.properties,
        or_replace=s.or_replace,
        if_not_exists=s.if_not_exists,
        name_span=s.name_span,
    )


def _table_conflict(constraint: str, span: Span) -> OnDuplicate:
    """RisingWave's clause behind the columns of a table."""
    words = constraint.removeprefix("ON CONFLICT").split()
    if words in (["DO", "NOTHING"], ["IGNORE"]):
        return "nothing"
    if words in (["OVERWRITE"], ["DO", "UPDATE", "FULL"]):
        return "replace"
    unsupported(" ".join(["ON CONFLICT", *words]), span, "write  ON CONFLICT DO NOTHING  or  ON CONFLICT OVERWRITE")


def _primary_key(s: st.CreateTable, columns: Sequence[st.ColumnDefinition]) -> tuple[str, ...]:
    of_columns = tuple(c.name for c in columns if c.role in ("key", "primary_key"))
    if len(of_columns) + bool(s.primary_key) > 1:
        help = f"write  PRIMARY KEY ({', '.join(dict.fromkeys((*of_columns, *s.primary_key)))})"
        fail("FQ1003", "a table has one PRIMARY KEY", s.name_span, label="more than one", help=help)
    names = [c.name for c in columns]
    for key in s.primary_key:
        if key not in names:
            title = f"the PRIMARY KEY names {key}, which is no column of the table"
            help = f"columns are {', '.join(names)}"
            near = closest(key, names)
            edit = renamed(s.span, key, near[0]) if near else None
            fail("FQ2002", title, s.name_span, label="unknown key column", help=help, edit=edit)
    return s.primary_key or of_columns


def _column(c: st.ColumnDefinition) -> TableColumn:
    if c.generated is not None and c.default is not None:
        title = f"column {c.name} has a DEFAULT and is computed from other columns"
        fail("FQ1003", title, c.default.span, label="never used", help="leave one of them out")
    if c.properties:
        unsupported("WITH of a column of a table without a topic", c.span, "leave it out")
    others = [o for o in c.constraints if o != "NOT NULL"]
    if others:
        unsupported(f"{others[0]} of a column", c.span, _CONSTRAINTS.get(others[0], "leave it out"))
    default = lower_expr(c.default) if c.default is not None else None
    generated = lower_expr(c.generated) if c.generated is not None else None
    return TableColumn(c.name, lower_type(c.type), "NOT NULL" in c.constraints, default, generated, c.span)


# --- rows ---


def lower_insert(s: st.Insert) -> list[Statement]:
    """INSERT of rows, or of the rows of a query."""
    target = plain_name(s.target, s)
    _refuse_returning(s.returning)
    conflict = _conflict(s.on_conflict) if s.on_conflict is not None else None
    if s.query is None:
        return [InsertRows(s.text, s.span, target, (), ((),), conflict, s.name_span, to_sql(s))]
    body = s.query.body
    if isinstance(body, t.Values):
        _refuse_clauses_of_values(s.query)
        rows = tuple(tuple(map(_value, row)) for row in body.rows)
        return [InsertRows(s.text, s.span, target, s.columns, rows, conflict, s.name_span, to_sql(s))]
    return [
        InsertSelect(
            s.text,
            s.span,
            target,
            s.columns,
            s.query_text,
            lambda: _insert_query(s, target),
            conflict,
            s.name_span,
        )
    ]


def _insert_query(s: st.Insert, target: str) -> InsertInto:
    """A query that keeps running and inserts into a stream."""
    assert s.query is not None
    if s.columns:
        unsupported("a list of columns before the query of an INSERT", s.name_span, "select all columns of the target")
    if s.query.limit is not None:
        span = s.query.limit.span
        unsupported("LIMIT in a query that keeps running", span, "limit the rows where they are read")
    query = lower_query(s.query)
    return InsertInto(s.text, s.span, target=target, query=query, properties=s.properties, name_span=s.name_span)


def _refuse_clauses_of_values(query: t.Query) -> None:
    written: Sequence[tuple[object, str]] = (
        (query.with_, "WITH before VALUES"),
        (query.order_by, "ORDER BY of VALUES"),
        (query.limit, "LIMIT of VALUES"),
        (query.offset, "OFFSET of VALUES"),
        (query.emit, "EMIT of VALUES"),
    )
    for clause, named in written:
        if clause:
            unsupported(named, query.span, "write the rows alone")


def _refuse_returning(items: Sequence[t.Item]) -> None:
    if items:
        unsupported("RETURNING", items[0].span, "query the table afterwards")


def _value(node: t.Expr) -> Ast | None:
    return None if isinstance(node, t.Default) else lower_expr(node)


def _conflict(c: st.OnConflict) -> OnConflict:
    where = lower_expr(c.where) if c.where is not None else None
    return OnConflict(c.columns, _settings(c.assignments), where, c.span)


def _settings(assignments: Sequence[st.Assignment]) -> tuple[Setting, ...]:
    return tuple(Setting(name, _value(value), span) for name, value, span in _assigned(assignments))


def _assigned(assignments: Sequence[st.Assignment]) -> list[tuple[str, t.Expr, Span]]:
    """Each column with its value."""
    made: list[tuple[str, t.Expr, Span]] = []
    for a in assignments:
        if len(a.columns) == 1:
            made.append((a.columns[0], a.value, a.span))
            continue
        if not isinstance(a.value, t.Row) or len(a.value.items) != len(a.columns):
            help = f"write  {a.columns[0]} = ..., {a.columns[1]} = ..."
            unsupported("SET of several columns at once to anything but as many values", a.span, help)
        made += [(n, v, a.span) for n, v in zip(a.columns, a.value.items, strict=True)]
    return made


def lower_update(s: st.Update) -> list[Statement]:
    """UPDATE of rows of one table."""
    _refuse_returning(s.returning)
    target, assigned = plain_name(s.target, s), _assigned(s.assignments)
    if s.source is not None or any(_has_query(e) for e in (*(v for _, v, _ in assigned), s.where)):
        defaults = tuple(Setting(n, None, span) for n, v, span in assigned if isinstance(v, t.Default))
        query = _rows_query(s, [(n, v, span) for n, v, span in assigned if not isinstance(v, t.Default)])
        return [UpdateRows(s.text, s.span, target, s.alias, defaults, None, s.name_span, to_sql(s), query)]
    where = lower_expr(s.where) if s.where is not None else None
    return [UpdateRows(s.text, s.span, target, s.alias, _settings(s.assignments), where, s.name_span, to_sql(s))]


def lower_delete(s: st.Delete) -> list[Statement]:
    """DELETE of rows of one table."""
    _refuse_returning(s.returning)
    target = plain_name(s.target, s)
    if s.source is not None or _has_query(s.where):
        return [DeleteRows(s.text, s.span, target, s.alias, None, s.name_span, to_sql(s), _rows_query(s, []))]
    where = lower_expr(s.where) if s.where is not None else None
    return [DeleteRows(s.text, s.span, target, s.alias, where, s.name_span, to_sql(s))]


def _has_query(node: t.Expr | None) -> bool:
    return node is not None and any(isinstance(n, t.Query) for n in t.walk(node))


def _rows_query(s: st.Update | st.Delete, assigned: Sequence[tuple[str, t.Expr, Span]]) -> RowsQuery:
    """A query for the rows to change and their new values; `DISTINCT`, as a row may meet several rows of FROM or USING."""
    name = quoted(s.alias or s.target[-1])
    source = f", {relation_sql(s.source)}" if s.source is not None else ""
    where = f" WHERE {WRITER.expr(s.where)}" if s.where is not None else ""

    def text(identity: Sequence[str]) -> str:
        values = [f"{name}.{quoted(n)}" for n in identity] + [WRITER.expr(v) for _, v, _ in assigned]
        items = ", ".join(f"{v} AS c{i}" for i, v in enumerate(values))
        return f"SELECT DISTINCT {items} FROM {dotted(s.target)} AS {name}{source}{where}"

    return RowsQuery(tuple(Setting(n, None, span) for n, _, span in assigned), text)
