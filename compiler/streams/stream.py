"""Streams and tables in Python: each method gives a new one, and outputs are what runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Func, WindowClause
from flowql.compiler.functions.user_types import DefinitionError
from flowql.compiler.processors.stores import StateStore
from flowql.compiler.processors.topology import Factory, Topology
from flowql.compiler.streams.callables import RowAggregate, arity_of
from flowql.compiler.streams.expression import Expression
from flowql.compiler.streams.graph import (
    Graph,
    HoppingWindow,
    SessionWindow,
    TumblingWindow,
    Window,
    Within,
    columns,
    key_row,
    keys,
    value_row,
    with_clause,
)
from flowql.compiler.streams.relation import Condition, On, Relation
from flowql.compiler.streams.rows import here, row_type
from flowql.compiler.streams.steps import (
    Aggregate,
    Call,
    Column,
    Declared,
    Filter,
    JoinKind,
    Label,
    Merge,
    Read,
    Rekey,
    RelationKind,
    Select,
)


class Stream(Relation):
    """A stream: each row is an event. Methods return new streams.

    >>> streams = StreamsBuilder("SHOP")
    >>> orders = streams.stream("ORDERS")
    >>> large, small = orders.branch(col("amount") > 100, lit(True))
    >>> large.map_values("item", gross=col("amount") * 1.19).to("LARGE")
    >>> small.select_key("item").join(streams.table("ITEMS")).to("NAMED")
    >>> orders.flat_map_values(word=fn.SPLIT(col("text"), " "))
    ORDERS -> flat_map_values
    """

    _kind: RelationKind = "stream"

    def map(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *values: str | Expression,
        key: Any = None,
        value: Any = None,
        **named: Any,
    ) -> Stream:
        """New key and values: a function of (key, value) that returns (key, value), with both types; or `key` as a
        column, a list of columns or expressions by name, and values as for `map_values`.
        """
        at, label = here(), self._graph.label("MAP")
        if callable(function) and not isinstance(function, Expression):
            return self._called(label, at, function, key, value, many=False)
        given = values if function is None else (function, *values)
        step = Rekey(label, at, (self._step,), keys(label, key, at), columns(label, given, named, at))
        return Stream(self._graph, step)

    def flat_map(self, function: Callable[..., Any], *, key: Any, value: Any) -> Stream:
        """Several rows per row: a function of (key, value) that returns or yields pairs (key, value) of the types
        `key` and `value`.
        """
        return self._called(self._graph.label("FLAT_MAP"), here(), function, key, value, many=True)

    def flat_map_values(self, function: Callable[..., Any] | None = None, *, value: Any = None, **named: Any) -> Stream:
        """Several rows with the same key: a function that returns or yields values; or one named expression that
        gives an ARRAY.
        """
        at, label = here(), self._graph.label("FLAT_MAP_VALUES")
        if function is not None:
            given = value_row(label, value, function, many=True)
            made = self._graph.function(label, function, self._row, value=given, many=True)
            return Stream(self._graph, Call(label, at, (self._step,), made), given.made)
        found = tuple(Column(c.name, Func("EXPLODE", (c.expr,), at)) for c in columns(label, (), named, at))
        return Stream(self._graph, Select(label, at, (self._step,), found))

    def _called(
        self, label: Label, at: Span, function: Callable[..., Any], key: Any, value: Any, *, many: bool
    ) -> Stream:
        row = value_row(label, value, function, many=many, pairs=True)
        made = self._graph.function(label, function, self._row, key=key_row(label, key), value=row, many=many)
        return Stream(self._graph, Call(label, at, (self._step,), made), row.made)

    def select_key(self, *key: str | Expression, **named: Any) -> Stream:
        """New key: columns, or named expressions. All columns stay."""
        at, label = here(), self._graph.label("SELECT_KEY")
        step = Rekey(label, at, (self._step,), columns(label, key, named, at))
        return Stream(self._graph, step, self._row)

    def branch(self, *conditions: Condition) -> list[Stream]:
        """One stream per condition. A row goes to the first whose condition is true, or is dropped."""
        at, found = here(), []
        if not conditions:
            raise DefinitionError("branch without conditions", 'branch(col("n") > 10, lit(True))')
        rest: Stream = self
        for condition in conditions:
            label = self._graph.label("BRANCH")
            made = self._graph.condition(condition, label, self._row)
            found.append(Stream(self._graph, Filter(label, at, (rest._step,), made), self._row))
            others = Filter(Label(f"{label}_REST", label.method), at, (rest._step,), made, others=True)
            rest = Stream(self._graph, others, self._row)
        return found

    def merge(self, *others: Stream) -> Stream:
        """The rows of several streams with the same columns."""
        at, label = here(), self._graph.label("MERGE")
        if not others or not all(isinstance(o, Stream) and o._graph is self._graph for o in others):
            raise DefinitionError(f"{label.method}: streams of the same builder can be merged", "orders.merge(returns)")
        row = self._row if all(o._row is self._row for o in others) else None
        return Stream(self._graph, Merge(label, at, (self._step, *(o._step for o in others))), row)

    def peek(self, function: Callable[..., Any]) -> Stream:
        """Calls a function for each row and passes the row on. After a failure it may see a row again."""
        at, label = here(), self._graph.label("PEEK")

        def seen(*args: Any) -> bool:
            function(*args)
            return True

        made = self._graph.function(label, seen, self._row, deterministic=False, arity=arity_of(function, label.method))
        return Stream(self._graph, Filter(label, at, (self._step,), made), self._row)

    def repartition(self, partitions: int | None = None) -> Stream:
        """The same rows in a topic with this number of partitions, by key."""
        label = self._graph.label("REPARTITION")
        self._written(label, here(), with_clause(partitions=partitions))
        return Stream(self._graph, Read(Label(f"{label}_READ", label.method), here(), (), label, "stream"), self._row)

    def process(
        self,
        factory: Factory,
        *,
        value: Any,
        key: Any = None,
        stores: Sequence[StateStore] = (),
        name: str | None = None,
        partitions: int | None = None,
    ) -> Stream:
        """Records that a `Processor` forwards. It runs as a separate topology, over a topic.

        value, key: forwarded columns, as for `map`; default of `key`: this stream's key. stores: state stores.
        name: the resulting stream's name.
        """
        at, label = here(), self._graph.label("PROCESS")
        source, sink = self._relation(f"{label}_INPUT", at), name or f"{label}_OUTPUT"
        given = row_type(value, f"value of {label.method}")
        key_type = None if key is None else key_row(label, key)
        properties = with_clause(topic=sink, partitions=partitions, format="JSON")
        self._graph.declared.append(Declared(sink, "stream", at, key_type, given, properties, source))
        options = self._graph.options
        made = Topology(
            label,
            priority=options.priority or "normal",
            latency_target_ms=options.latency_target_ms,
            on_change=options.on_change or "rebuild",
            version=self._graph.version,
        )
        made.add_source("source", source).add_processor("process", factory, "source")
        for store in stores:
            made.add_state_store(store, "process")
        self._graph.topologies.append(made.add_sink("sink", sink, "process"))
        return Stream(self._graph, Read(Label(f"{label}_READ", label.method), at, (), sink, "stream"), given.made)

    def window(self, size: timedelta) -> WindowedStream:
        """For joins: how long each row can be joined with later rows."""
        if isinstance(size, TumblingWindow | HoppingWindow | SessionWindow):
            hint = "group_by(...).window(...), or a timedelta for a join"
            raise DefinitionError(f"{type(size).__name__} is a window of an aggregation", hint)
        return WindowedStream(self, size)

    def group_by(self, *key: str | Expression, **named: Any) -> Grouped:
        """For aggregations: rows by columns, or by expressions by name."""
        at, label = here(), self._graph.label("GROUP_BY")
        return Grouped(self, columns(label, key, named, at))

    def group_by_key(self) -> Grouped:
        """For aggregations: rows by their key."""
        return Grouped(self, None)

    def join(
        self,
        other: Stream | Table,
        *,
        on: On | None = None,
        within: Within | None = None,
        grace: timedelta | None = None,
        suffix: str = "_RIGHT",
    ) -> Stream:
        """Rows with equal keys. The result has the columns of both sides, the key once; duplicate names on the
        right get `suffix`.

        on: a column of both sides, or (left, right); with a table, a left column with the table's key. Default: the
        keys. within: with a stream, the longest time between two rows, or (earlier, later): how much earlier and
        later the row of `other` may be.
        grace: how late rows may arrive.
        """
        return Stream(self._graph, self._join("inner", other, on, suffix, within, grace))

    def left_join(
        self,
        other: Stream | Table,
        *,
        on: On | None = None,
        within: Within | None = None,
        grace: timedelta | None = None,
        suffix: str = "_RIGHT",
    ) -> Stream:
        """As `join`, and keeps unmatched rows of this side; the other columns are NULL."""
        return Stream(self._graph, self._join("left", other, on, suffix, within, grace))

    def outer_join(
        self,
        other: Stream,
        *,
        within: Within,
        on: On | None = None,
        grace: timedelta | None = None,
        suffix: str = "_RIGHT",
    ) -> Stream:
        """As `join`, and keeps unmatched rows of both sides."""
        return Stream(self._graph, self._join("full", other, on, suffix, within, grace))

    def join_prior(self, other: Stream, *, within: timedelta, on: On | None = None, suffix: str = "_RIGHT") -> Stream:
        """As `join`, with rows of `other` that are older by at most `within`."""
        bounds = (within, timedelta())
        return Stream(self._graph, self._join("inner", other, on, suffix, bounds, prior=True))

    def to_table(self, name: str | None = None) -> Table:
        """The latest row of each key; a row without a value removes the key. The table reads the stream's topic, which is
        created if missing.
        """
        at, label = here(), self._graph.label("TO_TABLE")
        source = self._relation(f"{name or label}_ROWS", at)
        self._graph.declared.append(Declared(name or label, "table", at, None, None, (), source))
        return Table(self._graph, Read(Label(f"{label}_READ", label.method), at, (), name or label, "table"), self._row)


class WindowedStream:
    """A stream whose rows can be joined for a limited time (`Stream.window`).

    >>> streams = StreamsBuilder("SHOP")
    >>> clicks = streams.stream("CLICKS").window(timedelta(minutes=30))
    >>> streams.stream("ORDERS").window(timedelta(minutes=1)).join_prior(clicks)
    (ORDERS, CLICKS) -> join
    """

    def __init__(self, stream: Stream, size: timedelta) -> None:
        self._stream, self._size = stream, size

    def join(self, other: WindowedStream, *, on: On | None = None, suffix: str = "_RIGHT") -> Stream:
        """Rows with equal keys. Each row matches rows that arrive within its side's window."""
        within = (other._size, self._size)
        return self._stream.join(other._stream, on=on, within=within, suffix=suffix)

    def left_join(self, other: WindowedStream, *, on: On | None = None, suffix: str = "_RIGHT") -> Stream:
        """As `join`, and keeps unmatched rows of this side."""
        within = (other._size, self._size)
        return self._stream.left_join(other._stream, on=on, within=within, suffix=suffix)

    def outer_join(self, other: WindowedStream, *, on: On | None = None, suffix: str = "_RIGHT") -> Stream:
        """As `join`, and keeps unmatched rows of both sides."""
        within = (other._size, self._size)
        return self._stream.outer_join(other._stream, on=on, within=within, suffix=suffix)

    def join_prior(self, other: WindowedStream, *, on: On | None = None, suffix: str = "_RIGHT") -> Stream:
        """As `join`, with rows of `other` that are older."""
        return self._stream.join_prior(other._stream, on=on, within=other._size, suffix=suffix)


class Table(Relation):
    """A table: each row is the latest one of its key.

    >>> streams = StreamsBuilder("SHOP")
    >>> customers, regions = streams.table("CUSTOMERS"), streams.table("REGIONS")
    >>> customers.left_join(regions, on="region").filter(col("country") == "FR").to("FRENCH")
    """

    _kind: RelationKind = "table"

    def group_by(self, *key: str | Expression, **named: Any) -> Grouped:
        """As for `Stream`. A changed row leaves its group."""
        at, label = here(), self._graph.label("GROUP_BY")
        return Grouped(self, columns(label, key, named, at))

    def join(self, other: Table, *, on: On | None = None, suffix: str = "_RIGHT") -> Table:
        """Rows with equal keys; with `on`, that column contains keys of `other` (a foreign key)."""
        return self._joined("inner", other, on, suffix)

    def left_join(self, other: Table, *, on: On | None = None, suffix: str = "_RIGHT") -> Table:
        """As `join`, and keeps unmatched rows of this table."""
        return self._joined("left", other, on, suffix)

    def outer_join(self, other: Table, *, suffix: str = "_RIGHT") -> Table:
        """As `join`, and keeps unmatched rows of both tables."""
        return self._joined("full", other, None, suffix)

    def _joined(self, kind: JoinKind, other: Table, on: On | None, suffix: str) -> Table:
        if isinstance(other, Relation) and other._kind == "stream":
            raise DefinitionError("a table cannot be joined with a stream", "join the stream with the table")
        return Table(self._graph, self._join(kind, other, on, suffix))

    def suppress(self) -> Table:
        """Only the final row of each window, when it closes (EMIT FINAL)."""
        step = self._step
        if not isinstance(step, Aggregate) or step.window is None:
            hint = "orders.group_by_key().window(TumblingWindow(...)).count().suppress()"
            raise DefinitionError(f"{step.label.method}: only rows of windows are final at some time", hint)
        label, at = self._graph.label("SUPPRESS"), here()
        return Table(self._graph, Aggregate(label, at, step.inputs, step.keys, step.values, step.window, final=True))

    def to_stream(self, name: str | None = None) -> Stream:
        """The changes of the table as a stream over its topic, which is created if missing."""
        at, label = here(), self._graph.label("TO_STREAM")
        source = self._relation(f"{name or label}_ROWS", at)
        self._graph.declared.append(Declared(name or label, "stream", at, None, None, (), source))
        return Stream(
            self._graph, Read(Label(f"{label}_READ", label.method), at, (), name or label, "stream"), self._row
        )


class Grouped:
    """Groups of rows, to be aggregated to a table.

    >>> orders = StreamsBuilder("SHOP").stream("ORDERS")
    >>> hourly = orders.group_by("customer").window(TumblingWindow(timedelta(hours=1)))
    >>> hourly.aggregate(orders=fn.COUNT(), spent=fn.SUM(col("amount"))).suppress()
    ORDERS -> suppress
    """

    def __init__(self, rows: Relation, key: tuple[Column, ...] | None, window: WindowClause | None = None) -> None:
        self._rows, self._key, self._window = rows, key, window

    def window(self, window: Window) -> Grouped:
        """Also groups by time windows. Aggregates can name the bounds: `start=col("WINDOWSTART")`."""
        if not isinstance(window, TumblingWindow | HoppingWindow | SessionWindow):
            raise DefinitionError(f"{window!r} is not a window", "TumblingWindow(timedelta(minutes=1))")
        if self._rows._kind == "table":
            raise DefinitionError(
                "rows of tables cannot be put into windows", "group the stream from which the table is made"
            )
        return Grouped(self._rows, self._key, window.clause())

    def count(self, name: str = "count") -> Table:
        """The number of rows. name: the column's name."""
        return self._table(self._graph.label("COUNT"), (Column(name, Func("COUNT", (), here())),))

    def aggregate(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        initial: Callable[[], Any] | None = None,
        value: Any = None,
        undo: Callable[..., Any] | None = None,
        merge: Callable[..., Any] | None = None,
        **named: Any,
    ) -> Table:
        """Named aggregates (`total=fn.SUM(col("price"))`), or a function of (aggregate, value) that returns the
        next aggregate, a row of type `value`. initial: returns the first aggregate. undo: removes a row, for
        tables. merge: joins two aggregates, for sessions.
        """
        at = here()
        label = self._graph.label("AGGREGATE")
        if function is None:
            return self._table(label, columns(label, (), named, at))
        row = value_row(label, value, function, many=False)
        made_first = initial if initial is not None else row.made
        if made_first is None:
            raise DefinitionError(f"{label.method} does not say what it begins with", 'initial=lambda: {"total": 0.0}')
        options = {"initial": made_first, "value": row, "undo": undo, "merge": merge}
        made = self._graph.aggregate(label, function, self._rows._row, **options)
        return self._table(label, made, row.made)

    def reduce(self, function: Callable[..., Any], *, undo: Callable[..., Any] | None = None) -> Table:
        """A function of two values that returns one, starting with the group's first value. undo: as for
        `aggregate`.
        """
        label = self._graph.label("REDUCE")
        made = self._graph.aggregate(label, function, self._rows._row, undo=undo, merge=function)
        return self._table(label, made, self._rows._row)

    @property
    def _graph(self) -> Graph:
        return self._rows._graph

    def _table(self, label: Label, values: tuple[Column, ...] | RowAggregate, row: type | None = None) -> Table:
        step = Aggregate(label, here(), (self._rows._step,), self._key, values, self._window)
        return Table(self._graph, step, row)
