"""A view each of whose rows is made from one record of a stream: it is a stream, too, whose rows need no identity, as none ever changes.

before: Project(__0 := ROWOFFSET, a := v + 1, Filter(AppendOnly(Scan)))      after: Project(a := v + 1, Filter(Scan))

Late rows of a stream with a watermark are left out by an operator that takes its rows for changes; a view over one is a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flowql.compiler.analyze.relation import with_key_roles
from flowql.compiler.plan.expr import ROWTIME, Column, columns_of
from flowql.compiler.plan.logical import Explode, Filter, Node, Project, Scan
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.visit import exprs_of
from flowql.compiler.plan.watermarks import AppendOnly

_Origins = Mapping[str, str]  # of columns that are key columns of the stream, which they are


def as_records(view: Node) -> Node | None:
    """The rows of a view as those of a stream, and None where a row is made of several records.

    Its key columns are those of the stream, where the view has all of them as they are, and other columns besides.
    """
    made = _records(view)
    if made is None:
        return None
    node, origins = made
    scan = node
    while scan.inputs:
        (scan,) = scan.inputs
    named = {
        f.name: _called(f.name, [n for n in node.schema.names if origins.get(n) == f.name]) for f in scan.schema.key
    }
    keys = [name for name in named.values() if name]
    whole = len(keys) == len(scan.schema.key) and len(keys) < len(node.schema.names)
    return with_key_roles(node, keys if whole else [])


def _called(key: str, columns: Sequence[str]) -> str:
    """Choose the column that carries on a key column: the one with the same name, else the first. Empty if `columns` is empty."""
    return key if key in columns else next(iter(columns), "")


def is_records(node: Node) -> bool:
    """Whether each row is made from one record of a stream without a watermark."""
    return _records(node) is not None


def _records(node: Node) -> tuple[Node, _Origins] | None:
    if isinstance(node.spec, AppendOnly):
        (scan,) = node.inputs
        is_stream = isinstance(scan.spec, Scan) and scan.spec.kind == "stream"
        return (scan, {f.name: f.name for f in scan.schema.key}) if is_stream and node.spec.watermark is None else None
    if not isinstance(node.spec, Project | Filter | Explode):
        return None
    found = _records(node.inputs[0])
    if found is None:
        return None
    below, origins = found
    spec = node.spec
    if isinstance(spec, Project):
        identity = {f.name for f in node.schema.key}
        spec = replace(spec, columns=tuple(c for c in spec.columns if c.name not in identity))
        schema = Schema(tuple(Field(c.name, c.expr.type) for c in spec.columns))
        passed = {c.name: c.expr.name for c in spec.columns if isinstance(c.expr, Column)}
        origins = {name: origins[of] for name, of in passed.items() if of in origins}
    elif isinstance(spec, Explode):
        schema = Schema((*below.schema.fields, *(Field(f.name, f.expr.type) for f in spec.functions)))
    else:
        schema = below.schema
    if not columns_of(*exprs_of(spec)) <= {*below.schema.names, ROWTIME}:
        return None  # it reads the identity of its rows
    return Node(spec, (below,), schema, "append"), origins
