"""The steps that a builder has collected, and the reading of its streams' arguments."""

from __future__ import annotations

import typing
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, get_args

from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Ast, Func, Lit, Name, WindowClause, WithinClause
from flowql.compiler.functions.user_types import DefinitionError
from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS, OnChange
from flowql.compiler.processors.stores import milliseconds
from flowql.compiler.processors.topology import Topology
from flowql.compiler.streams.callables import Call as Callback
from flowql.compiler.streams.callables import RowAggregate, RowFunction, arity_of
from flowql.compiler.streams.expression import Expression, as_ast
from flowql.compiler.streams.rows import RowType, row_type
from flowql.compiler.streams.steps import Column, Declared, Label, Options, Output

# --- Windows of aggregations ---

Kind = Literal["tumbling", "hopping", "session"]


@dataclass(frozen=True)
class TumblingWindow:
    """Adjacent windows of one size.

    grace: how far behind stream time a row may be. retention: how long windows are kept.

    >>> TumblingWindow(timedelta(minutes=1)).clause().size_ms
    60000
    """

    size: timedelta
    grace: timedelta | None = None
    retention: timedelta | None = None

    def clause(self) -> WindowClause:
        return _clause("tumbling", self.size, None, self.grace, self.retention)


@dataclass(frozen=True)
class HoppingWindow:
    """Windows of one size that begin every `advance` and overlap. grace, retention: as in TumblingWindow."""

    size: timedelta
    advance: timedelta
    grace: timedelta | None = None
    retention: timedelta | None = None

    def clause(self) -> WindowClause:
        return _clause("hopping", self.size, self.advance, self.grace, self.retention)


@dataclass(frozen=True)
class SessionWindow:
    """Rows of a key with at most `gap` between them. grace, retention: as in TumblingWindow."""

    gap: timedelta
    grace: timedelta | None = None
    retention: timedelta | None = None

    def clause(self) -> WindowClause:
        return _clause("session", self.gap, None, self.grace, self.retention)


Window = TumblingWindow | HoppingWindow | SessionWindow


def _clause(
    kind: Kind, size: timedelta, advance: timedelta | None, grace: timedelta | None, retention: timedelta | None
) -> WindowClause:
    size_ms = milliseconds(size, f"{kind} window")
    advance_ms = None if advance is None else milliseconds(advance, f"{kind} window")
    kept_ms = None if retention is None else milliseconds(retention, f"{kind} window")
    return WindowClause(kind, size_ms, advance_ms, duration(grace, f"grace of a {kind} window"), kept_ms)


def duration(time: timedelta | None, what: str) -> int | None:
    """In ms, 0 included. Raises DefinitionError."""
    if time is None:
        return None
    if not isinstance(time, timedelta) or time < timedelta():
        raise DefinitionError(f"{what}: {time!r} is not a duration", "timedelta(seconds=5)")
    return time // timedelta(milliseconds=1)


Named = Mapping[str, Any]
Within = timedelta | tuple[timedelta, timedelta]
_LISTS = ("list", "Iterator", "Iterable", "Generator")


class Graph:
    """The outputs of a builder, and what else has to exist for them. Labels count per kind of step, so they outlast edits of others."""

    def __init__(self, name: str, options: Options, version: str) -> None:
        self.name, self.options, self.version = name, options, version
        self.outputs: list[Output] = []
        self.declared: list[Declared] = []
        self.functions: list[RowFunction | RowAggregate] = []
        self.topologies: list[Topology] = []
        self._labels: Counter[str] = Counter()

    def label(self, kind: str) -> Label:
        """kind: in capitals, as steps are called in names of topics."""
        self._labels[kind] += 1
        return Label(f"{self.name}_{kind}_{self._labels[kind]}", kind.lower())

    def condition(self, given: Any, label: Label, row: type | None, *, deterministic: bool = True) -> Ast | RowFunction:
        """The condition of `filter` and `branch`: an expression, or a function that says whether a record passes."""
        if isinstance(given, Expression):
            return given.ast
        if not callable(given):
            raise DefinitionError(f"{label.method}: {given!r} is not a condition", 'col("price") > 10')
        return self.function(label, given, row, deterministic=deterministic)

    def function(self, label: Label, call: Callback, row: type | None, **options: Any) -> RowFunction:
        arity = options.pop("arity", None) or arity_of(call, label.method)
        made = RowFunction(label, call, arity, row, version=self.version, **options)
        self.functions.append(made)
        return made

    def aggregate(self, label: Label, call: Callback, row: type | None, **options: Any) -> RowAggregate:
        made = RowAggregate(label, call, row, version=self.version, **options)
        self.functions.append(made)
        return made


def columns(label: Label, given: tuple[Any, ...], named: Named, at: Span) -> tuple[Column, ...]:
    """Names of columns, fields and columns as expressions, and expressions by name. Raises DefinitionError."""
    found = [_own_name(label, item, at) for item in given]
    found += [Column(name, _value(label, name, value, at)) for name, value in named.items()]
    if not found:
        raise DefinitionError(f"{label.method} has no columns", 'total=col("price") * 2')
    return tuple(found)


def _own_name(label: Label, given: Any, at: Span) -> Column:
    if isinstance(given, str):
        return Column(given, Name((given,), at))
    if isinstance(given, Expression):
        ast = given.ast
        if isinstance(ast, Name):
            return Column(ast.parts[0], ast)
        if isinstance(ast, Func) and ast.name == "field" and isinstance(ast.args[1], Lit):
            return Column(str(ast.args[1].value), ast)
        raise DefinitionError(f"{label.method}: {given!r} has no name", "name it:  total=...")
    raise DefinitionError(
        f"{label.method}: {given!r} is not a column", '"price", col("price"), or total=col("price") * 2'
    )


def _value(label: Label, name: str, given: Any, at: Span) -> Ast:
    if isinstance(given, str):
        raise DefinitionError(
            f"{label.method}: {name}={given!r} may be a column or a string", f'col("{given}") or lit("{given}")'
        )
    return as_ast(given, at)


def keys(label: Label, given: Any, at: Span) -> tuple[Column, ...]:
    """`key=` with expressions: a column, several in a list, or a dict of expressions by name."""
    if isinstance(given, Mapping):
        return columns(label, (), given, at)
    return columns(label, tuple(given) if isinstance(given, list | tuple) else (given,), {}, at)


def key_row(label: Label, given: Any) -> RowType:
    """`key=` with types. Raises DefinitionError."""
    if given is None:
        raise DefinitionError(f"{label.method} does not say the type of its key", 'key={"word": str}')
    return row_type(given, f"key of {label.method}")


def value_row(label: Label, given: Any, call: Callable[..., Any], *, many: bool, pairs: bool = False) -> RowType:
    """`value=`, else what the function is annotated to return. Raises DefinitionError."""
    if given is None and not pairs:
        given = _returned(call, many=many)
    if given is None:
        hint = "value=Order, where Order is a dataclass, or " + 'value={"total": float}'
        raise DefinitionError(f"{label.method} does not say the columns of what its function returns", hint)
    return row_type(given, f"value of {label.method}")


def _returned(call: Callable[..., Any], *, many: bool) -> Any:
    try:
        hint = typing.get_type_hints(call, include_extras=True).get("return")
    except (NameError, TypeError):
        return None
    if not many:
        return hint
    origin = getattr(typing.get_origin(hint), "__name__", "")
    return get_args(hint)[0] if origin in _LISTS and get_args(hint) else None


def within_clause(label: Label, within: Within, grace: timedelta | None, at: Span) -> WithinClause:
    """within: how much earlier and later the row of the right side may be."""
    before, after = within if isinstance(within, tuple) else (within, within)
    first, last = duration(before, f"within of {label.method}"), duration(after, f"within of {label.method}")
    assert first is not None
    assert last is not None
    return WithinClause(first, last, duration(grace, f"grace of {label.method}"), at)


def checked_options(
    name: str, priority: str | None, latency_target_ms: int | None, on_change: str | None, default: Options
) -> Options:
    """How a query is scheduled. Raises DefinitionError."""
    if priority is not None and priority not in PRIORITY_WEIGHTS:
        raise DefinitionError(f"{name}: there is no priority {priority!r}", 'priority="high"')
    if on_change is not None and on_change not in get_args(OnChange):
        raise DefinitionError(f"{name}: on_change={on_change!r} is not known", 'on_change="forward"')
    given = {"priority": priority, "latency_target_ms": latency_target_ms, "on_change": on_change}
    return replace(default, **{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]


def with_clause(**given: str | int | None) -> tuple[tuple[str, str | int], ...]:
    """The WITH clause of a stream or table, of what is given."""
    names = {
        "topic": "KAFKA_TOPIC",
        "partitions": "PARTITIONS",
        "format": "VALUE_FORMAT",
        "key_format": "KEY_FORMAT",
        "timestamp": "TIMESTAMP",
    }
    return tuple((names[k], v) for k, v in given.items() if v is not None)
