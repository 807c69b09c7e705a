"""Projections and filters that DuckDB has no form of, computed by the operators of views over some thousand rows at a time.

They keep no state, so their rows can be computed in parts. DuckDB computes the rest of the query over their results, which it can put on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa

from flowql.compiler.analyze.relations.asked import AskedQuery
from flowql.compiler.functions.duckdb_sql import quoted
from flowql.compiler.plan.expr import Column
from flowql.compiler.plan.logical import Filter, Format, NamedExpr, Node, Project, Scan
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, INT, arrow_type
from flowql.compiler.plan.watermarks import AppendOnly
from flowql.query.asked import shown
from flowql.query.interactive import InteractiveQuery
from flowql.query.over_snapshot import Unrendered, first_unrendered, rendered
from flowql.runtime.operators.kernels import with_field_names

_ROWS = 2_000  # of a part
_INPUT, _MADE, _PARTITION, _OFFSET, _COUNTED = "!input", "!made", "!partition", "!offset", "!counted"
_POSITION = (Field("ROWPARTITION", INT, "pseudo"), Field("ROWOFFSET", BIGINT, "pseudo"))
_NO_FORMAT = Format("NONE")


def computed_in_parts(query: InteractiveQuery, asked: AskedQuery) -> tuple[AskedQuery, str] | None:
    """The query over tables in place of what DuckDB cannot compute, and its text for DuckDB. None if that is not projections and filters alone.

    Raises QueryError for a row that fails or if the query was broken off, and errors of DuckDB.
    """
    columns = [c.column for c in asked.columns]
    parts: list[Unrendered] = []
    while not (text := rendered(asked.node, columns, asked.order, {}).sql):
        part = first_unrendered(asked.node, columns, asked.order)
        if part is None:
            return None
        fields = tuple(replace(f, role="value") if f.role == "pseudo" else f for f in part.node.schema)
        scan = _scan(_name(len(parts)), fields)
        asked = replace(asked, node=_replaced(asked.node, part.node, scan, {}))
        parts.append(part)
    for number, part in enumerate(parts):  # which may read those before it
        _compute(query, part, _name(number))
    return (asked, shown(asked, text)) if parts else None


def _name(number: int) -> str:
    return f"!part{number}"


def _compute(query: InteractiveQuery, part: Unrendered, name: str) -> None:
    """Writes the rows of a node into a table."""
    from flowql.query.reference import computed  # every operator, which few queries need

    query.have_functions(part.below)
    connection, node = query.connection, _over_input(part)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {quoted(_INPUT)} AS {part.below}").fetchall()
    into = f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS"
    try:
        for rows in _slices(connection, [f for f in part.node.inputs[0].schema if f.name in part.read]):
            query.check()
            connection.register(_MADE, computed(node, {_INPUT: rows}))
            connection.execute(f"{into} FROM {quoted(_MADE)}").fetchall()
            into = f"INSERT INTO {quoted(name)}"
    finally:
        connection.unregister(_MADE)
        connection.execute(f"DROP TABLE {quoted(_INPUT)}").fetchall()


def _slices(connection: duckdb.DuckDBPyConnection, fields: Sequence[Field]) -> Iterator[pa.Table]:
    """The rows of the input in their order; at least one slice. If no field is read, the rows have one unused column."""
    ((number,),) = connection.execute(f"SELECT count(*) FROM {quoted(_INPUT)}").fetchall()
    for at in range(0, max(number, 1), _ROWS):
        text = f"FROM {quoted(_INPUT)} WHERE rowid >= {at} AND rowid < {at + _ROWS}"
        rows = connection.sql(text).to_arrow_table()
        types = {f.name: arrow_type(f.type) for f in fields}
        columns = {n: with_field_names(rows.column(n).combine_chunks(), t) for n, t in types.items()}
        yield pa.table(columns) if columns else rows


def _over_input(part: Unrendered) -> Node:
    """The node over the slice of its input. The identity of a row is its place there."""
    fields = tuple(Field(f.name, f.type) for f in part.node.inputs[0].schema if f.name in part.read)
    own = (Field(_PARTITION, INT, "key"), Field(_OFFSET, BIGINT, "key"))
    node = _scan(_INPUT, (*fields, *_POSITION))
    node = Node(AppendOnly(), (node,), node.schema, "retract")
    places = [NamedExpr(f.name, Column(p.type, p.name)) for f, p in zip(own, _POSITION, strict=True)]
    kept = [NamedExpr(f.name, Column(f.type, f.name)) for f in fields]
    node = Node(Project((*places, *kept)), (node,), Schema((*own, *fields)), "retract")
    made = tuple(Field(f.name, f.type) for f in part.node.schema if f.name in part.needed)
    exprs = [NamedExpr(f.name, Column(f.type, f.name)) for f in made]
    spec, passed = part.node.spec, [NamedExpr(f.name, Column(f.type, f.name)) for f in own]
    if isinstance(spec, Filter):
        node = Node(spec, (node,), node.schema, "retract")
    else:
        assert isinstance(spec, Project)
        exprs = [c for c in spec.columns if c.name in part.needed]
    if not made:  # only how many rows there are is needed
        made = (Field(_COUNTED, BIGINT),)
        exprs = [NamedExpr(_COUNTED, Column(BIGINT, _OFFSET))]
    return Node(Project((*passed, *exprs)), (node,), Schema((*own, *made)), "retract")


def _scan(name: str, fields: tuple[Field, ...]) -> Node:
    return Node(Scan(name, name, "stream", _NO_FORMAT, _NO_FORMAT), (), Schema(fields), "append")


def _replaced(node: Node, old: Node, new: Node, done: dict[int, Node]) -> Node:
    """The plan with another node in place of one, also where several nodes read it."""
    if node is old:
        return new
    if id(node) not in done:
        inputs = tuple(_replaced(i, old, new, done) for i in node.inputs)
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        done[id(node)] = node if same else replace(node, inputs=inputs)
    return done[id(node)]
