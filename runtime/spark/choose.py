"""How each node of a query runs on Spark, and why: `choose`, `is_native`, `explain_lines`. No pyspark.

A batch over complete history (`flowql.runtime.spark.history`) is native, or refused. Another query runs natively when every node may; else it
runs exactly: the runtime's own tasks inside Spark, as all streams do where the target says `streams: exact`, for interactive queries cannot read what
Spark keeps. In batches over topics records are decoded and encoded in Python either way, so there only an aggregation of one stream is worth the way to Java and back (see
`benchmarks.spark_overhead`), and what may fail stays with the runtime: dead letters are told in the pass that reads the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from flowql.compiler.functions.spark_sql import lower
from flowql.compiler.functions.user import is_users, plain_name
from flowql.compiler.plan.explain import spec_text
from flowql.compiler.plan.expr import Call, Column, Expr, walk
from flowql.compiler.plan.logical import (
    Aggregate,
    Explode,
    Filter,
    Join,
    Materialise,
    Node,
    Project,
    Rekey,
    Scan,
    Sink,
    Union,
    walk_nodes,
)
from flowql.compiler.plan.temporal_filters import TemporalFilter
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.compiler.plan.visit import exprs_of
from flowql.runtime.spark.errors import SparkUnsupported
from flowql.runtime.spark.frames.lower import outline
from flowql.runtime.spark.frames.pairs import kept_for_good
from flowql.runtime.spark.history import complete_files, complete_queries, refuse_complete_topics
from flowql.runtime.spark.native import aggregates
from flowql.runtime.spark.native.keys import groups
from flowql.runtime.spark.over_changes import UNSUPPORTED, WAY_ROUND, why_not
from flowql.runtime.spark.over_topics import outline_bounded, outline_streaming
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.spark.stage.layout import behind_repartitions
from flowql.runtime.topology.query import upsert_topics

Mode = Literal["bounded", "streaming"]
How = Literal["native", "stateless python", "stateful python", "batch only", "unsupported"]
_STATELESS = (Scan, Project, Filter, Explode, Rekey, Union, Sink)
_LATE = "late rows are judged row by row; `late_rows: none` in the target promises that there are none"
_KEPT = "`streams: exact` in the target: state is kept as on the runtime, where it can be asked"
_KEPT_THERE = "records of a topic are decoded by the runtime, and are quickest kept there"
_WATERMARK = "Spark's watermark is one for all partitions: those read more slowly would lose rows"


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """How one node runs. reason: why it is not native, or what of it is Python, or ""; differs: what may show differently though native, or ""."""

    node: Node
    how: How
    reason: str = ""
    differs: str = ""


def choose(plan: Plan, query: QueryPlan, settings: SparkSettings, mode: Mode) -> list[NodeChoice]:
    """A choice for each node, inputs first. Raises SparkUnsupported for what Spark cannot run in any way."""
    refuse_complete_topics(plan, query, settings)
    nodes = list(walk_nodes(query.logical))
    for node in nodes:
        if reason := _unsupported(node):
            written = "a condition on NOW()" if isinstance(node.spec, TemporalFilter) else type(node.spec).__name__
            raise SparkUnsupported(written, reason, WAY_ROUND, query=query.id)
    if mode == "bounded" and query.id in complete_queries(plan, settings):
        outline(plan, query, complete_files(plan, settings).keys())
        return [NodeChoice(n, "native", _in_python(n), _COMPLETE if isinstance(n.spec, Scan) else "") for n in nodes]
    bucketed = mode == "streaming" and settings.buckets_of(query.id, query.sink) > 0
    if bucketed:
        _refuse_unbucketed(query)
    rules = _Rules(plan, settings, mode, nodes, len(query.subtopologies) == 1)
    reasons = [rules.against(n) or (_BUCKETED if bucketed else "") for n in nodes]
    if not any(reasons):
        reasons = _without_form(query, nodes, settings, mode)
    if not any(reasons):
        ends = _ENDS if mode == "streaming" else {}
        return [NodeChoice(n, "native", _in_python(n) or ends.get(type(n.spec), ""), _differs(n, mode)) for n in nodes]
    if all(isinstance(n.spec, _STATELESS) for n in nodes) and not _reads_table(nodes):
        return [NodeChoice(n, "stateless python", r or _SHARED) for n, r in zip(nodes, reasons, strict=True)]
    first = next(n for n, r in zip(nodes, reasons, strict=True) if r)
    shared = f"part of the task of {type(first.spec).__name__}"
    return [NodeChoice(n, "stateful python", r or shared) for n, r in zip(nodes, reasons, strict=True)]


_COMPLETE = "history is complete: no row is late, and latest means latest by time (sequence_by)"
# The Python parts of a native stream: a log gives and takes records.
_ENDS: dict[type, str] = {
    Scan: "records are read and decoded by the runtime's decoder",
    Sink: "records are encoded by the runtime's encoder",
}
_BUCKETED = "hash_buckets: state is kept as on the runtime, in as many tasks as the target says"
_SHARED = "part of the runtime's fused kernel"


def _refuse_unbucketed(query: QueryPlan) -> None:
    """Raises where every task reads topics, whose partitions it shares: hash buckets would be a repartition that the query does not have."""
    if behind_repartitions(query):
        return
    topics = sorted({op.spec.topic for s in query.subtopologies for op in s.operators if isinstance(op.spec, Scan)})
    reason = f"it has no repartition, so its tasks are the partitions of {', '.join(topics)}, and hash_buckets cannot say how many they are"
    way = f"remove {query.id} from hash_buckets, or give the topics more partitions"
    raise SparkUnsupported("hash_buckets", reason, way, query=query.id)


def is_native(plan: Plan, query: QueryPlan, settings: SparkSettings, mode: Mode) -> bool:
    """Whether the whole query is Spark's own operators."""
    return all(c.how == "native" for c in choose(plan, query, settings, mode))


def explain_lines(plan: Plan, query: QueryPlan, settings: SparkSettings, mode: Mode) -> list[str]:
    """The plan as a tree, the sink on top: each node, how it runs, and why."""
    choices = {id(c.node): c for c in choose(plan, query, settings, mode)}
    return list(_tree(query.logical, choices, "", ""))


def _without_form(query: QueryPlan, nodes: Sequence[Node], settings: SparkSettings, mode: Mode) -> list[str]:
    """Why a node has no form in Spark's own operators, "" for each that has."""
    try:
        if mode == "bounded":
            outline_bounded(query)
        else:
            outline_streaming(query, settings.semantics)
    except SparkUnsupported as refused:
        return [refused.reason if type(n.spec).__name__ == refused.node else "" for n in nodes]
    return [""] * len(nodes)


def _tree(node: Node, choices: dict[int, NodeChoice], first: str, rest: str) -> Iterator[str]:
    choice = choices[id(node)]
    yield f"{first}[{choice.how}] {spec_text(node.spec)}"
    bar = "│  " if len(node.inputs) > 1 else "   "
    for note in (choice.reason, choice.differs and f"differs: {choice.differs}"):
        if note:
            yield f"{rest}{bar}{note}"
    for i, child in enumerate(node.inputs):
        last = i == len(node.inputs) - 1
        yield from _tree(child, choices, f"{rest}{'└─ ' if last else '├─ '}", f"{rest}{'   ' if last else '│  '}")


def _unsupported(node: Node) -> str:
    """The reason; empty for what Spark can run."""
    from flowql.compiler.functions.registry import lookup, lookup_aggregate

    if isinstance(node.spec, UNSUPPORTED):
        return why_not(node.spec)
    called = {x.name for e in exprs_of(node.spec) for x in walk(e) if isinstance(x, Call)}
    for name in sorted(called):
        if lookup(name) is None and not is_users(name):
            return f"{name} is not a built-in function, and Spark's workers do not know it"
    if isinstance(node.spec, Aggregate):
        for call in node.spec.aggregates:
            if lookup_aggregate(call.function) is None and not is_users(call.function):
                return f"{call.function} is not a built-in aggregate, and Spark's workers do not know it"
    return ""


def _in_python(node: Node) -> str:
    """Functions of a native node that run as the reference, in one Arrow UDF."""
    without = [e for e in exprs_of(node.spec) if not isinstance(node.spec, Explode) and lower(e) is None]
    names = sorted({plain_name(x.name) for e in without for x in walk(e) if isinstance(x, Call) and _unlowered(x)})
    return f"{', '.join(names)} in an Arrow UDF of the reference" if without else ""


def _unlowered(call: Call) -> bool:
    """The call has no lowering even over plain columns."""
    plain = (Column(a.type, "x") if isinstance(a, Call) else a for a in call.args)
    return lower(replace(call, args=tuple(plain))) is None


def _reads_table(nodes: Iterable[Node]) -> bool:
    return any(isinstance(n.spec, Scan) and n.spec.kind == "table" for n in nodes)


def _differs(node: Node, mode: Mode) -> str:
    spec = node.spec
    if isinstance(spec, Join):
        return "" if kept_for_good(node) else _JOINED[spec.shape]
    if not isinstance(spec, Aggregate):
        return ""
    windowed = spec.window is not None and mode == "streaming"
    found = [_LATE_BY_SPARK, _FINAL if spec.emit_final else ""] if windowed else []
    return "; ".join(filter(None, [*found, *map(aggregates.differs, spec.aggregates)]))


# With `semantics: spark`; else such nodes are not native.
_LATE_BY_SPARK = "a row is late by the greatest time, of all partitions, in micro-batches before the last one, and is not counted as late"
_FINAL = "a window comes with a micro-batch after the one that closed it"
_JOINED = {
    "stream-stream": "rows meet until the lesser of the greatest times of both sides, less the grace period, has passed their interval",
    "stream-table": (
        "a row meets the table as it is when its micro-batch runs, whatever the times are; "
        "records of the table that cannot be read are left out without a dead letter"
    ),
}


@dataclass(frozen=True, slots=True)
class _Rules:
    """Why a node is not native under these settings; "" when it is."""

    plan: Plan
    settings: SparkSettings
    mode: Mode
    nodes: Sequence[Node]
    placed: bool  # the rows of a group come from one partition, in its order

    def _worth_it(self) -> bool:
        """Over topics: one stream, aggregated."""
        specs = [n.spec for n in self.nodes]
        one = sum(isinstance(s, Scan) for s in specs) == 1 and any(isinstance(s, Aggregate) for s in specs)
        return one and not any(isinstance(s, (Explode, Union)) for s in specs)

    def against(self, node: Node) -> str:
        spec = node.spec
        if reason := why_not(spec):
            return reason
        match spec:
            case Scan():
                return self._scan(spec)
            case Materialise():
                return "a table with its changes is kept by the runtime's operator"
            case Aggregate():
                return self._aggregate(spec, node)
            case Join():
                return self._join(spec, node)
            case Explode() | Union() if self.mode == "bounded":
                return _KEPT_THERE
            case Filter() if node.change != "append" and self.mode == "streaming":
                return "a row of a table that stops passing must be removed; Spark would only stop writing it"
            case Rekey() if node.change != "append":
                return "changes of a table under another key are kept by the runtime's operator"
            case Sink() if spec.timestamp is not None:
                return "the time of a record comes from a column of the result, which may be unfit"
            case Sink() if self._every_update(spec):
                return "somebody reads every update of it; Spark gives the last of each batch"
        return self._letters(node)

    @property
    def _as_spark(self) -> bool:
        """Whether the meaning of a job written for Spark suffices."""
        return self.mode == "streaming" and self.settings.semantics == "spark"

    def _chained(self, node: Node) -> str:
        """Spark runs one operator with state behind another in some orders and output modes only."""
        others = (n.spec for n in self.nodes if n is not node)
        more = any(isinstance(s, Aggregate) or (isinstance(s, Join) and s.shape == "stream-stream") for s in others)
        return "it is one of several operators with state, which Spark chains in some orders only" if more else ""

    def _every_update(self, sink: Sink) -> bool:
        if self._as_spark and any(isinstance(n.spec, Aggregate) and n.spec.emit_final for n in self.nodes):
            return False  # each window comes once
        return sink.kind == "table" and sink.topic not in upsert_topics(self.plan)

    def _letters(self, node: Node) -> str:
        """Rows are read once, as decoding is most of the work."""
        exprs = list(exprs_of(node.spec))
        if isinstance(node.spec, Explode):
            # EXPLODE cannot fail, its arguments may; `nodes` refuses other table functions.
            exprs = [a for e in exprs if isinstance(e, Call) for a in e.args]
        failing = [e for e in exprs if _can_fail(e)]
        return "an expression may fail, and its dead letters come with the rows" if failing else ""

    def _scan(self, spec: Scan) -> str:
        joined = any(isinstance(n.spec, Join) and n.spec.shape == "stream-table" for n in self.nodes)
        if spec.kind == "table" and not (self._as_spark and joined):
            return "a table's rows are the newest of each key, by their place in the topic"
        if self.mode == "streaming":
            return "" if self.settings.streams == "native" else _KEPT
        return "" if self._worth_it() else _KEPT_THERE

    def _aggregate(self, spec: Aggregate, node: Node) -> str:
        source = node.inputs[0]
        if source.change != "append":
            return "an aggregation over a table undoes what its rows were before"
        if any(not groups(f.type) for f in source.schema.key):
            return "Spark groups 0.0 and -0.0, maps and the like in its own way"
        for call in spec.aggregates:
            # Behind a repartition the order of arrival is that of the runtime's merge.
            if reason := aggregates.reason_against(call, bounded=self.mode == "bounded", placed=self.placed):
                return reason
            if any(lower(a) is None for a in call.args):
                return f"an argument of {call.name} has no exact form in Spark SQL"
        return self._window(spec, node) or self._letters(node)

    def _window(self, spec: Aggregate, node: Node) -> str:
        if spec.window is None:
            return ""
        if spec.window.kind == "session":
            return "sessions merge as ksqlDB's do, by the runtime's operator"
        if spec.window.kind == "cumulating":
            return "cumulating windows are kept by the runtime's operator"
        if self._as_spark:
            return self._chained(node)
        if spec.emit_final:
            return "windows close by the stream time of their own partition"
        if self.settings.late_rows != "none":
            return _LATE
        return _WATERMARK if self.mode == "streaming" else ""

    def _join(self, spec: Join, node: Node) -> str:
        if self.mode == "streaming" and kept_for_good(node):
            return self._chained(node) or self._letters(node)
        if self._as_spark and spec.shape in _JOINED:
            return self._chained(node) if spec.shape == "stream-stream" else ""
        if spec.shape == "stream-table":
            return "each row meets the table as it was at its time"
        if spec.shape != "stream-stream":
            return "tables that change are joined by the runtime's operator"
        return "pairs, and unmatched rows, come out as stream time passes, by the runtime's operator"


def _can_fail(e: Expr) -> bool:
    lowered = lower(e)
    return lowered is None or lowered.fails is not None
