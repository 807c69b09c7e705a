"""Point look-ups: `SELECT columns FROM relation WHERE key = constant`, answered from state or kept rows without a query engine.

Queries that differ in constants alone have one *shape*: the text with a mark for each string and whole number. A shape is bound once, with sample
constants. It is a point look-up if its plan consists of column references, and of conditions that compare the whole key with all of the samples.
Later queries of that shape are neither parsed nor bound.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

import duckdb
import orjson
import pyarrow as pa

from flowql.compiler.dialect.constants import constants_apart
from flowql.compiler.plan.codec import to_data
from flowql.compiler.plan.expr import Call, Column, Expr, conjuncts
from flowql.compiler.plan.expr import Literal as Constant
from flowql.compiler.plan.logical import Filter, Node, Project, Scan
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Plan
from flowql.compiler.plan.types import BIGINT, INT, STRING, UUID
from flowql.compiler.plan.watermarks import AppendOnly
from flowql.query.answer import named_schema
from flowql.query.errors import TYPES
from flowql.query.lookup import Points, access
from flowql.query.relations import (
    Relation,
    StoreRelation,
    TopicRelation,
    ambiguous,
    answered_schema,
    zoned_schema,
)
from flowql.query.statement import Condition, Literal
from flowql.query.view_rows import KeyedRows, keyed_rows
from flowql.query.views import Shown, StoreView, ViewMaker
from flowql.runtime.batch import to_arrow

if TYPE_CHECKING:
    from flowql.compiler.analyze.relations.asked import AskedQuery

SHAPES_MAX = 512
CHARS_MAX, CONSTANTS_MAX = 4_096, 256  # of a text
_WORD_MAX = 40  # characters before a bracket that are looked at
WAY = "a point look-up by key, without a query engine"
_BEGIN, _WHERE = re.compile(r"\s*SELECT\s", re.I), re.compile(r"\sWHERE\s", re.I)
_NO_CALL = re.compile(
    r"""(?:.*[^\w"`])?(?:in|where|and|cast)?\s*""", re.I | re.S
)  # before a bracket that is not one of a function's arguments
# Queries of one relation in a project of ksqlDB's dialect, whose names need no quotes.
_NAME = r"""(?:\w+|"\w+")"""
_KSQL = re.compile(
    rf"\s*SELECT\s+(?P<columns>\*|{_NAME}(?:\s*,\s*{_NAME})*)\s+FROM\s+(?P<name>{_NAME})\s+WHERE\s(?P<where>.*)",
    re.I | re.S,
)
_KSQL_CONDITION = re.compile(
    rf"\s*(?P<column>{_NAME})\s*(?:=\s*(?P<one>\0[ils])|IN\s*\((?P<list>[\0ils,\s]*)\))\s*", re.I
)
_AND = re.compile(r"\sAND\s", re.I)


@dataclass(frozen=True, slots=True)
class Shape:
    """text: a query with a mark for each constant. constants: without quotes, as they are written."""

    text: str
    constants: tuple[str, ...]

    @classmethod
    def of(cls, sql: str) -> Shape | None:
        """None for a text that is surely no point look-up."""
        if len(sql) > CHARS_MAX or not (_BEGIN.match(sql) and _WHERE.search(sql)):
            return None
        found = constants_apart(sql)
        if found is None or not 0 < len(found[1]) <= CONSTANTS_MAX or "\0d" in found[0]:
            return None
        return cls(found[0], tuple(c.written for c in found[1]))

    def samples(self) -> tuple[str, ...]:
        """A constant for each mark; all are different. Strings are UUIDs, as keys may be."""
        kinds = re.findall("\0(.)", self.text)
        return tuple(_SAMPLES[kind](n) for n, kind in enumerate(kinds))

    def sampled(self) -> str:
        """The text with the samples."""
        samples = iter(self.samples())
        return re.sub("\0(.)", lambda m: f"'{next(samples)}'" if m[1] == "s" else next(samples), self.text)


_SAMPLES = {
    "i": lambda n: str(1_000_003 + n),
    "l": lambda n: str(3_000_000_019 + n),
    "s": lambda n: f"f10c1500-0000-4000-8000-{n:012d}",
}


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a condition takes a value from: the number of a constant, from 0."""

    number: int
    is_negative: bool = False


@dataclass(frozen=True, slots=True)
class PointLookup:
    """relation: its name in a commit. conditions: columns (folded) with the kind of their literals, and the values that they may have. fields: columns of the
    relation that the answer has. schema: of the answer, without the number of a commit. limit: the constant of LIMIT. key: of the relation, or of the
    store `view` in which the query of a view keeps its rows. view: None for rows that are in a topic alone.
    """

    relation: str
    conditions: tuple[tuple[str, str, tuple[Slot, ...]], ...]
    fields: tuple[str, ...]
    schema: pa.Schema
    limit: Slot | None = None
    key: tuple[Field | None, ...] = ()
    view: ViewMaker | None = None

    def points(self, constants: Sequence[str]) -> Points | None:
        """The keys of the rows; None for constants that are no keys, and where LIMIT may leave out rows."""
        found = access(self.key, self._conditions(constants))
        is_cut = (
            self.limit is not None and isinstance(found, Points) and int(constants[self.limit.number]) < len(found.keys)
        )
        return found if isinstance(found, Points) and not is_cut else None

    def _conditions(self, constants: Sequence[str]) -> tuple[Condition, ...]:
        return tuple(
            Condition(
                column,
                "=",
                tuple(Literal(kind, "-" * s.is_negative + constants[s.number]) for s in slots),
            )
            for column, kind, slots in self.conditions
        )

    def of_rows(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """The columns of the answer that rows of the relation give."""
        return [rows.column(f) for f in self.fields]

    def of_store(self, view: StoreView, shown: Shown) -> list[pa.Array]:
        """The columns of the answer that rows of a store give."""
        fields = map(view.schema.get, self.fields)
        return [to_arrow(shown.columns[f.name](), f.type) for f in fields if f is not None]


@dataclass(frozen=True, slots=True)
class Known:
    """table: the relation's name as it is written. plan: the one for which it was found what the shape looks up; None: any."""

    table: str
    plan: Plan | None
    lookup: PointLookup | None


class PointLookups:
    """The shapes that were asked last, and what they look up. Any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()
        self._lock = Lock()  # guards what is known
        self._plan: Plan | None = None  # of the last query

    def get(self, language: str, shape: Shape) -> Known | None:
        """The known look-up of a shape, which may be of an earlier plan."""
        key = language, shape.text
        with self._lock:
            found = self._known.get(key)
            if found is None or (found.lookup is None and found.plan not in (None, self._plan)):
                return None
            self._known.move_to_end(key)
            return found

    def keep(self, language: str, shape: Shape, known: Known) -> None:
        with self._lock:
            self._known[language, shape.text] = known
            while len(self._known) > SHAPES_MAX:
                self._known.popitem(last=False)

    def saw(self, plan: Plan) -> None:
        """A query was answered with this plan. Shapes that were no look-ups with another one may be now."""
        self._plan = plan


def table_of(language: str, shape: Shape) -> str | None:
    """The one relation that a query of this shape reads, as it is written; None if it can be no look-up."""
    if not all(_NO_CALL.fullmatch(before[-_WORD_MAX:]) for before in shape.text.split("(")[:-1]):
        return None
    if language == "ksql":
        found = _KSQL.fullmatch(shape.text)
        if found is None or not all(map(_KSQL_CONDITION.fullmatch, _AND.split(_condition(found)))):
            return None
        return found["name"].strip('"')
    from flowql.compiler.analyze.relations.asked import names_read  # the compiler
    from flowql.compiler.diagnostics.diagnostic import CompileError
    from flowql.compiler.diagnostics.source import SourceText
    from flowql.compiler.driver import asked_query

    try:
        tree = asked_query(SourceText("", shape.sampled()))
    except CompileError:
        return None
    names = names_read(tree) if tree is not None else ()
    return names[0] if len(names) == 1 else None


def _condition(found: re.Match[str]) -> str:
    return found["where"].rstrip().removesuffix(";")


def lookup_of(
    language: str,
    shape: Shape,
    table: str,
    relation: Relation,
    plan: Plan,
    connection: duckdb.DuckDBPyConnection | None,
) -> PointLookup | None:
    """The look-up of queries of this shape; None if they do something else. table: as it is written. connection: needed for ksqlDB's dialect alone."""
    if not isinstance(relation, StoreRelation | TopicRelation) or ambiguous(relation.schema):
        return None
    if isinstance(relation, StoreRelation):
        parts = {f.name.casefold(): f for f in relation.view.key if f is not None}
        keyed = KeyedRows(relation.view.key, parts, relation.make)
    elif relation.source.kind == "table" and relation.columns is None:
        keyed = keyed_rows(plan, relation.source)
    else:
        return None
    try:
        if language == "ksql":
            assert connection is not None
            found = _in_ksql(shape, relation, connection)
        else:
            found = _in_standard(shape, table, relation)
    except (duckdb.Error, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
    return _by_key(found, keyed) if found is not None else None


def _by_key(lookup: PointLookup, keyed: KeyedRows) -> PointLookup | None:
    """With conditions on the parts of the key; None if they leave other rows than those of keys."""
    conditions = []
    for column, kind, slots in lookup.conditions:
        part = keyed.parts.get(column)
        if part is None:
            return None
        conditions.append((part.name.casefold(), kind, slots))
    if not keyed.key or {column for column, _, _ in conditions} != {f and f.name.casefold() for f in keyed.key}:
        return None
    return replace(lookup, conditions=tuple(conditions), key=keyed.key, view=keyed.view)


def _in_standard(shape: Shape, table: str, relation: StoreRelation | TopicRelation) -> PointLookup | None:
    from flowql.compiler.diagnostics.diagnostic import CompileError
    from flowql.compiler.diagnostics.source import SourceText
    from flowql.compiler.driver import asked_query, compile_asked
    from flowql.query.binding import readable_of

    tree = asked_query(SourceText("", shape.sampled()))
    assert tree is not None
    try:
        asked = compile_asked(tree, {table: readable_of(relation)}, now_ms=lambda: 0, functions={})
    except CompileError:
        return None
    return of_plan(asked, relation, shape.samples())


def of_plan(asked: AskedQuery, relation: Relation, samples: Sequence[str]) -> PointLookup | None:
    """samples: the constants, each of which has to be used once."""
    found = _below(asked.node)
    if found is None or asked.order or asked.offset:
        return None
    names, equal = found
    own = {f.name.casefold(): f for f in relation.schema}
    fields = [own.get((names.get(c.column) or "").casefold()) for c in asked.columns]
    slots = [(column, [_slot(v, samples) for v in values]) for column, values in equal]
    limit = None if asked.limit is None else _slot(asked.limit, samples)
    used = [s for _, of in slots for s in of] + ([limit] if asked.limit is not None else [])
    if not all(fields) or None in used or sorted(s.number for s in used if s) != list(range(len(samples))):
        return None
    conditions = []
    for column, of in slots:
        field = own.get(column.casefold())
        if field is None or field.type not in (INT, BIGINT, STRING, UUID):
            return None
        kind = "INTEGER" if field.type in (INT, BIGINT) else "STRING"
        conditions.append((column.casefold(), kind, tuple(s for s in of if s is not None)))
    types = [c.type for c in asked.columns]
    given = answered_schema(Schema(tuple(Field(f"c{n}", t) for n, t in enumerate(types))))
    metadata = {TYPES: orjson.dumps(to_data(types))}
    schema = named_schema([c.name for c in asked.columns], given.types, metadata)
    return PointLookup(relation.name, tuple(conditions), tuple(f.name for f in fields if f), schema, limit)


def _slot(value: object, samples: Sequence[str]) -> Slot | None:
    text = str(value)
    if text in samples:
        return Slot(samples.index(text))
    return Slot(samples.index(text[1:]), is_negative=True) if text[:1] == "-" and text[1:] in samples else None


def _below(node: Node) -> tuple[Mapping[str, str | None], list[tuple[str, list[object]]]] | None:
    """For each column of a node, the column of the relation that it is; and the columns that have to equal one of some values. None for any other plan."""
    spec = node.spec
    if isinstance(spec, Scan):
        return {f.name: f.name for f in node.schema}, []
    below = _below(node.inputs[0]) if isinstance(spec, AppendOnly | Filter | Project) else None
    if below is None or isinstance(spec, AppendOnly):
        return below
    names, equal = below
    if isinstance(spec, Project):
        return {c.name: names.get(c.expr.name) if isinstance(c.expr, Column) else None for c in spec.columns}, equal
    assert isinstance(spec, Filter)
    for part in conjuncts(spec.predicate):
        found = _equality(part, names)
        if found is None:
            return None
        equal = [*equal, found]
    return names, equal


def _equality(part: Expr, names: Mapping[str, str | None]) -> tuple[str, list[object]] | None:
    """A column of the relation and the values that it may have."""
    from flowql.query.binding import plain

    if not (isinstance(part, Call) and part.name in ("sql_eq", "sql_in") and len(part.args) >= 2):
        return None
    first, *rest = map(plain, part.args)
    if isinstance(first, Constant) and len(rest) == 1:
        first, rest = rest[0], [first]
    if not isinstance(first, Column) or (name := names.get(first.name)) is None:
        return None
    fits = (BIGINT, INT) if first.type in (BIGINT, INT) else (first.type,)
    values: list[object] = [v.value for v in rest if isinstance(v, Constant) and v.value is not None and v.type in fits]
    return (name, values) if len(values) == len(rest) else None


def _in_ksql(
    shape: Shape, relation: StoreRelation | TopicRelation, connection: duckdb.DuckDBPyConnection
) -> PointLookup | None:
    """DuckDB tells the columns of the answer, over no rows."""
    found = _KSQL.fullmatch(shape.text)
    assert found is not None, "a relation was found"
    own = {f.name.casefold(): f for f in relation.schema}
    wanted = [f.casefold() for f in own] if found["columns"] == "*" else re.findall(r"\w+", found["columns"].casefold())
    conditions, number = list[tuple[str, str, tuple[Slot, ...]]](), 0
    for text in _AND.split(_condition(found)):
        part = _KSQL_CONDITION.fullmatch(text)
        assert part is not None, "a relation was found"
        field = own.get(part["column"].strip('"').casefold())
        if field is None or field.type not in (INT, BIGINT, STRING):
            return None
        kinds = re.findall("\0(.)", part["one"] or part["list"])
        if not kinds or any((k == "s") != (field.type == STRING) for k in kinds):
            return None
        slots = tuple(Slot(n) for n in range(number, number + len(kinds)))
        number += len(kinds)
        conditions.append((field.name.casefold(), "STRING" if field.type == STRING else "INTEGER", slots))
    if not all(name in own for name in wanted):
        return None
    relation_schema = zoned_schema(relation.schema)
    name = found["name"].strip('"')
    connection.register(name, pa.Table.from_batches([], relation_schema))
    try:
        asked = connection.sql(shape.sampled())
        types = asked.to_arrow_reader(1).schema.types
        schema = named_schema(asked.columns, types, {})
    finally:
        connection.unregister(name)
    fields = tuple(own[name].name for name in wanted)
    if len(fields) != len(schema) or any(
        relation_schema.field(f).type != t for f, t in zip(fields, types, strict=True)
    ):
        return None
    return PointLookup(relation.name, tuple(conditions), fields, schema)
