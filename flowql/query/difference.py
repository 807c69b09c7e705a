"""Two versions of a result, compared by DuckDB: of streams as multisets of rows, of tables by key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from flowql.compiler.functions.duckdb_sql import quoted
from flowql.compiler.plan.topology import SourceDef
from flowql.query.database import DEFAULT, QueryDatabase
from flowql.query.interactive import InteractiveQuery
from flowql.query.loading import load
from flowql.query.relations import TopicRelation, arrow_schema
from flowql.query.statement import Statement
from flowql.query.tail import with_bounds
from flowql.query.views import ROWTIME
from flowql.runtime.log.base import Log, TopicPartition

SHOWN = 3  # examples of each kind
_ALL = Statement("", ())  # of a relation: all rows and columns
Spans = Mapping[TopicPartition, tuple[int, int]]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Version:
    """A result as one generation has it: how its records are read, and which of them."""

    source: SourceDef
    spans: Spans

    def relation(self, log: Log) -> TopicRelation:
        columns = with_bounds(self.source.schema)  # of a windowed table its rows are told apart by them
        return TopicRelation(self.source.name, self.source, log, self.spans, columns)


@dataclass(frozen=True, slots=True)
class Difference:
    """missing: rows that only the serving version has. extra: that only the built one has. different: rows of one key with other values;
    of these an example is a pair. compared: columns that both have; only_serving, only_built: the others. keys: what tells rows apart; none
    where rows are compared as a whole. serving, built: rows in all.
    """

    serving: int
    built: int
    missing: int
    extra: int
    different: int
    missing_rows: Sequence[Row]
    extra_rows: Sequence[Row]
    different_rows: Sequence[tuple[Row, Row]]
    keys: Sequence[str]
    compared: Sequence[str]
    only_serving: Sequence[str]
    only_built: Sequence[str]

    def to_data(self) -> dict[str, Any]:
        counts = {n: getattr(self, n) for n in ("serving", "built", "missing", "extra", "different")}
        rows = {n: list(getattr(self, f"{n}_rows")) for n in ("missing", "extra")}
        pairs = [{"serving": a, "built": b} for a, b in self.different_rows]
        names = {n: list(getattr(self, n)) for n in ("keys", "compared", "only_serving", "only_built")}
        return counts | {"examples": {**rows, "different": pairs}} | names


def difference(
    serving: Version, built: Version, log: Log, database: QueryDatabase = DEFAULT, *, shown: int = SHOWN
) -> Difference:
    """The rows that a swap would change. Values are compared as text where the two have another type, or one that holds others.

    QueryError where it needs more memory or time than an interactive query may take.
    """
    relations = {"old": serving.relation(log), "new": built.relation(log)}
    old, new = (arrow_schema(r.schema) for r in relations.values())
    keys = _keys(serving.source, built.source)
    ignored = {ROWTIME} if keys else set()  # when a row of a table was last written says little
    names = [n for n in new.names if n in old.names and n not in ignored]
    query = InteractiveQuery("", database)
    connection = query.connection
    try:
        query.wait_heavy()
        for name, relation in relations.items():
            columns = ", ".join(_column(n, old.field(n).type, new.field(n).type) for n in names)
            load(query, f"{name}_rows", relation, _ALL)
            connection.execute(f"CREATE TEMP TABLE {name} AS SELECT {columns} FROM {name}_rows").fetchall()
        found = _by_key(connection, keys, names, shown) if keys else _as_multisets(connection, shown)
        serving_rows, built_rows = (_count(connection, f"SELECT COUNT(*) FROM {name}") for name in relations)
    except (duckdb.Error, OSError, MemoryError) as error:
        raise query.error(error) from error
    finally:
        query.end()
    return Difference(
        serving_rows,
        built_rows,
        *found,
        keys,
        names,
        [n for n in old.names if n not in new.names],
        [n for n in new.names if n not in old.names],
    )


Found = tuple[int, int, int, list[Row], list[Row], list[tuple[Row, Row]]]


def _keys(serving: SourceDef, built: SourceDef) -> list[str]:
    """The key columns of two tables, if they have the same key."""
    if serving.kind != "table" or built.kind != "table":
        return []
    old, new = (
        [(f.name, f.type) for f in with_bounds(s.schema) if f.role in ("key", "window")] for s in (serving, built)
    )
    return [n for n, _ in new] if old == new else []


def _column(name: str, old: pa.DataType, new: pa.DataType) -> str:
    column = quoted(name)
    return f"CAST({column} AS VARCHAR) AS {column}" if old != new or pa.types.is_nested(new) else column


def _as_multisets(connection: duckdb.DuckDBPyConnection, shown: int) -> Found:
    missing, missing_rows = _rows(connection, "SELECT * FROM old EXCEPT ALL SELECT * FROM new", shown)
    extra, extra_rows = _rows(connection, "SELECT * FROM new EXCEPT ALL SELECT * FROM old", shown)
    return missing, extra, 0, missing_rows, extra_rows, []


def _by_key(connection: duckdb.DuckDBPyConnection, keys: Sequence[str], names: Sequence[str], shown: int) -> Found:
    on = " AND ".join(f"o.{quoted(k)} IS NOT DISTINCT FROM n.{quoted(k)}" for k in keys)
    alone = "SELECT {x}.* FROM {a} {x} WHERE NOT EXISTS (SELECT 1 FROM {b} {y} WHERE {on})"
    missing, missing_rows = _rows(connection, alone.format(a="old", x="o", b="new", y="n", on=on), shown)
    extra, extra_rows = _rows(connection, alone.format(a="new", x="n", b="old", y="o", on=on), shown)
    values = [n for n in names if n not in keys]
    differs = " OR ".join(f"o.{quoted(v)} IS DISTINCT FROM n.{quoted(v)}" for v in values) or "FALSE"
    pairs = f"FROM old o JOIN new n ON {on} WHERE {differs}"
    different = _count(connection, f"SELECT COUNT(*) {pairs}")
    order = ", ".join(f"n.{quoted(k)}" for k in keys)
    sides = [_shown(connection.sql(f"SELECT {x}.* {pairs} ORDER BY {order} LIMIT {shown}")) for x in ("o", "n")]
    return missing, extra, different, missing_rows, extra_rows, list(zip(*sides, strict=True))


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, shown: int) -> tuple[int, list[Row]]:
    """How many a statement gives, and the first of them."""
    count = _count(connection, f"SELECT COUNT(*) FROM ({sql})")
    return count, _shown(connection.sql(f"SELECT * FROM ({sql}) ORDER BY ALL LIMIT {shown}"))


def _count(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    return int(connection.sql(sql).fetchall()[0][0])


def _shown(relation: duckdb.DuckDBPyRelation) -> list[Row]:
    return [{n: _plain(v) for n, v in row.items()} for row in relation.to_arrow_table().to_pylist()]


def _plain(value: Any) -> Any:
    """The value as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)
