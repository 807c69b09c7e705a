"""A topology of processors (KIP-28) as a query: what it reads, and what it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.analyze.properties import QueryOptions
from flowql.compiler.analyze.relation import retracting, scan
from flowql.compiler.analyze.statements import BoundQuery, with_sink
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.catalog.names import did_you_mean
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.processors import Process, ProcessorStep
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.processors.topology import Topology, TopologyEntry

CODE = "FQ2071"


def bind_topology(entry: TopologyEntry, catalog: Catalog, session: Mapping[str, str]) -> BoundQuery:
    """The query that a topology is. Raises CompileError."""
    topology = entry.topology
    steps = tuple(_resolved(s, topology, catalog) for s in topology.steps)
    reads = tuple(dict.fromkeys(r for s in steps if s.kind == "source" for r in s.relations))
    target = _target(topology, steps, catalog)
    inputs = tuple(_read(catalog.sources[name], session) for name in reads)
    result = Schema(tuple(f for f in target.schema if f.role in ("key", "value")))
    spec = Process(entry.name, steps, reads, topology.stores)
    node = Node(spec, inputs, result, "append" if target.kind == "stream" else "upsert")
    options = QueryOptions(topology.priority, None, topology.latency_target_ms, topology.name, topology.on_change)
    written = with_sink(node, target, target.partitions)
    return BoundQuery(written, target, reads, options, False, sql=str(topology), adopts=target.kind == "table")


def _resolved(step: ProcessorStep, topology: Topology, catalog: Catalog) -> ProcessorStep:
    """With the names of relations as the catalogue has them."""
    return replace(step, relations=tuple(_known(name, step, topology, catalog) for name in step.relations))


def _known(name: str, step: ProcessorStep, topology: Topology, catalog: Catalog) -> str:
    for spelling in (name, name.upper(), name.lower()):
        if spelling in catalog.sources:
            return spelling
    does = "reads" if step.kind == "source" else "writes"
    title = f"topology {topology.name}: {step.kind} {step.name} {does} {name}, which does not exist"
    help_ = did_you_mean(name, catalog.sources) or f"CREATE STREAM {name} (...) WITH (...);"
    raise mistake(CODE, title, help=help_)


def _read(source: SourceDef, session: Mapping[str, str]) -> Node:
    """All columns of a relation; of a table with the row before."""
    node = scan(source, session)
    columns = Schema(tuple(f for f in node.schema if f.role != "pseudo"), node.schema.window)
    return retracting(replace(node, schema=columns))


def _target(topology: Topology, steps: tuple[ProcessorStep, ...], catalog: Catalog) -> SourceDef:
    sinks = [s for s in steps if s.kind == "sink"]
    names = list(dict.fromkeys(s.relations[0] for s in sinks))
    target = catalog.sources[names[0]]
    if len(names) > 1:
        title = f"topology {topology.name} writes {' and '.join(names)}"
        raise unsupported(title, help="write one stream with a column that tells them apart, and filter it in SQL")
    where = f"topology {topology.name}: sink {sinks[0].name} writes {target.name}"
    if target.is_own_table or target.relation:
        raise mistake(
            CODE,
            f"{where}, whose rows only statements change",
            help="declare it over a topic, WITH (KAFKA_TOPIC = ...)",
        )
    if target.read_only:
        raise mistake(CODE, f"{where}, which is read-only", help="declare it without SOURCE")
    if target.kind == "table" and target.query is not None:
        raise mistake(
            CODE, f"{where}, a table that {target.query} writes", help="let the topology write a table of its own"
        )
    if target.schema.window is not None:
        raise mistake(CODE, f"{where}, whose key has a window", help="write the bounds of windows as columns")
    if headers := [f.name for f in target.schema if f.role == "header"]:
        raise mistake(CODE, f"{where}, which has header columns: {', '.join(headers)}", help="forward headers instead")
    return target
