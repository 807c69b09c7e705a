"""Kernels: the same expressions compiled for one row and for many.

How to compile a chain (what `flowql.runtime.topology` does):

- A source with one reader and nothing but its watermark, Project and Filter behind it up to a sink: `fused.FusedPipeline(scan, stages,
  sink)`. It takes raw records and gives records to produce.
- A shared source: one `decode.Decoder(*decode.union_scan(scans))` per topic, then `Batch.select` per reader.
- Neighbouring Project and Filter operators, wherever they stand: `projections.ProjectionChain(operators, source)`, which is a
  RuntimeOperator.
- A sink: `encode.Encoder(sink, schema)`; a key for a repartition: `encode.KeyEncoder(schema, format)`.

Every one of them has a row path, the reference, and a vector path, used for batches large enough to pay its fixed cost.
Vector paths decline rows: those go through the row path and are merged back in order. Columns that are only passed on
stay in Arrow; DuckDB is called once per chain and batch, and only if something is computed; JSON is read by
`json_scan` and written by `encode.JsonText`. `MicroBatchContext.vector` forces one of the two paths.

This module holds what the vector paths share: a DuckDB connection per thread and prepared statements over Arrow.

Measured (DuckDB 2.0.0, one thread, 3 columns): register + sql costs 1.26 ms per batch whatever its size; a prepared
statement over an input that was registered once costs 0.18 ms with `fetchnumpy` and 0.6 ms with `to_arrow_table`.
"""

from __future__ import annotations

import atexit
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from inspect import Parameter, Signature
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from flowql.compiler.functions.registry import CHEAP_ROWS, FAILED, ArrowCall, ColumnFailures, arrow_call
from flowql.compiler.plan.types import BOOLEAN, Kind, SqlType, arrow_type, duckdb_type
from flowql.runtime.functions.runs import raise_if_over

DUCKDB_ROWS = (
    512  # measured, of statements with one to eight calls: below, their fixed 0.5 to 1 ms exceed the row kernel
)
INPUT = "{input}"  # stands for the batch in the text of a statement
STATEMENTS_MAX = 256  # prepared statements per thread; the least recently used is dropped beyond
_CALLED = re.compile(r'"([A-Z_][A-Z0-9_]*@[^"]+)"\(')  # user-defined functions in the text of a statement
_NUMPY = {Kind.BOOLEAN: np.bool_, Kind.INT: np.int32, Kind.BIGINT: np.int64, Kind.DOUBLE: np.float64}

_local = threading.local()
_open: weakref.WeakSet[_Database] = weakref.WeakSet()


class VectorFailed(Exception):
    """DuckDB refused a statement or a batch: the rows go through the row kernel, which gives the meaning."""


class _Feed:
    """The input that DuckDB scans for a statement: the batch that is set, without another registration."""

    __slots__ = ("batch",)

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self.batch.schema, [self.batch])
        return reader.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        return self.batch.schema.__arrow_c_schema__()


class _Database:
    """One thread's in-memory database: one thread, no access to files."""

    def __init__(self) -> None:
        settings = {"threads": 1, "enable_external_access": False, "autoinstall_known_extensions": False}
        self.connection = duckdb.connect(":memory:", config=settings)
        self.connection.execute("SET enable_progress_bar = false")
        self.connection.execute("SET TimeZone = 'UTC'")
        self._prepared: OrderedDict[tuple[str, pa.Schema], tuple[str, _Feed]] = OrderedDict()
        self._functions: dict[str, ArrowCall] = {}  # user-defined ones that statements may call
        self._count = 0
        _open.add(self)

    def prepare(self, sql: str, batch: pa.RecordBatch) -> tuple[str, _Feed]:
        """The name of the prepared statement for inputs like `batch`, and its feed."""
        at = (sql, batch.schema)
        for function in calls_in(sql):
            self._have(function)
        found = self._prepared.get(at)
        if found is not None:
            self._prepared.move_to_end(at)
            return found
        if len(self._prepared) >= STATEMENTS_MAX:
            self._forget_oldest()
        self._count += 1
        name = f"q{self._count}"
        feed = _Feed(batch)
        self.connection.register(f"in_{name}", feed)
        self.connection.execute(f"PREPARE {name} AS {sql.replace(INPUT, f'in_{name}')}")
        self._prepared[at] = (name, feed)
        return name, feed

    def _forget_oldest(self) -> None:
        _, (oldest, _) = self._prepared.popitem(last=False)
        self.connection.execute(f"DEALLOCATE {oldest}")
        self.connection.unregister(f"in_{oldest}")

    def _have(self, name: str) -> None:
        """The user-defined function of that name, for statements. Another one that had it goes, with all statements."""
        arrow = arrow_call(name.removesuffix(FAILED))
        if arrow is None or self._functions.get(name) is arrow:
            return
        if self._functions.pop(name, None) is not None:
            while self._prepared:
                self._forget_oldest()
            self.connection.remove_function(name)
        self.connection.create_function(
            name,
            over_chunks(arrow.args, BOOLEAN, failures_of(arrow))
            if name.endswith(FAILED)
            else over_chunks(arrow.args, arrow.result, arrow.call),
            [duckdb_type(t) for t in arrow.args],
            duckdb_type(BOOLEAN if name.endswith(FAILED) else arrow.result),
            type="arrow",
            null_handling="special",
            side_effects=True,  # it is called for every row
        )
        self._functions[name] = arrow

    def close(self) -> None:
        self._prepared.clear()
        self.connection.close()


def failures_of(arrow: ArrowCall) -> Callable[[Sequence[pa.Array]], pa.Array]:
    """Which rows a function over columns has failed for."""
    failures = arrow.failures
    assert failures is not None
    return lambda columns: failures.of(columns, arrow.args)


def over_chunks(
    args: Sequence[SqlType], result: SqlType, over: Callable[[list[pa.Array]], pa.Array]
) -> Callable[..., pa.Array]:
    """The function that DuckDB calls: it counts the parameters, and TIME is in microseconds."""
    types, given = [arrow_type(t) for t in args], _in_micros(arrow_type(result))

    def call(*columns: pa.ChunkedArray) -> pa.Array:
        found = over([_from_arrow_type(c, t) for c, t in zip(columns, types, strict=True)])
        return found if given == arrow_type(result) else found.cast(given)

    parameters = [Parameter(f"c{i}", Parameter.POSITIONAL_ONLY) for i in range(len(types))]
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return call


def _in_micros(t: pa.DataType) -> pa.DataType:
    """With TIME in microseconds."""
    if pa.types.is_struct(t):
        return pa.struct([(f.name, _in_micros(f.type)) for f in t])
    if pa.types.is_list(t):
        return pa.list_(_in_micros(t.value_type))
    if pa.types.is_map(t):
        return pa.map_(t.key_type, _in_micros(t.item_type))
    return pa.time64("us") if pa.types.is_time32(t) else t


@atexit.register
def _close_all() -> None:
    """DuckDB's bindings report objects that outlive the interpreter as leaks."""
    for database in list(_open):
        database.close()


def _database() -> _Database:
    found: _Database | None = getattr(_local, "database", None)
    if found is None:
        found = _local.database = _Database()
    return found


@lru_cache(maxsize=4 * STATEMENTS_MAX)
def calls_in(sql: str) -> tuple[str, ...]:
    """Names of the functions over columns that a statement calls."""
    return tuple(dict.fromkeys(_CALLED.findall(sql)))


def _failures_of(name: str) -> ColumnFailures | None:
    arrow = None if name.endswith(FAILED) else arrow_call(name)
    return None if arrow is None else arrow.failures


def calls_arrow(sql: str) -> bool:
    """Whether a statement calls functions over columns."""
    return bool(calls_in(sql))


def rows_cost_little(sql: str) -> bool:
    """Whether a row alone costs little in all functions over columns that a statement calls."""
    return all(name.endswith(CHEAP_ROWS) for name in calls_in(sql))


def connection() -> duckdb.DuckDBPyConnection:
    """The in-memory DuckDB connection of the calling thread."""
    return _database().connection


def compute(sql: str, batch: pa.RecordBatch, types: Sequence[SqlType]) -> list[pa.Array]:
    """The columns `sql` selects over `batch` (INPUT in its text), one row per row of the batch and in its order.

    types: what the columns become. Raises VectorFailed.
    """
    database = _database()
    failures = [f for name in calls_in(sql) if (f := _failures_of(name)) is not None]
    for f in failures:
        f.begin()
    try:
        name, feed = database.prepare(sql, batch)
        feed.batch = batch
        try:
            if all(t.kind in _NUMPY for t in types):
                found = database.connection.execute(f"EXECUTE {name}").fetchnumpy()
                columns = [_from_numpy(v, t) for v, t in zip(found.values(), types, strict=True)]
            else:
                table = database.connection.sql(f"EXECUTE {name}").to_arrow_table().combine_chunks()
                columns = [_from_arrow(c, t) for c, t in zip(table.columns, types, strict=True)]
        finally:
            feed.batch = batch.slice(0, 0)  # the buffers must not outlive the call
    except (duckdb.Error, pa.ArrowException) as e:
        raise_if_over()
        raise VectorFailed(str(e)) from e
    if any(len(c) != batch.num_rows for c in columns):
        raise VectorFailed(f"{len(columns[0])} rows came back for {batch.num_rows}")
    if not all(f.all_declined() for f in failures):
        raise VectorFailed("a function has failed for rows that were not declined")
    return columns


def _from_numpy(values: Any, t: SqlType) -> pa.Array:
    if isinstance(values, np.ma.MaskedArray):
        return pa.array(values.data.astype(_NUMPY[t.kind], copy=False), mask=np.ma.getmaskarray(values))
    return pa.array(values.astype(_NUMPY[t.kind], copy=False))


def _from_arrow(column: pa.ChunkedArray, t: SqlType) -> pa.Array:
    return _from_arrow_type(column, arrow_type(t))


def _from_arrow_type(column: pa.ChunkedArray, t: pa.DataType) -> pa.Array:
    if not column.num_chunks:
        return pa.nulls(0, t)
    array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    return array.cast(t) if not _has_structs(t) else with_field_names(array, t)


def with_field_names(array: pa.Array, t: pa.DataType) -> pa.Array:
    """A column of structs as one of `t`, whose fields are named the same but for their case; another column as it is."""
    return _with_names(array.cast(_named_as(array.type, t)), t) if _has_structs(t) else array


def _has_structs(t: pa.DataType) -> bool:
    return pa.types.is_struct(t) or any(_has_structs(t.field(i).type) for i in range(t.num_fields))


def _named_as(found: pa.DataType, t: pa.DataType) -> pa.DataType:
    """`t` with the fields of `found`, which are the same but for the case of their names: DuckDB does not tell them apart."""
    if pa.types.is_struct(t):
        parts = zip(found, t, strict=True)
        return pa.struct([(f.name, _named_as(f.type, of.type)) for f, of in parts])
    if pa.types.is_list(t):
        return pa.list_(_named_as(found.value_type, t.value_type))
    return pa.map_(t.key_type, _named_as(found.item_type, t.item_type)) if pa.types.is_map(t) else t


def _with_names(array: pa.Array, t: pa.DataType) -> pa.Array:
    """The same values as another type that differs in names of fields alone."""
    return (
        array
        if array.type == t
        else pa.Array._import_from_c_capsule(t.__arrow_c_schema__(), array.__arrow_c_array__()[1])
    )
