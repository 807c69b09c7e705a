"""User-defined functions of a project: annotated Python functions, called from SQL.

A function is part of a plan by its name, its module and the version of that (`SCORE@scoring:3f2a91c04b1d`), so two versions, or two projects with a
function of the same name, may be in one process, and a query whose function was edited is another query.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, TypeVar, Union, overload

from flowql.compiler.functions.registry import Function, QueryFailure, Resolution, lookup
from flowql.compiler.functions.signatures import Overload, resolver
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
    map_of,
)

F = TypeVar("F", bound=Callable[..., Any])
Isolation = Literal["inline"]

_MODULE, _VERSION = "@", ":"
MARK = "__flowql_function__"  # the attribute of a function that has its UserFunction
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
_finders: list[Callable[[str], None]] = []  # of the instances in this process


class DefinitionError(Exception):
    """A function whose types cannot be told from its annotations. hint: what to write."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A scalar function, as SQL calls it. nullable: which of its parameters may be NULL. version: given by its author; else its module has one."""

    name: str
    call: Callable[..., Any]
    params: tuple[SqlType, ...]
    nullable: tuple[bool, ...]
    result: SqlType
    deterministic: bool = True
    version: str = ""


@overload
def udf(function: F, /) -> F: ...
@overload
def udf(
    *, name: str | None = None, deterministic: bool = True, version: str = "", isolation: Isolation = "inline"
) -> Callable[[F], F]: ...
def udf(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    deterministic: bool = True,
    version: str = "",
    isolation: Isolation = "inline",
) -> Any:
    """Makes a Python function callable in SQL, for projects that name its module in `functions` of flowql.yaml.

    Types come from the annotations: bool, int (BIGINT), float (DOUBLE), str, bytes, date, time, datetime (TIMESTAMP, without a zone),
    list[...] (ARRAY) and dict[str, ...] (MAP). A row with a NULL argument gives NULL without a call, unless the parameter is
    annotated `... | None`. An exception makes the value NULL and the record a dead letter. Functions run in the engine's threads
    (`isolation="inline"`): one that does not return holds up its query and takes a thread.

    name: in SQL, in capitals; default: the function's. deterministic: False if the same arguments may give another result; a
    rebuild then says so. version: of letters and digits; queries are rebuilt when it changes, in place of whenever the source of the
    module or of one that it imports does. Raises DefinitionError.

    >>> @udf
    ... def net(price: float, vat: float | None) -> float:
    ...     return price / (1 + (vat or 0.19))
    >>> net(119.0, None)
    100.0
    """

    def mark(f: Callable[..., Any]) -> Callable[..., Any]:
        if isolation != "inline":
            raise DefinitionError(f'isolation="{isolation}" is not supported', 'isolation="inline"')
        if version and not version.isalnum():
            raise DefinitionError(f"version {version!r} has other characters than letters and digits", 'version="2"')
        sql_name = (name or f.__name__).upper()
        if not sql_name.isidentifier() or not sql_name.isascii():
            raise DefinitionError(f"{sql_name!r} cannot be called in SQL", 'name="SCORE"')
        setattr(f, MARK, replace(_declared(f, sql_name), deterministic=deterministic, version=version))
        return f

    return mark if function is None else mark(function)


def _declared(function: Callable[..., Any], name: str) -> UserFunction:
    code = getattr(function, "__code__", None)
    if code is None:
        raise DefinitionError(f"{name} is not a function that `def` makes", "def it, and call the other one inside")
    if code.co_flags & (0x04 | 0x08) or code.co_kwonlyargcount:
        raise DefinitionError(f"{name} has parameters without a place of their own", "def it with plain parameters")
    if code.co_flags & (0x20 | 0x80 | 0x200):
        raise DefinitionError(f"{name} is a generator or asynchronous", "return a value, or a list")
    hints = typing.get_type_hints(function)
    names = code.co_varnames[: code.co_argcount]
    for missing in (n for n in (*names, "return") if n not in hints):
        of = "its result" if missing == "return" else f"its parameter {missing}"
        raise DefinitionError(f"{name} does not say the type of {of}", f"def {function.__name__}(amount: float) -> str")
    found = [_sql_type(hints[n], name) for n in names]
    result, _ = _sql_type(hints["return"], name)
    return UserFunction(
        name,
        function,
        tuple(t for t, _ in found),
        tuple(nullable for _, nullable in found),
        result,
    )


def _sql_type(hint: Any, name: str) -> tuple[SqlType, bool]:
    """Of an annotation, and whether None is among its values."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        rest = [a for a in args if a is not type(None)]
        if len(rest) == 1:
            return _sql_type(rest[0], name)[0], True
    elif origin is list and len(args) == 1:
        return array(_sql_type(args[0], name)[0]), False
    elif origin is dict and len(args) == 2 and args[0] is str:
        return map_of(STRING, _sql_type(args[1], name)[0]), False
    elif hint in _TYPES:
        return _TYPES[hint], False
    said = getattr(hint, "__name__", None) if origin is None else None
    hint_ = "bool, int, float, str, bytes, date, time, datetime, list[...] and dict[str, ...] have one"
    if hint is Decimal:
        hint_ = "give and take float, and cast in SQL:  CAST(F(X) AS DECIMAL(9, 2))"
    raise DefinitionError(f"{name} has the annotation {said or hint}, which has no SQL type", hint_)


def marked(module: types.ModuleType) -> list[UserFunction]:
    """The functions that `udf` has marked, in the order of the module's names, those that it imports included."""
    found = [getattr(value, MARK) for value in vars(module).values() if hasattr(value, MARK)]
    return [user for user in found if isinstance(user, UserFunction)]


def plain_name(name: str) -> str:
    """The name that people use."""
    return name.partition(_MODULE)[0]


def module_name(name: str) -> str:
    """The module of a function, by its name in plans."""
    return name.partition(_MODULE)[2].rpartition(_VERSION)[0]


def is_users(name: str) -> bool:
    """Whether this is the name of a user-defined function in plans."""
    return _MODULE in name


def function_of(user: UserFunction, module: str, version: str) -> Function:
    """The entry of the catalogue. version: of the module."""
    required = tuple(i for i, nullable in enumerate(user.nullable) if not nullable)
    return Function(
        f"{user.name}{_MODULE}{module}{_VERSION}{user.version or version}",
        resolver(user.name, Overload(user.params, user.result)),
        lambda _: _reference(user, required),
        null_propagating=len(required) == len(user.params),
        deterministic=user.deterministic,
    )


@contextmanager
def finding(find: Callable[[str], None]) -> Iterator[None]:
    """Within, `find` is asked for functions of projects that are not registered, by their names in plans; it registers them if it can."""
    _finders.append(find)
    try:
        yield
    finally:
        _finders.remove(find)


def function_in_plan(name: str) -> Function | None:
    """The function of that name. A version of a project's function that is nowhere found fails the queries that call it."""
    found = lookup(name)
    if found is not None or not is_users(name):
        return found
    for find in list(_finders):
        find(name)
    return lookup(name) or _missing(name)


def _missing(name: str) -> Function:
    """A stand-in for a version that cannot be loaded: its calls raise QueryFailure, so their queries fail and are retried with back-off."""
    why = (
        f"the function {plain_name(name)} was deployed in a version that the module {module_name(name)} does not have here: it was edited, "
        "removed, or cannot be imported (see flowql validate); flowql deploy makes the queries call the present version"
    )

    def reference(resolution: Resolution) -> Callable[..., Any]:
        def call(*_: Any) -> Any:
            raise QueryFailure(why)

        return call

    def resolve(_: tuple[SqlType, ...]) -> Resolution:
        raise AssertionError("it is in a plan already")

    return Function(name, resolve, reference, null_propagating=False, deterministic=False)


def _reference(user: UserFunction, required: Sequence[int]) -> Callable[..., Any]:
    take = [_taker(t) for t in user.params]
    give, call = _giver(user.result), user.call
    skips, plain = len(required) < len(user.params), not any(take)

    def reference(*args: Any) -> Any:
        if skips and any(args[i] is None for i in required):
            return None
        if not plain:
            args = tuple(a if t is None or a is None else t(a) for a, t in zip(args, take, strict=True))
        try:
            value = call(*args)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            raise RuntimeError(f"{user.name} raised {type(error).__name__}") from None
        return None if value is None else give(value)

    return reference


_TAKEN: dict[Kind, Callable[[Any], Any]] = {
    Kind.DATE: lambda days: date.fromordinal(_EPOCH_DAY + days),
    Kind.TIME: lambda ms: (_EPOCH + ms * _MS).time(),
    Kind.TIMESTAMP: lambda ms: _EPOCH + ms * _MS,
}


def _taker(t: SqlType) -> Callable[[Any], Any] | None:
    """From a reference value to what a function takes; None where they are the same. Not of NULL."""
    inner = _taker(t.args[-1]) if t.kind in (Kind.ARRAY, Kind.MAP) else None
    if inner is None:
        return _TAKEN.get(t.kind)
    if t.kind is Kind.ARRAY:
        return lambda items: [None if x is None else inner(x) for x in items]
    return lambda items: {k: None if x is None else inner(x) for k, x in items.items()}


def _given_timestamp(value: datetime) -> int:
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return (value - _EPOCH) // _MS


def _given_int(value: int) -> int:
    if _INT_MIN <= value <= _INT_MAX:
        return int(value)
    raise OverflowError(f"{value} is beyond 64 bits")


_GIVEN: dict[Kind, tuple[tuple[type, ...], Callable[[Any], Any]]] = {
    Kind.BOOLEAN: ((bool,), bool),
    Kind.BIGINT: ((int,), _given_int),
    Kind.DOUBLE: ((float, int), float),
    Kind.STRING: ((str,), str),
    Kind.BYTES: ((bytes, bytearray), bytes),
    Kind.DATE: ((date,), lambda d: d.toordinal() - _EPOCH_DAY),
    Kind.TIME: ((time,), lambda t: (datetime.combine(_EPOCH, t) - _EPOCH) // _MS),
    Kind.TIMESTAMP: ((datetime,), _given_timestamp),
}


def _giver(t: SqlType) -> Callable[[Any], Any]:
    """Checks a value that a function returned, and makes it a reference value. Raises TypeError, OverflowError."""
    if t.kind is Kind.ARRAY:
        return _many(list, t, lambda inner: lambda items: [None if x is None else inner(x) for x in items])
    if t.kind is Kind.MAP:
        return _many(
            dict, t, lambda inner: lambda items: {_text(k): None if x is None else inner(x) for k, x in items.items()}
        )
    allowed, make = _GIVEN[t.kind]

    def give(value: Any) -> Any:
        kind = type(value)
        if kind not in allowed and (
            not isinstance(value, allowed)
            or isinstance(value, bool)
            or (t.kind is Kind.DATE and isinstance(value, datetime))
        ):
            raise TypeError(f"it returned {kind.__name__} where {t} is declared")
        return make(value)

    return give


def _many(kind: type, t: SqlType, of: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]) -> Callable[[Any], Any]:
    make = of(_giver(t.args[-1]))

    def give(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"it returned {type(value).__name__} where {t} is declared")
        return make(value)

    return give


def _text(key: Any) -> str:
    if isinstance(key, str):
        return key
    raise TypeError(f"it returned a dict with a key of type {type(key).__name__}")
