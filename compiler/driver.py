"""The one door to the compiler: sources in, a plan and diagnostics out. No I/O, no clock, no thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from flowql.compiler.analyze.assertions import Assertion
from flowql.compiler.analyze.dependencies import Pending, in_order
from flowql.compiler.analyze.hints import hints_about
from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.analyze.options import NO_OPTIONS, QueryOptions
from flowql.compiler.analyze.processors import bind_routes, bind_topology
from flowql.compiler.analyze.push import HIDDEN, INCOMPLETE, PUSH, complete
from flowql.compiler.analyze.relations.asked import AskedQuery, Readable, bind_asked, names_read
from flowql.compiler.analyze.statements import BoundChange, BoundRows, analyze
from flowql.compiler.analyze.streams.statements import in_python, made_of, stream_statements
from flowql.compiler.analyze.written import results_of, written_by
from flowql.compiler.catalog.catalog import EMPTY, Catalog
from flowql.compiler.catalog.topics import TopicNames
from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic, ParseError, UnsupportedError
from flowql.compiler.diagnostics.source import NOWHERE, SourceText, Span
from flowql.compiler.dialect.ast import CreateAs, Lit, Property, Query, SetProperty, Statement
from flowql.compiler.dialect.parser import DialectName as DialectName  # re-exported
from flowql.compiler.dialect.parser import declared_names, parse_query, parse_statements
from flowql.compiler.dialect.request_size import check_request
from flowql.compiler.dialect.standard.parser import parse_fragment, parse_trees
from flowql.compiler.dialect.standard.queries import parse_query as parse_tree
from flowql.compiler.dialect.standard.statement_tree import CreateView, QueryStatement, is_row_statement
from flowql.compiler.dialect.standard.tree import Expr, number_text
from flowql.compiler.dialect.standard.tree import Query as StandardQuery
from flowql.compiler.functions import builtin as _builtin  # noqa: F401 - fills the function catalogue
from flowql.compiler.functions.registry import AggregateFunction, Function, Registered, register_of_project
from flowql.compiler.physical.plan_builder import PlanBuilder, RuleTrace, StatementResult
from flowql.compiler.plan.logical import Scan, walk_nodes
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import InsertValues, Plan, QueryPlan, SourceDef
from flowql.compiler.plan.verify import verify_plan
from flowql.compiler.plan.visit import visible_keys
from flowql.compiler.processors.topology import TopologyEntry
from flowql.compiler.schemas.ref import NO_SCHEMAS, SchemaLookup

S = TypeVar("S", bound=Statement)
_NO_PROPERTIES: Mapping[str, str] = {}
_NO_OVERRIDES: Mapping[str, QueryOptions] = {}
_NO_PARTITIONS: Mapping[str, int] = {}
_NO_FUNCTIONS: Mapping[str, Registered] = {}


@dataclass(frozen=True, slots=True)
class QueryDefinition:
    """A query given as data (structured YAML) instead of a statement.

    name: the stream or table it makes. kind: None means what the query gives. options beat properties of the same name.
    """

    name: str
    query: Query | StandardQuery
    kind: Literal["stream", "table"] | None = None
    options: QueryOptions = NO_OPTIONS
    properties: tuple[Property, ...] = ()
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Compiled:
    """The result of compiling a project. With errors the plan holds the compiled part and must not be run.

    trace: query id -> the unoptimised plan and what each optimiser rule did. assertions: what has to hold of topics and schemas
    before the plan is run.
    """

    plan: Plan
    catalog: Catalog
    diagnostics: tuple[Diagnostic, ...] = ()
    trace: Mapping[str, RuleTrace] = field(default_factory=dict)
    assertions: tuple[Assertion, ...] = ()

    @property
    def ok(self) -> bool:
        return not any(d.severity == "error" for d in self.diagnostics)


def compile_project(
    sources: Sequence[SourceText | QueryDefinition],
    *,
    dialect: DialectName = "ksql",
    properties: Mapping[str, str] = _NO_PROPERTIES,
    overrides: Mapping[str, QueryOptions] = _NO_OVERRIDES,
    previous: Plan | None = None,
    topic_partitions: Mapping[str, int] = _NO_PARTITIONS,
    variables: Mapping[str, str] = _NO_PROPERTIES,
    registry: SchemaLookup = NO_SCHEMAS,
    functions: Mapping[str, Registered] = _NO_FUNCTIONS,
    prefix: str = "",
) -> Compiled:
    """Compile all statements of a project. Reports every mistake at once instead of raising.

    Statements apply in the order given, except that one that needs a name defined later waits for it. properties: session
    properties at the start. overrides: options by query id or by name of its sink. previous: the plan that runs now;
    queries with an unchanged definition keep its operators and names. topic_partitions: topic -> partitions, where known.
    registry: schemas that are known beside those of the project. functions: what modules of the project declare, by name: functions that SQL
    calls, and topologies of processors. prefix: put before the name of every topic that FlowQL creates.
    """
    pending, diagnostics, unread = _pending(sources, dialect, properties, variables)
    pending += stream_statements(functions, pending, _empty(dialect, registry).fold, properties)
    order, mistakes = in_order(pending)
    diagnostics += mistakes
    for entry in functions.values():
        register_of_project(entry)
    naming = TopicNames(prefix, results_of(pending), written_by(pending, functions))
    catalog = replace(_empty(dialect, registry), functions=functions_among(functions), naming=naming)
    builder = PlanBuilder(catalog, overrides=overrides, previous=previous, topic_partitions=topic_partitions)
    failed = {n for p in pending if p not in order for n in p.defines} | unread
    for p in order:
        if p.needs & failed:
            failed |= p.defines  # its cause is reported already
            continue
        try:
            with within_stack(p.span):
                made = _applied(p, builder)
            diagnostics += _hints(made.query, builder.catalog, p)
        except CompileError as error:
            diagnostics += in_python(p.statement, error.diagnostics)
            failed |= p.defines
    diagnostics += _apply_topologies(functions, builder, failed, properties)
    final = {**properties, **(pending[-1].properties if pending else {})}
    plan = builder.plan(final)
    verify_plan(plan)
    return Compiled(plan, builder.catalog, tuple(diagnostics), builder.trace, tuple(builder.assertions))


def _hints(query: QueryPlan | None, catalog: Catalog, p: Pending) -> list[Diagnostic]:
    """Warnings and hints about a statement, with the id of its query."""
    found = hints_about(query, catalog.sources, p.statement, p.span)
    return [d if query is None else replace(d, query=query.id) for d in found]


def _applied(p: Pending, builder: PlanBuilder) -> StatementResult:
    statement = _with_kind(p.statement, builder.catalog) if p.infer_kind else p.statement
    bound = analyze(made_of(statement, builder.catalog), builder.catalog, p.properties, p.needs)
    if isinstance(bound, BoundChange) and (bound.change.select or bound.change.returning or bound.change.copied):
        raise _once_refused(bound)
    return builder.apply(bound, p.options)


@contextmanager
def within_stack(span: Span) -> Iterator[None]:
    """Raises CompileError for a statement whose plan is too deep for functions that call themselves. span: the statement."""
    try:
        yield
    except RecursionError:
        title = "the plan of this statement is too deep"
        help = "split it into several views, or write conditions on one column as  a IN (1, 2)"
        raise mistake("FQ2066", title, span, "has too many joins, sub-queries or conditions", help=help) from None


def functions_among(declared: Mapping[str, Registered]) -> dict[str, Function | AggregateFunction]:
    """The functions and aggregates that SQL can call, of all objects that modules of a project declare."""
    return {n: e for n, e in declared.items() if isinstance(e, Function | AggregateFunction)}


def _apply_topologies(
    declared: Mapping[str, Registered], builder: PlanBuilder, failed: Set[str], properties: Mapping[str, str]
) -> list[Diagnostic]:
    """Topologies of processors, after the statements that declare what they read and write. failed: names whose mistakes are reported."""
    found: list[Diagnostic] = []
    for entry in declared.values():
        if not isinstance(entry, TopologyEntry):
            continue
        named = {spelling for s in entry.topology.steps for r in s.relations for spelling in (r, r.upper(), r.lower())}
        if named & failed:
            continue
        try:
            bound = bind_topology(entry, builder.catalog, properties)
            builder.apply(bound, NO_OPTIONS)
            for route in bind_routes(bound, entry.topology, builder.catalog):
                builder.apply(route, NO_OPTIONS)
        except CompileError as error:
            found += error.diagnostics
    return found


def _once_refused(bound: BoundChange) -> CompileError:
    """Refuses a query in a script: its rows depend on the time, and a repeated deployment would not run it again or show rows."""
    target, file = bound.change.target, "in a file of the project"
    if bound.change.returning:
        label = "the first deployment carries it out, and shows no rows"
        help = 'leave RETURNING out, or carry the statement out by  flowql exec "..."'
        return unsupported(f"RETURNING {file}", bound.span, label, help=help)
    if bound.change.copied is not None:
        help = 'carry it out once:  flowql exec "COPY ..."'
        return unsupported(f"COPY {file}", bound.span, "a repeated deployment would not read it again", help=help)
    shown = {
        "insert": f"INSERT INTO {target} ... SELECT {file}",
        "update": f"UPDATE of {target} with FROM or a sub-query {file}",
        "delete": f"DELETE FROM {target} with USING or a sub-query {file}",
    }
    title = shown[bound.change.kind]
    help = 'carry it out once, when its inputs are there:  flowql exec "..."'
    return unsupported(title, bound.span, "a local table", help=help)


def _empty(dialect: DialectName, registry: SchemaLookup) -> Catalog:
    return replace(EMPTY, registry=registry, standard=dialect != "ksql")


def _pending(
    sources: Sequence[SourceText | QueryDefinition],
    dialect: DialectName,
    properties: Mapping[str, str],
    variables: Mapping[str, str],
) -> tuple[list[Pending], list[Diagnostic], set[str]]:
    """All statements with the properties that hold where they stand; the names that unreadable ones declare come last."""
    session = dict(properties)
    defined = dict(variables)
    found: list[Pending] = []
    diagnostics: list[Diagnostic] = []
    declared: set[str] = set()
    for source in sources:
        if isinstance(source, QueryDefinition):
            statement = _statement(source)
            found.append(Pending.of(statement, dict(session), source.options, infer_kind=source.kind is None))
            continue
        statements, mistakes = parse_statements(source, dialect, defined)
        diagnostics += mistakes
        if mistakes:
            declared |= declared_names(source, dialect)
        for s in statements:
            if isinstance(s, SetProperty):
                _set(session, s)
            else:
                found.append(Pending.of(s, dict(session), NO_OPTIONS))
    return found, diagnostics, declared.difference(*(p.defines for p in found))


def _statement(definition: QueryDefinition) -> CreateAs:
    at, name, query, given = definition.span, definition.name, definition.query, definition.properties
    if isinstance(query, StandardQuery):
        return CreateView("", at, name, definition.kind or "table", tree=query, properties=given, name_span=at)
    return CreateAs("", at, name, definition.kind or "stream", query, given, name_span=at)


def _with_kind(statement: S, catalog: Catalog) -> S:
    """A query of ksqlDB's dialect that groups, or that reads a table first, gives a table."""
    if not isinstance(statement, CreateAs) or statement.query is None:
        return statement
    first = catalog.sources.get(statement.query.source.name)
    is_table = bool(statement.query.group_by) or (first is not None and first.kind == "table")
    return replace(statement, kind="table" if is_table else "stream")


def _set(session: MutableMapping[str, str], statement: SetProperty) -> None:
    if statement.value is None:
        session.pop(statement.name, None)
    else:
        session[statement.name] = statement.value


def _as_set(value: str | bool | int) -> str:
    """The text that SET would give for a value of a JSON or YAML document."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Session:
    """Statements one after the other, each accepted or refused at once (shell, conformance)."""

    def __init__(
        self,
        *,
        dialect: DialectName = "ksql",
        properties: Mapping[str, str | bool | int] = _NO_PROPERTIES,
        overrides: Mapping[str, QueryOptions] = _NO_OVERRIDES,
        topic_partitions: Mapping[str, int] = _NO_PARTITIONS,
        registry: SchemaLookup = NO_SCHEMAS,
    ) -> None:
        self._dialect: DialectName = dialect
        self._builder = PlanBuilder(
            _empty(dialect, registry), overrides=overrides, previous=None, topic_partitions=topic_partitions
        )
        self._variables: dict[str, str] = {}
        self.properties: dict[str, str] = {k: _as_set(v) for k, v in properties.items()}

    @property
    def catalog(self) -> Catalog:
        return self._builder.catalog

    @property
    def plan(self) -> Plan:
        """Everything accepted so far."""
        return self._builder.plan(self.properties)

    def execute(self, source: SourceText) -> list[StatementResult]:
        """Run the statements of a text in order. Raises CompileError at the first that is refused; those before it stay.

        Nothing of a text that cannot be parsed is run.
        """
        statements, mistakes = parse_statements(source, self._dialect, self._variables)
        if mistakes:
            raise (UnsupportedError if all(m.unsupported for m in mistakes) else ParseError)(*mistakes)
        return [self.execute_statement(s) for s in statements]

    def asked(self, source: SourceText) -> AskedQuery | None:
        """An interactive query over what is accepted so far; None for a statement of another kind. Raises CompileError."""
        query = asked_query(source)
        if query is None:
            return None
        known = self._builder.catalog.sources
        readable = {n: Readable(known[n].shown, known[n].identity) for n in names_read(query) if n in known}
        return compile_asked(query, readable, now_ms=lambda: 0, functions={})

    def execute_statement(self, statement: Statement) -> StatementResult:
        if isinstance(statement, SetProperty):
            _set(self.properties, statement)
            return StatementResult("set", statement.name)
        with within_stack(statement.span):
            return self._builder.apply(analyze(statement, self._builder.catalog, self.properties), NO_OPTIONS)


def compile_changes(
    source: SourceText,
    sources: Sequence[SourceDef],
    *,
    dialect: DialectName = "ksql",
    variables: Mapping[str, str] = _NO_PROPERTIES,
) -> list[TableChange | InsertValues]:
    """Statements that change rows, over streams and tables that exist: one change each, or one InsertValues per record.

    Raises CompileError with all mistakes.
    """
    statements, mistakes = parse_statements(source, dialect, dict(variables))
    catalog = replace(_empty(dialect, NO_SCHEMAS), sources={s.name: s for s in sources})
    found: list[TableChange | InsertValues] = []
    for statement in statements:
        try:
            with within_stack(statement.span):
                found += _changes(statement, catalog)
        except CompileError as error:
            mistakes += error.diagnostics
    if mistakes:
        raise (UnsupportedError if all(m.unsupported for m in mistakes) else CompileError)(*mistakes)
    return found


def _changes(statement: Statement, catalog: Catalog) -> list[TableChange | InsertValues]:
    bound = analyze(statement, catalog, _NO_PROPERTIES) if is_row_statement(statement) else None
    match bound:
        case BoundChange():
            return [bound.change]
        case BoundRows():
            return [*bound.inserts]
    title = "only INSERT, UPDATE, DELETE and COPY can be carried out here"
    help = "write it into the project's files, then:  flowql deploy"
    raise mistake("FQ2018", title, statement.span, "defines what runs", help=help)


def asked_query(text: SourceText) -> StandardQuery | None:
    """The tree of an interactive query of standard SQL; None for a statement of another kind. Raises CompileError."""
    check_request(text, standard=True)
    found, mistakes = parse_trees(text)
    if mistakes:
        raise (UnsupportedError if all(m.unsupported for m in mistakes) else ParseError)(*mistakes)
    return found[0].query if len(found) == 1 and isinstance(found[0], QueryStatement) else None


def compile_asked(
    query: StandardQuery,
    readable: Mapping[str, Readable],
    *,
    now_ms: Callable[[], int],
    functions: Mapping[str, Function | AggregateFunction],
) -> AskedQuery:
    """An interactive query of standard SQL over relations at one commit. readable: by the names that `names_read` gives. now_ms: gives the
    present moment. functions: those of the project. Raises CompileError.
    """
    catalog = Catalog(functions=functions, standard=True, now_ms=now_ms)
    with within_stack(query.span):
        return bind_asked(query, readable, catalog)


@dataclass(frozen=True, slots=True)
class PushQuery:
    """A push query: it is not deployed, and its rows go to one client until that disconnects.

    plan: the query, what it reads, and its result. result: the stream or table of rows; hidden columns of it begin with
    HIDDEN, or are those of a relation. keys: columns that show hidden key columns. reads: the sources it names. limit: rows
    after which it ends.
    """

    plan: Plan
    result: SourceDef
    reads: tuple[SourceDef, ...]
    limit: int | None = None
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that were asked for."""
        return tuple(n for n in self.result.visible if not n.startswith(HIDDEN))


def compile_push(
    source: SourceText,
    sources: Sequence[SourceDef],
    *,
    dialect: DialectName = "ksql",
    topic_partitions: Mapping[str, int] = _NO_PARTITIONS,
    functions: Mapping[str, Registered] = _NO_FUNCTIONS,
) -> PushQuery:
    """`SELECT ... EMIT CHANGES` over streams and tables that exist. Raises CompileError with all mistakes.

    As for any query, except that LIMIT is allowed and that the key need not be selected.
    """
    standard = dialect == "standard"
    check_request(source, standard=standard)
    for entry in functions.values():
        register_of_project(entry)
    catalog = Catalog({s.name: s for s in sources}, functions=functions_among(functions), standard=standard)
    if standard:
        tree = parse_fragment(source, parse_tree)
        with within_stack(tree.span):
            view = CreateView(
                "", tree.span, name=PUSH, kind="table", tree=replace(tree, limit=None), name_span=tree.span
            )
            return _push_query(_pushed(view, catalog, topic_partitions), _rows_max(tree.limit))
    query = parse_query(source)
    try:
        with within_stack(query.span):
            plan = _pushed(_named(query), catalog, topic_partitions)
    except CompileError as error:
        completed = complete(query, catalog) if {d.code for d in error.diagnostics} <= INCOMPLETE else None
        if completed is None:
            raise
        try:
            plan = _pushed(_named(completed), catalog, topic_partitions)
        except CompileError:
            raise error from None
    return _push_query(plan, query.limit)


def _push_query(plan: Plan, limit: int | None) -> PushQuery:
    (running,) = plan.queries
    result = plan.source(running.sink)
    assert result is not None
    read = {s.source for s in (n.spec for n in walk_nodes(running.logical)) if isinstance(s, Scan)}
    reads = tuple(s for s in plan.sources if s.name in read)
    hidden = [f.name for f in result.schema.key if result.relation]
    keys = visible_keys(running.logical, hidden, result.visible)
    return PushQuery(replace(plan, sources=(*reads, result)), result, reads, limit, keys)


def _rows_max(limit: Expr | None) -> int | None:
    """LIMIT of a push query. Raises UnsupportedError for all but a whole number."""
    if limit is None or (isinstance(limit, Lit) and limit.kind == "null"):
        return None
    if not number_text(limit).isdigit():
        raise unsupported("LIMIT of an expression", limit.span, "not a number", help="write a whole number")
    return int(number_text(limit)[:18])


def _named(query: Query) -> CreateAs:
    query = replace(query, limit=None)
    return CreateAs("", query.span, name=PUSH, query=query, name_span=query.span)


def _pushed(statement: CreateAs, catalog: Catalog, topic_partitions: Mapping[str, int]) -> Plan:
    """The plan of a query whose result only the caller reads: in a format for any key."""
    builder = PlanBuilder(catalog, overrides=_NO_OVERRIDES, previous=None, topic_partitions=topic_partitions)
    formats = tuple(Property(f"{part}_FORMAT", "JSON") for part in ("KEY", "VALUE"))
    with_formats = replace(_with_kind(statement, catalog), properties=formats)
    builder.apply(analyze(with_formats, catalog, _NO_PROPERTIES), NO_OPTIONS)
    return builder.plan(_NO_PROPERTIES)
