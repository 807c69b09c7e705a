"""User-defined aggregates of a project: Python classes, called from SQL.

What a class keeps of a group, its accumulator, is part of committed state that others read and that a failed step must leave as it was. So its
methods get a copy of what they may change in place.
"""

from __future__ import annotations

import hashlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar, Union, overload

from flowql.compiler.functions.bounds import bounded
from flowql.compiler.functions.registry import AggregateFunction, resolver
from flowql.compiler.functions.signatures import Overload, Pattern
from flowql.compiler.functions.user import MARK, Isolation, checked_limits, checked_name
from flowql.compiler.functions.user_rows import hints_of, is_row
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

# --- accumulators: the values that methods take and give, and their form in the state ---
#
# Lists, dicts and tuples are kept as they are. An object of a class of rows (`user_rows`) is kept as a tuple of its fields, in the order of the class:
# the state does not name classes, so it can be read without the modules of the project. The fields are therefore part of the definition of a query
# (`Kept.mark`): other fields make another definition, even if the version of the function is the same.

Convert = Callable[[Any], Any]

_SCALARS = (bool, int, float, str, bytes, Decimal)
_KEYS = (bool, int, float, str, bytes)
_KEPT = "bool, int, float, str, bytes, Decimal, and list[...], dict[str, ...], tuple[...], dataclasses and msgspec.Structs of them can be kept"
_MARK_CHARS = 8


@dataclass(frozen=True, slots=True)
class Kept:
    """The type of an accumulator.

    allowed: classes of the values that methods give. data: classes of what is in the state. load: from there to what methods get, which shares
    nothing that can be changed; None where nothing of it can be. store: from what methods gave to the state; None where it is the same.
    in_place: methods may change the value they get, and return nothing. form: all of it as a text.
    """

    allowed: tuple[type, ...]
    data: tuple[type, ...]
    form: str
    load: Convert | None = None
    store: Convert | None = None
    in_place: bool = False

    @property
    def mark(self) -> str:
        """A hash of the fields of its classes of rows, for the version of the aggregate; empty where it has none."""
        return "" if self.store is None else "_" + hashlib.sha256(self.form.encode()).hexdigest()[:_MARK_CHARS]

    def checked(self, value: Any, name: str) -> Any:
        """A value that the method `name` returned. Raises TypeError."""
        if isinstance(value, self.allowed):
            return value
        expected = " or ".join(t.__name__ for t in self.allowed)
        raise TypeError(f"{name} made an accumulator of {type(value).__name__}, but {expected} is declared")

    def stored(self, value: Any, name: str) -> Any:
        """The form in the state of a value that the method `name` returned. Raises TypeError."""
        self.checked(value, name)
        if self.store is None:
            return value
        try:
            return self.store(value)
        except _NotKept as error:
            raise TypeError(f"{name} made an accumulator with {error}") from None

    def loaded(self, data: Any) -> Any:
        return data if self.load is None else self.load(data)


class _NotKept(TypeError):
    """A part of an accumulator that is not as declared."""


def kept_of(hint: Any, name: str) -> Kept:
    """The accumulator type for an annotation of the method `name`. Raises DefinitionError."""
    return _kept(hint, name, ())


def _kept(hint: Any, name: str, within: tuple[Any, ...]) -> Kept:
    """within: the classes whose fields are looked at."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is None or hint is type(None):
        return Kept((type(None),), (type(None),), "None")
    if hint in _SCALARS:
        allowed = (int, float) if hint is float else (hint,)
        return Kept(allowed, allowed, hint.__name__)
    if origin in (Union, types.UnionType):
        return _either([_kept(a, name, within) for a in args], hint, name)
    if origin is list and len(args) == 1:
        return _list(_kept(args[0], name, within))
    if origin is dict and len(args) == 2 and args[0] in _KEYS:
        return _dict(args[0], _kept(args[1], name, within))
    if origin is tuple and args:
        return _tuple([_kept(a, name, within) for a in args if a is not ...], repeats=args[-1] is ...)
    if is_row(hint):
        return _row(hint, name, within)
    said = getattr(hint, "__name__", None) if origin is None else None
    raise DefinitionError(f"{name} keeps {said or hint}, which has no form in the state", _KEPT)


def _either(choices: Sequence[Kept], hint: Any, name: str) -> Kept:
    """For several classes: a stored value belongs to the first class that fits it, so classes of rows must not be stored alike."""
    data = [t for c in choices for t in c.data]
    if any(c.store for c in choices) and len(set(data)) < len(data):
        raise DefinitionError(
            f"{name} keeps {hint}, and the state does not tell which of them", "one class with all fields"
        )
    loads = [(c.data, c.load) for c in choices if c.load is not None]
    stores = [(c.allowed, c.store) for c in choices if c.store is not None]
    return Kept(
        tuple(t for c in choices for t in c.allowed),
        tuple(data),
        f"({'|'.join(c.form for c in choices)})",
        _first(loads) if loads else None,
        _first(stores) if stores else None,
        any(c.in_place for c in choices),
    )


def _first(choices: Sequence[tuple[tuple[type, ...], Convert]]) -> Convert:
    def convert(value: Any) -> Any:
        return next((made(value) for classes, made in choices if isinstance(value, classes)), value)

    return convert


def _list(each: Kept) -> Kept:
    load, store = each.load, _storing(each)
    return Kept(
        (list,),
        (list,),
        f"[{each.form}]",
        list if load is None else lambda items: [load(x) for x in items],
        None if store is None else lambda items: [store(x) for x in items],
        in_place=True,
    )


def _dict(key: type, each: Kept) -> Kept:
    load, store = each.load, _storing(each)
    return Kept(
        (dict,),
        (dict,),
        f"{{{key.__name__}:{each.form}}}",
        dict if load is None else lambda items: {k: load(x) for k, x in items.items()},
        None if store is None else lambda items: {k: store(x) for k, x in items.items()},
        in_place=True,
    )


def _tuple(parts: Sequence[Kept], *, repeats: bool) -> Kept:
    loads, stores = [p.load for p in parts], [_storing(p) for p in parts]
    return Kept(
        (tuple,),
        (tuple,),
        f"<{','.join(p.form for p in parts)}{'*' if repeats else ''}>",
        _parts(loads, repeats=repeats) if any(loads) else None,
        _parts(stores, repeats=repeats) if any(stores) else None,
        any(p.in_place for p in parts),
    )


def _parts(converts: Sequence[Convert | None], *, repeats: bool) -> Convert:
    if repeats:
        each = converts[0] or _same
        return lambda items: tuple([each(x) for x in items])
    every = [c or _same for c in converts]
    return lambda items: tuple([c(x) for c, x in zip(every, items, strict=True)])


def _storing(part: Kept) -> Convert | None:
    """`store` of a part of an accumulator, which checks its class; None where nothing is to be done."""
    store, allowed = part.store, part.allowed
    if store is None:
        return None

    def stored(value: Any) -> Any:
        if isinstance(value, allowed):
            return store(value)
        raise _NotKept(f"a {type(value).__name__}, but {' or '.join(t.__name__ for t in allowed)} is declared")

    return stored


# -- classes of rows


def _row(cls: Any, name: str, within: tuple[Any, ...]) -> Kept:
    if cls in within:
        raise DefinitionError(
            f"{name} keeps {cls.__name__}, which is within itself", "a list[...] of a class that is not"
        )
    is_struct = hasattr(cls, "__struct_fields__")
    if is_struct and hasattr(cls, "__post_init__"):
        title = f"{name} keeps {cls.__name__}, whose __post_init__ would be called again at every row"
        raise DefinitionError(title, "do it in init, or make it a dataclass, which is read without __post_init__")
    hints = hints_of(cls)
    parts = {n: _kept(h, f"{name}: {cls.__name__}.{n}", (*within, cls)) for n, h in hints.items()}
    make = _made_struct if is_struct else _made_dataclass
    frozen = cls.__struct_config__.frozen if is_struct else cls.__dataclass_params__.frozen
    return Kept(
        (cls,),
        (tuple,),
        f"{{{','.join(f'{n}={p.form}' for n, p in parts.items())}}}",
        make(cls, [(n, p.load) for n, p in parts.items()]),
        _fields_of(cls, parts),
        not frozen or any(p.in_place for p in parts.values()),
    )


def _made_struct(cls: Any, parts: Sequence[tuple[str, Convert | None]]) -> Convert:
    def made(data: tuple[Any, ...]) -> Any:
        return cls(**{n: x if load is None else load(x) for (n, load), x in zip(parts, data, strict=True)})

    return made


def _made_dataclass(cls: Any, parts: Sequence[tuple[str, Convert | None]]) -> Convert:
    """Without `__init__`, as copies are made: it was called when the object came into being."""
    new, put = cls.__new__, object.__setattr__

    def made(data: tuple[Any, ...]) -> Any:
        value = new(cls)
        for (n, load), x in zip(parts, data, strict=True):
            put(value, n, x if load is None else load(x))
        return value

    return made


def _fields_of(cls: Any, parts: Mapping[str, Kept]) -> Convert:
    """From an object to the values of its fields. An attribute beside them would be gone at the next row: it raises, as a subclass does."""
    fields, known = [(n, p.allowed, p.store) for n, p in parts.items()], parts.keys()

    def values(value: Any) -> Iterator[Any]:
        for n, allowed, store in fields:
            x = getattr(value, n)
            if not isinstance(x, allowed):
                expected = " or ".join(t.__name__ for t in allowed)
                raise _NotKept(f"{cls.__name__}.{n} of {type(x).__name__}, but {expected} is declared")
            yield x if store is None else store(x)

    def stored(value: Any) -> tuple[Any, ...]:
        if type(value) is not cls:
            raise _NotKept(f"a {type(value).__name__}, but {cls.__name__} is declared")
        if more := getattr(value, "__dict__", {}).keys() - known:
            raise _NotKept(f"{cls.__name__}.{min(more)}, which is not a field of the class")
        return tuple(values(value))

    return stored


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
