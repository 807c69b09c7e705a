"""A query's definition decides whether it is the same as before; here is also the comparison with one of an older plan.

A definition is a hash of the bound, unoptimised plan in a *normal form*, which says of each source what the query reads of it and
nothing else. So columns of a source that a query does not use may be added, dropped, put into another order or given another
type, and the query goes on. Its key, its timestamp, its formats and its topic always count; so do all columns of a positional
format (DELIMITED, one bare column). `SELECT *` uses every column in its order.

Plans of versions before the normal form hold a hash of the whole bound plan, without `MARK`. Such a query is the same as long as
that hash is; or else, as its bound plan is not known any more, as long as the optimised one that runs reads and computes the same.
It keeps the definition that it has: what compares definitions (`diff_plans`, checkpoints) must not see a change in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from flowql.compiler.optimize.prune_columns import prune_columns
from flowql.compiler.plan.codec import to_data
from flowql.compiler.plan.logical import Node, Project, Scan, Sink
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.compiler.plan.visit import map_nodes
from flowql.compiler.schemas.ref import read_alike, reads_by_name

MARK = "read:"  # in front of hashes of the normal form; one that counts other things needs another

Sources = Mapping[str, SourceDef]


def definition_of(node: Node, sources: Sources) -> str:
    """The definition of a query. node: bound, unoptimised. sources: all that it reads, by name."""
    return MARK + _hash(normal_form(node, sources))


def is_same(kept: QueryPlan, previous: Plan, node: Node, optimised: Node, sources: Sources) -> bool:
    """Whether `kept`, of the plan `previous`, is the query that is bound as `node` over `sources` now."""
    if kept.definition.startswith(MARK):
        return kept.definition == definition_of(node, sources)
    if kept.definition == _hash(node):
        return True
    before = {s.name: s for s in previous.sources}
    return normal_form(kept.logical, before) == normal_form(optimised, sources)


def normal_form(node: Node, sources: Sources) -> Node:
    """The plan of a query with scans of what it reads, and with columns in an order that no source decides.

    The columns of a result keep their order. All other columns are found by name, so those of a value are sorted.
    """

    def scanned(n: Node) -> Node:
        spec = _with_key(n.spec, sources) if isinstance(n.spec, Scan) else n.spec
        assert isinstance(spec, Scan | Sink)
        # Plans of versions that did not know it are the same queries.
        keys, values = replace(spec.key_format, standard=False), replace(spec.value_format, standard=False)
        return replace(n, spec=replace(spec, key_format=keys, value_format=values))

    return replace(_sorted(prune_columns(map_nodes(node, scanned, Scan, Sink))), schema=node.schema)


def _with_key(scan: Scan, sources: Sources) -> Scan:
    """As it is read, with the whole key of its source: also parts that the query does not use."""
    alike, source = read_alike(scan), sources.get(scan.source)
    key = source.schema.key if source is not None else ()
    return replace(alike, declared=Schema((*key, *(f for f in alike.declared.fields if f.role != "key"))))


def _sorted(node: Node) -> Node:
    fields = sorted(
        node.schema.fields, key=lambda f: "" if f.role == "key" else f.name
    )  # the key stays first, in its order
    spec = node.spec
    if isinstance(spec, Project):
        spec = replace(spec, columns=tuple(sorted(spec.columns, key=lambda c: c.name)))
    if isinstance(spec, Scan) and reads_by_name(spec.value_format, spec.declared.value):
        time = spec.timestamp.column if spec.timestamp is not None else ""
        read = sorted((o for o in spec.on_error if o.column in (*node.schema.names, time)), key=lambda o: o.column)
        spec = replace(spec, on_error=tuple(read))
    inputs = tuple(map(_sorted, node.inputs))
    return replace(node, spec=spec, inputs=inputs, schema=Schema(tuple(fields), node.schema.window))


def _hash(node: Node) -> str:
    text = json.dumps(to_data(node), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
