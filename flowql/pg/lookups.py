"""Prepared look-ups: `SELECT columns FROM table WHERE key = $1`, answered from the rows that are kept, without a query engine.

A statement is taken for one only if its bound plan consists of column references, and of equalities of columns and all of its parameters. Its answer
is then the rows with these values, as the plan says. All other statements go the usual way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa

from flowql.compiler.analyze.relations.asked import AskedQuery, names_read
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.plan.expr import Call, Column, Literal, conjuncts
from flowql.compiler.plan.logical import Filter, Node, Project, Scan
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Plan
from flowql.compiler.plan.types import BIGINT, INT, STRING, SqlType
from flowql.compiler.plan.watermarks import AppendOnly
from flowql.pg.statements import Statement, filled
from flowql.pg.types import INT2, INT4, INT8, PgColumn, PgType, pg_type
from flowql.query.asked import readable_of
from flowql.query.relations import TopicRelation, answered_schema, as_shown

KEPT_MAX = 512  # statements that are known
_FIRST_SAMPLE = 1_000_003  # of numbers in place of parameters
_RANGES = {INT: 1 << 31, BIGINT: 1 << 63}
Names = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Lookup:
    """relation: its name. conditions: columns of which each equals a parameter, with the number of that (from 0) and their types. columns, fields: of
    the answer, as clients see them, and as the relation has them.
    """

    relation: str
    conditions: tuple[tuple[str, int, SqlType], ...]
    columns: list[PgColumn]
    fields: tuple[str, ...]
    schema: pa.Schema

    def wanted(self, values: Sequence[str | None]) -> dict[str, int | str] | None:
        """The values of columns that are looked up; None if no row has them."""
        found = dict[str, int | str]()
        for column, number, t in self.conditions:
            value = values[number]
            if value is None:
                return None
            made = value if t == STRING else int(value)
            if isinstance(made, int) and not -_RANGES[t] <= made < _RANGES[t]:
                return None
            found[column] = made
        return found

    def shown(self, rows: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The columns of the answer."""
        given = (pa.RecordBatch.from_arrays([b.column(f) for f in self.fields], list(self.schema.names)) for b in rows)
        return [as_shown(b, self.schema) for b in given]


class Lookups:
    """Statements that were prepared, and what they look up. Any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, tuple[PgType, ...]], tuple[Plan, Lookup | None]] = OrderedDict()
        self._lock = Lock()  # guards what is known

    def of(
        self, statement: Statement, types: Sequence[PgType], plan: Plan, relations: Mapping[str, TopicRelation]
    ) -> Lookup | None:
        """None for a statement that is none. relations: tables by name, as they are read now."""
        key = statement.sql, tuple(types)
        with self._lock:
            known = self._known.get(key)
            if known is not None and known[0] is plan:
                self._known.move_to_end(key)
                return known[1]
        found = _analysed(statement, types, relations)
        with self._lock:
            self._known[key] = plan, found
            while len(self._known) > KEPT_MAX:
                self._known.popitem(last=False)
        return found


def _analysed(statement: Statement, types: Sequence[PgType], relations: Mapping[str, TopicRelation]) -> Lookup | None:
    from flowql.compiler.driver import asked_query, compile_asked

    if statement.verb != "SELECT" or not types or not all(t in (INT2, INT4, INT8) or t.category == "S" for t in types):
        return None
    samples = [f"fq sample {n}" if t.category == "S" else _FIRST_SAMPLE + n for n, t in enumerate(types)]
    if any(str(s) in statement.sql for s in samples):
        return None  # a constant would be taken for a parameter
    sql = filled(statement, [f"'{s}'" if isinstance(s, str) else str(s) for s in samples]).sql
    try:
        tree = asked_query(SourceText("", sql))
        names = names_read(tree) if tree is not None else ()
        if tree is None or len(names) != 1 or names[0] not in relations:
            return None
        relation = relations[names[0]]
        asked = compile_asked(tree, {names[0]: readable_of(relation)}, now_ms=lambda: 0, functions={})
    except CompileError:
        return None
    return _lookup(asked, relation, samples)


def _lookup(asked: AskedQuery, relation: TopicRelation, samples: Sequence[str | int]) -> Lookup | None:
    found = _below(asked.node)
    if found is None or asked.order or asked.limit is not None or asked.offset:
        return None
    names, equal = found
    fields = [names.get(c.column) for c in asked.columns]
    parameters = {column: samples.index(value) for column, value in equal if value in samples}
    types = {f.name: f.type for f in relation.schema}
    if None in fields or not len(equal) == len(parameters) == len(set(parameters.values())) == len(samples):
        return None
    if not all(types[column] in (INT, BIGINT, STRING) for column in parameters):
        return None
    shown = Schema(tuple(Field(f"c{n}", c.type) for n, c in enumerate(asked.columns)))
    return Lookup(
        relation.name,
        tuple((column, number, types[column]) for column, number in parameters.items()),
        [PgColumn(c.name, pg_type(c.type)) for c in asked.columns],
        tuple(f for f in fields if f is not None),
        answered_schema(shown),
    )


def _below(node: Node) -> tuple[Names, list[tuple[str, object]]] | None:
    """For each column of a node, the column of the relation that it is; and the columns that have to equal values. None for any other plan."""
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
        match part:
            case Call(name="sql_eq", args=(Column(name=name, type=t), Literal(value=value, type=of))) if t == of:
                column = names.get(name)
            case Call(name="sql_eq", args=(Literal(value=value, type=of), Column(name=name, type=t))) if t == of:
                column = names.get(name)
            case _:
                return None
        if column is None:
            return None
        equal = [*equal, (column, value)]
    return names, equal
