"""Steps of streams as SELECTs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.analyze.streams.draft import (
    Draft,
    around,
    filtered,
    is_plain,
    read,
    struct_of,
    with_items,
)
from flowql.compiler.analyze.streams.joining import joined
from flowql.compiler.analyze.streams.names import Resolver, known_name
from flowql.compiler.catalog.catalog import Catalog, find_source
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Ast, ColumnDef, CreateSource, Func, Lit, Name, Property, TypeRef
from flowql.compiler.functions.user_rows import names_of
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.streams.callables import RowAggregate, RowFunction
from flowql.compiler.streams.expression import fold
from flowql.compiler.streams.rows import RowType
from flowql.compiler.streams.steps import (
    Aggregate,
    Call,
    Declared,
    Filter,
    Join,
    Merge,
    Read,
    Rekey,
    RelationKind,
    Select,
    Step,
)

CODE = "FQ2072"
RESULT = "PYTHON_RESULT"  # what a function of the user returned, before its fields are columns
_TRUE = Lit("bool", True)


@dataclass(frozen=True, slots=True)
class Lowering:
    """Makes queries of steps. written: steps whose rows are in a stream or table, by its name."""

    catalog: Catalog
    written: Mapping[Step, str]

    def drafts(self, step: Step) -> list[Draft]:
        """As `made`, for a step that others read."""
        relation = self.written.get(step)
        return [self._read(relation, step.at)] if relation is not None else self.made(step)

    def made(self, step: Step) -> list[Draft]:
        """The queries with the rows of a step that is to be written: one SELECT, or one for each stream that is merged."""
        match step:
            case Read():
                name = known_name(step.relation, self.catalog.sources, self.catalog.fold)
                return [self._read(name or fold(step.relation, self.catalog.fold), step.at, step.kind)]
            case Merge():
                return [d for i in step.inputs for d in self.drafts(i)]
            case Join():
                left, right = (self.drafts(i) for i in step.inputs)
                return [joined(step, left[0], right[0], self._resolver(step), self._is_table)]
        if isinstance(step, Aggregate) and isinstance(step.values, RowAggregate):
            self._check_parts(step, step.values)
        lower = _STEPS[type(step)]
        return [replace(lower(step, d, self._resolver(step)), at=step.at) for d in self.drafts(step.inputs[0])]

    def _check_parts(self, step: Aggregate, function: RowAggregate) -> None:
        """Raises CompileError for a function that lacks what its input asks for."""
        method = step.label.method
        if function.undo is None and self._is_table(step.inputs[0]):
            title, help = f"{method}: a function over a table has no undo", "undo=lambda total, value: ..."
            why = "a row of a table that changes must be taken out of its group again"
            raise mistake(CODE, title, step.at, "cannot be undone", why=why, help=help)
        if function.merge is None and step.window is not None and step.window.kind == "session":
            title, help = f"{method}: a function in sessions has no merge", "merge=lambda a, b: ..."
            why = "a row between two sessions makes one of them"
            raise mistake(CODE, title, step.at, "cannot be merged", why=why, help=help)

    def _resolver(self, step: Step) -> Resolver:
        return Resolver(self.catalog, step.label.method)

    def _read(self, relation: str, at: Span, kind: RelationKind | None = None) -> Draft:
        source = find_source(self.catalog, relation, at)
        if kind is not None and source.kind != kind:
            title = f"{relation} is read as a {kind}, and is a {source.kind}"
            raise mistake(CODE, title, at, f"a {source.kind}", help=f'streams.{source.kind}("{relation}")')
        if source.relation:
            title = f"streams in Python over {relation}, whose rows are updated and deleted by statements"
            raise unsupported(
                title, at, "a relation of standard SQL", help=f"write  CREATE MATERIALIZED VIEW ... FROM {relation}"
            )
        return read(relation, [f.name for f in source.schema.key], [f.name for f in source.schema], at)

    def _is_table(self, step: Step) -> bool:
        """Whether the rows of this input of a join are those of a table."""
        name = self.written.get(step)
        if name is None and isinstance(step, Read):
            name = known_name(step.relation, self.catalog.sources, self.catalog.fold)
        if name is not None:
            found = self.catalog.sources.get(name)
            return found is not None and found.kind == "table"
        return isinstance(step, Aggregate) or (bool(step.inputs) and all(map(self._is_table, step.inputs)))


def _filter(step: Filter, draft: Draft, resolver: Resolver) -> Draft:
    if isinstance(step.condition, RowFunction):
        draft, condition = _call(step.condition, draft, step.at)
    else:
        draft, (condition,) = resolver.terms(draft, [step.condition], grouped=True)
    if step.others:
        condition = Func("is_distinct", (condition, _TRUE), step.at)
    return filtered(draft, condition)


def _call(function: RowFunction | RowAggregate, draft: Draft, at: Span) -> tuple[Draft, Ast]:
    """A function of the user over whole rows. Raises CompileError if its class has other fields than they."""
    _check_fields(function, draft, at)
    if draft.group_by or not all(map(is_plain, draft.items.values())):
        draft = around(draft)
    with_key = isinstance(function, RowFunction) and function.arity == 2
    keys = tuple(draft.items[k] for k in draft.keys) if with_key else ()
    return draft, Func(function.name, (struct_of(draft, draft.values, at), *keys), at)


def _check_fields(function: RowFunction | RowAggregate, draft: Draft, at: Span) -> None:
    made = function.made
    if made is None:
        return
    known = {n.casefold() for n in draft.values}
    unknown = next((n for n in names_of(made) if n.casefold() not in known), None)
    if unknown is not None:
        title = f"{made.__name__} has the field {unknown}, and the stream has no column of that name"
        raise mistake(CODE, title, at, "another row", help=f"its columns are {listing(draft.values)}")


def _select(step: Select, draft: Draft, resolver: Resolver) -> Draft:
    draft, found = resolver.terms(resolver.exploded(draft), [c.expr for c in step.columns], grouped=True)
    items = dict(draft.items) if step.keep else {k: draft.items[k] for k in draft.keys}
    for column, expr in zip(step.columns, found, strict=True):
        name = _name(column.name, column.expr, draft, resolver)
        if name in draft.keys and items[name] != expr:
            help = "another name, or select_key for another key"
            raise mistake(CODE, f"{resolver.clause}: {name} is the key", step.at, "a key column", help=help)
        items[name] = expr
    return with_items(draft, items)


def _name(written: str, expr: Ast, draft: Draft, resolver: Resolver) -> str:
    """The name of a column as its source has it, if it is selected by name without an expression."""
    if isinstance(expr, Name) and expr.parts == (written,):
        return resolver.column(draft, expr)
    return resolver.name(written)


def _rekey(step: Rekey, draft: Draft, resolver: Resolver) -> Draft:
    draft = around(draft) if draft.group_by or draft.partition_by else resolver.exploded(draft)
    columns = (*step.keys, *(step.values or ()))
    draft, found = resolver.terms(draft, [c.expr for c in columns])
    names = [_name(c.name, c.expr, draft, resolver) for c in columns]
    _check_distinct(names, step, resolver)
    keys = names[: len(step.keys)]
    given = dict(zip(names, found, strict=True))
    items = given if step.values is not None else {**draft.items, **given}
    return replace(with_items(draft, items, keys), partition_by=tuple(given[k] for k in keys))


def _check_distinct(names: Sequence[str], step: Step, resolver: Resolver) -> None:
    """Raises CompileError for columns of one name."""
    twice = next((n for i, n in enumerate(names) if n in names[:i]), None)
    if twice is not None:
        title = f"{resolver.clause}: two columns of the result are called {twice}"
        raise mistake(CODE, title, step.at, "names clash", help="another name for one of them")


def _mapped(step: Call, draft: Draft, resolver: Resolver) -> Draft:
    """The result of the function in a SELECT of its own, so that it is called once, and its fields around that."""
    function = step.function
    draft, result = _call(function, draft, step.at)
    inner = around(with_items(draft, {**{k: draft.items[k] for k in draft.keys}, RESULT: result}))
    keys = {} if function.key is None else _fields([n for n, _ in function.key.fields], resolver, step.at)
    values = _fields([n for n, _ in function.value.fields], resolver, step.at) if function.value else {}
    _check_distinct([*(keys or inner.keys), *values], step, resolver)
    if not keys:
        return with_items(inner, {**{k: inner.items[k] for k in inner.keys}, **values})
    return replace(with_items(inner, {**keys, **values}, tuple(keys)), partition_by=tuple(keys.values()))


def _fields(names: list[str], resolver: Resolver, at: Span) -> dict[str, Ast]:
    return {resolver.name(n): _field(n, at) for n in names}


def _field(name: str, at: Span) -> Ast:
    return Func("field", (Name((RESULT,)), Lit("string", name)), at)


def _aggregate(step: Aggregate, draft: Draft, resolver: Resolver) -> Draft:
    written = [c.expr for c in (*(step.keys or ()), *(() if isinstance(step.values, RowAggregate) else step.values))]
    of_row = draft.joins and resolver.names_row(draft, written)
    if draft.group_by or of_row or not all(is_plain(draft.items[n]) for n in draft.values):
        draft = around(draft)
    if step.keys is None:
        if not draft.keys:
            help = 'group_by("customer"), or select_key("customer") before'
            raise mistake(CODE, "group_by_key: the stream has no key", step.at, "no key", help=help)
        keys = {k: draft.items[k] for k in draft.keys}
    else:
        keys = {_name(c.name, c.expr, draft, resolver): resolver.within(draft, c.expr) for c in step.keys}
    base = replace(draft, partition_by=(), group_by=tuple(keys.values()), window=step.window, whole=False)
    base = replace(base, emit="final" if step.final else None)
    if isinstance(step.values, RowAggregate):
        return _reduced(step, step.values, base, keys, resolver)
    values = {resolver.name(c.name): resolver.within(draft, c.expr) for c in step.values}
    _check_distinct([*keys, *values], step, resolver)
    return with_items(base, {**keys, **values}, tuple(keys))


def _reduced(step: Step, function: RowAggregate, base: Draft, keys: dict[str, Ast], resolver: Resolver) -> Draft:
    result = Func(function.name, (struct_of(base, base.values, step.at),), step.at)
    inner = around(with_items(base, {**keys, RESULT: result}, tuple(keys)))
    if function.value is None:  # rows of the input, whose columns that are grouped by are the key
        fields = {n: _field(n, step.at) for n in base.values if n not in keys}
    else:
        fields = _fields([n for n, _ in function.value.fields], resolver, step.at)
    _check_distinct([*inner.keys, *fields], step, resolver)
    return with_items(inner, {**{k: inner.items[k] for k in inner.keys}, **fields})


_STEPS: dict[type[Step], Callable[..., Draft]] = {
    Filter: _filter,
    Select: _select,
    Call: _mapped,
    Rekey: _rekey,
    Aggregate: _aggregate,
}


# --- streams and tables that builders declare, as CREATE statements ---


def source_of(declared: Declared, name: str, like: str, catalog: Catalog) -> CreateSource:
    """CREATE STREAM or TABLE over a topic. like: the stream or table that it has its topic from, or its key."""
    other = find_source(catalog, like, declared.at) if like else None
    columns = [*_key(declared, other, catalog), *_values(declared, other, catalog)]
    properties = dict(declared.properties)
    if other is not None:
        known = _partitions(other, catalog)
        sized: dict[str, str | int] = {} if known is None else {"PARTITIONS": known}
        properties = {**({} if declared.value is not None else _of_topic(other)), **sized, **properties}
    given = tuple(Property(k, v, declared.at, declared.at) for k, v in properties.items())
    return CreateSource(
        "", declared.at, name=name, kind=declared.kind, columns=tuple(columns), properties=given, name_span=declared.at
    )


def _key(declared: Declared, other: SourceDef | None, catalog: Catalog) -> list[ColumnDef]:
    if declared.key is not None:
        return _columns(declared, declared.key, catalog, key=True)
    return [] if other is None else [_column(declared, f.name, f, key=True) for f in other.schema.key]


def _values(declared: Declared, other: SourceDef | None, catalog: Catalog) -> list[ColumnDef]:
    if declared.value is not None:
        return _columns(declared, declared.value, catalog, key=False)
    return [] if other is None else [_column(declared, f.name, f, key=False) for f in other.schema.value]


def _columns(declared: Declared, row: RowType, catalog: Catalog, *, key: bool) -> list[ColumnDef]:
    return [_column(declared, fold(n, catalog.fold), Field(n, t), key=key) for n, t in row.fields]


def _column(declared: Declared, name: str, field: Field, *, key: bool) -> ColumnDef:
    ref = TypeRef(known=field.type, span=declared.at)
    if not key:
        return ColumnDef(name, ref, span=declared.at)
    return ColumnDef(name, ref, "primary_key" if declared.kind == "table" else "key", span=declared.at)


def _of_topic(other: SourceDef) -> dict[str, str | int]:
    """The properties of a second declaration over the topic of another one."""
    return {
        "KAFKA_TOPIC": other.topic,
        "KEY_FORMAT": other.key_format.name,
        "VALUE_FORMAT": other.value_format.name,
    }


def _partitions(source: SourceDef, catalog: Catalog) -> int | None:
    """Those that are declared of a stream or table, or of what its query reads; None where nothing says it."""
    if source.partitions is not None or source.query is None:
        return source.partitions
    read = [s for n, s in catalog.sources.items() if source.query in catalog.readers.get(n, ()) and n != source.name]
    return max((p for s in read if (p := _partitions(s, catalog)) is not None), default=None)
