"""Classes of rows in annotations, dataclasses and `msgspec.Struct`s, as STRUCT: patterns of arguments, and values of objects.

Fields are told apart without regard to case: SQL folds names, `customerName` of a class is CUSTOMERNAME or customername there.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from flowql.compiler.functions.signatures import ArrayOf, MapOf, Pattern, StructOf
from flowql.compiler.plan.types import STRING, Kind, SqlType, array, map_of, struct

Convert = Callable[[Any], Any]


def is_row(given: Any) -> bool:
    """Whether objects of this class are rows."""
    return isinstance(given, type) and (dataclasses.is_dataclass(given) or hasattr(given, "__struct_fields__"))


def names_of(made: Any) -> Sequence[str]:
    """Names of the fields of a class of rows."""
    found: Sequence[str] | None = getattr(made, "__struct_fields__", None)  # of msgspec
    return [f.name for f in dataclasses.fields(made)] if found is None else found


def hints_of(made: Any) -> Mapping[str, Any]:
    """The annotations of the fields of a class of rows; empty for other classes."""
    if not is_row(made):
        return {}
    hints = typing.get_type_hints(made, include_extras=True)
    return {n: hints[n] for n in names_of(made)}


def classes_of(hint: Any) -> Iterator[Any]:
    """The classes of rows that are within an annotation."""
    for part in typing.get_args(hint):
        yield from classes_of(part)
    if is_row(hint):
        yield hint
        for part in hints_of(hint).values():
            yield from classes_of(part)


def has_rows(t: SqlType) -> bool:
    """Whether a STRUCT is the type or within it."""
    return t.kind is Kind.STRUCT or any(map(has_rows, t.args))


def pattern_of(t: SqlType, name: str) -> Pattern:
    """The accepted arguments for a parameter of type `t`. name: of the parameter among those of its function."""
    if not has_rows(t):
        return t
    if t.kind is Kind.ARRAY:
        return ArrayOf(pattern_of(t.element, name + "_"))
    if t.kind is Kind.MAP:
        return MapOf(STRING, pattern_of(t.element, name + "_"))
    return StructOf(name, tuple((n, pattern_of(f, f"{name}.{n}")) for n, f in t.fields))


def folded(t: SqlType, fold: Callable[[str], str]) -> SqlType:
    """With the names of fields as a dialect folds them."""
    if t.kind is Kind.STRUCT:
        return struct(*((fold(n), folded(f, fold)) for n, f in t.fields))
    if t.kind is Kind.ARRAY:
        return array(folded(t.element, fold))
    return map_of(t.args[0], folded(t.element, fold)) if t.kind is Kind.MAP else t


def named(t: SqlType) -> Convert | None:
    """From a value whose fields are those of `t` but for the case of their names, to one that has them; None where there is nothing to name.

    Fields that `t` does not have are left out, and may be in any order.
    """
    if t.kind is Kind.STRUCT:
        parts = [(n, n.casefold(), named(f)) for n, f in t.fields]

        def row(value: Mapping[str, Any]) -> dict[str, Any]:
            known = {k.casefold(): v for k, v in value.items()}
            return {n: _each(known.get(key), convert) for n, key, convert in parts}

        return row
    return None if t.kind not in (Kind.ARRAY, Kind.MAP) else _within(t, named(t.element))


def naming(call: Callable[..., Any], t: SqlType, *, many: bool = False) -> Callable[..., Any]:
    """A call whose value, or the values of whose list, get the names of `t`."""
    convert = named(array(t) if many else t)
    return call if convert is None else lambda *args: _each(call(*args), convert)


def _each(value: Any, convert: Convert | None) -> Any:
    return value if convert is None or value is None else convert(value)


def _within(t: SqlType, each: Convert | None) -> Convert | None:
    """The conversion of the values within an ARRAY or a MAP."""
    if each is None:
        return None
    if t.kind is Kind.ARRAY:
        return lambda items: [_each(x, each) for x in items]
    return lambda items: {k: _each(x, each) for k, x in items.items()}


def objects(t: SqlType, hint: Any, leaf: Callable[[SqlType], Convert | None]) -> Convert | None:
    """From a reference value to what a parameter annotated `hint` takes. leaf: does it for types without a STRUCT."""
    hint = without_none(hint)
    if is_row(hint):
        hints = hints_of(hint)
        parts = [(n, n.casefold(), objects(f, hints[n], leaf)) for n, f in t.fields]

        def made(value: Mapping[str, Any]) -> Any:
            known = {k.casefold(): v for k, v in value.items()}
            return hint(**{n: _each(known.get(key), convert) for n, key, convert in parts})

        return made
    return _within(t, objects(t.element, typing.get_args(hint)[-1], leaf)) if has_rows(t) else leaf(t)


def without_none(hint: Any) -> Any:
    """X of `X | None`; all others are themselves."""
    if typing.get_origin(hint) is typing.Annotated or type(None) not in typing.get_args(hint):
        return hint
    rest = [a for a in typing.get_args(hint) if a is not type(None)]
    return rest[0] if len(rest) == 1 else hint


def as_data(value: Any) -> Any:
    """Objects of classes of rows as dicts."""
    if is_row(type(value)):
        return {n: as_data(getattr(value, n)) for n in names_of(type(value))}
    if isinstance(value, list | tuple):
        return [as_data(v) for v in value]
    if isinstance(value, dict):
        return {k: as_data(v) for k, v in value.items()}
    return value
