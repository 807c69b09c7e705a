"""Vectorised user-defined functions: Arrow arrays in, an Arrow array out."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flowql.compiler.functions.bounds import bounded
from flowql.compiler.functions.registry import ArrowCall, Function, resolver
from flowql.compiler.functions.signatures import Overload
from flowql.compiler.functions.user_rows import has_rows, named, naming, pattern_of
from flowql.compiler.functions.user_types import (
    DEFAULT_LIMITS,
    DefinitionError,
    Limits,
    called,
    hint_of,
    parameters_of,
    part_of,
    sql_type,
)
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    STRING,
    TIME,
    TIMESTAMP,
    Kind,
    SqlType,
    arrow_type,
    duckdb_type,
)

_TYPES: dict[object, SqlType] = {
    pa.BooleanArray: BOOLEAN,
    pa.Int64Array: BIGINT,
    pa.DoubleArray: DOUBLE,
    pa.StringArray: STRING,
    pa.BinaryArray: BYTES,
    pa.Date32Array: DATE,
    pa.Time32Array: TIME,
    pa.TimestampArray: TIMESTAMP,
}
# Arrays that do not say of what they are, and examples of annotations that do.
_NESTED = {
    pa.ListArray: (Kind.ARRAY, "Annotated[pa.ListArray, list[float]]"),
    pa.MapArray: (Kind.MAP, "Annotated[pa.MapArray, dict[str, float]]"),
    pa.StructArray: (Kind.STRUCT, "Annotated[pa.StructArray, Point]   # a dataclass or a msgspec.Struct"),
}
COLUMN_KINDS = frozenset(t.kind for t in _TYPES.values())
_NUMBERS = {Kind.DATE: pa.int32(), Kind.TIME: pa.int32(), Kind.TIMESTAMP: pa.int64()}  # that reference values are
_ALIKE: dict[Kind, tuple[Callable[[pa.DataType], bool], ...]] = {
    Kind.BIGINT: (pa.types.is_integer,),
    Kind.DOUBLE: (pa.types.is_floating, pa.types.is_integer),
    Kind.STRING: (pa.types.is_large_string, pa.types.is_string_view),
    Kind.BYTES: (pa.types.is_large_binary, pa.types.is_binary_view),
    Kind.DATE: (pa.types.is_date,),
    Kind.TIME: (pa.types.is_time,),
    Kind.TIMESTAMP: (pa.types.is_timestamp,),
}


@dataclass(frozen=True, slots=True)
class UserVectorFunction:
    """A scalar function over columns, as SQL calls it."""

    name: str
    call: Callable[..., Any]
    params: tuple[SqlType, ...]
    result: SqlType
    deterministic: bool = True
    version: str = ""
    limits: Limits = DEFAULT_LIMITS

    def entry(self, name: str) -> Function:
        patterns = tuple(pattern_of(t, f"R{place}") for place, t in enumerate(self.params))
        return Function(
            name,
            resolver(self.name, Overload(patterns, self.result)),
            lambda found: naming(bounded(self._of_one, self.result), found.result),
            null_propagating=False,
            deterministic=self.deterministic,
            folds=has_rows(self.result),
            duckdb=lambda args, _: f'"{name}"({", ".join(as_declared(args, self.params))})',
            arrow=ArrowCall(self.params, self.result, self.of_columns),
        )

    def of_columns(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Raises TypeError for what is no column of the result, and whatever the function raises."""
        found = called(self.name, self.call, *columns)
        if isinstance(found, pa.ChunkedArray):
            found = pa.concat_arrays(found.chunks) if found.num_chunks else pa.nulls(0, found.type)
        if not isinstance(found, pa.Array):
            raise TypeError(f"it returned {type(found).__name__}, which is not an Arrow array")
        if len(found) != len(columns[0]):
            raise TypeError(f"it returned {len(found):,} values for {len(columns[0]):,}")
        expected = arrow_type(self.result)
        if found.type == expected:
            return found
        if not _alike(found.type, self.result):
            raise TypeError(f"it returned {found.type}, but {expected} is declared")
        return found.cast(expected)

    def _of_one(self, *args: Any) -> Any:
        """The reference: one row is a column of one value."""
        found = self.of_columns([_column(a, t) for a, t in zip(args, self.params, strict=True)])
        return found.cast(_numbers(self.result))[0].as_py(maps_as_pydicts="strict")


def as_declared(args: Sequence[str], params: Sequence[SqlType]) -> Sequence[str]:
    """SQL of arguments for DuckDB: a STRUCT has the fields that the function declares, which need not be all of those that it has."""
    return [f"CAST({a} AS {duckdb_type(t)})" if has_rows(t) else a for a, t in zip(args, params, strict=True)]


def _alike(found: pa.DataType, t: SqlType) -> bool:
    """Whether a cast to the Arrow type of `t` changes no value."""
    if pa.types.is_null(found):
        return True
    if t.kind is Kind.ARRAY:
        return (pa.types.is_list(found) or pa.types.is_large_list(found)) and _alike(found.value_type, t.element)
    if t.kind is Kind.MAP:
        return pa.types.is_map(found) and _alike(found.key_type, STRING) and _alike(found.item_type, t.element)
    if t.kind is Kind.STRUCT:
        same = pa.types.is_struct(found) and [f.name for f in found] == [n for n, _ in t.fields]
        return same and all(_alike(f.type, of) for f, (_, of) in zip(found, t.fields, strict=True))
    if found == arrow_type(t):
        return True
    return any(test(found) for test in _ALIKE.get(t.kind, ())) and not getattr(found, "tz", None)


def _column(value: Any, t: SqlType) -> pa.Array:
    """The column of one reference value; a STRUCT may have more fields than `t`, and in other case."""
    convert = named(t)
    found = value if convert is None or value is None else convert(value)
    return pa.array([_entries(found, t)], _numbers(t)).cast(arrow_type(t))


def _entries(value: Any, t: SqlType) -> Any:
    """With the values of MAPs as Arrow takes them: lists of keys and values."""
    if value is None or t.kind not in (Kind.ARRAY, Kind.MAP, Kind.STRUCT):
        return value
    if t.kind is Kind.ARRAY:
        return [_entries(v, t.element) for v in value]
    if t.kind is Kind.MAP:
        return [(k, _entries(v, t.element)) for k, v in value.items()]
    return {n: _entries(value[n], f) for n, f in t.fields}


def _numbers(t: SqlType) -> pa.DataType:
    """The Arrow type of reference values."""
    if t.kind is Kind.ARRAY:
        return pa.list_(_numbers(t.element))
    if t.kind is Kind.MAP:
        return pa.map_(_numbers(t.args[0]), _numbers(t.element))
    if t.kind is Kind.STRUCT:
        return pa.struct([(n, _numbers(f)) for n, f in t.fields])
    return _NUMBERS.get(t.kind) or arrow_type(t)


def vectorized(
    function: Callable[..., Any], name: str, *, deterministic: bool, version: str, limits: Limits
) -> UserVectorFunction:
    """Raises DefinitionError."""
    with part_of(function):
        names = parameters_of(function, name)
        if not names:
            raise DefinitionError(
                f"{name} takes no array, so it cannot tell how many values to give", "leave vectorized out"
            )
    *params, result = (_type(function, part, name) for part in (*names, "return"))
    return UserVectorFunction(name, function, tuple(params), result, deterministic, version, limits)


def _type(function: Callable[..., Any], part: str, name: str) -> SqlType:
    with part_of(function, part):
        hint = hint_of(function, part, name)
        made, *of = typing.get_args(hint) if typing.get_origin(hint) is typing.Annotated else (hint,)
        if made in _NESTED:
            return _nested_type(made, of, name)
        found = _TYPES.get(hint) if isinstance(hint, type) else None
        if found is None:
            said, known = (
                getattr(hint, "__name__", hint),
                ", ".join(f"pa.{t.__name__}" for t in (*_TYPES, *_NESTED) if isinstance(t, type)),
            )
            raise DefinitionError(f"{name} has the annotation {said}, which is not an Arrow array of a SQL type", known)
        return found


def _nested_type(made: Any, of: Sequence[Any], name: str) -> SqlType:
    """of: what the annotation says beside the class of arrays, which does not say of what they are."""
    kind, example = _NESTED[made]
    found = sql_type(of[0], name, rows=True)[0] if len(of) == 1 else None
    if found is None or found.kind is not kind or _has_decimals(found):
        raise DefinitionError(f"{name} takes or gives a pa.{made.__name__}, and does not say of what", example)
    return found


def _has_decimals(t: SqlType) -> bool:
    return t.kind is Kind.DECIMAL or any(map(_has_decimals, (*t.args, *(f for _, f in t.fields))))
