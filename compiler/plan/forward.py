"""Whether the new text of a query can go on from where the old one is: with its positions, its state and its results.

The rows that a store holds were made by the old text. The new text may take over a store if it would hold the same columns of the same
rows, computed alike: so what decides about the rows of a store is written down as *steps* from the sources on, with every column
traced back to the columns of the sources, and compared. Filters of streams are no steps: rows that the old filter let through stay,
and the new one decides about what comes. A filter of a table is one, since a row that the old filter let through could never be
taken back by the new one.

Behind the last store a stream is free, as nothing of it is kept. Behind a store whose changes come with the old row (`retract`) nothing
may differ: that the result holds the old row in the form of the old text is then not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.explain import call_text, change_text, expr_text
from flowql.compiler.plan.expr import Call, Column, Expr, columns_of
from flowql.compiler.plan.generations import plain, topics_read
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
    walk_nodes,
)
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import QueryPlan, StoreSpec, sink_of
from flowql.compiler.plan.visit import map_expr, map_nodes, map_spec, substitute

POSITIONAL = frozenset({"DELIMITED", "KAFKA", "NONE", "PROTOBUF_NOSR"})  # formats that do not name columns or a schema


def why_not(old: QueryPlan, new: QueryPlan) -> str:
    """Why the new text cannot go on from where the old one is; empty if it can. Names the store, if it is one, and what differs."""
    return _results(old, new) or _inputs(old, new) or _stores(old, new) or _meanings(old, new)


def only_functions_differ(old: QueryPlan, new: QueryPlan) -> bool:
    """Whether two plans are the same but for versions of functions that give other values each time."""

    def without_version(name: str) -> str:
        known = name.partition("@")[0]
        return known if known in new.unrepeatable else name

    def call(e: Expr) -> Expr:
        return replace(e, name=without_version(e.name)) if isinstance(e, Call) else e

    def of_node(node: Node) -> Node:
        if isinstance(node.spec, AsyncMap):
            calls = tuple(replace(c, function=without_version(c.function)) for c in node.spec.calls)
            return replace(node, spec=replace(node.spec, calls=calls))
        return replace(node, spec=map_spec(node.spec, lambda e: map_expr(e, call)))

    return bool(new.unrepeatable) and map_nodes(old.logical, of_node) == map_nodes(new.logical, of_node)


# -- results: what is in the topic stays beside what comes


def _results(old: QueryPlan, new: QueryPlan) -> str:
    was, now = sink_of(old), sink_of(new)
    if was.topic != now.topic:
        return f"its results go to the topic {now.topic}, and were in {was.topic}"
    if was.kind != now.kind:
        return f"its result is a {now.kind}, and was a {was.kind}"
    before, after = _sink_node(old).schema, _sink_node(new).schema
    if (_written(was.key_format), before.key, before.window) != (_written(now.key_format), after.key, after.window):
        return f"the key of {now.name} is another one"
    if was.partitions != now.partitions:
        return f"{now.topic} gets another number of partitions, so its records would have to be rewritten"
    if _written(was.value_format) != _written(now.value_format):
        return f"values of {now.name} are written in another format"
    types = {f.name: f.type for f in before.value}
    changed = [f for f in after.value if f.name in types and types[f.name] != f.type]
    if changed:
        columns = ", ".join(f"{f.name} is {f.type} and was {types[f.name]}" for f in changed)
        return f"columns of {now.name} have another type: {columns}"
    if not _by_name(now.value_format, before.value, after.value) and before.value != after.value:
        return f"values of {now.name} are read by the order of their columns, which has changed"
    return ""


def _sink_node(query: QueryPlan) -> Node:
    return next(n for n in walk_nodes(query.logical) if isinstance(n.spec, Sink))


def _written(fmt: Format) -> Format:
    """A format without the columns that it writes, as each record names the schema it was written with, and without how it is read."""
    fmt = replace(fmt, standard=False)
    return fmt if fmt.schema is None else replace(fmt, schema=replace(fmt.schema, text="", id=0, references=()))


def _by_name(fmt: Format, *declared: Sequence[Field]) -> bool:
    return fmt.name not in POSITIONAL and (fmt.wrap or all(len(columns) > 1 for columns in declared))


# -- inputs: positions belong to tasks, and to topics that these read


def _inputs(old: QueryPlan, new: QueryPlan) -> str:
    was, now = set(topics_read(old)), set(topics_read(new))
    if was != now:
        said = [f"{', '.join(sorted(now - was))} anew"] if now - was else []
        said += [f"{', '.join(sorted(was - now))} no longer"] if was - now else []
        return f"it reads {' and '.join(said)}"
    if _parts(old) != _parts(new):
        return "its rows are moved between partitions in another way"
    kinds = {s.topic: s.kind for s in _scans(old)}
    other = [s for s in _scans(new) if kinds[s.topic] != s.kind]
    if other:
        return f"it reads {other[0].source} as a {other[0].kind}, which was a {kinds[other[0].topic]}"
    return ""


def _parts(query: QueryPlan) -> list[list[str]]:
    """The topics that each sub-topology reads, with repartitions by their plain names."""
    return [sorted(plain(t, query.generation) for t in s.topics) for s in query.subtopologies]


def _scans(query: QueryPlan) -> Iterator[Scan]:
    return (n.spec for n in walk_nodes(query.logical) if isinstance(n.spec, Scan))


# -- stores: the new text needs exactly those that the old text has


def _stores(old: QueryPlan, new: QueryPlan) -> str:
    was, now = _stores_of(old), _stores_of(new)
    if missing := sorted(now.keys() - was.keys()):
        return f"it needs {_listed(missing)}, which must be filled from the beginning"
    if surplus := sorted(was.keys() - now.keys()):
        return f"it has no use for {_listed(surplus)}, and nothing shows that its results do not depend on what is in there"
    for name, (part, store) in now.items():
        before_part, before = was[name]
        if part != before_part:
            return f"the store {name} is kept in another task"
        if (what := _differing(before, store)) is not None:
            return f"the store {name} {what}"
    return ""


def _listed(names: Sequence[str]) -> str:
    return f"the store{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _stores_of(query: QueryPlan) -> dict[str, tuple[int, StoreSpec]]:
    stores = [(s.number, store) for s in query.subtopologies for op in s.operators for store in op.stores]
    return {plain(store.name, query.generation): (n, store) for n, store in stores}


def _differing(old: StoreSpec, new: StoreSpec) -> str | None:
    if old.kind != new.kind:
        return f"is of another kind: {new.kind}, and was {old.kind}"
    if old.key != new.key:
        return "has another key"
    if old.value != new.value:
        was, now = {f.name: f.type for f in old.value}, {f.name: f.type for f in new.value}
        other = [n for n in (*was, *(n for n in now if n not in was)) if was.get(n) != now.get(n)]
        return f"has other columns: {', '.join(other)}" if other else "has its columns in another order"
    return "keeps its rows for another time" if old.retention_ms != new.retention_ms else None


# -- meaning: what a store holds was computed as it would be now


def _meanings(old: QueryPlan, new: QueryPlan) -> str:
    was, now = _Trace(old.logical), _Trace(new.logical)
    before, after = was.states(old.logical), now.states(new.logical)
    if before.keys() != after.keys():
        return "its state is that of other operators"
    for name, steps in after.items():
        if what := _first_difference(before[name], steps):
            return f"the store {new.id}-{name} would mean something else: {what}"
    if not (_takes_back(old.logical) or _takes_back(new.logical)):
        return ""
    what = _first_difference(was.shown(old.logical), now.shown(new.logical))
    return f"rows of {new.sink} that the old text has shown could never be taken back: {what}" if what else ""


@dataclass(frozen=True, slots=True)
class _Step:
    """One thing that decides about rows. what: in words. value: equal for equal decisions. text: the value as people read it."""

    what: str
    value: object
    text: str = ""


@dataclass(frozen=True, slots=True)
class _Rows:
    """The steps that decide which rows a node gives, and the source of each column."""

    steps: tuple[_Step, ...]
    columns: Mapping[str, Expr]

    def of(self, e: Expr) -> Expr:
        """An expression over these rows as one over the sources."""
        return substitute(e, self.columns)

    def then(self, *steps: _Step) -> tuple[_Step, ...]:
        return (*self.steps, *steps)


class _Trace:
    """Traces the nodes of one plan. Their names count as the planner's do (`flowql.compiler.physical.planner`)."""

    def __init__(self, root: Node) -> None:
        self._names: dict[int, str] = {}
        count: Counter[str] = Counter()
        for node in walk_nodes(root):
            role = type(node.spec).__name__.lower()
            count[role] += 1
            self._names[id(node)] = f"{role}-{count[role]}"

    def states(self, node: Node) -> dict[str, tuple[_Step, ...]]:
        """Store (without the id of the query) -> the steps that decide what it holds. The rows of a table for people to ask are not
        among them: they are results.
        """
        name = self._names[id(node)]
        match node.spec:
            case Aggregate():
                return {name: self.rows(node).steps}
            case AsyncMap():
                rows = self.rows(node.inputs[0])
                return {name: rows.then(_columns("the columns of rows that wait", node.inputs[0], rows))}
            case Materialise():
                return {name: self.rows(node).then(_columns("its columns", node, self.rows(node)))}
            case Join(shape="stream-table"):
                left, right = node.inputs
                rows = self.rows(right)
                return {**self.states(left), f"{name}-right": rows.then(_columns("its columns", right, rows))}
            case Join():
                return {name: self.rows(node).steps}
        below = {n: steps for i in node.inputs for n, steps in self.states(i).items()}
        return {**below, name: self.rows(node).steps} if isinstance(node.spec, ChangeSpec | Process) else below

    def shown(self, node: Node) -> tuple[_Step, ...]:
        rows = self.rows(node)
        return rows.then(_columns("what is selected", node, rows))

    def rows(self, node: Node) -> _Rows:
        name, inputs = self._names[id(node)], [self.rows(i) for i in node.inputs]
        match node.spec:
            case Scan():
                step = _Step(f"how {node.spec.source} is read", _reading(node.spec))
                return _Rows((step,), _own(node, name))
            case Project(columns):
                made = {c.name: inputs[0].of(c.expr) for c in columns}
                if not node.spec.drop_failed or node.change == "append":
                    return _Rows(inputs[0].steps, made)
                step = _Step("the expressions that leave rows of a table out", tuple(made.items()))
                return _Rows(inputs[0].then(step), made)
            case Filter(predicate):
                if node.inputs[0].change == "append":
                    return inputs[0]
                condition = inputs[0].of(predicate)
                step = _Step("the condition on a table", condition, _text(condition))
                return _Rows(inputs[0].then(step), inputs[0].columns)
            case Rekey(keys, drop_null):
                exprs = {k.name: inputs[0].of(k.expr) for k in keys}
                step = _Step("its key", (tuple(exprs.items()), drop_null), ", ".join(map(_text, exprs.values())))
                return _Rows(inputs[0].then(step), {**inputs[0].columns, **exprs})
            case Explode(functions):
                step = _Step("its table functions", _each(functions, inputs[0]))
                made = {f.name: Column(f.expr.type, f"{name}.{f.name}") for f in functions}
                return _Rows(inputs[0].then(step), {**inputs[0].columns, **made})
            case AsyncMap(calls):
                made = {c.name: Column(c.type, f"{name}.{c.name}") for c in calls}
                return _Rows(inputs[0].steps, {**inputs[0].columns, **made})
            case Aggregate():
                return self._aggregated(node, node.spec, name, inputs[0])
            case Join():
                return self._joined(node, node.spec, name, inputs)
            case Sink() | Materialise():
                return inputs[0]
        steps = [s for i in inputs for s in i.steps]
        steps += [_columns("its columns", i, rows) for i, rows in zip(node.inputs, inputs, strict=True)]
        if isinstance(node.spec, ChangeSpec):
            steps.append(_Step(f"the operator {name}", node.spec, change_text(node.spec)))
        if isinstance(node.spec, Process):  # what its code makes of its stores is for the one to judge that edits it
            steps.append(_Step("the state stores of the topology", node.spec.stores))
        return _Rows(tuple(steps), _own(node, name))

    def _aggregated(self, node: Node, spec: Aggregate, name: str, below: _Rows) -> _Rows:
        keys = [below.columns.get(f.name, Column(f.type, f.name)) for f in node.inputs[0].schema.key]
        calls = [(a.name, a.function, tuple(map(below.of, a.args)), a.type, a.init) for a in spec.aggregates]
        text = ", ".join(call_text(a.function, (_text(below.of(x)) for x in a.args)) for a in spec.aggregates)
        steps = (
            _Step("what it groups by", tuple(keys), ", ".join(map(_text, keys))),
            _Step("its window", (spec.window, spec.emit_final)),
            _Step("which groups there are", (spec.null_groups, spec.counted, spec.closing)),
            _Step("its aggregates", tuple(calls), text),
        )
        grouped = {f.name: k for f, k in zip(node.inputs[0].schema.key, keys, strict=True)}
        return _Rows(below.then(*steps), {**_own(node, name), **grouped})

    def _joined(self, node: Node, spec: Join, name: str, inputs: Sequence[_Rows]) -> _Rows:
        sides = zip(("left", "right"), node.inputs, inputs, strict=True)
        steps = [s for rows in inputs for s in rows.steps]
        steps.append(_Step("the join", replace(spec, foreign_key=None)))
        steps += [_columns(f"the columns of its {side} side", i, rows) for side, i, rows in sides]
        if spec.foreign_key is not None:
            steps.append(_Step("the key it joins by", inputs[0].of(spec.foreign_key)))
        columns = {**inputs[1].columns, **inputs[0].columns, spec.key_name: _own(node, name)[spec.key_name]}
        return _Rows(tuple(steps), columns)


def _own(node: Node, name: str) -> dict[str, Expr]:
    """Columns that are what they are: of a source, or made by this node."""
    return {f.name: Column(f.type, ".".join((name, f.role, f.header_key, f.name))) for f in node.schema}


def _columns(what: str, node: Node, rows: _Rows) -> _Step:
    exprs = {f.name: rows.columns.get(f.name) for f in node.schema}
    return _Step(what, tuple(exprs.items()), ", ".join(_text(e) for e in exprs.values() if e is not None))


def _each(functions: Sequence[NamedExpr], rows: _Rows) -> tuple[tuple[str, Expr], ...]:
    return tuple((f.name, rows.of(f.expr)) for f in functions)


def _reading(scan: Scan) -> object:
    """The parts that decide how a column is read, as `flowql.compiler.schemas.ref` does for definitions."""
    alike = (scan.topic, scan.kind, scan.key_format, scan.timestamp, scan.throw_on_invalid_timestamp, scan.on_error)
    keys = tuple(f for f in scan.declared if f.role == "key")
    if _by_name(scan.value_format, scan.declared.value):
        return (*alike, keys, _written(replace(scan.value_format, wrap=True)))
    return (*alike, keys, scan.value_format, scan.declared.value)


def _text(e: Expr) -> str:
    """The expression as SQL, with columns by their plain names."""
    names = {c: Column(e.type, c.rpartition(".")[2]) for c in columns_of(e)}
    return expr_text(substitute(e, names))


def _first_difference(old: Sequence[_Step], new: Sequence[_Step]) -> str:
    for was, now in zip(old, new, strict=False):
        if (was.what, was.value) == (now.what, now.value):
            continue
        if was.what != now.what:
            return f"{now.what} is new" if len(new) > len(old) else f"{was.what} is gone"
        if was.text and now.text and was.text != now.text:
            return f"{now.what}: {now.text}, was {was.text}"
        return f"{now.what} {'have' if now.what.endswith('s') else 'has'} changed"
    more = new[len(old) :] or old[len(new) :]
    return f"{more[0].what} is {'new' if len(new) > len(old) else 'gone'}" if more else ""


def _takes_back(root: Node) -> bool:
    """Whether a result is made of changes that come with the old row."""
    node = root
    while isinstance(node.spec, Sink | Project | Filter | Explode | Rekey):
        node = node.inputs[0]
    return node.change == "retract"
