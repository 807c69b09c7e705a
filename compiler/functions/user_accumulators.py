"""Accumulators of user-defined aggregates: the values that methods take and give, and their form in the state.

Lists, dicts and tuples are kept as they are. An object of a class of rows (`user_rows`) is kept as a tuple of the values of its fields, in the
order of the class: the state does not name classes, so it can be read without the modules of the project. The fields are therefore part of the
definition of a query (`Kept.mark`): other fields make another definition, even if the version of the function is the same.
"""

from __future__ import annotations

import hashlib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Union

from flowql.compiler.functions.user_rows import hints_of, is_row
from flowql.compiler.functions.user_types import DefinitionError

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


def _same(value: Any) -> Any:
    return value
