"""Joins over complete history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.logical import Join, JoinShape, Node
from flowql.compiler.plan.schema import Schema
from flowql.runtime.spark.frames.pairs import kept_for_good, pairs_of
from flowql.runtime.spark.frames.relation import (
    LIVE,
    ORDER,
    Refused,
    Relation,
    any_present,
    check_keys,
    key_of,
    names,
    sql_of,
    state_of,
)
from flowql.runtime.spark.native.keys import groups
from flowql.runtime.spark.outline import functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LEFT, _RIGHT = "l__", "r__"


def joined(spec: Join, node: Node, left: Relation, right: Relation) -> Relation:
    check_keys([*key_of(node.inputs[0].schema), *key_of(node.inputs[1].schema)])
    return JOINS[spec.shape](spec, node, left, right)


def _streams(spec: Join, node: Node, left: Relation, right: Relation) -> Relation:
    """Pairs within the bound; of an outer side also rows that meet nothing, as nothing comes any more that they could meet."""
    a, b = node.inputs
    if spec.kind != "inner" and spec.grace_ms is None:
        reason = "without GRACE PERIOD an unmatched row comes at once, and again with what it meets later"
        raise Refused(reason, "write WITHIN ... GRACE PERIOD ...")
    if a.schema.window is not None or b.schema.window is not None:
        raise Refused("streams with windowed keys are joined by the runtime's operator")
    unbounded = kept_for_good(node)
    return Relation(
        pairs_of(spec, left.frame, a.schema, right.frame, b.schema, node.schema, unbounded=unbounded), "rows"
    )


def _stream_table(spec: Join, node: Node, left: Relation, right: Relation) -> Relation:
    """Each stream row meets the version with the greatest time up to its own: all rows of a key in order, versions first at ties."""
    b = node.inputs[1].schema
    if right.form != "versions":
        raise Refused("a row meets the table as it was at its time, and of a computed table only the end is known")
    parts = parts_of(node)
    there = f"struct({', '.join([*names(b), LIVE])})"
    rows = rows_here(node, left, "1 AS __side")
    versions = right.frame.selectExpr(
        *(f"{quoted(f.name)} AS {p}" for f, p in zip(key_of(b), parts, strict=True)),
        f"{quoted(ROWTIME)} AS __time",
        "0 AS __side",
        f"{there} AS __there",
        f"{ORDER} AS __order",
    )
    both = rows.unionByName(versions, allowMissingColumns=True)
    over = f"OVER (PARTITION BY {', '.join(parts)} ORDER BY __time, __side, __order ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    met = both.selectExpr("*", f"last(__there, TRUE) {over} AS __met").where("__side = 1")
    return with_versions(met, node, parts)


def parts_of(node: Node) -> list[str]:
    """Names for the columns of the key of a stream-table join."""
    return [f"__part{i}" for i in range(len(key_of(node.inputs[0].schema)))]


def rows_here(node: Node, left: Relation, *beside: str) -> DataFrame:
    """The stream rows of such a join that have a key: as `with_versions` takes them, before they met anything."""
    source = node.inputs[0].schema
    keys = key_of(source)
    return left.frame.where(any_present(keys)).selectExpr(
        *(f"{quoted(f.name)} AS {p}" for f, p in zip(keys, parts_of(node), strict=True)),
        f"{quoted(ROWTIME)} AS __time",
        f"struct({', '.join(names(source))}) AS __here",
        *beside,
    )


def with_versions(met: DataFrame, node: Node, parts: Sequence[str]) -> Relation:
    """The result of a stream-table join. met: a row for each stream row, with its key in the columns `parts`, `__time`, and the structs
    `__here` (its columns) and `__met` (columns of the version and LIVE; NULL if it met none).
    """
    assert isinstance(node.spec, Join)
    if node.spec.kind == "inner":
        met = met.where(f"coalesce(__met.{LIVE}, FALSE)")
    columns, own, left = [], [f.name for f in key_of(node.schema)], node.inputs[0].schema.names
    for f in node.schema:
        if f.name in own:
            columns.append(f"{parts[own.index(f.name)]} AS {quoted(f.name)}")
        elif f.name in left:
            columns.append(f"__here.{quoted(f.name)} AS {quoted(f.name)}")
        else:
            columns.append(f"CASE WHEN __met.{LIVE} THEN __met.{quoted(f.name)} END AS {quoted(f.name)}")
    return Relation(met.selectExpr(*columns, f"__time AS {quoted(ROWTIME)}"), "rows")


def _prefixed(relation: Relation, schema: Schema, prefix: str) -> Relation:
    texts = [f"{quoted(n)} AS {quoted(prefix + n)}" for n in (*schema.names, ROWTIME)]
    return Relation(relation.frame.selectExpr(*texts, f"TRUE AS {prefix}there"), "state")


def _tables(spec: Join, node: Node, left: Relation, right: Relation) -> Relation:
    """The rows of both at the end, by key."""
    a, b = (i.schema for i in node.inputs)
    lefts = _prefixed(state_of(left, a), a, _LEFT).frame
    rights = _prefixed(state_of(right, b), b, _RIGHT).frame
    pairs = [(quoted(_LEFT + x.name), quoted(_RIGHT + y.name)) for x, y in zip(key_of(a), key_of(b), strict=True)]
    same = " AND ".join(f"{x} {'=' if len(pairs) == 1 else '<=>'} {y}" for x, y in pairs)
    made = lefts.join(rights, functions(lefts).expr(same), spec.kind)
    own = [f.name for f in key_of(node.schema)]
    columns = []
    for f in node.schema:
        if f.name in own:
            columns.append(f"coalesce({', '.join(pairs[own.index(f.name)])}) AS {quoted(f.name)}")
        else:
            columns.append(f"{quoted((_LEFT if f.name in a.names else _RIGHT) + f.name)} AS {quoted(f.name)}")
    return Relation(made.selectExpr(*columns, _later()), "state", timed=False)


def _foreign(spec: Join, node: Node, left: Relation, right: Relation) -> Relation:
    """Rows of the left at the end, each with the row of the right that it names."""
    a, b = (i.schema for i in node.inputs)
    assert spec.foreign_key is not None, "a foreign-key join says how the left names the right"
    if not groups(spec.foreign_key.type):
        raise Refused(f"the foreign key is {spec.foreign_key.type}: Spark compares it in its own way")
    state = state_of(left, a)
    named = state.frame.selectExpr(*names(a), quoted(ROWTIME), f"{sql_of(spec.foreign_key, state)} AS __foreign")
    lefts = named.selectExpr(*(f"{quoted(n)} AS {quoted(_LEFT + n)}" for n in (*a.names, ROWTIME)), "__foreign")
    rights = _prefixed(state_of(right, b), b, _RIGHT).frame
    (key,) = key_of(b)
    made = lefts.join(rights, functions(lefts).expr(f"__foreign = {quoted(_RIGHT + key.name)}"), spec.kind)
    columns = [f"{quoted((_LEFT if f.name in a.names else _RIGHT) + f.name)} AS {quoted(f.name)}" for f in node.schema]
    return Relation(made.selectExpr(*columns, _later()), "state", timed=False)


def _later() -> str:
    return f"greatest({quoted(_LEFT + ROWTIME)}, {quoted(_RIGHT + ROWTIME)}) AS {quoted(ROWTIME)}"


Handler = Callable[[Join, Node, Relation, Relation], Relation]
# One per `flowql.compiler.plan.logical.JoinShape`; a test looks.
JOINS: dict[JoinShape, Handler] = {
    "stream-stream": _streams,
    "stream-table": _stream_table,
    "table-table": _tables,
    "foreign-key": _foreign,
}
