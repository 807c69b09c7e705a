"""A topology of processors (KIP-28) as a query: what it reads, and what it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.analyze.options import QueryOptions
from flowql.compiler.analyze.relation import retracting, scan
from flowql.compiler.analyze.statements import BoundQuery, analyze, with_sink
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.catalog.names import did_you_mean
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.parser import parse_statements
from flowql.compiler.functions.asynchronous import strictest
from flowql.compiler.plan.asynchronous import AsyncCall, AsyncMap
from flowql.compiler.plan.logical import Format, Node
from flowql.compiler.plan.processors import CALL, RESULT_OF, Process, ProcessorStep, Route
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import BYTES, STRING, struct
from flowql.compiler.processors.topology import Topology, TopologyEntry
from flowql.compiler.schemas.ref import DEBEZIUM

CODE = "FQ2071"


def bind_topology(entry: TopologyEntry, catalog: Catalog, session: Mapping[str, str]) -> BoundQuery:
    """The query that a topology is. Raises CompileError."""
    topology = entry.topology
    steps = tuple(_resolved(s, topology, catalog) for s in topology.steps)
    reads = tuple(dict.fromkeys(r for s in steps if s.kind == "source" for r in s.relations))
    targets = _targets(topology, steps, catalog)
    inputs = tuple(_asked(_read(catalog.sources[name], session), name, entry) for name in reads)
    options = _options(topology, topology.name)
    routes = tuple(Route(t.name, f"TO_{t.name}", _written(t)) for t in targets) if len(targets) > 1 else ()
    spec = Process(entry.name, steps, reads, topology.stores, routes)
    if routes:
        target = _records(topology, routes, catalog)
        node = Node(spec, inputs, target.schema)
        return BoundQuery(with_sink(node, target), target, reads, options, True, sql=str(topology))
    (target,) = targets
    node = Node(spec, inputs, _written(target), "append" if target.kind == "stream" else "upsert")
    written = with_sink(node, target, target.partitions)
    return BoundQuery(written, target, reads, options, False, sql=str(topology), adopts=target.kind == "table")


def bind_routes(bound: BoundQuery, topology: Topology, catalog: Catalog) -> list[BoundQuery]:
    """Queries that move the records of a topology that writes several streams into each of them. catalog: with what it writes."""
    process = bound.node.inputs[0].spec
    assert isinstance(process, Process)
    return [_route(r, topology, bound.sink.name, catalog) for r in process.routes]


def _route(route: Route, topology: Topology, records: str, catalog: Catalog) -> BoundQuery:
    columns = ", ".join(f"`{route.column}`->`{f.name}` AS `{f.name}`" for f in route.schema)
    keys = ", ".join(f"`{route.column}`->`{f.name}`" for f in route.schema.key)
    text = f"INSERT INTO `{route.relation}` SELECT {columns} FROM `{records}` WHERE `SINK` = '{route.relation}'"
    text += f" PARTITION BY {keys};" if keys else ";"
    (statement,), _ = parse_statements(SourceText(f"topology {topology.name}", text), "ksql", {})
    bound = analyze(statement, catalog)
    assert isinstance(bound, BoundQuery)
    return replace(bound, options=_options(topology, f"{topology.name}_TO_{route.relation}"))


def _options(topology: Topology, query_id: str) -> QueryOptions:
    return QueryOptions(topology.priority, None, topology.latency_target_ms, query_id, topology.on_change)


def _written(target: SourceDef) -> Schema:
    return Schema(tuple(f for f in target.schema if f.role in ("key", "value")))


def _records(topology: Topology, routes: Sequence[Route], catalog: Catalog) -> SourceDef:
    """A stream of records on their way to several streams."""
    columns = [Field(r.column, struct(*((f.name, f.type) for f in r.schema))) for r in routes]
    name, json = f"{topology.name}_RECORDS", Format("JSON")
    schema, topic = Schema((Field("SINK", STRING), *columns)), catalog.naming.made(name)
    return SourceDef(name, "stream", topic, schema, Format("KAFKA", wrap=False), json)


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


def _asked(node: Node, relation: str, entry: TopologyEntry) -> Node:
    """With the results of the calls that asynchronous processors make for its rows."""
    options = entry.topology.calls(relation)
    if not options:
        return node
    if node.change != "append":
        title = f"topology {entry.topology.name}: the asynchronous processor {next(iter(options))} reads {relation}, which is a table"
        raise unsupported(
            title, help="read a stream, or call an asynchronous function in SQL:  CREATE TABLE ... AS SELECT"
        )
    columns, names = [Field(f"{RESULT_OF}{step}", BYTES) for step in options], node.schema.names
    calls = [
        AsyncCall(c.name, f"{entry.name}{CALL}{step}", names, BYTES) for c, step in zip(columns, options, strict=True)
    ]
    schema = Schema((*node.schema.fields, *columns), node.schema.window)
    spec = AsyncMap(tuple(calls), strictest([o.order for o in options.values()]))
    return Node(spec, (node,), schema, node.change)


def _targets(topology: Topology, steps: Sequence[ProcessorStep], catalog: Catalog) -> list[SourceDef]:
    """The topics of the sinks, each once. Raises CompileError for those that they cannot write."""
    sinks = {s.relations[0]: s.name for s in steps if s.kind == "sink"}
    targets = [catalog.sources[name] for name in sinks]
    for target in targets:
        _check(target, f"topology {topology.name}: sink {sinks[target.name]} writes {target.name}")
    tables = [t.name for t in targets if t.kind == "table"]
    if tables and len(targets) > 1:
        title = f"topology {topology.name} writes the table {tables[0]} and {next(n for n in sinks if n != tables[0])}"
        raise unsupported(title, help=f"write {tables[0]} with a separate topology")
    return targets


def _check(target: SourceDef, where: str) -> None:
    if target.is_own_table or target.relation:
        raise mistake(
            CODE,
            f"{where}, whose rows only statements change",
            help="declare it over a topic, WITH (KAFKA_TOPIC = ...)",
        )
    if target.read_only:
        raise mistake(CODE, f"{where}, which is read-only", help="declare it without SOURCE")
    if target.value_format.name == DEBEZIUM:
        raise mistake(CODE, f"{where}, whose rows Debezium writes", help="let the topology write another table")
    if target.kind == "table" and target.query is not None:
        raise mistake(
            CODE, f"{where}, a table that {target.query} writes", help="let the topology write a separate table"
        )
    if target.schema.window is not None:
        raise mistake(CODE, f"{where}, whose key has a window", help="write the bounds of windows as columns")
    if headers := [f.name for f in target.schema if f.role == "header"]:
        raise mistake(CODE, f"{where}, which has header columns: {', '.join(headers)}", help="forward headers instead")
