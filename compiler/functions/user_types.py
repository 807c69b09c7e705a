"""Annotations of user-defined functions as SQL types, and values as such functions take and give them."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from flowql.compiler.functions.numeric import fit_decimal
from flowql.compiler.functions.signatures import AnyDecimal, Pattern
from flowql.compiler.functions.user_rows import classes_of, hints_of, pattern_of, without_none
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
    array,
    decimal,
    map_of,
    struct,
)

_TYPES: dict[object, SqlType] = {
    bool: BOOLEAN,
    int: BIGINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    date: DATE,
    time: TIME,
    datetime: TIMESTAMP,
}
_EPOCH, _EPOCH_DAY = datetime(1970, 1, 1), date(1970, 1, 1).toordinal()
_MS = timedelta(milliseconds=1)
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1


class DefinitionError(Exception):
    """A function whose types cannot be told from its annotations. hint: what to write.

    code, part: of which function, and which parameter of it, or "return", it is a mistake; "" for the function as a whole.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
        self.code: types.CodeType | None = None
        self.part = ""


@contextmanager
def part_of(function: Callable[..., Any], part: str = "") -> Iterator[None]:
    """Within, mistakes are those of that part of a function, as for `DefinitionError`, unless they say another one."""
    try:
        yield
    except DefinitionError as error:
        if error.code is None:
            error.code, error.part = getattr(function, "__code__", None), part
        raise


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a function in its own process. timeout_s: of a call. memory_bytes: of the process, beyond what it has without the module.
    inline: queries call it in the engine's threads, without limits; interactive ones have a process in any case.
    """

    timeout_s: float
    memory_bytes: int
    inline: bool = False


TIMEOUT_S, MEMORY_MB = 30.0, 1024
DEFAULT_LIMITS = Limits(TIMEOUT_S, MEMORY_MB << 20)
INLINE = Limits(TIMEOUT_S, MEMORY_MB << 20, inline=True)


def called(user: str, call: Callable[..., Any], *args: Any) -> Any:
    """The result of a function of a user, where what ends a process is an error as others are."""
    try:
        return call(*args)
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(f"{user} raised {type(error).__name__}") from None


def parameters_of(
    function: Callable[..., Any],
    name: str,
    *,
    asynchronous: bool = False,
    help: str = "define the function without async",
) -> tuple[str, ...]:
    """The names of its parameters. Raises DefinitionError for those of which SQL has none, and for coroutines where no asynchronous function is made.

    help: what to write instead of a coroutine.
    """
    code = getattr(function, "__code__", None)
    if code is None:
        raise DefinitionError(f"{name} is not a function that `def` makes", "def it, and call the other one inside")
    if code.co_flags & (0x04 | 0x08) or code.co_kwonlyargcount:
        raise DefinitionError(f"{name} has parameters that are not positional", "def it with plain parameters")
    if code.co_flags & 0x200 or (code.co_flags & 0x80 and not asynchronous):
        raise DefinitionError(f"{name} is asynchronous", help)
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    return names


def hint_of(function: Callable[..., Any], part: str, name: str) -> Any:
    """The annotation of a parameter or of `return`. Raises DefinitionError if there is none."""
    hints = typing.get_type_hints(function, include_extras=True)
    if part not in hints:
        of, example = ("its result", "-> float:") if part == "return" else (f"its parameter {part}", f"{part}: float")
        raise DefinitionError(f"{name} does not say the type of {of}", example)
    return hints[part]


def parameter_type(hint: Any, name: str, place: int, *, rows: bool = False) -> tuple[Pattern, bool]:
    """The type of an argument, and whether it may be NULL. Decimal: a DECIMAL of any precision and scale. rows: as for `sql_type`."""
    some = without_none(hint)
    if some is Decimal:
        return AnyDecimal(f"D{place}"), some is not hint
    found, nullable = sql_type(hint, name, rows=rows)
    for made in classes_of(some):
        try:
            inspect.signature(made).bind(**dict.fromkeys(hints_of(made)))
        except TypeError as error:
            title = f"{name} takes {made.__name__}, which cannot be made from its fields alone: {error}"
            raise DefinitionError(title, "a class whose fields, and nothing else, are parameters of __init__") from None
    return pattern_of(found, f"R{place}"), nullable


def parameter_types(
    function: Callable[..., Any], names: Sequence[str], name: str, *, rows: bool = False
) -> list[tuple[Pattern, bool]]:
    """As `parameter_type`, of the parameters `names` of a function. Raises DefinitionError."""
    found = []
    for place, parameter in enumerate(names):
        with part_of(function, parameter):
            found.append(parameter_type(hint_of(function, parameter, name), name, place, rows=rows))
    return found


def sql_type(hint: Any, name: str, *, rows: bool = False, within: tuple[Any, ...] = ()) -> tuple[SqlType, bool]:
    """The type of an annotation, and whether None is among its values. rows: a class of rows is a STRUCT. within: classes that it is a part of."""
    inner = partial(sql_type, rows=rows, within=within)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if (some := without_none(hint)) is not hint:
        return inner(some, name)[0], True
    if origin is typing.Annotated and args[0] is Decimal:
        return _decimal(args[1:], name), False
    if origin is list and len(args) == 1:
        return array(inner(args[0], name)[0]), False
    if origin is dict and len(args) == 2 and args[0] is str:
        return map_of(STRING, inner(args[1], name)[0]), False
    if isinstance(hint, Hashable) and hint in _TYPES:
        return _TYPES[hint], False
    if rows and (fields := hints_of(hint)):
        if hint in within:
            raise DefinitionError(
                f"{name} has {hint.__name__}, which is within itself", "a list[...] of a class that is not"
            )
        folded = [n.casefold() for n in fields]
        if twice := next((n for n in fields if folded.count(n.casefold()) > 1), None):
            raise DefinitionError(
                f"{name} has {hint.__name__} with several fields {twice}, whose case SQL does not tell apart",
                "other names",
            )
        found = {n: sql_type(h, f"{name}: {n}", rows=True, within=(*within, hint))[0] for n, h in fields.items()}
        return struct(*found.items()), False
    said = getattr(hint, "__name__", None) if origin is None else None
    known = "list[...], dict[str, ...] and dataclasses" if rows else "list[...] and dict[str, ...]"
    hint_ = f"bool, int, float, str, bytes, date, time, datetime, {known} have one"
    if hint is Decimal:
        hint_ = "Annotated[Decimal, 12, 2]   # DECIMAL(12, 2)"
    raise DefinitionError(f"{name} has the annotation {said or hint}, which has no SQL type", hint_)


def _decimal(digits: tuple[Any, ...], name: str) -> SqlType:
    if len(digits) == 2 and all(type(d) is int for d in digits) and 0 <= digits[1] <= digits[0] <= 38 and digits[0] > 0:
        return decimal(*digits)
    raise DefinitionError(
        f"{name} has the annotation Annotated[Decimal, {', '.join(map(repr, digits))}], which is not a valid DECIMAL",
        "Annotated[Decimal, 12, 2]   # DECIMAL(12, 2)",
    )


_TAKEN: dict[Kind, Callable[[Any], Any]] = {
    Kind.DATE: lambda days: date.fromordinal(_EPOCH_DAY + days),
    Kind.TIME: lambda ms: (_EPOCH + ms * _MS).time(),
    Kind.TIMESTAMP: lambda ms: _EPOCH + ms * _MS,
}


def _taken_struct(t: SqlType) -> Callable[[Any], Any] | None:
    takes = [(n, take) for n, f in t.fields if (take := taker(f)) is not None]
    if not takes:
        return None
    return lambda value: {**value, **{n: take(value[n]) for n, take in takes if value[n] is not None}}


def taker(t: Pattern) -> Callable[[Any], Any] | None:
    """From a reference value to what a function takes; None where they are the same. Not of NULL."""
    if not isinstance(t, SqlType):
        return None
    if t.kind is Kind.STRUCT:
        return _taken_struct(t)
    inner = taker(t.args[-1]) if t.kind in (Kind.ARRAY, Kind.MAP) else None
    if inner is None:
        return _TAKEN.get(t.kind)
    if t.kind is Kind.ARRAY:
        return lambda items: [None if x is None else inner(x) for x in items]
    return lambda items: {k: None if x is None else inner(x) for k, x in items.items()}


def _given_timestamp(value: datetime) -> int:
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return (value - _EPOCH) // _MS


def _given_text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it returned a string with half of a surrogate pair") from None
    return str(value)


def _given_time(value: time) -> int:
    if value.tzinfo is not None:
        raise ValueError("it returned a time with a zone")
    return (datetime.combine(_EPOCH, value) - _EPOCH) // _MS


def _given_decimal(value: Decimal | int, precision: int, scale: int) -> Decimal:
    found = Decimal(value)
    if not found.is_finite():
        raise ValueError(f"it returned {found} where DECIMAL({precision}, {scale}) is declared")
    return fit_decimal(found, precision, scale)


def _given_int32(value: int) -> int:
    if -(1 << 31) <= value < 1 << 31:
        return int(value)
    raise OverflowError(f"{value} is beyond 32 bits")


def _given_int(value: int) -> int:
    if _INT_MIN <= value <= _INT_MAX:
        return int(value)
    raise OverflowError(f"{value} is beyond 64 bits")


_GIVEN: dict[Kind, tuple[tuple[type, ...], Callable[[Any], Any]]] = {
    Kind.BOOLEAN: ((bool,), bool),
    Kind.INT: ((int,), _given_int32),
    Kind.BIGINT: ((int,), _given_int),
    Kind.DOUBLE: ((float, int), float),
    Kind.STRING: ((str,), _given_text),
    Kind.BYTES: ((bytes, bytearray), bytes),
    Kind.DATE: ((date,), lambda d: d.toordinal() - _EPOCH_DAY),
    Kind.TIME: ((time,), _given_time),
    Kind.TIMESTAMP: ((datetime,), _given_timestamp),
}


def giver(t: SqlType) -> Callable[[Any], Any]:
    """Checks a value that a function returned, and makes it a reference value. Raises TypeError, OverflowError."""
    if t.kind is Kind.ARRAY:
        return _many(list, t, lambda inner: lambda items: [None if x is None else inner(x) for x in items])
    if t.kind is Kind.MAP:
        return _many(
            dict, t, lambda inner: lambda items: {_text(k): None if x is None else inner(x) for k, x in items.items()}
        )
    if t.kind is Kind.STRUCT:
        return _struct(t)
    if t.kind is Kind.DECIMAL:
        allowed: tuple[type, ...] = (Decimal, int)
        make: Callable[[Any], Any] = lambda v: _given_decimal(v, t.precision, t.scale)  # noqa: E731
    else:
        allowed, make = _GIVEN[t.kind]

    def give(value: Any) -> Any:
        kind = type(value)
        if kind not in allowed and (
            not isinstance(value, allowed)
            or isinstance(value, bool)
            or (t.kind is Kind.DATE and isinstance(value, datetime))
        ):
            raise TypeError(f"it returned {kind.__name__}, but {t} is declared")
        return make(value)

    return give


def _struct(t: SqlType) -> Callable[[Any], Any]:
    """The conversion of a dict by field names to a STRUCT; missing fields become NULL."""
    fields = [(n, giver(f)) for n, f in t.fields]
    names = frozenset(n for n, _ in fields)

    def give(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"it returned {type(value).__name__}, but {t} is declared")
        if unknown := value.keys() - names:
            raise ValueError(f"{t} has no field {sorted(map(str, unknown))[0]}")
        return {n: None if (v := value.get(n)) is None else g(v) for n, g in fields}

    return give


def _many(kind: type, t: SqlType, of: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]) -> Callable[[Any], Any]:
    make = of(giver(t.args[-1]))

    def give(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"it returned {type(value).__name__}, but {t} is declared")
        return make(value)

    return give


def _text(key: Any) -> str:
    if isinstance(key, str):
        return _given_text(key)
    raise TypeError(f"it returned a dict with a key of type {type(key).__name__}")
