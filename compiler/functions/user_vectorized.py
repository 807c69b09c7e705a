"""Vectorised user-defined functions: Arrow arrays in, an Arrow array out."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flowql.compiler.functions.registry import ArrowCall, Function
from flowql.compiler.functions.signatures import Overload, resolver
from flowql.compiler.functions.user_types import (
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
_ELEMENTS = frozenset(
    {Kind.BOOLEAN, Kind.BIGINT, Kind.DOUBLE, Kind.STRING, Kind.BYTES}
)  # of arrays: Arrow and references have the same
_LISTS = "Annotated[pa.ListArray, list[float]]"
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
    Kind.ARRAY: (pa.types.is_list, pa.types.is_large_list),
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
    limits: Limits | None = None

    def entry(self, name: str) -> Function:
        return Function(
            name,
            resolver(self.name, Overload(self.params, self.result)),
            lambda _: self._of_one,
            null_propagating=False,
            deterministic=self.deterministic,
            duckdb=lambda args, _: f'"{name}"({", ".join(args)})',
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
        alike = (pa.types.is_null, *_ALIKE.get(self.result.kind, ()))
        if not any(test(found.type) for test in alike) or getattr(found.type, "tz", None):
            raise TypeError(f"it returned {found.type} where {expected} is declared")
        return found.cast(expected)

    def _of_one(self, *args: Any) -> Any:
        """The reference: one row is a column of one value."""
        found = self.of_columns([_column(a, t) for a, t in zip(args, self.params, strict=True)])
        number = _NUMBERS.get(self.result.kind)
        return (found if number is None else found.cast(number))[0].as_py()


def _column(value: Any, t: SqlType) -> pa.Array:
    number = _NUMBERS.get(t.kind)
    return pa.array([value], arrow_type(t)) if number is None else pa.array([value], number).cast(arrow_type(t))


def vectorized(
    function: Callable[..., Any], name: str, *, deterministic: bool, version: str, limits: Limits | None
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
        if typing.get_origin(hint) is typing.Annotated and typing.get_args(hint)[0] is pa.ListArray:
            return _array_type(typing.get_args(hint)[1:], name)
        found = _TYPES.get(hint) if isinstance(hint, type) else None
        if found is None:
            said, known = (
                getattr(hint, "__name__", hint),
                ", ".join(f"pa.{t.__name__}" for t in _TYPES if isinstance(t, type)),
            )
            raise DefinitionError(f"{name} has the annotation {said}, which is no Arrow array of a SQL type", known)
        return found


def _array_type(element: tuple[Any, ...], name: str) -> SqlType:
    """element: what the annotation says beside pa.ListArray, as an Arrow array does not say of what its lists are."""
    found = sql_type(element[0], name)[0] if len(element) == 1 else None
    if found is None or found.kind is not Kind.ARRAY or found.element.kind not in _ELEMENTS:
        raise DefinitionError(
            f"{name} takes or gives lists, and does not say of what", f"{_LISTS}, or of bool, int, str, bytes"
        )
    return found
