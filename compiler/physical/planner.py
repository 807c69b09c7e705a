"""A logical plan as sub-topologies, cut where rows must move to the partition of a new key.

The cut is made late: a changed key alone (PARTITION BY) needs none, the sink places the rows. Only an operator that
keeps state by key (aggregation, join, materialisation) needs its input on the right partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from flowql.compiler.physical.partitioning import (
    MEMCOMPARABLE,
    Spread,
    before_explode,
    check_copartitioned,
    exchange_format,
    placed_below,
    renamed,
    spread_of_join,
    spread_of_scan,
    spread_through,
    together,
)
from flowql.compiler.physical.stores import with_stores
from flowql.compiler.plan.changes import (
    Consolidate,
    EquiJoin,
    GroupAggregate,
    Over,
    SetOperation,
    TemporalJoin,
    TopN,
    VersionJoin,
)
from flowql.compiler.plan.expr import Column, Literal
from flowql.compiler.plan.logical import (
    Aggregate,
    ChangeKind,
    Explode,
    Format,
    Join,
    Materialise,
    NamedExpr,
    Node,
    Rekey,
    Scan,
    SchemaRef,
    Sink,
    Union,
)
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import ExchangeSink, ExchangeSource, Operator, SubTopology
from flowql.compiler.plan.types import INT
from flowql.compiler.plan.watermarks import AppendOnly, EmitClosed

_SHARED = (Aggregate, GroupAggregate, EquiJoin, SetOperation, TopN, Over)  # what runs once where a plan has it twice


@dataclass(slots=True, eq=False)
class _Fragment:
    """A sub-topology in the making. into: the one that it has become a part of."""

    operators: list[Operator] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    into: _Fragment | None = None

    @property
    def whole(self) -> _Fragment:
        return self if self.into is None else self.into.whole


@dataclass(frozen=True, slots=True)
class _Lowered:
    """A node as operators: where they are, which gives its rows, how these lie. marked: a watermark comes with the rows."""

    fragment: _Fragment
    last: Operator
    spread: Spread
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Topology:
    """The physical plan of one query."""

    subtopologies: tuple[SubTopology, ...]
    repartitions: tuple[str, ...]


def plan_query(node: Node, query: str, partitions: Mapping[str, int]) -> Topology:
    """Sub-topologies of a plan with a Sink at its root. `partitions`: of sources, where known.

    An operator over changes that a plan has twice runs once, unless its task would then wait for itself.

    Raises CompileError when joined sources are known to be partitioned differently.
    """
    made = _Planner(query, partitions, share=True).run(node)
    return _Planner(query, partitions, share=False).run(node) if _is_circular(made) else made


def _is_circular(made: Topology) -> bool:
    """Whether the rows that a sub-topology gives come back to it."""
    readers = {t: n for n, s in enumerate(made.subtopologies) for t in s.topics}
    after = {
        n: {readers[o.spec.topic] for o in s.operators if isinstance(o.spec, ExchangeSink)}
        for n, s in enumerate(made.subtopologies)
    }
    while ends := [n for n, to in after.items() if not to & after.keys()]:
        for n in ends:
            del after[n]
    return bool(after)


class _Planner:
    def __init__(self, query: str, partitions: Mapping[str, int], *, share: bool) -> None:
        self._share = share
        self._shared: dict[tuple[Node, bool], tuple[Node, _Lowered]] = {}
        self._query, self._names = query, OperatorNames(query)
        self._partitions = partitions
        self._done: list[_Fragment] = []
        self._repartitions: list[str] = []
        # By the id of an Explode: the columns that place its input, and the name of the operator that reads them.
        self._early: dict[int, tuple[tuple[str, ...], str]] = {}
        self._wanted: dict[int, tuple[str, ...]] = {}  # columns that rows should lie by for a join above, by operator
        self._marks = False  # whether repartitions below the node that is lowered carry watermarks

    def run(self, node: Node) -> Topology:
        self._done.append(self._lower(node).fragment)
        wholes = {id(f.whole): f.whole for f in self._done}
        subs = tuple(
            SubTopology(n, with_stores(f.operators, self._query), tuple(dict.fromkeys(f.topics)))
            for n, f in enumerate(wholes.values())
        )
        return Topology(subs, tuple(self._repartitions))

    def _lower(self, node: Node, *, follows: bool = False) -> _Lowered:
        """follows: something above follows the watermark that comes with the rows."""
        follows = follows or _follows(node)
        if not self._share or not isinstance(node.spec, _SHARED):
            return self._lowered(node, follows=follows)
        known = self._shared.get((node, follows))
        if known is None or (
            known[0] is not node and repr(known[0]) != repr(node)
        ):  # 0.0 and -0.0 are equal, and not the same
            known = self._shared[node, follows] = node, self._lowered(node, follows=follows)
        return known[1]

    def _lowered(self, node: Node, *, follows: bool) -> _Lowered:
        if (found := self._movable_early(node)) is not None:
            explode, columns = found
            self._early[id(explode)] = columns, self._names.upcoming(_role(node))
        if isinstance(node.spec, EquiJoin):
            for side, keys in zip(node.inputs, (node.spec.left_keys, node.spec.right_keys), strict=True):
                if (wanted := placed_below(side, keys)) is not None:
                    self._wanted[id(wanted[0])] = wanted[1]
        inputs = [self._lower(i, follows=follows) for i in node.inputs]
        self._marks = follows
        match node.spec:
            case Scan():
                return self._add(
                    _Fragment(topics=[node.spec.topic]), node, (), spread_of_scan(node, node.spec, self._partitions)
                )
            case Join():
                return self._join(node, node.spec, inputs[0], inputs[1])
            case Aggregate() | Materialise():
                (below,) = inputs
                if self._lies_together(node.spec, below):
                    return self._add(below.fragment, node, (below,), below.spread)
                if self._must_be_moved(node.spec, below.spread):
                    format_ = exchange_format(below.last.schema.key)
                    null_group = node.spec.null_groups if isinstance(node.spec, Aggregate) else node.spec.null_group
                    below = self._exchange(below, format_, self._names.upcoming(_role(node)), null_group=null_group)
                keys = tuple(f.name for f in node.schema.key)
                spread = Spread(keys, below.spread.format, origin=below.spread.origin)
                return self._add(below.fragment, node, (below,), spread)
            case Sink():
                return self._add(inputs[0].fragment, node, inputs, inputs[0].spread)
            case GroupAggregate() | TopN() | Over() | Consolidate():
                return self._over_changes(node, inputs[0])
            case EquiJoin() | TemporalJoin() | VersionJoin():
                return self._equi_join(node, node.spec, inputs[0], inputs[1])
            case SetOperation():
                return self._set_operation(node, inputs)
            case Process():
                return self._process(node, inputs)
            case Union() if len(inputs) > 1:
                return self._union(node, inputs)
            case Explode() if (early := self._early.get(id(node))) is not None:
                columns, reader = early
                if not together(inputs[0].spread, columns, inputs[0].last.schema):
                    inputs = [self._exchange(inputs[0], MEMCOMPARABLE, reader, by=columns)]
        return self._add(inputs[0].fragment, node, inputs, spread_through(node, inputs[0].spread))

    def _add(self, fragment: _Fragment, node: Node, inputs: Sequence[_Lowered], spread: Spread) -> _Lowered:
        name = self._names.operator(_role(node))
        operator = Operator(name, node.spec, tuple(i.last.id for i in inputs), node.schema, node.change)
        fragment.whole.operators.append(operator)
        return _Lowered(fragment, operator, spread, _marked(node, inputs))

    def _join(self, node: Node, spec: Join, left: _Lowered, right: _Lowered) -> _Lowered:
        if spec.shape == "foreign-key":
            return self._foreign_join(node, left, right)
        check_copartitioned(left.spread, right.spread, self._partitions)
        format_ = self._meeting_format(left, right)
        name = self._names.upcoming("join")
        left = self._exchange(left, format_, f"{name}-left") if self._must_move(left, format_) else left
        right = self._exchange(right, format_, f"{name}-right") if self._must_move(right, format_) else right
        merged = self._together(left, right)
        keys = tuple(f.name for f in node.schema.key)
        return self._add(left.fragment, node, merged, Spread(keys, format_, origin=left.spread.origin))

    @staticmethod
    def _movable_early(node: Node) -> tuple[Node, tuple[str, ...]] | None:
        """As `before_explode`, for the input of an aggregate: a row of several windows moves once."""
        match node.spec:
            case Aggregate(null_groups=True):
                return before_explode(node.inputs[0], [f.name for f in node.inputs[0].schema.key])
            case GroupAggregate():
                return before_explode(node.inputs[0], node.spec.partition)
        return None

    @staticmethod
    def _must_be_moved(spec: Aggregate | Materialise, spread: Spread) -> bool:
        """Whether rows of one key may be in several tasks."""
        if isinstance(spec, Materialise):
            return spread.moved
        return spread.moved or spread.columns is None or (spec.null_groups and spread.nulls)

    def _lies_together(self, spec: Aggregate | Materialise, below: _Lowered) -> bool:
        """Whether rows of one group are in one task although their key is another one than that they are placed by."""
        if isinstance(spec, Materialise) or not spec.null_groups or not below.spread.moved:
            return False
        keys = tuple(f.name for f in below.last.schema.key)
        return together(below.spread, keys, below.last.schema)

    def _over_changes(self, node: Node, below: _Lowered) -> _Lowered:
        """Rows that are equal in the columns that the operator keeps its state by come to one task."""
        match node.spec:
            case GroupAggregate():
                names = dict(zip(node.spec.partition, (f.name for f in node.schema.key), strict=False))
            case TopN(keys) | Over(keys):
                names = {k: k for k in keys}
            case _:
                names = {f.name: f.name for f in node.schema.key}
        if not together(below.spread, tuple(names), below.last.schema):
            by = self._wanted.get(id(node), tuple(names))
            below = self._exchange(below, MEMCOMPARABLE, self._names.upcoming(_role(node)), by=by)
        return self._add(below.fragment, node, (below,), below.spread.renamed(names))

    def _equi_join(
        self, node: Node, spec: EquiJoin | TemporalJoin | VersionJoin, left: _Lowered, right: _Lowered
    ) -> _Lowered:
        name = self._names.upcoming(_role(node))
        left = self._placed(left, spec.left_keys, f"{name}-left")
        right = self._placed(right, spec.right_keys, f"{name}-right")
        spread = spread_of_join(node, spec, left.spread, right.spread)
        if isinstance(spec, TemporalJoin):  # of rows of one time those of the first input come first
            right, left = self._together(right, left)
        else:
            left, right = self._together(left, right)
        return self._add(left.fragment, node, (left, right), spread)

    def _set_operation(self, node: Node, inputs: Sequence[_Lowered]) -> _Lowered:
        """By all columns; those of two inputs are in pairs."""
        name = self._names.upcoming(_role(node))
        columns = [tuple(f.name for f in i.last.schema if f.role != "key") for i in inputs]
        names = dict(zip(columns[0], (f.name for f in node.schema.key), strict=False))
        if len(inputs) == 1:
            (below,) = inputs
            if not together(below.spread, columns[0], below.last.schema):
                below = self._exchange(below, MEMCOMPARABLE, name, by=self._wanted.get(id(node), columns[0]))
            repeated = zip(columns[0], (f.name for f in node.schema if f.role != "key"), strict=True)
            equal = renamed(below.spread.columns, dict(repeated))
            return self._add(below.fragment, node, (below,), replace(below.spread.renamed(names), equal=equal))
        left, right = (
            self._placed(i, c, f"{name}-{side}") for i, c, side in zip(inputs, columns, ("left", "right"), strict=True)
        )
        merged = self._together(left, right)
        return self._add(left.fragment, node, merged, Spread(renamed(columns[0], names), MEMCOMPARABLE))

    def _union(self, node: Node, inputs: Sequence[_Lowered]) -> _Lowered:
        """Rows of sources with equal numbers of partitions stay where they are; all others go to the partitions of their identities."""
        name = self._names.upcoming(_role(node))
        keys = tuple(f.name for f in node.schema.key)
        counts = {None if i.spread.origin is None else self._partitions.get(i.spread.origin) for i in inputs}
        stay = len(counts) == 1 and None not in counts and not any(i.spread.moved for i in inputs)
        first, *others = (i if stay else self._placed(i, keys, f"{name}-{n}") for n, i in enumerate(inputs, 1))
        merged = [first]
        for other in others:
            merged.append(self._together(first, other)[1])
        spread = Spread(None, MEMCOMPARABLE, origin=first.spread.origin) if stay else Spread(keys, MEMCOMPARABLE)
        return self._add(first.fragment, node, merged, spread)

    def _process(self, node: Node, inputs: Sequence[_Lowered]) -> _Lowered:
        """The partitions of equal numbers come together, whatever lies there; where results lie, only the processors know."""
        for other in inputs[1:]:
            check_copartitioned(inputs[0].spread, other.spread, self._partitions)
        merged = list(inputs[:1])
        for other in inputs[1:]:
            merged.append(self._together(inputs[0], other)[1])
        spread = replace(inputs[0].spread, columns=None, moved=True)
        return self._add(inputs[0].fragment, node, merged, spread)

    def _placed(self, below: _Lowered, columns: tuple[str, ...], reader: str) -> _Lowered:
        """Rows on the partition of these columns, as our own topics place them."""
        spread = below.spread
        if columns in (spread.columns, spread.equal) and spread.format == MEMCOMPARABLE and not spread.moved:
            return below
        return self._exchange(below, MEMCOMPARABLE, reader, by=columns)

    def _foreign_join(self, node: Node, left: _Lowered, right: _Lowered) -> _Lowered:
        """Both tables in one task: as they lie when each has one partition, else gathered on one.

        Moving left rows to the partition of their foreign key and results back would be parallel, but results of one left
        row would come by several ways and need an order among them (rule R6).
        """
        name = self._names.upcoming("join")
        if not (self._is_single(left) and self._is_single(right)):
            left, right = self._gather(left, f"{name}-left"), self._gather(right, f"{name}-right")
        merged = self._together(left, right)
        keys = tuple(f.name for f in node.schema.key)
        return self._add(left.fragment, node, merged, Spread(keys, exchange_format(node.schema.key), moved=True))

    def _is_single(self, side: _Lowered) -> bool:
        origin = side.spread.origin
        return not side.spread.moved and origin is not None and self._partitions.get(origin) == 1

    def _gather(self, below: _Lowered, reader: str) -> _Lowered:
        """All rows on one partition: by a constant key through a repartition, then by their own key again."""
        schema, change = below.last.schema, below.last.change
        constant = NamedExpr("__all", Literal(INT, 0))
        moved = Schema((Field("__all", INT, "key"), *(Field(f.name, f.type) for f in schema)))
        there = self._append(below, Rekey((constant,), drop_null=False), moved, change)
        there = self._exchange(there, exchange_format(moved.key), reader)
        keys = tuple(NamedExpr(f.name, Column(f.type, f.name)) for f in schema.key)
        return self._append(there, Rekey(keys, drop_null=False), schema, change)

    def _append(self, below: _Lowered, spec: Rekey, schema: Schema, change: ChangeKind) -> _Lowered:
        operator = Operator(self._names.operator("rekey"), spec, (below.last.id,), schema, change)
        below.fragment.whole.operators.append(operator)
        return _Lowered(below.fragment, operator, below.spread)

    def _together(self, left: _Lowered, right: _Lowered) -> tuple[_Lowered, _Lowered]:
        """Both sides in the left side's fragment."""
        to, of = left.fragment.whole, right.fragment.whole
        if to is not of:
            to.operators.extend(of.operators)
            to.topics.extend(of.topics)
            of.into = to
        return left, right

    def _meeting_format(self, left: _Lowered, right: _Lowered) -> Format:
        """The key format both sides lie by: that of a side that stays (a table before a stream), else our own."""
        for side in (right, left):
            if not side.spread.moved and side.spread.columns is not None:
                return side.spread.format
        return exchange_format(left.last.schema.key)

    def _must_move(self, side: _Lowered, format_: Format) -> bool:
        return side.spread.moved or side.spread.columns is None or not _same_bytes(side, format_)

    def _exchange(
        self,
        below: _Lowered,
        format_: Format,
        reader: str,
        *,
        by: tuple[str, ...] | None = None,
        null_group: bool = False,
    ) -> _Lowered:
        """Write the rows to a repartition topic by their key, or by these columns; a new sub-topology reads them."""
        schema, change = below.last.schema, below.last.change
        sink = self._names.operator("repartition-sink")
        topic = self._names.repartition(reader)
        marks = self._marks and below.marked
        spec = ExchangeSink(topic, format_, by, null_group, marks)
        below.fragment.whole.operators.append(Operator(sink, spec, (below.last.id,), schema, change))
        self._done.append(below.fragment)
        self._repartitions.append(topic)
        source = Operator(self._names.operator("repartition-source"), ExchangeSource(topic, marks), (), schema, change)
        fragment = _Fragment([source], [topic])
        spread = Spread(tuple(f.name for f in schema.key) if by is None else by, format_)
        return _Lowered(fragment, source, spread, below.marked)


def _marked(node: Node, inputs: Sequence[_Lowered]) -> bool:
    """Whether a watermark comes with the rows of a node: with those of all its inputs, or of the side that a temporal join follows."""
    if isinstance(node.spec, AppendOnly):
        return node.spec.watermark is not None
    followed = inputs[:1] if isinstance(node.spec, TemporalJoin) else inputs
    return bool(followed) and all(i.marked for i in followed)


def _follows(node: Node) -> bool:
    match node.spec:
        case EmitClosed() | VersionJoin():
            return True
        case Aggregate() | GroupAggregate() | TopN() | Over():
            return bool(node.spec.closing)
        case EquiJoin():
            return any(node.spec.closing)
    return False


def _role(node: Node) -> str:
    return type(node.spec).__name__.lower()


def _same_bytes(side: _Lowered, format_: Format) -> bool:
    """Whether a side's keys are written as `format_` writes them: then equal keys are on equal partitions."""
    own = side.spread.format
    if own.name != format_.name or not _same_schema(own.schema, format_.schema):
        return False
    return own.name != "DELIMITED" or len(side.last.schema.key) == 1 or own.delimiter == format_.delimiter


def _same_schema(a: SchemaRef | None, b: SchemaRef | None) -> bool:
    """Whether both have one id, which is part of a key's bytes. Where a registry is still to give it, equal texts do."""
    if a is None or b is None or (a.id and b.id):
        return a is b or (a is not None and b is not None and a.id == b.id)
    return (a.kind, a.text, a.references) == (b.kind, b.text, b.references)


class OperatorNames:
    """`scan-1`, `scan-2`, `aggregate-1`, ... within one query: the role of an operator and its place among its like."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._count: Counter[str] = Counter()

    def operator(self, role: str) -> str:
        self._count[role] += 1
        return f"{role}-{self._count[role]}"

    def upcoming(self, role: str) -> str:
        """The name the next operator of that role will get."""
        return f"{role}-{self._count[role] + 1}"

    def repartition(self, operator: str) -> str:
        return f"{self._query}-{operator}-repartition"
