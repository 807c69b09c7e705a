"""User-defined aggregates of a project: Python classes, called from SQL.

What a class keeps of a group, its accumulator, is part of committed state that others read and that a failed step must leave as it was. So its
methods get a copy of what they may change in place.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from flowql.compiler.functions.bounds import bounded
from flowql.compiler.functions.registry import AggregateFunction, resolver
from flowql.compiler.functions.signatures import Overload, Pattern
from flowql.compiler.functions.user import MARK, Isolation, checked_limits, checked_name
from flowql.compiler.functions.user_accumulators import Kept, kept_of
from flowql.compiler.functions.user_types import (
    DEFAULT_LIMITS,
    MEMORY_MB,
    TIMEOUT_S,
    DefinitionError,
    Limits,
    called,
    giver,
    hint_of,
    parameter_types,
    parameters_of,
    part_of,
    sql_type,
    taker,
)
from flowql.compiler.plan.types import SqlType

C = TypeVar("C", bound=type)
_METHODS = {"init": 1, "merge": 3, "result": 2}  # parameters, `self` included


@dataclass(frozen=True, slots=True)
class UserAggregate:
    """An aggregate, as SQL calls it. made: an object of its class, which keeps nothing. nullable: which of its parameters may be NULL."""

    name: str
    made: Any
    kept: Kept
    params: tuple[Pattern, ...]
    nullable: tuple[bool, ...]
    result: SqlType
    version: str = ""
    limits: Limits = DEFAULT_LIMITS

    def entry(self, name: str) -> AggregateFunction:
        resolve = resolver(self.name, Overload(self.params, self.result))
        return AggregateFunction(
            name + self.kept.mark,
            lambda types, _: resolve(types),
            initial=lambda *_: self._initial(),
            add=lambda *_: self._step("add"),
            undo=(lambda *_: self._step("undo")) if hasattr(self.made, "undo") else None,
            merge=(lambda *_: self._merge()) if hasattr(self.made, "merge") else None,
            result=lambda *_: bounded(self._result(), self.result),
            of_rows=lambda _: bounded(self._of_rows(), self.result),
            add_runs=lambda _: self.add_runs,
            takes_null=any(self.nullable),
        )

    def _initial(self) -> Any:
        return self.kept.stored(self.made.init(), f"{self.name}.init")

    def add_runs(
        self,
        accumulators: Sequence[Any],
        offsets: Sequence[int],
        columns: Sequence[Sequence[Any]],
        begin: Callable[[], None] | None = None,
    ) -> list[Any]:
        """As `AggregateFunction.add_runs`. begin: called before each row."""
        add = self._add_run()
        rows: Sequence[tuple[Any, ...]] = list(zip(*columns, strict=True)) if columns else [()] * offsets[-1]
        return [
            add(acc, rows[start:end] if begin is None else announced(rows[start:end], begin))
            for acc, start, end in zip(accumulators, offsets[:-1], offsets[1:], strict=True)
        ]

    def _add_run(self) -> Callable[[Any, Iterable[tuple[Any, ...]]], Any]:
        """(accumulator, arguments of rows) -> accumulator. One that may be changed in place is copied once, not per row."""
        method, kept, allowed = self.made.add, self.kept, self.kept.allowed
        said, required = f"{self.name}.add", [i for i, nullable in enumerate(self.nullable) if not nullable]
        all_required, take = len(required) == len(self.nullable), [taker(t) for t in self.params]
        plain, load, store, in_place = not any(take), kept.loaded, kept.store, kept.in_place

        def run(acc: Any, rows: Iterable[tuple[Any, ...]]) -> Any:
            acc = load(acc)
            for args in rows:
                if None in args and (all_required or any(args[i] is None for i in required)):
                    continue
                if not plain:
                    args = tuple(a if t is None or a is None else t(a) for a, t in zip(args, take, strict=True))
                made = method(acc, *args)
                if made is None and in_place:
                    continue
                acc = made if type(made) in allowed else kept.checked(made, said)
            return acc if store is None else kept.stored(acc, said)

        return lambda acc, rows: called(said, run, acc, rows)

    def _of_rows(self) -> Callable[[Iterable[tuple[Any, ...]]], Any]:
        add, result = self._add_run(), self._result()
        return lambda rows: result(add(self._initial(), rows))

    def _step(self, part: str) -> Callable[..., Any]:
        method, kept = getattr(self.made, part), self.kept
        said = f"{self.name}.{part}"
        required = [i for i, nullable in enumerate(self.nullable) if not nullable]
        take = [taker(t) for t in self.params]
        plain = not any(take)

        def step(acc: Any, *args: Any) -> Any:
            for i in required:
                if args[i] is None:
                    return acc
            if not plain:
                args = tuple(a if t is None or a is None else t(a) for a, t in zip(args, take, strict=True))
            changed = kept.loaded(acc)
            made = called(said, method, changed, *args)
            return kept.stored(changed if made is None and kept.in_place else made, said)

        return step

    def _merge(self) -> Callable[[Any, Any], Any]:
        method, kept, said = self.made.merge, self.kept, f"{self.name}.merge"

        def merge(a: Any, b: Any) -> Any:
            changed = kept.loaded(a)
            made = called(said, method, changed, kept.loaded(b))
            return kept.stored(changed if made is None and kept.in_place else made, said)

        return merge

    def _result(self) -> Callable[[Any], Any]:
        give, load = giver(self.result), self.kept.loaded
        method = getattr(self.made, "result", _same)

        def result(acc: Any) -> Any:
            value = called(f"{self.name}.result", method, load(acc))
            return None if value is None else give(value)

        return result


@overload
def udaf(cls: C, /) -> C: ...
@overload
def udaf(
    *,
    name: str | None = None,
    version: str = "",
    isolation: Isolation = "inline",
    timeout: float = TIMEOUT_S,
    memory_mb: int = MEMORY_MB,
) -> Callable[[C], C]: ...
def udaf(
    cls: Any = None,
    /,
    *,
    name: str | None = None,
    version: str = "",
    isolation: Isolation = "inline",
    timeout: float = TIMEOUT_S,
    memory_mb: int = MEMORY_MB,
) -> Any:
    """Makes a Python class an aggregate in SQL, if `functions` of flowql.yaml names its module.

    `init(self)` returns an empty group's accumulator, annotated as bool, int, float, str, bytes, Decimal, None, or
    a list, dict, tuple, dataclass or msgspec.Struct of them. `add(self, accumulator, ...)` adds a row's arguments
    and returns the accumulator, or changes a mutable one and returns nothing. `result(self, accumulator)` is the
    value in SQL; default: the accumulator. Tables need `undo(self, accumulator, ...)`, which removes a row, and
    session windows `merge(self, accumulator, other)`. Objects keep no state.

    Types, NULL, failures, name and version are as for `udf`. Aggregates run in the engine's threads;
    isolation="process" costs two messages per batch of a stream. Over tables and in session windows it costs one
    message per row and result. `timeout` and `memory_mb` limit the process; interactive queries always use one.
    Raises DefinitionError.

    >>> @udaf
    ... class Spread:
    ...     def init(self) -> list[float]:
    ...         return []
    ...
    ...     def add(self, seen: list[float], value: float) -> None:
    ...         seen[:] = [min([*seen, value]), max([*seen, value])]
    ...
    ...     def result(self, seen: list[float]) -> float | None:
    ...         return seen[1] - seen[0] if seen else None
    """

    def mark(made: type) -> type:
        if not isinstance(made, type):
            raise DefinitionError(
                f"{getattr(made, '__name__', f'an object of {type(made).__name__}')} is not a class",
                "class Spread: with the methods init and add",
            )
        limits = checked_limits(isolation, timeout, memory_mb)
        setattr(made, MARK, _declared(made, checked_name(name or made.__name__, version), version, limits))
        return made

    return mark if cls is None else mark(cls)


def _declared(cls: Any, name: str, version: str, limits: Limits) -> UserAggregate:
    for part in ("init", "add"):
        if not callable(getattr(cls, part, None)):
            raise DefinitionError(f"{name} has no method {part}", f"def {part}(self{', ...' * (part == 'add')})")
    for part, count in _METHODS.items():
        if hasattr(cls, part):
            _check_parameters(getattr(cls, part), f"{name}.{part}", ("self", "accumulator", "other")[:count])
    with part_of(cls.init, "return"):
        hint = hint_of(cls.init, "return", f"{name}.init")
        kept = kept_of(hint, f"{name}.init")
    with part_of(cls.add):
        names = parameters_of(cls.add, f"{name}.add")
        if len(names) < 2:
            raise DefinitionError(f"{name}.add takes no accumulator", "def add(self, accumulator, value: float)")
    if hasattr(cls, "undo"):
        _check_parameters(cls.undo, f"{name}.undo", names, than=" than add")
    _check_returns(cls, kept, name)
    found = parameter_types(cls.add, names[2:], f"{name}.add")
    shows = "result" if hasattr(cls, "result") else "init"
    with part_of(getattr(cls, shows), "return"):
        shown = hint_of(cls.result, "return", f"{name}.result") if shows == "result" else hint
        result, _ = sql_type(shown, f"{name}.{shows}")
    with part_of(cls.init):
        made = _made(cls, kept, name)
    params, nullable = tuple(t for t, _ in found), tuple(n for _, n in found)
    return UserAggregate(name, made, kept, params, nullable, result, version, limits)


def _check_parameters(method: Callable[..., Any], said: str, wanted: Sequence[str], than: str = "") -> None:
    with part_of(method):
        if len(parameters_of(method, said)) != len(wanted):
            raise DefinitionError(f"{said} has other parameters{than}", f"def {method.__name__}({', '.join(wanted)})")


def _check_returns(cls: type, kept: Kept, name: str) -> None:
    """A method that returns nothing changes its accumulator."""
    for part in ("add", "undo", "merge"):
        if not hasattr(cls, part) or kept.in_place:
            continue
        method = getattr(cls, part)
        if typing.get_type_hints(method).get("return", int) is type(None):
            said = " or ".join(t.__name__ for t in kept.allowed)
            with part_of(method, "return"):
                raise DefinitionError(
                    f"{name}.{part} returns nothing, and {said} cannot be changed", "return the new value"
                )


def _made(cls: type, kept: Kept, name: str) -> Any:
    """An object of the class, when its first accumulator can be kept."""
    try:
        made = called(name, cls)
        kept.stored(called(f"{name}.init", made.init), f"{name}.init")
    except Exception as error:
        raise DefinitionError(
            f"{name}.init failed: {type(error).__name__}: {error}", "it is called once per query"
        ) from error
    return made


def announced(rows: Iterable[tuple[Any, ...]], begin: Callable[[], None]) -> Iterator[tuple[Any, ...]]:
    """The rows. begin: called before each of them."""
    for args in rows:
        begin()
        yield args


def _same(value: Any) -> Any:
    return value
