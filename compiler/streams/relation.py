"""The common part of streams and tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self

from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Ast, Name
from flowql.compiler.functions.user_types import DefinitionError
from flowql.compiler.plan.priorities import OnChange, Priority
from flowql.compiler.streams.expression import Expression
from flowql.compiler.streams.graph import (
    Graph,
    Within,
    checked_options,
    columns,
    value_row,
    with_clause,
    within_clause,
)
from flowql.compiler.streams.rows import here
from flowql.compiler.streams.steps import (
    Call,
    Filter,
    Join,
    JoinKind,
    Label,
    Output,
    Read,
    RelationKind,
    Select,
    Step,
    shown,
)

Condition = Expression | Callable[..., Any]
On = str | Expression | tuple[str | Expression, str | Expression]


class Relation:
    """The common part of streams and tables. Made by `StreamsBuilder`, and by the methods of others."""

    _kind: RelationKind

    def __init__(self, graph: Graph, step: Step, row: type | None = None) -> None:
        """row: the class of values that functions are given; None for dicts by column name."""
        self._graph, self._step, self._row = graph, step, row

    def __repr__(self) -> str:
        return shown(self._step)

    def filter(self, condition: Condition) -> Self:
        """Rows for which a condition is true: an expression, or a function of (key, value) or (value).

        Functions get the value as an object of the declared class, or a dict; the key as the key column's value, a
        tuple of several, or None. They run in the engine's threads.
        """
        at, label = here(), self._graph.label("FILTER")
        made = self._graph.condition(condition, label, self._row)
        return type(self)(self._graph, Filter(label, at, (self._step,), made), self._row)

    def map_values(self, *values: str | Expression | Callable[..., Any], value: Any = None, **named: Any) -> Self:
        """New values with the same key: columns and named expressions, or a function of (value) or (key, value).

        value: the function's result type: a dataclass, a `msgspec.Struct`, or types by column name; default: its
        annotation.
        """
        at, label = here(), self._graph.label("MAP_VALUES")
        if len(values) == 1 and callable(values[0]) and not isinstance(values[0], Expression):
            given = value_row(label, value, values[0], many=False)
            made = self._graph.function(label, values[0], self._row, value=given)
            return type(self)(self._graph, Call(label, at, (self._step,), made), given.made)
        found = columns(label, values, named, at)
        return type(self)(self._graph, Select(label, at, (self._step,), found))

    def with_columns(self, **named: Any) -> Self:
        """Adds or replaces columns."""
        at, label = here(), self._graph.label("WITH_COLUMNS")
        found = columns(label, (), named, at)
        return type(self)(self._graph, Select(label, at, (self._step,), found, keep=True))

    def to(
        self,
        name: str,
        *,
        topic: str | None = None,
        partitions: int | None = None,
        format: str | None = None,
        key_format: str | None = None,
        timestamp: str | None = None,
        priority: Priority | None = None,
        latency_target_ms: int | None = None,
        on_change: OnChange | None = None,
    ) -> None:
        """Writes all rows to a stream or table: an existing one as INSERT INTO does, a new one as CREATE ... AS
        does. priority, latency_target_ms, on_change: default: the builder's.
        """
        properties = with_clause(
            topic=topic, partitions=partitions, format=format, key_format=key_format, timestamp=timestamp
        )
        self._written(name, here(), properties, priority, latency_target_ms, on_change)

    def through(
        self,
        name: str,
        *,
        topic: str | None = None,
        partitions: int | None = None,
        format: str | None = None,
        key_format: str | None = None,
        priority: Priority | None = None,
        latency_target_ms: int | None = None,
        on_change: OnChange | None = None,
    ) -> Self:
        """Writes as `to` does, and returns the stream or table that reads the topic. Later steps are another query."""
        at = here()
        properties = with_clause(topic=topic, partitions=partitions, format=format, key_format=key_format)
        self._written(name, at, properties, priority, latency_target_ms, on_change)
        return type(self)(self._graph, Read(self._graph.label("THROUGH"), at, (), name, self._kind), self._row)

    def _written(
        self,
        name: str,
        at: Span,
        properties: tuple[tuple[str, str | int], ...] = (),
        priority: Priority | None = None,
        latency_target_ms: int | None = None,
        on_change: OnChange | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"{name!r} is not a valid name of a {self._kind}", 'to("LARGE_ORDERS")')
        options = checked_options(name, priority, latency_target_ms, on_change, self._graph.options)
        self._graph.outputs.append(Output(name, self._kind, self._step, at, properties, options))

    def _relation(self, label: str, at: Span) -> str:
        """A stream or table with these rows, which is written if there is none."""
        if isinstance(self._step, Read):
            return self._step.relation
        self._written(label, at)
        return label

    def _join(
        self,
        kind: JoinKind,
        other: Relation,
        on: On | None,
        suffix: str,
        within: Within | None = None,
        grace: timedelta | None = None,
        *,
        prior: bool = False,
    ) -> Step:
        at, label = here(), self._graph.label("JOIN")
        if not isinstance(other, Relation) or other._graph is not self._graph:
            hint = "read it by its name:  streams.table(...)"
            raise DefinitionError(
                f"{label.method}: {type(other).__name__} is not a stream or table of this builder", hint
            )
        if other._kind == "stream" and within is None:
            raise DefinitionError(
                f"{label.method} joins two streams and does not say within which time", "within=timedelta(hours=1)"
            )
        if other._kind == "table" and not (within is None and grace is None):
            raise DefinitionError(
                f"{label.method}: the rows of a table have no time to be within", "leave within and grace out"
            )
        bounds = None if within is None else within_clause(label, within, grace, at)
        sides = _sides(label, on, with_both=other._kind == "stream", at=at)
        return Join(label, at, (self._step, other._step), kind, sides, bounds, suffix, prior)


def _sides(label: Label, on: On | None, *, with_both: bool, at: Span) -> tuple[Ast | None, Ast | None]:
    """The equality of a join. with_both: a single column is of both sides; else the right side is a table, with its key."""
    if on is None:
        return None, None
    if isinstance(on, tuple):
        if len(on) != 2:
            raise DefinitionError(
                f"{label.method}: on={on!r} does not name a column of each side", 'on=("customer", "id")'
            )
        left, right = (columns(label, (), {"on": Expression(_named(s, at))}, at)[0].expr for s in on)
        return left, right
    given = _named(on, at)
    return given, given if with_both else None


def _named(given: str | Expression, at: Span) -> Ast:
    return Name((given,), at) if isinstance(given, str) else given.ast
