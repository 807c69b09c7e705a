"""The different values of a group: in order of arrival, with a set beside them, so that a further value costs the same for any number.

Small groups are plain tuples. A store keeps tuples, and the set is made again when the first value comes after a load.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Any

from flowql.compiler.functions.values import identity

FEW = 16  # values of a plain tuple, which is searched from the beginning
_PLAIN = frozenset(
    {int, str, bytes, bool, type(None)}
)  # hashes of equal values are equal, and a column has one of them


class DistinctValues:
    """An immutable view of the first `count` values of lists that only grow. Equal to the tuple of its values.

    Adding to the newest view appends to its lists; adding to an older one, whose successor failed or was dropped, copies them.
    """

    __slots__ = ("_count", "_grown")

    def __init__(self, grown: _Grown, count: int) -> None:
        self._grown, self._count = grown, count

    def has(self, v: Any) -> bool:
        return self._newest().has(v)

    def plus(self, v: Any) -> DistinctValues:
        """With one more value, which must not be in it."""
        grown = self._newest()
        grown.append(v)
        return DistinctValues(grown, self._count + 1)

    def kept_bytes(self, measure: Callable[[Any], int]) -> int:
        """The size of all values together. measure: gives the size of one value; each call passes the same function."""
        return self._newest().kept_bytes(measure)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return islice(self._grown.values, self._count)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, DistinctValues | tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _newest(self) -> _Grown:
        if len(self._grown.values) != self._count:
            self._grown = _Grown(self)
        return self._grown


class _Grown:
    """The values that views share. They only grow: nothing is removed or replaced."""

    __slots__ = ("_bytes", "_measured", "_seen", "values")

    def __init__(self, values: Any) -> None:
        self.values: list[Any] = list(values)
        self._seen = set(map(_hashed, self.values))
        self._measured = self._bytes = 0

    def has(self, v: Any) -> bool:
        return _hashed(v) in self._seen

    def append(self, v: Any) -> None:
        self.values.append(v)
        self._seen.add(_hashed(v))

    def kept_bytes(self, measure: Callable[[Any], int]) -> int:
        self._bytes += sum(map(measure, islice(self.values, self._measured, None)))
        self._measured = len(self.values)
        return self._bytes


def _hashed(v: Any) -> Hashable:
    return v if type(v) in _PLAIN else identity(v)


Distinct = tuple[Any, ...] | DistinctValues


def with_value(values: Distinct, v: Any, limit: int, same: Callable[[Any, Any], bool]) -> Distinct:
    """With a value, unless it is in them or they are `limit` already. same: whether two values are equal, for small groups."""
    if len(values) >= limit:
        return values
    if isinstance(values, tuple):
        if len(values) < FEW:
            return values if any(same(x, v) for x in values) else (*values, v)
        values = DistinctValues(_Grown(values), len(values))
    return values if values.has(v) else values.plus(v)
