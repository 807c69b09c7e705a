"""The door to streams in Python: what a module of a project builds them with, and how a project finds that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flowql.compiler.functions.user import MARK, UserDefined, checked_name
from flowql.compiler.functions.user_rows import is_row
from flowql.compiler.functions.user_types import INLINE, DefinitionError, Limits
from flowql.compiler.plan.priorities import OnChange, Priority
from flowql.compiler.streams.graph import Graph, checked_options, with_clause
from flowql.compiler.streams.rows import here, row_type
from flowql.compiler.streams.steps import Declared, Options, Read, RelationKind
from flowql.compiler.streams.stream import Stream, Table


class StreamsBuilder:
    """Defines streams and tables in Python, in a module that `functions` of flowql.yaml names.

    Results of `to` and `through` are queries. They and the project's SQL can read each other's results.

    name: prefix of the names of internal streams. priority, latency_target_ms, on_change: as in the WITH clause of
    a query. version: letters and digits. If it is given, only a new version rebuilds queries with Python functions;
    edits of modules do not. Raises DefinitionError.

    >>> streams = StreamsBuilder("LARGE")
    >>> orders = streams.stream("ORDERS")
    >>> orders.filter(col("amount") > 100).map_values("customer", double=col("amount") * 2).to("LARGE_ORDERS")
    >>> streams
    LARGE: LARGE_ORDERS
    """

    def __init__(
        self,
        name: str,
        *,
        priority: Priority | None = None,
        latency_target_ms: int | None = None,
        on_change: OnChange | None = None,
        version: str = "",
    ) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise DefinitionError(f"{name!r} is not a valid name of a builder of streams", 'StreamsBuilder("ORDERS")')
        sql_name = checked_name(name, version)
        options = checked_options(sql_name, priority, latency_target_ms, on_change, Options())
        self._graph = Graph(sql_name, options, version)
        setattr(self, MARK, UserStreams(self._graph))  # found as what decorators have marked is

    def stream(
        self,
        name: str,
        *,
        key: Any = None,
        value: Any = None,
        topic: str | None = None,
        partitions: int | None = None,
        format: str = "JSON",
        key_format: str | None = None,
        timestamp: str | None = None,
    ) -> Stream:
        """A stream by its SQL name. `topic` declares it, as CREATE STREAM does.

        key: types by column name. value: a dataclass or `msgspec.Struct`, which functions get, or types by column
        name. partitions, format, key_format, timestamp (event time column): as in the WITH clause.
        """
        given = {"partitions": partitions, "format": format, "key_format": key_format, "timestamp": timestamp}
        return Stream(*self._read(name, "stream", key, value, topic, given))

    def table(
        self,
        name: str,
        *,
        key: Any = None,
        value: Any = None,
        topic: str | None = None,
        partitions: int | None = None,
        format: str = "JSON",
        key_format: str | None = None,
        timestamp: str | None = None,
    ) -> Table:
        """A table by its name in SQL; as for `stream`."""
        given = {"partitions": partitions, "format": format, "key_format": key_format, "timestamp": timestamp}
        return Table(*self._read(name, "table", key, value, topic, given))

    def _read(
        self, name: str, kind: RelationKind, key: Any, value: Any, topic: str | None, given: Mapping[str, Any]
    ) -> tuple[Graph, Read, type | None]:
        properties = with_clause(topic=topic, **given)
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"{name!r} is not a valid name of a {kind}", f'streams.{kind}("ORDERS")')
        at = here()
        made = value if is_row(value) else None
        if topic:
            self._declare(name, kind, key, value, properties)
        elif key is not None or (value is not None and made is None):
            hint = f'streams.{kind}("{name}", topic="orders", key={{"id": int}}, value=Order)'
            raise DefinitionError(f"{kind} {name} has columns and no topic", hint)
        return self._graph, Read(self._graph.label("READ"), at, (), name, kind), made

    def _declare(
        self, name: str, kind: RelationKind, key: Any, value: Any, properties: tuple[tuple[str, str | int], ...]
    ) -> None:
        if value is None or (key is None and kind == "table"):
            missing = "columns" if value is None else "key"
            raise DefinitionError(f"{kind} {name} is declared without its {missing}", 'key={"id": int}, value=Order')
        keys = None if key is None else row_type(key, f"key of {name}")
        row = row_type(value, f"value of {name}")
        self._graph.declared.append(Declared(name, kind, here(), keys, row, properties))

    def __repr__(self) -> str:
        return f"{self._graph.name}: {', '.join(o.name for o in self._graph.outputs) or 'no outputs'}"


@dataclass(frozen=True, slots=True)
class StreamsEntry:
    """The steps that one version of a builder has collected. name: its name in plans."""

    name: str
    graph: Graph


@dataclass(frozen=True, slots=True)
class UserStreams:
    """A builder as what a module of a project declares. Implements `flowql.compiler.functions.user.UserDefined`."""

    graph: Graph

    @property
    def name(self) -> str:
        return self.graph.name

    @property
    def version(self) -> str:
        return self.graph.version

    @property
    def limits(self) -> Limits:
        return INLINE

    @property
    def parts(self) -> Iterator[UserDefined]:
        """The entries that plans name: functions, and topologies of processors."""
        yield from self.graph.functions
        yield from (getattr(t, MARK) for t in self.graph.topologies)

    def entry(self, name: str) -> StreamsEntry:
        if not self.graph.outputs and not self.graph.topologies:
            raise DefinitionError(f"{self.name} writes nothing", 'orders.filter(...).to("LARGE_ORDERS")')
        return StreamsEntry(name, self.graph)
