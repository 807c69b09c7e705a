"""Records of a result as columns, and values in a form in which equal ones are equal.

Field order and the text of numbers do not matter; NULL, a column that is not written and a row that is not there are three
things. DOUBLEs are kept apart: the order in which they were added is not part of what a query means.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from flowql.compiler.plan.schema import WINDOW_END, WINDOW_START, Field
from flowql.compiler.plan.topology import SourceDef
from flowql.runtime.errors import BadRecord
from flowql.runtime.serde.codec import row_decoder
from flowql.runtime.serde.windowed import split_window
from flowql.verify.report import MISSING, Row

TOLERANCE = 1e-9  # of DOUBLEs, relative
_SMALL = 1e-3  # times the tolerance: below that a DOUBLE is as good as zero
_UNREADABLE = "(bytes)"


class Columns:
    """Reads keys and values of a result as its readers do; what they could not read stays bytes."""

    def __init__(self, source: SourceDef) -> None:
        schema = source.schema
        self._window = schema.window
        self._key_fields, self._value_fields = schema.key, schema.value
        self._key = row_decoder(schema.key, source.key_format, schema.key, is_key=True)
        self._value = row_decoder(schema.value, source.value_format, schema.value, is_key=False)
        # Only an object can leave a column out.
        self._object = source.value_format.name == "JSON" and (source.value_format.wrap or len(schema.value) > 1)

    def key(self, data: bytes | None) -> Row:
        if data is None or not self._key_fields:
            return {} if data is None else {_UNREADABLE: data}
        try:
            if self._window is None:
                return self._named(self._key_fields, self._key.decode(data))
            rest, start, end = split_window(data, self._window)
            return {**self._named(self._key_fields, self._key.decode(rest)), WINDOW_START: start, WINDOW_END: end}
        except BadRecord:
            return {_UNREADABLE: data}

    def value(self, data: bytes | None) -> Row | None:
        """The row of a record's value; None for a null value."""
        if data is None:
            return None
        try:
            row = self._named(self._value_fields, self._value.decode(data))
        except BadRecord:
            return {_UNREADABLE: data}
        if self._object and None in row.values():
            document = orjson.loads(data)
            written = {w for name in document for w in (name, name.upper())} if isinstance(document, dict) else set()
            row = {name: MISSING if v is None and name not in written else v for name, v in row.items()}
        return row

    @staticmethod
    def _named(fields: Sequence[Field], row: Sequence[Any] | None) -> dict[str, Any]:
        return {f.name: v for f, v in zip(fields, row or (None,) * len(fields), strict=True)}


@dataclass(frozen=True, slots=True)
class Canonical:
    """A value without its DOUBLEs, and these in order."""

    shape: Hashable
    doubles: tuple[float, ...]

    def same(self, other: Canonical, tolerance: float) -> bool:
        return (
            self.shape == other.shape
            and len(self.doubles) == len(other.doubles)
            and all(close(a, b, tolerance) for a, b in zip(self.doubles, other.doubles, strict=True))
        )


def canonical(value: Any) -> Canonical:
    """A value in the form in which equal ones are equal.

    >>> canonical({"b": 1.5, "a": [1, None]}).shape == canonical({"a": [1, None], "b": 2.5}).shape
    True
    """
    doubles: list[float] = []
    return Canonical(_shape(value, doubles), tuple(doubles))


def close(a: float, b: float, tolerance: float) -> bool:
    """Equal but for the order of additions; NaN is NaN."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance * _SMALL)


def _shape(value: Any, doubles: list[float]) -> Hashable:
    match value:
        case float():
            doubles.append(value)
            return "double"
        case Mapping():
            return ("object", *((k, _shape(value[k], doubles)) for k in sorted(value, key=repr)))
        case list() | tuple():
            return ("list", *(_shape(v, doubles) for v in value))
        case bool() | str():
            return (type(value).__name__, value)  # True is not 1, and no text is a mark of ours
        case bytearray() | memoryview():
            return bytes(value)
    return value if isinstance(value, Hashable) else repr(value)
