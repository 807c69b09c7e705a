"""Python functions in streams: each is a function of SQL over the key and the value of a record, in the engine's threads.

A call is `NAME(value, key column, ...)`, where the value is a STRUCT of all columns that are not of the key, NULL without any.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flowql.compiler.functions.registry import AggregateFunction, Function
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.user import row_list
from flowql.compiler.functions.user_rows import as_data
from flowql.compiler.functions.user_types import INLINE, DefinitionError, Limits, called, giver, taker
from flowql.compiler.plan.types import BOOLEAN, Kind, SqlType, struct
from flowql.compiler.streams.rows import RowType, reader, writer

Call = Callable[..., Any]
Reference = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A function of `filter`, `map` and the like. Implements `flowql.compiler.functions.user.UserDefined`.

    arity: 1 where it takes the value alone, 2 where the key comes first. made: the class of values. key, value: what it returns; without
    them it returns whether a record passes. many: it returns a list of that.
    """

    name: str
    call: Call
    arity: int
    made: type | None
    key: RowType | None = None
    value: RowType | None = None
    many: bool = False
    deterministic: bool = True
    version: str = ""

    @property
    def limits(self) -> Limits:
        return INLINE

    @property
    def result(self) -> SqlType:
        fields = [f for row in (self.key, self.value) if row is not None for f in row.fields]
        return struct(*fields) if fields else BOOLEAN

    def entry(self, name: str) -> Function:
        return Function(
            name,
            self._resolve,
            self._reference,
            null_propagating=False,
            table=self.many,
            deterministic=self.deterministic,
        )

    def _resolve(self, types: tuple[SqlType, ...]) -> Resolution:
        _taken(types[0], self.made)  # raises for a class that does not fit
        return Resolution(types, self.result)

    def _reference(self, resolution: Resolution) -> Reference:
        take, key = _taken(resolution.args[0], self.made), _key(resolution.args[1:])
        give = self._given()
        call, name, with_key = self.call, self.name, self.arity == 2

        def reference(value: Any, *keys: Any) -> Any:
            args = (key(keys), take(value)) if with_key else (take(value),)
            return give(called(name, call, *args))

        return reference

    def _given(self) -> Callable[[Any], Any]:
        if self.value is None:
            return bool
        one = writer(self.value) if self.key is None else _pair(self.key, self.value)
        return (lambda rows: [one(r) for r in row_list(rows, self.name)]) if self.many else one


def _pair(key: RowType, value: RowType) -> Callable[[Any], Any]:
    """The conversion of a pair (key, value); a key of several columns is a tuple."""
    names = [n for n, _ in key.fields]
    give_key, give_value = writer(key), writer(value)

    def give(found: Any) -> Any:
        if not isinstance(found, tuple) or len(found) != 2:
            raise TypeError(f"it returned {type(found).__name__} where (key, value) is expected")
        keys = found[0] if len(names) > 1 and isinstance(found[0], tuple) else (found[0],)
        return {**give_key(dict(zip(names, keys, strict=True))), **give_value(found[1])}

    return give


def _taken(of: SqlType, made: type | None) -> Callable[[Any], Any]:
    if of.kind is not Kind.STRUCT:
        return lambda _: {}
    take = reader(of, made)
    return lambda value: None if value is None else take(value)


def _key(types: Sequence[SqlType]) -> Callable[[tuple[Any, ...]], Any]:
    """The key as functions take it: a value, a tuple of several, None without a key."""
    takes = [taker(t) for t in types]

    def key(values: tuple[Any, ...]) -> Any:
        found = tuple(v if t is None or v is None else t(v) for v, t in zip(values, takes, strict=True))
        return found[0] if len(found) == 1 else found or None

    return key


@dataclass(frozen=True, slots=True)
class RowAggregate:
    """A function of `reduce` (without `value`) or `aggregate`. Implements `flowql.compiler.functions.user.UserDefined`.

    initial: makes what `add` begins with; None for `reduce`, whose first row it is.
    """

    name: str
    add: Call
    made: type | None
    initial: Callable[[], Any] | None = None
    value: RowType | None = None
    undo: Call | None = None
    merge: Call | None = None
    version: str = ""

    @property
    def limits(self) -> Limits:
        return INLINE

    def entry(self, name: str) -> AggregateFunction:
        return AggregateFunction(
            name,
            self._resolve,
            initial=lambda resolution, _: self._first(),
            add=lambda resolution, _: self._step(self.add, resolution, "add"),
            undo=None if self.undo is None else lambda resolution, _: self._step(self.undo, resolution, "undo"),
            merge=None if self.merge is None else lambda resolution, _: self._merged(resolution),
            result=lambda *_: lambda accumulated: accumulated,
            of_rows=lambda resolution: self._of_rows(resolution),
        )

    def _resolve(self, types: tuple[SqlType, ...], _: tuple[Any, ...]) -> Resolution:
        _taken(types[0], self.made)
        return Resolution(types, types[0] if self.value is None else self.value.type)

    def _first(self) -> Any:
        if self.initial is None or self.value is None:
            return None
        return writer(self.value)(called(self.name, self.initial))

    def _both(self, resolution: Resolution) -> tuple[Reference, Reference]:
        """How accumulated rows are read and written. What is read is a copy."""
        if self.value is None:
            return reader(resolution.result, self.made), _written(resolution.result)
        return reader(self.value.type, self.value.made), writer(self.value)

    def _step(self, call: Call | None, resolution: Resolution, part: str) -> Reference:
        assert call is not None
        take, give = self._both(resolution)
        read, said = _taken(resolution.args[0], self.made), f"{self.name}.{part}"

        def step(accumulated: Any, value: Any) -> Any:
            if value is None:
                return accumulated
            if accumulated is None:
                return value
            return give(called(said, call, take(accumulated), read(value)))

        return step

    def _merged(self, resolution: Resolution) -> Reference:
        take, give = self._both(resolution)
        call, said = self.merge, f"{self.name}.merge"
        assert call is not None

        def merge(a: Any, b: Any) -> Any:
            if a is None or b is None:
                return b if a is None else a
            return give(called(said, call, take(a), take(b)))

        return merge

    def _of_rows(self, resolution: Resolution) -> Callable[[Iterable[tuple[Any, ...]]], Any]:
        def of_rows(rows: Iterable[tuple[Any, ...]]) -> Any:
            step, accumulated = self._step(self.add, resolution, "add"), self._first()
            for (value,) in rows:
                accumulated = step(accumulated, value)
            return accumulated

        return of_rows


def _written(of: SqlType) -> Reference:
    """Accepts a row of the same columns: a dict, or an object whose fields are named like them but for capitals."""
    names = {n.casefold(): n for n, _ in of.fields}
    give = giver(of)

    def write(value: Any) -> Any:
        data = as_data(value)
        return give({names.get(str(k).casefold(), k): v for k, v in data.items()} if isinstance(data, dict) else data)

    return write


def arity_of(call: Any, what: str) -> int:
    """Whether it takes (value) or (key, value). Raises DefinitionError."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        raise DefinitionError(f"{what}: the parameters of {call!r} are not known", "lambda key, value: ...") from None
    if inspect.iscoroutinefunction(call):
        raise DefinitionError(f"{what}: the function is asynchronous", "define the function without async")
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(needed) not in (1, 2) or any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        raise DefinitionError(f"{what}: the function takes {len(needed)} arguments", "lambda key, value: ...")
    return len(needed)
