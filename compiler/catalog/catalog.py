"""The catalogue and the operations that give a new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from flowql.compiler.catalog.names import correction, did_you_mean, listing
from flowql.compiler.catalog.topics import PLAIN, TopicNames
from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.functions.dialects import aggregate_name
from flowql.compiler.functions.registry import AggregateFunction, Function, lookup_aggregate
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.user_rows import folded
from flowql.compiler.plan.logical import SchemaRef
from flowql.compiler.plan.topology import NO_ROWS, SourceDef
from flowql.compiler.plan.types import SqlType
from flowql.compiler.schemas.ref import NO_SCHEMAS, SchemaLookup


@dataclass(frozen=True, slots=True)
class Catalog:
    """Streams, tables and types that exist, in order of creation. The mappings are never changed in place.

    readers: source name -> ids of the queries that read it. writers: source name -> ids of those that write it.
    subjects: schemas that sources of this catalogue write with, by subject; `registry` has those of others.
    functions: those of the project, by the name that SQL calls them. naming: how topics are named.
    standard: statements mean what SQL means (`dialect: standard`), not what ksqlDB means.
    written: the types as CREATE TYPE has them in standard SQL, with limits of values: trees of the dialect, which this layer does not know.
    now_ms: gives the present moment of an interactive query; None in views, where it passes.
    """

    sources: Mapping[str, SourceDef] = field(default_factory=dict)
    types: Mapping[str, SqlType] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict)
    readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    writers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    subjects: Mapping[str, SchemaRef] = field(default_factory=dict)
    registry: SchemaLookup = NO_SCHEMAS
    functions: Mapping[str, Function | AggregateFunction] = field(default_factory=dict)
    standard: bool = False
    now_ms: Callable[[], int] | None = None
    naming: TopicNames = PLAIN

    @property
    def fold(self) -> Literal["upper", "lower"]:
        """How unquoted names fold."""
        return "lower" if self.standard else "upper"

    def function(self, name: str) -> Function | None:
        """The project's scalar or table function of that name."""
        found = self.functions.get(name.upper())
        if not isinstance(found, Function):
            return None
        return replace(found, resolve=partial(self._folded, found.resolve)) if found.folds else found

    def _folded(self, resolve: Callable[[tuple[SqlType, ...]], Resolution], types: tuple[SqlType, ...]) -> Resolution:
        made = resolve(types)
        return replace(made, result=folded(made.result, str.lower if self.standard else str.upper))

    def own_aggregate(self, name: str) -> AggregateFunction | None:
        """The project's aggregate of that name."""
        found = self.functions.get(name.upper())
        return found if isinstance(found, AggregateFunction) else None

    def aggregate(self, name: str) -> AggregateFunction | None:
        """The aggregate of that name: the project's, or the one with the dialect's meaning."""
        return self.own_aggregate(name) or lookup_aggregate(aggregate_name(name, standard=self.standard))

    def topics(self) -> tuple[str, ...]:
        """Topics that sources name, each once, in order of creation."""
        return tuple(dict.fromkeys(s.topic for s in self.sources.values()))


EMPTY = Catalog()


def no_rows(catalog: Catalog) -> SourceDef:
    """The table without rows that views without a table read."""
    return replace(NO_ROWS, topic=catalog.naming.made(NO_ROWS.topic))


def find_source(catalog: Catalog, name: str, span: Span = NOWHERE) -> SourceDef:
    """The source of that name; a CompileError with a suggestion when there is none."""
    source = catalog.sources.get(name)
    if source is None:
        title, hint = f"{name} is not a stream or table", did_you_mean(name, catalog.sources)
        edit = correction(span, name, catalog.sources, first=True)
        raise _error("FQ2001", title, span, "unknown source", hint, edit)
    return source


def add_source(catalog: Catalog, source: SourceDef, *, or_replace: bool = False, span: Span = NOWHERE) -> Catalog:
    """A catalogue with `source`, in the place of the one it replaces if there is one."""
    if source.topic == no_rows(catalog).topic:
        raise _error(
            "FQ2008", f"the topic {source.topic} is one of the system", span, "reserved", "choose another topic"
        )
    old = catalog.sources.get(source.name)
    if or_replace and (source.read_only or (old is not None and old.read_only)):
        kind = old.kind if old is not None else source.kind
        title = f"cannot add {kind} '{source.name}': CREATE OR REPLACE is not supported on source {kind}s"
        raise _error("FQ2052", title, span, "read-only source", "drop it first, or create it without SOURCE")
    if old is not None and not or_replace:
        title = f"cannot add {source.kind} '{source.name}': a {old.kind} of that name exists"
        raise _error("FQ2050", title, span, "name is taken", "choose another name, or write CREATE OR REPLACE")
    if old is not None:
        _check_replaceable(old, source, span)
    schemas = {f.schema.subject: f.schema for f in (source.key_format, source.value_format) if f.schema is not None}
    schemas.pop("", None)  # of a format that is in no registry
    return replace(catalog, sources={**catalog.sources, source.name: source}, subjects={**catalog.subjects, **schemas})


def find_subject(catalog: Catalog, subject: str) -> SchemaRef | None:
    """The newest schema of a subject."""
    return catalog.subjects.get(subject) or catalog.registry.latest(subject)


def schema_by_id(catalog: Catalog, schema_id: int) -> SchemaRef | None:
    """The schema of an id."""
    found = next((s for s in catalog.subjects.values() if s.id == schema_id), None)
    return found or catalog.registry.by_id(schema_id)


def _check_replaceable(old: SourceDef, new: SourceDef, span: Span) -> None:
    """A source that is replaced keeps its kind and key, and its columns except for added ones, as its readers rely on them."""
    if old.kind != new.kind:
        title = f"cannot replace {old.kind} '{old.name}' by a {new.kind}"
        raise _error("FQ2052", title, span, "another kind", f"DROP {old.kind.upper()} {old.name} first")
    if [(f.name, f.type) for f in old.schema.key] != [(f.name, f.type) for f in new.schema.key]:
        raise _error("FQ2052", f"cannot replace {old.kind} '{old.name}': its key columns differ", span, "another key")
    kept = {f.name: f.type for f in new.schema}
    for f in old.schema.value:
        if kept.get(f.name) != f.type:
            was = "was dropped" if f.name not in kept else f"changed from {f.type} to {kept[f.name]}"
            title = f"cannot replace {old.kind} '{old.name}': column {f.name} {was}"
            raise _error("FQ2052", title, span, "only adding columns is allowed", "keep the columns that exist")


def drop_source(catalog: Catalog, name: str, kind: str, *, if_exists: bool = False, span: Span = NOWHERE) -> Catalog:
    """A catalogue without the source. It must be of `kind` and nothing may read it."""
    source = catalog.sources.get(name)
    if source is None:
        if if_exists:
            return catalog
        title = f"{kind.capitalize()} {name} does not exist"
        hint, edit = did_you_mean(name, catalog.sources), correction(span, name, catalog.sources)
        raise _error("FQ2001", title, span, "unknown source", hint, edit)
    if source.kind != kind:
        title = f"cannot drop {kind} {name}: it is a {source.kind}"
        raise _error("FQ2053", title, span, f"a {source.kind}", f"write DROP {source.kind.upper()} {name}")
    readers = catalog.readers.get(name, ())
    if readers:
        title = f"cannot drop {name}: {listing(readers)} read{'s' if len(readers) == 1 else ''} it"
        raise _error("FQ2051", title, span, "in use", f"end {listing(readers)} first")
    own = set(catalog.writers.get(name, ()))
    others = {k: v for k, v in catalog.sources.items() if k != name}
    left = replace(
        catalog,
        sources=others,
        readers={k: tuple(q for q in v if q not in own) for k, v in catalog.readers.items() if k != name},
        writers={k: v for k, v in catalog.writers.items() if k != name},
    )
    return left


def record_query(catalog: Catalog, query: str, reads: tuple[str, ...], writes: str) -> Catalog:
    """A catalogue that knows `query` reads and writes these sources; an older version of the query is forgotten."""
    without = forget_query(catalog, query)
    readers = dict(without.readers)
    for name in dict.fromkeys(reads):
        readers[name] = (*readers.get(name, ()), query)
    writers = {**without.writers, writes: (*without.writers.get(writes, ()), query)}
    return replace(without, readers=readers, writers=writers)


def forget_query(catalog: Catalog, query: str) -> Catalog:
    return replace(
        catalog,
        readers={k: tuple(q for q in v if q != query) for k, v in catalog.readers.items()},
        writers={k: tuple(q for q in v if q != query) for k, v in catalog.writers.items()},
    )


def add_type(
    catalog: Catalog,
    name: str,
    type_: SqlType,
    written: object = None,
    *,
    if_not_exists: bool = False,
    span: Span = NOWHERE,
) -> Catalog:
    """written: see `Catalog`."""
    if name in catalog.types:
        if if_not_exists:
            return catalog
        raise _error("FQ2050", f"type {name} exists already as {catalog.types[name]}", span, "name is taken")
    return replace(catalog, types={**catalog.types, name: type_}, written={**catalog.written, name: written})


def drop_type(catalog: Catalog, name: str, *, if_exists: bool = False, span: Span = NOWHERE) -> Catalog:
    if name not in catalog.types:
        if if_exists:
            return catalog
        raise _error("FQ2001", f"type {name} does not exist", span, "unknown type", did_you_mean(name, catalog.types))
    return replace(catalog, types={k: v for k, v in catalog.types.items() if k != name})


def _error(code: str, title: str, span: Span, label: str, help_: str = "", edit: Edit | None = None) -> CompileError:
    return CompileError(Diagnostic(code, title, span, label, help=help_, edit=edit))
