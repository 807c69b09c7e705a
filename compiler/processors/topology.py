"""Topologies of processors (KIP-28): built by modules of a project, entered into the catalogue, found by the engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from flowql.compiler.functions.asynchronous import AsyncOptions, checked_options
from flowql.compiler.functions.registry import QueryFailure, registered
from flowql.compiler.functions.user import MARK, checked_name, found_in_plan, module_name, plain_name
from flowql.compiler.functions.user_types import INLINE, DefinitionError, Limits, part_of
from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS, OnChange, Priority
from flowql.compiler.plan.processors import ProcessorStep, ProcessorStore
from flowql.compiler.processors.processor import AsyncProcessor, BatchProcessor, Processor
from flowql.compiler.processors.stores import StateStore

Factory = Callable[[], Processor]


class Topology:
    """A graph of sources, processors and sinks that runs as one query.

    Sources and sinks name streams and tables in SQL. `functions` of flowql.yaml names the module.

    name: the query's name. priority, latency_target_ms, on_change: as in the WITH clause of a query. version: letters
    and digits. If it is given, only a new version rebuilds results; edits of modules do not. Raises DefinitionError.

    >>> class Large(Processor):
    ...     def process(self, key, value):
    ...         if value["AMOUNT"] > 100:
    ...             self.context.forward(key, value)
    >>> topology = (
    ...     Topology("LARGE")
    ...     .add_source("orders", "ORDERS")
    ...     .add_processor("large", Large, "orders")
    ...     .add_sink("results", "LARGE_ORDERS", "large")
    ... )
    >>> print(topology)
    LARGE: ORDERS -> orders -> large -> results -> LARGE_ORDERS
    """

    def __init__(
        self,
        name: str,
        *,
        priority: Priority = "normal",
        latency_target_ms: int | None = None,
        on_change: OnChange = "rebuild",
        version: str = "",
    ) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise DefinitionError(f"{name!r} is not a valid name of a topology", 'Topology("TOTALS")')
        self.name, self.version = checked_name(name, version), version
        if priority not in PRIORITY_WEIGHTS:
            raise DefinitionError(f"topology {self.name}: there is no priority {priority!r}", 'priority="high"')
        if on_change not in get_args(OnChange):
            raise DefinitionError(f"topology {self.name}: on_change={on_change!r} is not known", 'on_change="forward"')
        self.priority, self.latency_target_ms, self.on_change = priority, latency_target_ms, on_change
        self._steps: dict[str, ProcessorStep] = {}
        self._factories: dict[str, Factory] = {}
        self._stores: dict[str, StateStore] = {}
        self._users: dict[str, tuple[str, ...]] = {}  # store -> processors
        setattr(self, MARK, UserTopology(self))  # found as what decorators have marked is

    def add_source(self, name: str, *relations: str) -> Topology:
        """Reads streams and tables by SQL names, with equal numbers of partitions."""
        if not relations:
            raise DefinitionError(f"source {name} of {self.name} reads nothing", 'add_source("orders", "ORDERS")')
        self._add(ProcessorStep(name, "source", (), relations))
        return self

    def add_processor(self, name: str, factory: Factory, *parents: str) -> Topology:
        """factory: a subclass of Processor, or a function that returns an object. parents: sources and processors
        that it reads.
        """
        given: object = factory
        if not callable(given) or isinstance(given, Processor):
            hint = "give the class, not an object: each task makes an object"
            raise DefinitionError(f"processor {name} of {self.name} is an object of {type(given).__name__}", hint)
        if missing := sorted(getattr(given, "__abstractmethods__", ())):
            hint = f"def {missing[0]}(self, {'batch' if 'batch' in missing[0] else 'key, value'}): ..."
            raise DefinitionError(f"processor {name} of {self.name} has no method {missing[0]}", hint)
        if isinstance(given, type) and issubclass(given, Processor):
            _check_process(given, f"processor {name} of {self.name}")
        self._add(ProcessorStep(name, "processor", self._known(name, parents)))
        self._factories[name] = factory
        return self

    def add_sink(self, name: str, relation: str, *parents: str) -> Topology:
        """Writes its parents' records to a stream or table, by SQL name."""
        self._add(ProcessorStep(name, "sink", self._known(name, parents), (relation,)))
        return self

    def add_state_store(self, store: StateStore, *processors: str) -> Topology:
        """Gives a store to processors. Each task has its partition's part."""
        given: object = store
        if not isinstance(given, StateStore):
            title = f"{self.name} is given {type(given).__name__} as a store"
            raise DefinitionError(title, 'KeyValueStore("totals", key=str, value=int)')
        if store.name in self._stores:
            raise DefinitionError(f"{self.name} has two stores {store.name}", "give one of them another name")
        for p in processors:
            if p not in self._factories:
                raise DefinitionError(
                    f"{self.name} gives store {store.name} to {p}, which is not a processor", _one_of(self._factories)
                )
        if not processors:
            raise DefinitionError(
                f"{self.name} gives store {store.name} to no processor", 'add_state_store(store, "total")'
            )
        self._stores[store.name], self._users[store.name] = store, processors
        return self

    @property
    def steps(self) -> tuple[ProcessorStep, ...]:
        """In an order in which parents come first."""
        found = []
        for s in self._steps.values():
            stores = tuple(n for n, users in self._users.items() if s.name in users)
            found.append(ProcessorStep(s.name, s.kind, s.parents, s.relations, stores))
        return tuple(found)

    @property
    def stores(self) -> tuple[ProcessorStore, ...]:
        return tuple(s.spec() for s in self._stores.values())

    def calls(self, relation: str) -> dict[str, AsyncOptions]:
        """The asynchronous processors that get the records of a relation, and how they make their calls."""
        wanted = relation.casefold()
        sources = {s.name for s in self._steps.values() if wanted in map(str.casefold, s.relations)}
        return {
            s.name: checked_options(made.max_in_flight, made.timeout, made.retry, made.order)
            for s in self._steps.values()
            if (made := self._asynchronous(s)) is not None and not sources.isdisjoint(s.parents)
        }

    def _asynchronous(self, step: ProcessorStep) -> type[AsyncProcessor] | None:
        made = self._factories.get(step.name)
        return made if isinstance(made, type) and issubclass(made, AsyncProcessor) else None

    def store(self, name: str) -> StateStore:
        """The declaration of a store."""
        return self._stores[name]

    def make(self, name: str) -> Processor:
        """A new object of a processor. Raises QueryFailure if its factory gives something else, or raises."""
        try:
            made = self._factories[name]()
        except Exception as error:
            raise QueryFailure(f"processor {name} cannot be made: {type(error).__name__}: {error}") from error
        if not isinstance(made, Processor):
            raise QueryFailure(
                f"processor {name} is made as {type(made).__name__}, which is not derived from Processor"
            )
        return made

    def __str__(self) -> str:
        lines = []
        for s in self._steps.values():
            if s.kind == "sink":
                lines += [f"{way} -> {s.name} -> {s.relations[0]}" for way in self._ways(s)]
        return f"{self.name}: " + "; ".join(lines)

    def _ways(self, step: ProcessorStep) -> list[str]:
        found = []
        for p in (self._steps[n] for n in step.parents):
            ways = [", ".join(p.relations)] if p.kind == "source" else self._ways(p)
            found += [f"{way} -> {p.name}" for way in ways]
        return found

    def _add(self, step: ProcessorStep) -> None:
        if not isinstance(step.name, str) or not step.name:
            raise DefinitionError(
                f"{self.name}: {step.name!r} is not a valid name of a {step.kind}", 'add_source("orders", "ORDERS")'
            )
        if step.name in self._steps:
            raise DefinitionError(f"{self.name} has two nodes {step.name}", "give one of them another name")
        self._steps[step.name] = step

    def _known(self, name: str, parents: Sequence[str]) -> tuple[str, ...]:
        if not parents:
            raise DefinitionError(f"{name} of {self.name} gets no records", "name its parents behind it")
        able = [n for n, s in self._steps.items() if s.kind != "sink"]
        for p in parents:
            if p not in able:
                raise DefinitionError(f"{name} of {self.name} has the parent {p}, which is not there", _one_of(able))
        return tuple(parents)

    def check(self) -> None:
        """Raises DefinitionError for a graph that is not complete."""
        steps = self.steps
        if not any(s.kind == "sink" for s in steps):
            raise DefinitionError(f"{self.name} has no sink", 'add_sink("results", "RESULTS", "total")')
        read = {p for s in steps for p in s.parents}
        idle = [s.name for s in steps if s.kind == "source" and s.name not in read]
        if idle:
            raise DefinitionError(
                f"{self.name}: no processor or sink gets the records of {idle[0]}", f"name {idle[0]} as a parent"
            )
        sources = {s.name for s in steps if s.kind == "source"}
        for s in steps:
            made = self._factories.get(s.name)
            if isinstance(made, type) and issubclass(made, BatchProcessor) and not sources.issuperset(s.parents):
                raise DefinitionError(
                    f"{s.name} of {self.name} processes batches, and gets records of a processor",
                    "make sources its parents",
                )
            if (asynchronous := self._asynchronous(s)) is None:
                continue
            if not sources.issuperset(s.parents):
                raise DefinitionError(
                    f"{s.name} of {self.name} is asynchronous, and gets records of a processor",
                    "make sources its parents",
                )
            if asynchronous.order not in ("input", "key"):
                raise DefinitionError(
                    f"{s.name} of {self.name} has order={asynchronous.order!r}", 'order = "input" or order = "key"'
                )
            checked_options(asynchronous.max_in_flight, asynchronous.timeout, asynchronous.retry, asynchronous.order)


@dataclass(frozen=True, slots=True)
class TopologyEntry:
    """A version of a topology. name: in plans."""

    name: str
    topology: Topology


@dataclass(frozen=True, slots=True)
class UserTopology:
    """A topology as what a module of a project declares. Implements `flowql.compiler.functions.user.UserDefined`."""

    topology: Topology

    @property
    def name(self) -> str:
        return self.topology.name

    @property
    def version(self) -> str:
        return self.topology.version

    @property
    def limits(self) -> Limits:
        return INLINE  # it runs in the engine's threads, beside its state

    def entry(self, name: str) -> TopologyEntry:
        self.topology.check()
        return TopologyEntry(name, self.topology)


def topology_in_plan(name: str) -> Topology:
    """The topology of that name. Raises QueryFailure for a version that is nowhere found."""
    found = found_in_plan(name, _lookup, lambda _: None)
    if found is None:
        raise QueryFailure(
            f"the topology {plain_name(name)} was deployed in a version that the module {module_name(name)} does not have here: it was "
            "edited, removed, or cannot be imported (see flowql validate); flowql deploy runs the present version"
        )
    return found.topology


def _lookup(name: str) -> TopologyEntry | None:
    found = registered(name)
    return found if isinstance(found, TopologyEntry) else None


def _one_of(names: Any) -> str:
    return f"one of {', '.join(names)}" if names else "add it before"


def _check_process(cls: type[Processor], said: str) -> None:
    """Raises DefinitionError for methods of which a call does nothing, or fails for each record."""
    parts, whole = ("process", "key, value"), ("process_batch", "batch")
    for method, parameters in (whole,) if issubclass(cls, BatchProcessor) else (parts,):
        function = inspect.getattr_static(cls, method)
        if not inspect.isfunction(function):
            continue
        with part_of(function):
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                raise DefinitionError(
                    f"{method} of {said} is asynchronous", "use AsyncProcessor, or define the function without async"
                )
            if inspect.isgeneratorfunction(function):
                raise DefinitionError(
                    f"{method} of {said} yields, and it forwards records", "self.context.forward(key, value)"
                )
            if issubclass(cls, AsyncProcessor):
                continue
            try:
                inspect.signature(function).bind("self", *parameters.split(", "))
            except TypeError as error:
                title = f"{method} of {said} cannot be called: {error}"
                raise DefinitionError(title, f"def {method}(self, {parameters})") from None
