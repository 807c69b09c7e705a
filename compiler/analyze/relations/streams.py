"""Queries that have to give a stream: CREATE STREAM ... AS, and INSERT INTO a stream. What their plan is decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relation import rekey, sources_read, with_key_roles
from flowql.compiler.analyze.relations.records import as_stream, is_stream
from flowql.compiler.dialect.ast import Lit, Name, Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.tree_names import tree_name
from flowql.compiler.dialect.standard.write_queries import WRITER
from flowql.compiler.plan.changes import (
    EquiJoin,
    GroupAggregate,
    Over,
    SetOperation,
    TopN,
)
from flowql.compiler.plan.expr import Column
from flowql.compiler.plan.logical import NamedExpr, Node, Scan, walk_nodes
from flowql.compiler.plan.temporal_filters import TemporalFilter
from flowql.compiler.plan.topology import NO_ROWS

NO_STREAM = "FQ2104"
_CLAUSES = {
    GroupAggregate: "GROUP BY and aggregates change rows that they gave",
    EquiJoin: "a row of a JOIN comes and goes with the rows of both sides",
    SetOperation: "DISTINCT, UNION, INTERSECT and EXCEPT compare rows, which may go",
    TopN: "LIMIT, DISTINCT ON and a numbered row change with each row that comes before it",
    Over: "OVER gives a row other values as others come",
    TemporalFilter: "a condition with NOW() lets rows come and go with the clock",
}


def split_keys(query: t.Query) -> tuple[t.Query, tuple[t.Expr, ...]]:
    """The query without the PARTITION BY of its SELECT, and its expressions."""
    body = query.body
    if not isinstance(body, t.Select) or not body.partition_by:
        return query, ()
    return replace(query, body=replace(body, partition_by=())), body.partition_by


def stream_of(view: Node, query: t.Query, name: str) -> Node:
    """The rows of a view as records. name: of the stream. Raises CompileError that says which clause makes it a table."""
    records = as_stream(view)
    return records if records is not None else _refuse(view, query, name)


def _refuse(view: Node, query: t.Query, name: str) -> NoReturn:
    title, reason = f"the rows of the stream {name} change", _reason(view)
    help = "write  CREATE VIEW name AS SELECT ..."
    if reason == _CLAUSES[EquiJoin]:
        help += ";  a row of a stream finds a table as it is then by  JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON ..."
    why = f"{reason}; a stream has rows that only come"
    raise mistake(NO_STREAM, title, query.span, "gives a table", why=why, help=help)


def _reason(view: Node) -> str:
    """The reason why the result is a table, from the operator nearest to the result."""
    if sources_read(view) == (NO_ROWS.name,):
        return "a query without FROM reads no stream"
    for node in reversed(list(walk_nodes(view))):
        spec = node.spec
        if type(spec) in _CLAUSES and not is_stream(node):
            return _CLAUSES[type(spec)]
        if isinstance(spec, Scan) and spec.kind == "table":
            return f"{spec.source} is a table"
    return "it reads where records are"


def partitioned(node: Node, query: t.Query, by: Sequence[t.Expr], columns: Sequence[str]) -> Node:
    """The records with another key: columns of the result. columns: their names. A NULL for all keys leaves none."""
    if all(isinstance(e, Lit) and e.kind == "null" for e in by):
        return with_key_roles(node, [])
    keys = [_key(e, query, columns) for e in by]
    if len(set(keys)) < len(keys):
        raise mistake("FQ2004", "PARTITION BY names a column twice", by[0].span, "given twice")
    if len(keys) == len(columns):
        title = "PARTITION BY leaves no column for the values"
        raise mistake("FQ2024", title, by[0].span, "all are key columns", help="select one more column")
    return keyed(node, keys)


def keyed(node: Node, keys: Sequence[str]) -> Node:
    """The records by these columns; as they are where they are by them already."""
    if [f.name for f in node.schema.key] == list(keys):
        return node
    plain = with_key_roles(node, [])
    types = {f.name: f.type for f in plain.schema}
    return rekey(plain, [NamedExpr(k, Column(types[k], k)) for k in keys], drop_null=False)


def _key(e: t.Expr, query: t.Query, columns: Sequence[str]) -> str:
    """The name of the column of the result that is this expression."""
    items = query.body.items if isinstance(query.body, t.Select) else ()
    if not any(isinstance(i.expr, Star) for i in items):
        found = [c for i, c in zip(items, columns, strict=True) if i.expr == e]
        if found:
            return found[0]
    if isinstance(e, Name) and tree_name(e) in columns:
        return tree_name(e)
    title = f"PARTITION BY {WRITER.expr(e)}: a key is a column of the stream"
    raise mistake("FQ2022", title, e.span, "not selected", help=f"select it, too:  SELECT {WRITER.expr(e)} AS key, ...")
