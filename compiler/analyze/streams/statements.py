"""Turns the results of stream builders into statements that wait for their inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flowql.compiler.analyze.dependencies import Pending, place_of
from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.analyze.options import NO_OPTIONS, QueryOptions
from flowql.compiler.analyze.streams.draft import Draft, query_of
from flowql.compiler.analyze.streams.names import known_name
from flowql.compiler.analyze.streams.steps import CODE, Lowering, source_of
from flowql.compiler.analyze.tables import result_topic
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import CreateAs, InsertInto, Property, Statement
from flowql.compiler.functions.registry import Registered
from flowql.compiler.streams.builder import StreamsEntry
from flowql.compiler.streams.expression import fold
from flowql.compiler.streams.graph import Graph
from flowql.compiler.streams.steps import Aggregate, Join, Merge, Output, Read, RelationKind, Step


@dataclass(frozen=True, slots=True)
class StreamStatement(Statement):
    """A statement that is known when what it reads is.

    make: raises CompileError. target: an existing stream that it writes. result: the topic of the stream or table that it creates.
    """

    make: Callable[[Catalog], Statement] | None = None
    name_span: Span = NOWHERE
    target: str = ""
    result: str = ""


def made_of(statement: Statement, catalog: Catalog) -> Statement:
    """The statement itself. Raises CompileError."""
    if not isinstance(statement, StreamStatement):
        return statement
    assert statement.make is not None
    return statement.make(catalog)


_HELPS = {  # what SQL is told to write -> what Python is
    "use HAVING for conditions on aggregates": "filter what aggregate(...) gives",
    "add it to GROUP BY, or put it into an aggregate": "name it in group_by, or put it into an aggregate: fn.MAX(...)",
    "add COUNT(*), or write SELECT without GROUP BY": "add an aggregate, as fn.COUNT()",
    "select the columns of the sink, in its order and by its names": "give it the columns of the sink with map_values, and its key",
    "CAST one side": 'cast one side: .cast("BIGINT")',
    "you might need an explicit CAST": "you might need .cast(...)",
}


def in_python(statement: Statement, diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Diagnostics of a statement; one that Python has made gets help for Python, and no edits, which are SQL."""
    if not isinstance(statement, StreamStatement):
        return list(diagnostics)
    return [replace(d, help=_HELPS.get(d.help, d.help), edit=None) for d in diagnostics]


def stream_statements(
    declared: Mapping[str, Registered], others: Sequence[Pending], case: str, session: Mapping[str, str]
) -> list[Pending]:
    """The statements of all builders. others: those of the project's SQL. case: how names fold. session: properties of the project."""
    entries = [e for e in declared.values() if isinstance(e, StreamsEntry)]
    if not entries:
        return []
    known = {n for p in others for n in p.defines}
    writes = Counter(fold(o.name, case) for e in entries for o in e.graph.outputs)
    own = {n for n, count in writes.items() if count == 1 and known_name(n, known, case) is None}
    made = [_Statements(e.graph, case, session, own) for e in entries]
    names = known.union(*(m.creates() for m in made))
    taken = set(known)
    found: list[Pending] = []
    for statements in made:
        found += statements.declarations(names)
        taken |= {fold(d.name, case) for d in statements.graph.declared}
    for statements in made:
        found += statements.outputs(names, taken)
    return found


_NOTHING: Mapping[str, str] = {}


class _Statements:
    """The statements of one builder."""

    def __init__(self, graph: Graph, case: str, session: Mapping[str, str], own: Collection[str]) -> None:
        """own: names of what one output alone writes."""
        self.graph, self._case, self._session = graph, case, session
        self._outputs, self._written = with_shared(graph, case, own)

    def creates(self) -> set[str]:
        """Names of all that is declared or written."""
        names = [*(d.name for d in self.graph.declared), *(o.name for o in self._outputs)]
        return {fold(n, self._case) for n in names}

    def declarations(self, names: Collection[str]) -> Iterator[Pending]:
        for d in self.graph.declared:
            name = fold(d.name, self._case)
            like = known_name(d.like, names, self._case) or d.like
            make = lambda catalog, d=d, name=name, like=like: source_of(d, name, like, catalog)  # noqa: E731
            needs = {like} & set(names)
            yield self._pending(make, d.at, name, needs)

    def outputs(self, names: Collection[str], taken: set[str]) -> Iterator[Pending]:
        """taken: names of what exists without an output; those of outputs are added."""
        for output in self._outputs:
            name = known_name(output.name, taken, self._case) or fold(output.name, self._case)
            needs = {known_name(r, names, self._case) or r for r in self._reads(output.step)}
            for place in range(_branches(output.step, self._written)):
                creates = name not in taken
                taken.add(name)
                make = lambda c, o=output, n=name, i=place, new=creates: self._statement(o, n, i, c, creates=new)  # noqa: E731
                given = output.options
                options = QueryOptions(given.priority, None, given.latency_target_ms, None, given.on_change)
                topic = str(dict(output.properties).get("KAFKA_TOPIC", "")) or result_topic(name, self._session)
                written = {"result": topic} if creates else {"target": name}
                defines = name if creates else ""
                yield self._pending(make, output.at, defines, needs | {name} - {""}, options, written)

    def _pending(
        self,
        make: Callable[[Catalog], Statement],
        at: Span,
        name: str,
        needs: Collection[str],
        options: QueryOptions = NO_OPTIONS,
        written: Mapping[str, str] = _NOTHING,
    ) -> Pending:
        """written: `target` or `result` of the statement."""
        statement = StreamStatement("", at, make, at, **written)
        defines = frozenset({name} if name else ())
        return Pending(statement, self._session, options, False, defines, frozenset(needs), place_of(statement))

    def _reads(self, step: Step) -> Iterator[str]:
        """Names of what the query of an output reads."""
        if isinstance(step, Read):
            yield step.relation
        for i in step.inputs:
            yield from [self._written[i]] if i in self._written else self._reads(i)

    def _statement(self, output: Output, name: str, place: int, catalog: Catalog, *, creates: bool) -> Statement:
        draft = Lowering(catalog, self._written).made(output.step)[place]
        if not creates:
            _check_target(output, name, catalog)
            return InsertInto("", output.at, name, query_of(_in_order(draft, name, catalog)), (), output.at)
        properties = tuple(Property(k, v, output.at, output.at) for k, v in output.properties)
        return CreateAs("", output.at, name, output.kind, query_of(draft), properties, name_span=output.at)


def _check_target(output: Output, name: str, catalog: Catalog) -> None:
    """Raises CompileError for what exists and cannot be written."""
    if output.kind == "table":
        help = "another name; or leave out what declares it, so that it is created here"
        raise unsupported(
            f"to: rows of a table are written to {name}, which exists", output.at, "a new table", help=help
        )
    target = catalog.sources.get(name)
    if target is not None and target.kind == "table":
        title = f"to: rows of a stream are written to {name}, which is a table"
        raise mistake(CODE, title, output.at, "a table", help="another name; to_table() is the latest row of each key")


def _in_order(draft: Draft, target: str, catalog: Catalog) -> Draft:
    """With the columns in the order of a stream that has the same ones."""
    found = catalog.sources.get(target)
    wanted = [] if found is None else [f.name for f in found.schema]
    if set(draft.items) != set(wanted) or list(draft.items) == wanted:
        return draft
    return replace(draft, items={n: draft.items[n] for n in wanted}, whole=False)


def with_shared(graph: Graph, case: str, sole: Collection[str]) -> tuple[list[Output], dict[Step, str]]:
    """The outputs of a builder, and those of steps whose rows several read and that keep state, or that are merged and read by such.

    Steps without state are part of every query that reads them, so they are not written for that. sole: names of what one output alone
    writes, so that its rows are those of a step.
    """
    consumers = _consumers(graph.outputs)
    written: dict[Step, str] = {}
    extra: list[Output] = []
    for step, count in consumers.items():
        if not (isinstance(step, (Join, Aggregate)) and count > 1) and not _is_merged_input(step, consumers):
            continue
        own = next((o for o in graph.outputs if o.step is step and fold(o.name, case) in sole), None)
        written[step] = fold((own.name if own is not None else step.label), case)
        if own is None:
            kind: RelationKind = "table" if _is_table(step) else "stream"
            extra.append(Output(step.label, kind, step, step.at, (), graph.options))
    return [*extra, *(_reading(o, written, case) for o in graph.outputs)], written


def _reading(output: Output, written: Mapping[Step, str], case: str) -> Output:
    """The output, which reads the rows of its step where they are written by another name."""
    name, step = written.get(output.step), output.step
    if name is None or name == fold(output.name, case):
        return output
    return replace(output, step=Read(step.label, step.at, (), f"`{name}`", output.kind))


def _consumers(outputs: Sequence[Output]) -> dict[Step, int]:
    """For each step how many queries would have it in them: an output is one, and so is a step with state."""
    found: Counter[Step] = Counter()
    seen: set[Step] = set()

    def visit(step: Step, count: int) -> None:
        found[step] += count
        keeps = isinstance(step, (Join, Aggregate))
        if keeps and step in seen:
            return
        seen.add(step)
        for i in step.inputs:
            visit(i, 1 if keeps else count)

    for output in outputs:
        visit(output.step, 1)
    return dict(found)


def _is_merged_input(step: Step, steps: Collection[Step]) -> bool:
    """Whether a join or an aggregation reads several streams here."""
    read_by_state = any(isinstance(s, (Join, Aggregate)) and step in s.inputs for s in steps)
    return read_by_state and _branches(step, {}) > 1


def _branches(step: Step, written: Mapping[Step, str], *, root: bool = True) -> int:
    """The number of queries that give its rows."""
    if isinstance(step, (Read, Join, Aggregate)) or (not root and step in written):
        return 1
    return sum(_branches(i, written, root=False) for i in step.inputs)


def _is_table(step: Step) -> bool:
    """Whether a step with state gives a table."""
    return isinstance(step, Aggregate) or (
        not isinstance(step, Merge) and bool(step.inputs) and _is_table(step.inputs[0])
    )
