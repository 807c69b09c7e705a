"""Invariants of plans, checked after compiling and before a plan is run. A breach is a bug of FlowQL."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.changes import (
    Consolidate,
    EquiJoin,
    Frame,
    GroupAggregate,
    Over,
    SetOperation,
    TemporalJoin,
    TopN,
    VersionJoin,
)
from flowql.compiler.plan.expr import ROWTIME, Lambda, LambdaVar, columns_of
from flowql.compiler.plan.logical import Aggregate, Filter, Join, Project, Rekey, Scan, Sink, Spec, Union, walk_nodes
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.temporal_filters import TemporalFilter
from flowql.compiler.plan.topology import ExchangeSink, ExchangeSource, Operator, Plan, QueryPlan
from flowql.compiler.plan.types import BIGINT, INT, Kind, SqlType
from flowql.compiler.plan.visit import exprs_of
from flowql.compiler.plan.watermarks import AppendOnly, EmitClosed

UNION_MAX = 1_000  # inputs of one operator


class PlanInvariantError(AssertionError):
    """A plan that cannot be right. Names the query and the operator."""


def verify_plan(plan: Plan) -> None:
    """Names are unique over the plan and every query is sound."""
    _unique([s.name for s in plan.sources], "source")
    _unique([q.id for q in plan.queries], "query")
    _unique([s.name for q in plan.queries for t in q.subtopologies for o in t.operators for s in o.stores], "store")
    _unique([t for q in plan.queries for t in q.repartitions], "repartition topic")
    for query in plan.queries:
        _holds(plan.source(query.sink) is not None, f"query {query.id} writes {query.sink}, which is not in the plan")
        verify_query(query)


def verify_query(query: QueryPlan) -> None:
    """Operators are unique and in order, exchanges have two ends, expressions read columns that exist."""
    sound: dict[
        int, tuple[list[Schema], Schema]
    ] = {}  # inputs and output of a spec: most operators are nodes as they are
    for node in walk_nodes(query.logical):
        inputs = [i.schema for i in node.inputs]
        verify_spec(node.spec, inputs, node.schema, f"{query.id}: {type(node.spec).__name__}")
        sound[id(node.spec)] = inputs, node.schema
    _unique([o.id for t in query.subtopologies for o in t.operators], f"operator of {query.id}")
    ends: dict[str, list[str]] = {}
    for sub in query.subtopologies:
        by_id: dict[str, Operator] = {}
        for o in sub.operators:
            _holds(
                all(i in by_id for i in o.inputs), f"{query.id}: {o.id} reads an operator that does not come before it"
            )
            inputs = [by_id[i].schema for i in o.inputs]
            if isinstance(o.spec, (ExchangeSink, ExchangeSource)):
                ends.setdefault(o.spec.topic, []).append(type(o.spec).__name__)
            elif sound.get(id(o.spec)) != (inputs, o.schema):
                verify_spec(o.spec, inputs, o.schema, f"{query.id}: {o.id}")
            by_id[o.id] = o
        _holds(bool(sub.topics), f"{query.id}: sub-topology {sub.number} reads no topic")
    for topic, kinds in ends.items():
        _holds(sorted(kinds) == ["ExchangeSink", "ExchangeSource"], f"{query.id}: repartition {topic} has ends {kinds}")
        _holds(topic in query.repartitions, f"{query.id}: repartition {topic} is not listed")
    _holds(
        sum(isinstance(o.spec, Sink) for t in query.subtopologies for o in t.operators) == 1,
        f"{query.id} needs one sink",
    )


def verify_spec(spec: Spec, inputs: Sequence[Schema], schema: Schema, where: str) -> None:
    """One operator against its inputs."""
    _unique(list(schema.names), f"column of {where}")
    for f in schema.fields:
        if f.type.kind in (Kind.NULL, Kind.LAMBDA):
            raise PlanInvariantError(f"{where}: column {f.name} has type {f.type}")
    least, most = _inputs(spec)
    _holds(
        least <= len(inputs) <= most, f"{where} has {len(inputs)} inputs, not {least if least == most else 'enough'}"
    )
    known = {n for i in inputs for n in i.names} | {ROWTIME}
    exprs = exprs_of(spec)
    missing = columns_of(*exprs) - known if exprs else ()
    _holds(not missing, f"{where} reads {sorted(missing)}, which its input does not have")
    for e in exprs:
        _holds(_lambdas_closed(e), f"{where} uses a lambda parameter outside its lambda")
    _verify_output(spec, inputs, schema, where)


def _inputs(spec: Spec) -> tuple[int, int]:
    """The least and the highest number of inputs."""
    match spec:
        case Scan():
            return 0, 0
        case Join() | EquiJoin() | TemporalJoin() | VersionJoin():
            return 2, 2
        case SetOperation():
            return (1, 1) if spec.kind == "distinct" else (2, 2)
        case Union() | Process():
            return 1, UNION_MAX
    return 1, 1


def _verify_changes(spec: Spec, inputs: Sequence[Schema], schema: Schema, where: str) -> None:
    """Operators over changes: columns they name are in their inputs, and the row identity of the output is what it should be."""
    key = [f.type for f in schema.key]
    match spec:
        case GroupAggregate(keys, calls):
            partition = spec.partition
            read = [
                *partition,
                *(c.column for c in spec.closing),
                *(a for c in calls for a in (*c.args, *(k.column for k in c.order), *filter(None, [c.filter]))),
            ]
            _known(read, inputs[0], where)
            bounds = [] if spec.sessions is None else 2 * [_type(inputs[0], spec.sessions.time)]
            groups = [*(_type(inputs[0], k) for k in partition), *bounds]
            _holds(key == groups and len(keys) == len(groups), f"{where}: its key columns are not its groups")
            same = [(c.name, c.type) for c in calls] == [(f.name, f.type) for f in schema.fields if f.role != "key"]
            _holds(same, f"{where}: schema and aggregates differ")
        case (
            EquiJoin(kind, left_keys, right_keys)
            | TemporalJoin(kind, left_keys, right_keys)
            | VersionJoin(kind, left_keys, right_keys)
        ):
            left, right = inputs
            if isinstance(spec, VersionJoin):
                _known([spec.left_time], left, where)
                _known([spec.right_time], right, where)
            _holds(not set(left.names) & set(right.names), f"{where}: a column is in both inputs")
            pairs = zip(left_keys, right_keys, strict=True)
            _holds(all(_type(left, a) == _type(right, b) for a, b in pairs), f"{where}: keys have different types")
            sides = [left] if kind in ("semi", "anti") else [left, right]
            key_names, own = [f.name for f in schema.key], [f.name for i in sides for f in i.key]
            _holds(key_names[: len(own)] == own, f"{where}: not its row identity")
            _holds(
                key[len(own) :] == [INT] * (kind == "full"), f"{where}: which side is missing is part of its identity"
            )
            _known(
                [f.name for f in schema.fields if f.name not in key_names],
                Schema(tuple(f for i in sides for f in i.fields)),
                where,
            )
        case SetOperation():
            columns = [[f.type for f in i.fields if f.role != "key"] for i in inputs]
            _holds(all(c == columns[0] for c in columns), f"{where}: its inputs have different columns")
            _holds(key == [*columns[0], *[INT] * spec.all], f"{where}: not its row identity")
            _holds(
                [f.type for f in schema.fields if f.role != "key"] == columns[0], f"{where}: schema and columns differ"
            )
        case TopN(keys, order):
            _known([*keys, *(k.column for k in order)], inputs[0], where)
            ranked = [(spec.rank, BIGINT)] if spec.rank else []
            _holds(
                [(f.name, f.type) for f in schema.fields] == [*((f.name, f.type) for f in inputs[0].fields), *ranked],
                f"{where}: columns",
            )
        case Over(keys, order, calls):
            read = [
                *keys,
                *(k.column for k in order),
                *(a for c in calls for a in (*c.args, *filter(None, [c.filter]))),
            ]
            _known(read, inputs[0], where)
            by = [_type(inputs[0], k.column) for k in order]
            for c in calls:
                _verify_frame(c.frame, by, f"{where}: {c.name}")
            _holds(
                [(f.name, f.type, f.role) for f in schema.fields]
                == [*((f.name, f.type, f.role) for f in inputs[0].fields), *((c.name, c.type, "value") for c in calls)],
                f"{where}: columns",
            )
        case Consolidate() | AppendOnly() | EmitClosed() | TemporalFilter():
            closing = spec.columns if isinstance(spec, EmitClosed) else ()
            moments = spec.columns if isinstance(spec, TemporalFilter) else ()
            _known([*(c.column for c in closing), *moments], schema, where)
            kinds = {f.type.kind for f in schema.fields if f.name in moments}
            _holds(kinds <= {Kind.DATE, Kind.TIMESTAMP, Kind.BIGINT}, f"{where}: times of rows")
            _holds(schema == inputs[0], f"{where}: schema and that of its input differ")


# Kind of the column that rows are ordered by -> what a distance in it is.
DISTANCES: dict[Kind, tuple[type, ...]] = {
    **dict.fromkeys((Kind.INT, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS), (int,)),
    Kind.DOUBLE: (int, float),
    Kind.DECIMAL: (int, Decimal),
}


def _verify_frame(frame: Frame, order: Sequence[SqlType | None], where: str) -> None:
    """order: types of the columns that rows are ordered by."""
    offsets = [o for o in (frame.start, frame.end) if o is not None]
    if frame.unit == "session":
        _holds(frame.start is None and len(offsets) == 1 and offsets[0] > 0, f"{where}: a session needs a gap")
        _holds(not frame.exclude, f"{where}: a session leaves out no row")
    if None not in (frame.start, frame.end):
        # SQL has no frame that ends on the other side of the current row than it starts.
        outside = (offsets[0] > 0 and offsets[1] <= 0) or (offsets[0] == 0 and offsets[1] < 0)
        _holds(not outside, f"{where}: its frame starts behind its end")
    if frame.unit in ("range", "session"):
        if any(offsets):
            kinds = [None if t is None else t.kind for t in order]
            allowed = DISTANCES.get(kinds[0]) if len(kinds) == 1 and kinds[0] is not None else None
            if allowed is None:
                raise PlanInvariantError(f"{where}: a distance needs one ordered column of numbers")
            _holds(all(type(o) in allowed for o in offsets), f"{where}: {offsets} is not a distance of {kinds[0]}")
    else:
        _holds(all(type(o) is int for o in offsets), f"{where}: a frame of {frame.unit} is counted in whole numbers")


def _known(columns: Sequence[str], schema: Schema, where: str) -> None:
    missing = sorted(set(columns) - set(schema.names))
    _holds(not missing, f"{where} reads {missing}, which its input does not have")


def _type(schema: Schema, name: str) -> SqlType | None:
    found = schema.get(name)
    return None if found is None else found.type


def _verify_output(spec: Spec, inputs: Sequence[Schema], schema: Schema, where: str) -> None:
    match spec:
        case Project(columns):
            same = [(c.name, c.expr.type) for c in columns] == [(f.name, f.type) for f in schema.fields]
            _holds(same, f"{where}: schema and columns differ")
        case Filter():
            _holds(schema == inputs[0], f"{where}: schema and that of its input differ")
            _holds(spec.predicate.type.kind is Kind.BOOLEAN, f"{where}: predicate is {spec.predicate.type.kind.name}")
        case AsyncMap(calls):
            _known([a for c in calls for a in c.args], inputs[0], where)
            own = [(f.name, f.type, f.role) for f in inputs[0].fields]
            same = [(f.name, f.type, f.role) for f in schema.fields] == [
                *own,
                *((c.name, c.type, "value") for c in calls),
            ]
            _holds(same, f"{where}: schema and calls differ")
        case Rekey(keys):
            _holds([k.name for k in keys] == [f.name for f in schema.key], f"{where}: keys and schema differ")
        case Aggregate():
            _holds(bool(inputs[0].key), f"{where}: the input has no key")
            closing = {c.column for c in spec.closing}
            _holds(closing <= {f.name for f in inputs[0].key}, f"{where}: a column that closes groups is not a key")
            _holds(not (closing and spec.window), f"{where}: windows are not closed by keys")
        case Join():
            found = {n for i in inputs for n in i.names} | {spec.key_name}
            bounds = {f.name for f in schema.fields if f.role == "window"}
            _holds(set(schema.names) <= found | bounds, f"{where}: columns come from no input")
            _holds([i.key != () for i in inputs] == [True, True], f"{where}: an input has no key")
        case _:
            _verify_changes(spec, inputs, schema, where)


def _lambdas_closed(e: object, bound: frozenset[str] = frozenset()) -> bool:
    if isinstance(e, LambdaVar):
        return e.name in bound
    if isinstance(e, Lambda):
        return _lambdas_closed(e.body, bound | frozenset(e.params))
    return all(_lambdas_closed(c, bound) for c in _children(e))


def _children(e: object) -> list[object]:
    return list(getattr(e, "args", ()))


def _unique(names: Sequence[str], what: str) -> None:
    twice = sorted({n for n in names if names.count(n) > 1}) if len(set(names)) < len(names) else []
    _holds(not twice, f"{what} {', '.join(twice)} is there twice")


def _holds(condition: bool, message: str) -> None:
    if not condition:
        raise PlanInvariantError(message)
