"""Nodes of the logical plan over complete history: each as operations on frames, or a refusal (`Refused`) that says why not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa

from flowql.compiler.functions.registry import lookup
from flowql.compiler.functions.spark_sql import SparkSql, lower, lower_predicate
from flowql.compiler.functions.spark_text import quoted, text
from flowql.compiler.functions.user import is_users, plain_name
from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.codec import from_data, to_data
from flowql.compiler.plan.expr import ROWTIME, Call, Column, Expr, columns_of, walk
from flowql.compiler.plan.logical import (
    Aggregate,
    ChangeSpec,
    Explode,
    Filter,
    Join,
    Materialise,
    NamedExpr,
    Node,
    Project,
    Rekey,
    Scan,
    Sink,
    Union,
)
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator, QueryPlan
from flowql.compiler.plan.types import Kind, array, spark_type
from flowql.compiler.plan.visit import exprs_in
from flowql.runtime.batch import Batch
from flowql.runtime.functions.metrics import counts_since
from flowql.runtime.functions.shipping import register_shipped, shipped
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.projections import EXPRESSION_FAILED, ProjectionChain
from flowql.runtime.spark.errors import SparkUnsupported
from flowql.runtime.spark.frames.aggregates import aggregated, grown
from flowql.runtime.spark.frames.joins import joined
from flowql.runtime.spark.frames.relation import (
    LIVE,
    Fault,
    Refused,
    Relation,
    check_names,
    check_time,
    images_of,
    key_of,
    names,
    outside,
    sql_of,
    without,
)
from flowql.runtime.spark.frames.source import millis_of
from flowql.runtime.spark.function_counts import counter
from flowql.runtime.spark.native.frames import from_spark, spark_arrow, to_spark
from flowql.runtime.spark.outline import Outline, functions
from flowql.runtime.spark.over_changes import why_not

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

ERRORS = "errors"


def reference_udf(schema: Schema, exprs: Sequence[NamedExpr]) -> SparkColumn:
    """The expressions that have no lowering, in one UDF: the runtime's own kernels on columns that Spark sends.

    A column of STRUCT<v0, v1, ..., errors ARRAY<STRING>>: the expressions over a row of `schema` and its row time.
    """
    from pyspark.sql import functions as F

    read = columns_of(*(e.expr for e in exprs))
    given = Schema(tuple(Field(f.name, f.type) for f in schema if f.name in read))
    functions = shipped({x.name for e in exprs for x in walk(e.expr) if isinstance(x, Call)})
    text = json.dumps([to_data(given), [[e.name, to_data(e.expr)] for e in exprs], functions])
    fields = [f"v{i}: {spark_type(e.expr.type)}" for i, e in enumerate(exprs)]
    made = f"STRUCT<{', '.join([*fields, f'{ERRORS}: ARRAY<STRING>'])}>"

    calls, modules = counter() if functions else None, {module for module, *_ in functions}

    def reference(*columns: pa.Array) -> pa.Array:
        made = _kernel(text).run(columns)
        if calls is not None:
            calls.add(counts_since(modules))
        return made

    udf = F.arrow_udf(reference, made)
    if not all(map(_deterministic, exprs)):
        udf = udf.asNondeterministic()
    called: SparkColumn = udf(*(F.col(quoted(n)) for n in (*given.names, ROWTIME)))
    return called


def _deterministic(e: NamedExpr) -> bool:
    calls = (lookup(x.name) for x in walk(e.expr) if isinstance(x, Call))
    return all(f is None or f.deterministic for f in calls)


@lru_cache(maxsize=256)
def _kernel(text: str) -> _Kernel:
    given, exprs, functions = json.loads(text)
    register_shipped(functions)
    return _Kernel(from_data(given), [NamedExpr(f"{i}:{n}", from_data(e)) for i, (n, e) in enumerate(exprs)])


class _Kernel:
    """A projection chain over batches of rows; used by one thread of a worker at a time."""

    def __init__(self, given: Schema, exprs: Sequence[NamedExpr]) -> None:
        self._given = given
        self._types = [e.expr.type for e in exprs]
        made = Schema(tuple(Field(e.name, e.expr.type) for e in exprs))
        self._chain = ProjectionChain(
            [Operator("spark", Project(tuple(exprs)), ("",), made, "append")], given, "append"
        )

    def run(self, columns: Sequence[pa.Array]) -> pa.Array:
        *values, times = columns
        n = len(times)
        arrays = [from_spark(c, f.type) for c, f in zip(values, self._given, strict=True)]
        # A row time of its own keeps a batch of no columns from having no length.
        arrow = pa.RecordBatch.from_arrays(arrays, names=list(self._given.names)) if arrays else _empty(n)
        times = times.fill_null(0) if times.null_count else times
        batch = Batch(
            self._given,
            arrow=arrow,
            rowtime=times.cast(pa.int64()).to_numpy(zero_copy_only=False),
            op=np.zeros(n, np.int8),
            seq=np.arange(n),
        )
        run = MicroBatchContext(NO_STATE)
        out = self._chain.process([batch], run) if n else None
        made = [] if out is None else list(out.arrow().columns)
        if out is None:
            made = [pa.nulls(0, spark_arrow(t)) for t in self._types]
        results = [to_spark(c, t) for c, t in zip(made, self._types, strict=True)]
        errors: list[list[str]] = [[] for _ in range(n)]
        for letter in run.dead_letters:
            errors[letter.seq].append(letter.message.partition(":")[2].removeprefix(": "))
        names = [*(f"v{i}" for i in range(len(results))), ERRORS]
        return pa.StructArray.from_arrays([*results, pa.array(errors, pa.list_(pa.string()))], names=names)


def _empty(n: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * n, pa.struct([])))


REFERENCE, FAILED = "__reference", "__failed"
LETTERS_DDL = "code STRING, messages ARRAY<STRING>, rowtime BIGINT"  # one for each row, whatever is wrong with it


@dataclass(frozen=True, slots=True)
class Computed:
    """Spark SQL over `frame`, which holds the inputs (and what the UDF gave). letters: rows of LETTERS_DDL, or None.

    Texts, as each column object is a call to Java more, and a query over little data is mostly its planning.
    """

    frame: DataFrame
    columns: tuple[str, ...]
    letters: DataFrame | None


def compute(frame: DataFrame, schema: Schema, exprs: Sequence[NamedExpr], *, predicate: bool = False) -> Computed:
    """Each expression over the rows of `frame` (of `schema`), in order. predicate: FALSE may stand for NULL and back."""
    lowered = [(lower_predicate if predicate else lower)(e.expr) for e in exprs]
    rest = [e for e, s in zip(exprs, lowered, strict=True) if s is None]
    # A stage of its own: an argument must not be computed once more by whoever reads the struct.
    made = frame.withColumn(REFERENCE, reference_udf(schema, rest)) if rest else frame
    place = {id(e): i for i, e in enumerate(rest)}
    columns = [s.sql if s is not None else f"{REFERENCE}.v{place[id(e)]}" for e, s in zip(exprs, lowered, strict=True)]
    return Computed(made, tuple(columns), _letters(made, schema, exprs, lowered, rest))


def _letters(
    made: DataFrame,
    schema: Schema,
    exprs: Sequence[NamedExpr],
    lowered: Sequence[SparkSql | None],
    rest: Sequence[NamedExpr],
) -> DataFrame | None:
    """Rows at which an expression failed: those the lowerings point at, computed again by the reference for its words, and those of the UDF."""
    failing = [(e, s.fails) for e, s in zip(exprs, lowered, strict=True) if s is not None and s.fails is not None]
    if not failing and not rest:
        return None
    errors = [f"{REFERENCE}.{ERRORS}"] if rest else []
    wrong = made.where(" OR ".join([*(f"({fails})" for _, fails in failing), *(f"size({e}) > 0" for e in errors)]))
    if failing:
        errors.append(f"{FAILED}.{ERRORS}")
        wrong = wrong.withColumn(FAILED, reference_udf(schema, [e for e, _ in failing]))
    code, messages = f"{text(EXPRESSION_FAILED)} AS code", f"concat({', '.join(errors)}) AS messages"
    return wrong.selectExpr(code, messages, f"{quoted(ROWTIME)} AS rowtime")


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of one query over relations by source name. read: names of columns that some expression or the result has.

    letters: None where results are Spark's own operators alone. Else frames of `LETTERS_DDL` are added, of the
    rows at which an expression failed, each to be computed in a pass of its own; and what has no form in Spark SQL is an Arrow UDF of
    the reference.
    """

    query: str
    relations: Mapping[str, Relation]
    read: frozenset[str] = frozenset()
    letters: list[Any] | None = field(default=None, compare=False)
    handlers: Mapping[type[Any], Handler] = field(default_factory=lambda: HANDLERS)

    @staticmethod
    def of(
        query: QueryPlan,
        relations: Mapping[str, Relation],
        letters: list[Any] | None = None,
        handlers: Mapping[type[Any], Handler] | None = None,
    ) -> Nodes:
        used = columns_of(*exprs_in(query.logical))
        read = used | frozenset(query.logical.schema.names)
        return Nodes(query.id, relations, read, letters, HANDLERS if handlers is None else handlers)

    def computed(
        self,
        relation: Relation,
        source: Schema,
        exprs: Sequence[Expr],
        *,
        named: Sequence[str] = (),
        predicate: bool = False,
    ) -> tuple[Relation, list[str]]:
        """Spark SQL of expressions over the rows of a node, and the relation over which it stands. named: how dead letters call them."""
        if self.letters is None:
            return relation, [sql_of(e, relation, lower_predicate if predicate else lower) for e in exprs]
        for e in exprs:
            check_time(e, relation)
        if isinstance(relation.frame, Outline):
            return relation, ["NULL"] * len(exprs)
        called = [NamedExpr(n, e) for n, e in zip(named or [""] * len(exprs), exprs, strict=True)]
        made = compute(relation.frame, source, called, predicate=predicate)
        if made.letters is not None:
            self.letters.append(made.letters)
        return replace(relation, frame=made.frame), list(made.columns)

    def without_failed(self, relation: Relation, exprs: Sequence[Expr]) -> Relation:
        """Without the rows for which one of these expressions, which are computed over the relation, fails."""
        if isinstance(relation.frame, Outline):
            return relation
        lowered = [lower(e) for e in exprs]
        failed = [s.fails for s in lowered if s is not None and s.fails is not None]
        if self.letters is not None and any(s is None for s in lowered):
            failed.append(f"size({REFERENCE}.{ERRORS}) > 0")
        if not failed:
            return relation
        good = f"NOT ({' OR '.join(f'({f})' for f in failed)})"
        if relation.form != "versions":
            return replace(relation, frame=relation.frame.where(good), grows=False)
        live = functions(relation.frame).expr(f"({LIVE} AND {good})")
        return replace(relation, frame=relation.frame.withColumn(LIVE, live))

    def told(self, relation: Relation, source: Schema, exprs: Sequence[Expr]) -> None:
        """Notes where arguments of a node fail whose lowering is its own."""
        if self.letters is not None:
            self.computed(relation, source, [e for e in exprs if not isinstance(e, Column)])

    def relation(self, node: Node) -> Relation:
        """The result of a node. Raises SparkUnsupported, which names the node and the query."""
        inputs = [self.relation(i) for i in node.inputs]
        handler = self.handlers.get(type(node.spec))
        try:
            if handler is None:
                raise Refused("it has no form over frames")
            check_names(node.schema)
            return handler(self, node, inputs)
        except Refused as e:
            raise SparkUnsupported(type(node.spec).__name__, e.reason, e.way_round, query=self.query) from None


def _scan(nodes: Nodes, node: Node, _inputs: list[Relation]) -> Relation:
    spec = node.spec
    assert isinstance(spec, Scan)
    beside = [f for f in node.schema if f.role in ("header", "pseudo")]
    asked = [f.name for f in beside if f.name in nodes.read]
    if asked:
        raise Refused(f"frames have no headers and positions of records: {', '.join(asked)}")
    if spec.on_error:
        raise Refused("ON ERROR is about records that cannot be read, and a frame has values", "leave ON ERROR out")
    relation = nodes.relations[spec.source]
    # Unused headers and positions are NULL: the optimiser keeps one as a placeholder where only the number of rows is needed.
    spare = {f.name: f"CAST(NULL AS {spark_type(f.type)}) AS {quoted(f.name)}" for f in beside}
    return relation.select(spare.get(f.name, quoted(f.name)) for f in node.schema)


def _project(nodes: Nodes, node: Node, inputs: list[Relation]) -> Relation:
    assert isinstance(node.spec, Project)
    exprs = [c.expr for c in node.spec.columns]
    relation, made = nodes.computed(inputs[0], node.inputs[0].schema, exprs, named=node.schema.names)
    if node.spec.drop_failed:
        relation = nodes.without_failed(relation, exprs)
    return relation.select(f"{sql} AS {quoted(n)}" for sql, n in zip(made, node.schema.names, strict=True))


def _filter(nodes: Nodes, node: Node, inputs: list[Relation]) -> Relation:
    """A version of a table that does not pass is a removal."""
    assert isinstance(node.spec, Filter)
    relation, (passes,) = nodes.computed(
        inputs[0], node.inputs[0].schema, [node.spec.predicate], named=["WHERE"], predicate=True
    )
    if relation.form != "versions":
        return replace(relation, frame=relation.frame.where(passes), grows=False)
    live = f"({LIVE} AND coalesce({passes}, FALSE))"
    beside = [f"{live} AS {LIVE}" if n == quoted(LIVE) else n for n in relation.beside]
    return replace(relation, frame=relation.frame.selectExpr(*names(node.schema), *beside))


def _rekey(nodes: Nodes, node: Node, inputs: list[Relation]) -> Relation:
    """Key columns first. The rows of a table become images: which of them were, and which are there, goes by its own key."""
    spec, source = node.spec, node.inputs[0].schema
    assert isinstance(spec, Rekey)
    (relation,) = inputs
    if relation.form == "versions":
        relation = images_of(relation, source)
    elif relation.form == "state":
        own = {f.name for f in key_of(source)}
        moved = [k.name for k in spec.keys if columns_of(k.expr) - own]
        if moved:
            raise Refused(
                f"rows of a computed table move between groups of {moved[0]}, and the earlier rows are unknown"
            )
        relation = grown(relation)
    carried = [quoted(n) for n in node.schema.names[len(spec.keys) :]]
    double = [k.name for k in spec.keys if k.expr.type.kind is Kind.DOUBLE]
    if double:
        raise Refused(f"the key {double[0]} is DOUBLE: 0.0 and -0.0 are one key, and the result may show either")
    relation, made_keys = nodes.computed(relation, source, [k.expr for k in spec.keys])
    keys = [f"{sql} AS {quoted(k.name)}" for sql, k in zip(made_keys, spec.keys, strict=True)]
    made = relation.select([*keys, *carried])
    if not spec.drop_null:
        return made
    present = " AND ".join(f"{quoted(k.name)} IS NOT NULL" for k in spec.keys)
    return replace(made, frame=made.frame.where(present)) if present else made


def _explode(nodes: Nodes, node: Node, inputs: list[Relation]) -> Relation:
    """One row per element of the longest list; shorter ones are padded with NULL."""
    assert isinstance(node.spec, Explode)
    (relation,) = inputs
    if relation.form != "rows":
        raise Refused("several rows for one row of a table")
    args = [_list_of(f.expr, in_python=nodes.letters is not None) for f in node.spec.functions]
    types = [spark_type(e.type) for e in args]
    relation, lists = nodes.computed(relation, node.inputs[0].schema, args)
    if node.spec.drop_failed:
        relation = nodes.without_failed(relation, args)
    source = [*names(node.inputs[0].schema), *relation.beside]
    held = relation.frame.selectExpr(
        *source,
        *(
            f"coalesce({sql}, CAST(array() AS {t})) AS __list{i}"
            for i, (sql, t) in enumerate(zip(lists, types, strict=True))
        ),
    )
    zipped = ", ".join(f"__list{i}" for i in range(len(lists)))
    rows = held.selectExpr(*source, f"explode(arrays_zip({zipped})) AS __element")
    parts = [f"__element.__list{i} AS {quoted(f.name)}" for i, f in enumerate(node.spec.functions)]
    return replace(relation, frame=rows.selectExpr(*source, *parts)).select(names(node.schema))


def _list_of(expr: Expr, *, in_python: bool) -> Expr:
    """The list of which a table function gives the elements. in_python: it may be computed by an Arrow UDF."""
    if isinstance(expr, Call) and expr.name == "EXPLODE":
        return expr.args[0]
    if isinstance(expr, Call) and is_users(expr.name) and in_python:
        return replace(expr, type=array(expr.type))
    raise Refused(f"the only table function on Spark is EXPLODE, not {plain_name(getattr(expr, 'name', str(expr)))}")


def aggregate(nodes: Nodes, node: Node, inputs: list[Relation], *, place: str = "") -> Relation:
    """place: as of `aggregates.aggregated`."""
    assert isinstance(node.spec, Aggregate)
    if inputs[0].form == "rows":
        nodes.told(inputs[0], node.inputs[0].schema, [a for c in node.spec.aggregates for a in c.args])
    return aggregated(node.spec, node, node.inputs[0].schema, inputs[0], place=place)


def _join(_nodes: Nodes, node: Node, inputs: list[Relation]) -> Relation:
    assert isinstance(node.spec, Join)
    return joined(node.spec, node, *inputs)


def _materialise(_nodes: Nodes, _node: Node, inputs: list[Relation]) -> Relation:
    """The old rows are in the versions."""
    return inputs[0]


def _union(_nodes: Nodes, node: Node, inputs: list[Relation]) -> Relation:
    frames = []
    carried = inputs[0].carried
    for source, relation in zip(node.inputs, inputs, strict=True):
        if relation.form != "rows":
            raise Refused("a union of tables")
        pairs = zip(source.schema.names, node.schema.names, strict=True)
        named = (f"{quoted(a)} AS {quoted(b)}" for a, b in pairs)
        frames.append(relation.frame.selectExpr(*named, *relation.beside))  # in one order
    return Relation(reduce(lambda a, b: a.unionAll(b), frames), "rows", carried=carried)


def _sink(_nodes: Nodes, node: Node, inputs: list[Relation]) -> Relation:
    """A column may give the time of the records, and those whose time cannot be used are left out."""
    spec = node.spec
    assert isinstance(spec, Sink)
    same = node.inputs[0].schema.names == node.schema.names  # a projection less for Spark to analyse
    relation = inputs[0] if same else inputs[0].select(names(node.schema))
    if spec.timestamp is None:
        return relation
    field = node.schema.get(spec.timestamp.column)
    in_ms = millis_of(field.type, quoted(field.name)) if field is not None else ""
    if relation.form != "rows" or not in_ms:
        raise Refused("TIMESTAMP of a table, or of a string, is read record by record")
    kept = relation.frame.where(without([Fault(f"{in_ms} IS NULL", "", ""), *outside(spec.times, in_ms, "")]))
    return replace(relation, frame=kept.selectExpr(*names(node.schema), f"{in_ms} AS {quoted(ROWTIME)}"), timed=True)


def _refused(_: Nodes, node: Node, _inputs: list[Relation]) -> Relation:
    raise Refused(why_not(node.spec))


Handler = Callable[[Nodes, Node, list[Relation]], Relation]
# One per class of the union `flowql.compiler.plan.logical.Spec`; a test looks.
HANDLERS: dict[type[Any], Handler] = {
    Scan: _scan,
    Project: _project,
    Filter: _filter,
    Explode: _explode,
    Rekey: _rekey,
    Aggregate: aggregate,
    Join: _join,
    Materialise: _materialise,
    Union: _union,
    Sink: _sink,
    **dict.fromkeys((*get_args(ChangeSpec), AsyncMap, Process), _refused),
}
