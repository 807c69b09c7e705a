"""An interactive query of standard SQL before it is answered: bound as a view is, with what it needs to read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from flowql.compiler.analyze.relations.asked import AskedQuery, Readable, names_read
from flowql.compiler.analyze.relations.relation import Names, with_identity
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.driver import asked_query, compile_asked
from flowql.compiler.functions.duckdb_sql import quoted
from flowql.compiler.functions.numeric import INT_MAX, INT_MIN
from flowql.compiler.functions.registry import AggregateFunction, Function, register_of_project, registered
from flowql.compiler.plan.changes import GroupAggregate, Over, SortKey, WindowCall
from flowql.compiler.plan.expr import Call, Column, Expr, Lambda, walk
from flowql.compiler.plan.expr import Literal as Constant
from flowql.compiler.plan.logical import Explode, Node, Project, Scan, walk_nodes
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, INT, STRING, UUID, Kind
from flowql.compiler.plan.visit import exprs_in
from flowql.compiler.plan.watermarks import AppendOnly
from flowql.query.binding import plain, readable_of
from flowql.query.bound_plans import BoundPlan, KnownQuery
from flowql.query.errors import QueryError
from flowql.query.interactive import InteractiveQuery
from flowql.query.over_snapshot import Rendered, order_by, rendered
from flowql.query.relations import Relation
from flowql.query.statement import EXPLAIN, SHORT_ROWS_MAX, Condition, Literal, Statement, parse
from flowql.runtime.functions.interactive import InteractiveFunction
from flowql.runtime.operators.kernels import calls_in


class _Blank(dict[int, int | str]):
    """Characters -> blanks, but for ends of lines, so that places stay what they are."""

    def __missing__(self, char: int) -> str:
        return chr(char) if chr(char) in "\r\n" else " "


ROWS = '"!rows"'  # the rows of the query, where the operators of views have computed them
_PLACE = "!place"
_BLANK = _Blank()
_OPERATORS = {"sql_eq": "=", "sql_lt": "<", "sql_le": "<=", "sql_gt": ">", "sql_ge": ">=", "sql_in": "="}
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_KINDS = {Kind.INT: "INTEGER", Kind.BIGINT: "INTEGER"}
# Their results from strings and lists are at most a few times as long as the arguments.
_BOUNDED = frozenset(
    [
        "COALESCE",
        "LCASE",
        "NULLIF",
        "SUBSTRING",
        "TRIM",
        "UCASE",
        "case",
        "cast",
        "concat",
        "field",
        "null_if_failed",
        "sql_btrim",
        "sql_concat",
        "sql_greatest",
        "sql_jsonb_equal",
        "sql_jsonb_field",
        "sql_jsonb_field_text",
        "sql_jsonb_path",
        "sql_jsonb_path_text",
        "sql_left",
        "sql_ltrim",
        "sql_md5",
        "sql_pg_typeof",
        "sql_reverse",
        "sql_right",
        "sql_rtrim",
        "sql_single_row",
        "sql_split_part",
        "sql_subscript",
        "sql_substring",
        "sql_to_char",
        "sql_to_text",
        "sql_try",
        "struct",
        "subscript",
    ]
)
_COLLECTING = frozenset(("ARRAY_AGG", "STRING_AGG", "JSONB_AGG", "JSONB_OBJECT_AGG"))


def read(query: InteractiveQuery) -> Statement:
    """The statement before its relations are known. Raises QueryError."""
    known = query.plans.get(query.given) or _parsed(query.given)
    if known is None:
        return query.prepare(parse(query.given, query.connection, query.check_from))

    def bind(statement: Statement, relations: Mapping[str, Relation]) -> Statement:
        return _known(query, known, statement, relations)

    return Statement(query.given, known.tables, functions=known.functions, bind=bind)


def _parsed(given: str) -> KnownQuery | None:
    """None for a statement of another kind. Raises QueryError."""
    explain = EXPLAIN.match(given)
    start = explain.end() if explain is not None else 0
    try:
        tree = asked_query(SourceText("", given[:start].translate(_BLANK) + given[start:]))
    except CompileError as error:
        raise as_query_error(error) from error
    if tree is None:
        return None
    names = frozenset(n.name[-1].casefold() for n in walks.walk(tree) if isinstance(n, t.Call))
    return KnownQuery(tree, explain.group() if explain is not None else "", names_read(tree), names)


def _known(
    query: InteractiveQuery, known: KnownQuery, statement: Statement, relations: Mapping[str, Relation]
) -> Statement:
    """The statement as it was bound with the same relations and functions, or bound now."""
    readable = {name: readable_of(r) for name, r in relations.items()}
    functions = query.offered(known.functions)
    keys, plan = tuple(f.key for f in functions.values()), known.plan
    if plan is not None and plan.functions == keys and plan.readable == readable:
        return plan.statement
    moments: list[int] = []

    def now_ms() -> int:
        moments.append(moments[0] if moments else time.time_ns() // 1_000_000)
        return moments[0]

    made = bound(statement, known.tree, readable, functions, now_ms)
    made = explained(made, known.head) if known.head else made
    query.plans.keep(query.given, replace(known, plan=None if moments else BoundPlan(readable, keys, made)))
    return made


def explained(statement: Statement, head: str) -> Statement:
    """The text that `EXPLAIN` of a query shows."""
    if statement.by_operators:
        why = statement.by_operators.replace("'", "''")
        sql = f"SELECT 'way' AS explain_key, 'the operators of views, as DuckDB has no exact form of {why}' AS explain_value"
    else:
        sql = f"{head} {statement.sql}"
    return replace(statement, sql=sql, asked=None, is_short=True, is_plain=True, unbounded=frozenset())


def as_query_error(error: CompileError) -> QueryError:
    """The first mistake of a statement."""
    first = error.diagnostics[0]
    return QueryError(first.title, code=first.code, help=first.help, span=first.span)


def bound(
    statement: Statement,
    query: t.Query,
    readable: Mapping[str, Readable],
    functions: Mapping[str, InteractiveFunction],
    now_ms: Callable[[], int],
) -> Statement:
    """The statement that DuckDB is to answer. readable: its relations, by their names in FROM. now_ms: gives the present moment, always the same. Raises QueryError."""
    own = {name.upper(): f.entry() for name, f in functions.items()}
    for f in own.values():
        if registered(f.name) is None:  # a deployment may have it already
            register_of_project(f)
    try:
        asked = compile_asked(query, readable, now_ms=now_ms, functions=own)
    except CompileError as error:
        raise as_query_error(error) from error
    found = _rendered(asked, own.values())
    is_short = asked.limit is not None and asked.limit + asked.offset <= SHORT_ROWS_MAX
    return replace(
        statement,
        sql=shown(asked, found.sql) if found.sql else "",
        conditions={name.casefold(): tuple(_pushed(parts)) for name, parts in asked.conditions.items()},
        columns=found.columns,
        is_short=is_short,
        enough=_enough(asked) if is_short else None,
        unbounded=_unbounded(asked),
        asked=asked,
        by_operators=found.why,
        is_plain=True,
        bind=None,
    )


def _rendered(asked: AskedQuery, own: Iterable[Function | AggregateFunction]) -> Rendered:
    return rendered(asked.node, [c.column for c in asked.columns], asked.order, {f.name: f for f in own})


def bound_elsewhere(statement: Statement, functions: Mapping[str, InteractiveFunction]) -> None:
    """Makes what a statement needs that another process has bound: functions of the project, and those over columns for its types."""
    own = [f.entry() for f in functions.values()]
    for f in own:
        register_of_project(f)
    if statement.asked is not None and any("@" in name for name in calls_in(statement.sql)):
        _rendered(statement.asked, own)


def over_rows(asked: AskedQuery) -> str:
    """The statement over rows that are computed already, in `ROWS`. Raises NotRendered."""
    return shown(asked, f"SELECT * FROM {ROWS}")


def in_places(asked: AskedQuery) -> AskedQuery:
    """With the place of each row as a column to order by, for an order that DuckDB has no form of. It is counted as window functions do."""
    below = with_identity(asked.node, Names())
    place = WindowCall(_PLACE, "ROW_NUMBER", (), BIGINT)
    schema = Schema((*below.schema, Field(place.name, place.type)))
    node = Node(Over((), asked.order, (place,)), (below,), schema, "retract")
    return replace(asked, node=node, order=(SortKey(place.name, descending=False, nulls_first=False),))


def shown(asked: AskedQuery, body: str) -> str:
    """The statement over a SELECT that gives the rows of its plan. Raises NotRendered."""
    items = [f"{quoted(c.column)} AS c{n}" for n, c in enumerate(asked.columns)]
    text = f"SELECT {', '.join(items)} FROM ({body})"
    if asked.order:
        text += f" ORDER BY {order_by(asked.order, asked.node.schema)}"
    if asked.limit is not None:
        text += f" LIMIT {asked.limit}"
    return f"{text} OFFSET {asked.offset}" if asked.offset else text


def _pushed(parts: Sequence[Expr]) -> Iterator[Condition]:
    for part in parts:
        if isinstance(part, Call) and part.name in _OPERATORS and len(part.args) >= 2:
            first, *rest = map(plain, part.args)
            operator = _OPERATORS[part.name]
            if isinstance(first, Constant) and len(rest) == 1:
                first, rest, operator = rest[0], [first], _FLIPPED[operator]
            values = [_literal(v, first) for v in rest]
            if isinstance(first, Column) and all(v is not None for v in values):
                yield Condition(first.name.casefold(), operator, tuple(v for v in values if v is not None))


def _literal(value: Expr, column: Expr) -> Literal | None:
    """A constant of the type of the column, or another whole number that it may hold."""
    if not isinstance(value, Constant) or value.value is None:
        return None
    fits = value.type == BIGINT and column.type == INT and INT_MIN <= int(value.value) <= INT_MAX
    if value.type != column.type and not fits:
        return None
    if column.type in (STRING, UUID):
        return Literal("STRING", str(value.value))
    kind = _KINDS.get(column.type.kind)
    return None if kind is None else Literal(kind, str(value.value))


def _enough(asked: AskedQuery) -> int | None:
    node: Node = asked.node
    while isinstance(node.spec, Project | AppendOnly):
        (node,) = node.inputs
    plain = isinstance(node.spec, Scan) and not asked.order and asked.limit is not None
    return (asked.limit or 0) + asked.offset if plain else None


def _unbounded(asked: AskedQuery) -> frozenset[str]:
    """Functions whose values have no bound in the sizes of rows, for which a child process answers."""
    found: set[str] = set()
    for node in walk_nodes(asked.node):
        if isinstance(node.spec, Explode):
            found.add("unnest")
        elif isinstance(node.spec, GroupAggregate):
            found |= {c.function for c in node.spec.calls if c.function in _COLLECTING}
    for part in (part for e in exprs_in(asked.node) for part in walk(e)):
        if isinstance(part, Lambda):
            found.add("lambda")
        elif isinstance(part, Call) and not _is_bounded(part):
            found.add(part.name)
    return frozenset(found)


def _is_bounded(call: Call) -> bool:
    return call.type.kind not in (Kind.STRING, Kind.BYTES, Kind.ARRAY, Kind.MAP, Kind.STRUCT) or call.name in _BOUNDED
