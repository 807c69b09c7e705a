"""Plans as text for people: the logical tree with schemas, the sub-topologies with stores and topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.changes import (
    Consolidate,
    EquiJoin,
    Frame,
    GroupAggregate,
    GroupCall,
    Offset,
    Over,
    SetOperation,
    SortKey,
    TemporalJoin,
    TopN,
    VersionJoin,
    WindowCall,
)
from flowql.compiler.plan.expr import Call, Column, Expr, Lambda, LambdaVar, Literal
from flowql.compiler.plan.logical import (
    Aggregate,
    ChangeSpec,
    Explode,
    Filter,
    Format,
    Join,
    Materialise,
    NamedExpr,
    Node,
    Project,
    Rekey,
    Scan,
    Sink,
    Spec,
    Union,
    Window,
)
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.temporal_filters import Edge, TemporalFilter
from flowql.compiler.plan.topology import ExchangeSink, ExchangeSource, Operator, QueryPlan, StoreSpec
from flowql.compiler.plan.watermarks import AppendOnly, Closing, EmitClosed

_ORDERS = {"key": "in order per key", "input": "in order", "none": "in no order"}
_SQL = "sql_"  # in front of the name of an operator: standard SQL's meaning of it
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "AND", "or": "OR", "like": "LIKE", "concat": "||"}  # fmt: skip


def call_text(function: str, args: Iterable[str]) -> str:
    """The call of a function, with `*` for the rows that COUNT counts when it has no argument."""
    return f"{function}({', '.join(args) or ('*' if function == 'COUNT' else '')})"


def expr_text(e: Expr) -> str:
    """An expression as SQL-like text."""
    match e:
        case Column():
            return e.name
        case Literal():
            return "NULL" if e.value is None else repr(e.value) if isinstance(e.value, str) else str(e.value)
        case LambdaVar():
            return e.name
        case Lambda():
            return f"({', '.join(e.params)}) => {expr_text(e.body)}"
        case Call():
            return _call_text(e)
    raise AssertionError(f"unknown expression {e!r}")


def _call_text(e: Call) -> str:
    args = [expr_text(a) for a in e.args]
    sign = _SIGNS.get(e.name.removeprefix(_SQL))
    if sign is not None and len(args) == 2:
        return f"({args[0]} {sign} {args[1]})"
    if e.name == "cast":
        return f"CAST({args[0]} AS {e.type})"
    if e.name == "field":
        return f"{args[0]}->{args[1].strip(chr(39))}"
    if e.name == "subscript":
        return f"{args[0]}[{args[1]}]"
    return f"{e.name}({', '.join(args)})"


def schema_text(schema: Schema) -> str:
    """`(ID INT KEY, NAME STRING)`."""
    marks = {"key": " KEY", "window": " WINDOW", "header": " HEADER", "pseudo": " PSEUDO", "value": ""}
    return "(" + ", ".join(f"{f.name} {f.type}{marks[f.role]}" for f in schema) + ")"


_DROPS = ", failed rows dropped"


def spec_text(spec: Spec | ExchangeSink | ExchangeSource) -> str:
    """One operator in a line."""
    match spec:
        case Scan():
            time = f", time from {spec.timestamp.column}" if spec.timestamp else ""
            placed = f", placed by {spec.partitioner}" if spec.partitioner else ""
            formats = f"{_format(spec.key_format)}/{_format(spec.value_format)}"
            return f"Scan {spec.kind} {spec.source} (topic {spec.topic}, {formats}{time}{spec.times.limits()}{placed})"
        case Project(columns):
            return f"Project {_named(columns)}{_DROPS if spec.drop_failed else ''}"
        case Filter(predicate):
            return f"Filter {expr_text(predicate)}"
        case Explode(functions):
            return f"Explode {_named(functions)}{_DROPS if spec.drop_failed else ''}"
        case Rekey(keys, drop_null):
            return f"Rekey {_named(keys)}{', null keys dropped' if drop_null else ''}"
        case Aggregate():
            calls = ", ".join(f"{a.name} := {call_text(a.function, map(expr_text, a.args))}" for a in spec.aggregates)
            window = f" {_window(spec.window)}" if spec.window else ""
            groups = f"{', NULL is a group' if spec.null_groups else ''}{', empty groups go' if spec.counted else ''}"
            final = ", emit final" if spec.emit_final and spec.window else ""
            closing = _forgotten(spec.closing, "given" if spec.emit_final else "forgotten")
            return f"Aggregate{window} {calls}{final}{closing}{groups}"
        case Join():
            return f"Join {spec.kind} {spec.shape} on key {spec.key_name}{_within(spec)}"
        case Materialise():
            return "Materialise"
        case Union():
            return "Union"
        case Process():
            return _process(spec)
        case AsyncMap(calls, order):
            listed = ", ".join(f"{c.name} := {c.function}({', '.join(c.args)})" for c in calls)
            return f"AsyncMap {listed}, {_ORDERS[order]}"
        case Sink():
            return f"Sink {spec.kind} {spec.name} (topic {spec.topic}, {_format(spec.key_format)}/{_format(spec.value_format)})"
        case ExchangeSink():
            by = "" if spec.by is None else f" by ({', '.join(spec.by)})"
            marks = ", with watermarks" if spec.marks else ""
            return f"Repartition to {spec.topic} ({_format(spec.key_format)}){by}{marks}"
        case ExchangeSource():
            return f"Repartition from {spec.topic}"
    return change_text(spec)


def _process(spec: Process) -> str:
    """`Process TOTALS: orders -> total [totals] -> results`."""
    stores = {s.name: f" [{', '.join(s.stores)}]" if s.stores else "" for s in spec.steps}
    ways = [f"{' and '.join(s.parents)} -> {s.name}{stores[s.name]}" for s in spec.steps if s.kind != "source"]
    return f"Process {spec.topology.partition('@')[0]}: {', '.join(ways)}"


def change_text(spec: ChangeSpec) -> str:
    """An operator over changes in a line."""
    match spec:
        case GroupAggregate(keys, calls):
            return (
                f"GroupAggregate by ({', '.join(keys)}) {', '.join(map(_group_call, calls))}{_in_sessions(spec)}{_forgotten(spec.closing, 'given' if spec.final else 'forgotten')}"
                f"{_added(spec)}"
            )
        case EquiJoin(closing=(left, right)):
            sign = " IS NOT DISTINCT FROM " if spec.null_safe else " = "
            pairs = " AND ".join(f"{a}{sign}{b}" for a, b in zip(spec.left_keys, spec.right_keys, strict=True))
            residual = "" if spec.residual is None else f" if {expr_text(spec.residual)}"
            return f"EquiJoin {spec.kind}{' on ' + pairs if pairs else ''}{residual}{_forgotten((*left, *right))}{_added(spec)}"
        case TemporalJoin(kind, left_keys, right_keys):
            pairs = " AND ".join(f"{a} = {b}" for a, b in zip(left_keys, right_keys, strict=True))
            residual = "" if spec.residual is None else f" if {expr_text(spec.residual)}"
            return f"TemporalJoin {kind}{' on ' + pairs if pairs else ''}{residual}"
        case VersionJoin(kind, left_keys, right_keys):
            pairs = " AND ".join(f"{a} = {b}" for a, b in zip(left_keys, right_keys, strict=True))
            times = f"newest {spec.right_time} <= {spec.left_time}"
            return f"VersionJoin {kind} on {pairs}, {times} at {spec.left_time} + {duration(spec.after)}"
        case SetOperation(kind, all_):
            return f"SetOperation {kind}{' all' if all_ else ''}"
        case TopN():
            limit = "" if spec.limit is None else f" limit {spec.limit}"
            offset = f" offset {spec.offset}" if spec.offset else ""
            by = f" per ({', '.join(spec.keys)})" if spec.keys else ""
            name = f" as {spec.rank}" if spec.rank else ""
            return (
                f"TopN {spec.function}{name}{by} order by {_order(spec.order)}{limit}{offset}{_forgotten(spec.closing)}"
                f"{_added(spec)}"
            )
        case Over(keys, order, calls):
            by = f" per ({', '.join(keys)})" if keys else ""
            ordered = f" order by {_order(order)}" if order else ""
            return f"Over{by}{ordered} {', '.join(map(_window_call, calls))}{_forgotten(spec.closing)}"
        case Consolidate():
            return f"Consolidate{_added(spec)}"
        case AppendOnly(watermark):
            late = f", at most {watermark.delay} ms behind the latest {watermark.column}" if watermark else ""
            return f"AppendOnly{late}"
        case EmitClosed(columns):
            return f"EmitClosed when the watermark is at {_closing(columns)}"
        case TemporalFilter(starts, ends):
            begin = [f"from {_edge(e)}" for e in starts]
            return f"TemporalFilter {', '.join([*begin, *(f'until {_edge(e)}' for e in ends)])}"
    raise AssertionError(f"unknown operator {spec!r}")


def _edge(e: Edge) -> str:
    shift = "".join(f" {'+' if ms > 0 else '-'} {abs(ms)} ms" for ms in (e.shift_ms,) if ms)
    moment = f"{e.column}{shift}"
    if e.day:
        moment = f"midnight {'before' if e.day == 'floor' else 'behind'} {moment}"
    return moment + (f" + {e.after_ms} ms" if e.after_ms else "")


def _forgotten(columns: Sequence[Closing], what: str = "forgotten") -> str:
    return f", {what} when the watermark is at {_closing(columns)}" if columns else ""


def _added(spec: GroupAggregate | EquiJoin | TopN | Consolidate) -> str:
    return ", rows only come" if spec.appends else ""


def _closing(columns: Sequence[Closing]) -> str:
    return " or ".join(f"{c.column} + {c.after}" for c in columns)


def _in_sessions(spec: GroupAggregate) -> str:
    return "" if spec.sessions is None else f", sessions of {spec.sessions.time} with a gap of {spec.sessions.gap}"


def _group_call(c: GroupCall) -> str:
    order = f" order by {_order(c.order)}" if c.order else ""
    where = f" filter {c.filter}" if c.filter else ""
    inner = f"{'distinct ' if c.distinct else ''}{', '.join((*c.args, *map(repr, c.init)))}{order}"
    return f"{c.name} := {call_text(c.function, (inner,))}{where}"


def _window_call(c: WindowCall) -> str:
    call = call_text(c.function, (*c.args, *map(repr, c.init)))
    nulls = " ignore nulls" if c.ignore_nulls else ""
    where = f" filter {c.filter}" if c.filter else ""
    frame = "" if c.frame == Frame() else f" {_frame(c.frame)}"
    return f"{c.name} := {call}{nulls}{where}{frame}"


def _frame(frame: Frame) -> str:
    """The frame as SQL."""
    if frame.unit == "session":
        return f"session with gap {frame.end}"
    start, end = _bound(frame.start, "preceding"), _bound(frame.end, "following")
    exclude = f" exclude {frame.exclude}" if frame.exclude else ""
    return f"{frame.unit} between {start} and {end}{exclude}"


def _bound(offset: Offset | None, side: str) -> str:
    if offset is None:
        return f"unbounded {side}"
    if not offset:
        return "current row"
    return f"{-offset} preceding" if offset < 0 else f"{offset} following"


def _order(keys: tuple[SortKey, ...]) -> str:
    return ", ".join(
        f"{k.column}{' desc' if k.descending else ''} nulls {'first' if k.nulls_first else 'last'}" for k in keys
    )


def _format(f: Format) -> str:
    return f.name if f.name != "DELIMITED" or f.delimiter == "," else f"{f.name}({f.delimiter!r})"


def _named(columns: tuple[NamedExpr, ...]) -> str:
    same = (c.name if expr_text(c.expr) == c.name else f"{c.name} := {expr_text(c.expr)}" for c in columns)
    return ", ".join(same)


def duration(ms: int) -> str:
    """The largest unit that leaves no rest.

    >>> duration(5_400_000), duration(86_400_000)
    ('90 min', '1 d')
    """
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size and ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms} ms"


def _window(w: Window) -> str:
    every = f" every {duration(w.advance_ms)}" if w.kind in ("hopping", "cumulating") else ""
    grace = "" if w.grace_ms is None else f" grace {duration(w.grace_ms)}"
    return f"{w.kind} {duration(w.size_ms)}{every}{grace}"


def _within(spec: Join) -> str:
    if spec.shape != "stream-stream":
        return ""
    grace = "" if spec.grace_ms is None else f" grace {duration(spec.grace_ms)}"
    return f" within -{duration(spec.before_ms)} +{duration(spec.after_ms)}{grace}"


def tree_text(node: Node) -> str:
    """The logical plan as a tree, the sink on top, each node with what it gives."""
    return "\n".join(_tree(node, "", ""))


def _tree(node: Node, first: str, rest: str) -> Iterator[str]:
    yield f"{first}{spec_text(node.spec)}"
    bar = "│  " if len(node.inputs) > 1 else "   "
    yield f"{rest}{bar}{node.change} {schema_text(node.schema)}"
    for i, child in enumerate(node.inputs):
        last = i == len(node.inputs) - 1
        yield from _tree(child, f"{rest}{'└─ ' if last else '├─ '}", f"{rest}{'   ' if last else '│  '}")


def topology_text(query: QueryPlan) -> str:
    """The sub-topologies of a query with operators, stores and topics."""
    lines: list[str] = []
    for sub in query.subtopologies:
        lines.append(f"sub-topology {sub.number}: reads {', '.join(sub.topics)}")
        for o in sub.operators:
            lines += _operator_lines(o)
    return "\n".join(lines)


def _operator_lines(o: Operator) -> list[str]:
    source = f" <- {', '.join(o.inputs)}" if o.inputs else ""
    return [f"  {o.id}{source}: {spec_text(o.spec)}", *(f"      store {_store(s)}" for s in o.stores)]


def _store(s: StoreSpec) -> str:
    kept = f", kept {duration(s.retention_ms)}" if s.retention_ms is not None else ""
    return f"{s.name} ({s.kind}: {schema_text(s.key)} -> {schema_text(s.value)}{kept})"


def query_text(query: QueryPlan) -> str:
    """Everything about one query."""
    return "\n".join([_head(query), "", tree_text(query.logical), "", topology_text(query)])


def outline_text(query: QueryPlan) -> str:
    """A query in short: its operators, the columns of its result, its stores and repartition topics with their keys."""
    outline = _outline(query.logical, "", "", schema_text(query.logical.schema))
    parts = [_head(query), "\n".join(outline)]
    operators = [o for sub in query.subtopologies for o in sub.operators]
    stores = [(s.name, s.key.names) for o in operators for s in o.stores]
    topics = [
        (o.spec.topic, o.spec.by or tuple(f.name for f in o.schema.key))
        for o in operators
        if isinstance(o.spec, ExchangeSink)
    ]
    for title, entries in (("stores:", stores), ("repartition topics:", topics)):
        width = max((len(name) for name, _ in entries), default=0)
        lines = [f"  {name:{width}}  by {_keys(keys)}" for name, keys in entries]
        parts += ["\n".join([title, *lines])] if lines else []
    return "\n\n".join(parts)


def _outline(node: Node, first: str, rest: str, columns: str = "") -> Iterator[str]:
    """The lines of a tree without the columns that identify rows. columns: of the node, which are shown below it."""
    yield f"{first}{spec_text(_shown(node.spec))}"
    if columns:
        yield f"{rest}{'│  ' if node.inputs else '   '}{columns}"
    for i, child in enumerate(node.inputs):
        last = i == len(node.inputs) - 1
        yield from _outline(child, f"{rest}{'└─ ' if last else '├─ '}", f"{rest}{'   ' if last else '│  '}")


def _shown(spec: Spec) -> Spec:
    if not isinstance(spec, Project):
        return spec
    columns = tuple(c for c in spec.columns if not c.name.startswith("__"))
    return replace(spec, columns=columns) if columns else spec


def _keys(names: Sequence[str]) -> str:
    """The columns of a key; those that identify rows of a view are counted only."""
    named = [name for name in names if not name.startswith("__")]
    internal = len(names) - len(named)
    counted = [f"{internal} internal column{'s' if internal > 1 else ''}"] if internal else []
    return ", ".join(named + counted) or "nothing"


def _head(query: QueryPlan) -> str:
    latency = f", latency target {duration(query.latency_target_ms)}" if query.latency_target_ms is not None else ""
    return f"query {query.id} -> {query.sink} (priority {query.priority}, weight {query.weight}{latency})"
