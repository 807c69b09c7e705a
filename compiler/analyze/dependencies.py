"""Which statements need which names, and an order in which every name exists before it is used.

A project's files may refer to each other, so statements wait for the names they need. Where a project drops, replaces or
terminates things, order has a meaning of its own and stays as written. PAUSE and RESUME come after everything they may name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.options import NO_OPTIONS, QueryOptions
from flowql.compiler.analyze.relations.definitions import relations_read
from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import (
    CreateAs,
    CreateSource,
    CreateType,
    Drop,
    InsertInto,
    InsertRow,
    QueryControl,
    Statement,
    TableRef,
    TypeRef,
)
from flowql.compiler.dialect.standard.statement_tree import Change, CopyRows, CreateTable, CreateView, Insert
from flowql.compiler.dialect.standard.tree import Values
from flowql.compiler.dialect.walks import walk
from flowql.compiler.plan.topology import NO_ROWS

_TYPE = "type "  # types have names of their own


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A statement that waits to be applied.

    properties: session properties where it stands. infer_kind: a CreateAs whose result decides between stream and table.
    span: where its name stands; else all of it.
    """

    statement: Statement
    properties: Mapping[str, str]
    options: QueryOptions = NO_OPTIONS
    infer_kind: bool = False
    defines: frozenset[str] = field(default_factory=frozenset)
    needs: frozenset[str] = field(default_factory=frozenset)
    span: Span = NOWHERE

    @staticmethod
    def of(
        statement: Statement, properties: Mapping[str, str], options: QueryOptions, *, infer_kind: bool = False
    ) -> Pending:
        defines, needs = frozenset(_defined(statement)), needed_names(statement)
        return Pending(statement, properties, options, infer_kind, defines, needs, place_of(statement))


def place_of(statement: Statement) -> Span:
    """Where its name stands; else all of it."""
    at: Span = getattr(statement, "name_span", NOWHERE)
    return at if at != NOWHERE else statement.span


def needed_names(statement: Statement) -> frozenset[str]:
    """The sources a statement reads or writes, and `type NAME` for types of the user's own."""
    return frozenset(_needed(statement))


def refuse_hidden(statement: Statement, needs: Set[str] | None = None) -> None:
    """The table that views without a table read has no rows, and must not get any. needs: `needed_names`, if they are known."""
    needs = needed_names(statement) if needs is None else needs
    if NO_ROWS.name in needs or NO_ROWS.name in (getattr(statement, "name", ""), getattr(statement, "target", "")):
        title = f"{NO_ROWS.name} is a table of the system"
        raise mistake("FQ2008", title, place_of(statement), "reserved", help="choose another name")


def in_order(pending: Sequence[Pending]) -> tuple[list[Pending], list[Diagnostic]]:
    """The statements that can be applied, in order, and an error for each name defined twice and each cycle."""
    if any(_changes_what_is_there(p.statement) for p in pending):
        return list(pending), []
    unique, diagnostics = _without_duplicates([p for p in pending if not isinstance(p.statement, QueryControl)])
    holds = [p for p in pending if isinstance(p.statement, QueryControl)]
    producers = {n: p for p in unique for n in p.defines}
    order: list[Pending] = []
    done: set[str] = set()
    waiting = list(unique)
    while waiting:
        ready = _next(waiting, done, producers)
        if ready is None:
            return order, [*diagnostics, _cycle(waiting, producers)]
        waiting.remove(ready)
        order.append(ready)
        done |= ready.defines
    return [*order, *holds], diagnostics


def _next(waiting: Sequence[Pending], done: Set[str], producers: Mapping[str, Pending]) -> Pending | None:
    """The first that can go, so that the order written is kept where nothing speaks against it; None in a cycle."""
    without_schema: Pending | None = None
    for p in waiting:
        if all(n in done or n not in producers or n in p.defines for n in p.needs):
            if not _waits_for_schema(p, waiting):
                return p
            without_schema = without_schema or p
    return without_schema


def _changes_what_is_there(statement: Statement) -> bool:
    if isinstance(statement, QueryControl):
        return statement.verb == "terminate"
    return isinstance(statement, Drop) or bool(getattr(statement, "or_replace", False))


def _waits_for_schema(p: Pending, waiting: Sequence[Pending]) -> bool:
    """A source without columns takes them from the schema of its topic, which another statement may be about to give."""
    if not isinstance(p.statement, CreateSource) or p.statement.columns:
        return False
    topic = _topic(p.statement)
    return any(
        _topic(o.statement) == topic
        for o in waiting
        if isinstance(o.statement, CreateAs) or (isinstance(o.statement, CreateSource) and o.statement.columns)
    )


def _topic(statement: Statement) -> str:
    """The topic a statement names; that of a result without one has its name."""
    if not isinstance(statement, (CreateSource, CreateAs)):
        return ""
    given = next((str(p.value) for p in statement.properties if p.name == "KAFKA_TOPIC"), "")
    return given or statement.name


def _without_duplicates(pending: Sequence[Pending]) -> tuple[list[Pending], list[Diagnostic]]:
    first: dict[str, Pending] = {}
    kept: list[Pending] = []
    diagnostics: list[Diagnostic] = []
    for p in pending:
        twice = next((n for n in p.defines if n in first), None)
        if twice is not None and not getattr(p.statement, "if_not_exists", False):
            other = first[twice].span
            where = f"{other.path}:{other.line}" if other != NOWHERE else "above"
            error = mistake(
                "FQ2050",
                f"{twice} is defined twice",
                p.span,
                f"defined at {where} too",
                help="give one of them another name",
            )
            diagnostics += error.diagnostics
            continue
        kept.append(p)
        for n in p.defines:
            first.setdefault(n, p)
    return kept, diagnostics


def _cycle(waiting: Sequence[Pending], producers: Mapping[str, Pending]) -> Diagnostic:
    """An error that names the cycle among statements that all wait for each other."""
    here = waiting[0]
    path: list[str] = []
    while True:
        name = next(
            n for n in sorted(here.needs) if n in producers and producers[n] in waiting and n not in here.defines
        )
        if name in path:
            break
        path.append(name)
        here = producers[name]
    ring = [*path[path.index(name) :], name]
    error = mistake(
        "FQ2070",
        f"definitions form a cycle: {' reads '.join(reversed(ring))}",
        producers[name].span,
        "needs itself",
        why="none of them could be started first",
    )
    return error.diagnostics[0]


def _defined(statement: Statement) -> Iterator[str]:
    if isinstance(statement, (CreateSource, CreateAs, CreateTable)):
        yield statement.name
    elif isinstance(statement, CreateType):
        yield _TYPE + statement.name


def _needed(statement: Statement) -> Iterator[str]:
    if isinstance(statement, InsertInto | InsertRow | Insert | Change | CopyRows):
        yield statement.target
    match statement:
        case CreateView():
            yield from relations_read(statement.tree)
        case Insert(query=query) if query is not None and not isinstance(query.body, Values):
            yield from relations_read(query)
        case CreateSource() | CreateAs() | CreateTable() | CreateType() | InsertInto():
            pass
        case _:
            return
    for node in walk(statement):
        if isinstance(node, TableRef) and node.query is None:
            yield node.name
        elif isinstance(node, TypeRef) and node.known is None:
            yield _TYPE + node.name
