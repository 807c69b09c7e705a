"""User-defined functions of a project: annotated Python functions, called from SQL.

A function is part of a plan by its name, its module and the version of that (`SCORE@scoring:3f2a91c04b1d`), so two versions, or two projects with a
function of the same name, may be in one process, and a query whose function was edited is another query.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from types import ModuleType
from typing import Any, Literal, Protocol, TypeVar, overload, runtime_checkable

from flowql.compiler.functions.asynchronous import IN_FLIGHT, AsyncOptions, Order, Retry, checked_options
from flowql.compiler.functions.bounds import bounded
from flowql.compiler.functions.registry import (
    AggregateFunction,
    AsyncFunction,
    Function,
    QueryFailure,
    Registered,
    lookup,
    lookup_aggregate,
    resolver,
)
from flowql.compiler.functions.signatures import Overload, Pattern, Resolution
from flowql.compiler.functions.user_rows import as_data, has_rows, naming, objects, without_none
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
from flowql.compiler.plan.types import BIGINT, SqlType, array

F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E")
Isolation = Literal["process", "inline"]
Entry = Registered

_MODULE, _VERSION = "@", ":"
_IN_TEXT = re.compile(rf"\b([A-Za-z_]\w*){_MODULE}[\w.]+{_VERSION}\w+")
MARK = "__flowql_function__"  # the attribute of a function or class that has its `UserDefined`
ROWS_MAX = 1_000_000  # that one call of a table function gives
_LISTS = (list, Iterator, Iterable, Generator)
_finders: list[Callable[[str], None]] = []  # of the instances in this process


@runtime_checkable
class UserDefined(Protocol):
    """The result of a decorator on a function or class.

    version: given by its author; else its module has one. limits: of calls in a process of its own.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    def entry(self, name: str) -> Entry:
        """Its entry in the catalogue. name: its name in plans."""


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A scalar or table function, as SQL calls it. nullable: which of its parameters may be NULL. result: for a table function, of one row; names of
    fields are those of its class. hints: annotations of the parameters.
    """

    name: str
    call: Callable[..., Any]
    params: tuple[Pattern, ...]
    nullable: tuple[bool, ...]
    result: SqlType
    hints: tuple[Any, ...] = ()
    table: bool = False
    deterministic: bool = True
    version: str = ""
    limits: Limits = DEFAULT_LIMITS
    asynchronous: AsyncOptions | None = None

    @property
    def required(self) -> tuple[int, ...]:
        """Places of the parameters that may not be NULL."""
        return tuple(i for i, nullable in enumerate(self.nullable) if not nullable)

    @property
    def is_coroutine(self) -> bool:
        """Whether a call gives something to await."""
        return bool(self.call.__code__.co_flags & 0x80)

    def entry(self, name: str) -> Function:
        return Function(
            name,
            resolver(self.name, Overload(self.params, self.result)),
            lambda found: naming(_reference(self), found.result, many=self.table),
            null_propagating=len(self.required) == len(self.params),
            table=self.table,
            deterministic=self.deterministic,
            asynchronous=self._asynchronous(name),
            folds=has_rows(self.result),
        )

    def _asynchronous(self, name: str) -> AsyncFunction | None:
        if self.asynchronous is None:
            return None
        call = awaited(self) if self.is_coroutine else _reference(self)
        return AsyncFunction(self.asynchronous, call, self.is_coroutine, self.required, name)


@overload
def udf(function: F, /) -> F: ...
@overload
def udf(
    *,
    name: str | None = None,
    vectorized: bool = False,
    deterministic: bool | None = None,
    version: str = "",
    isolation: Isolation = "process",
    timeout: float = TIMEOUT_S,
    memory_mb: int = MEMORY_MB,
    asynchronous: bool = False,
    max_in_flight: int = IN_FLIGHT,
    retry: Retry | None = None,
    order: Order = "key",
) -> Callable[[F], F]: ...
def udf(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    vectorized: bool = False,
    deterministic: bool | None = None,
    version: str = "",
    isolation: Isolation = "process",
    timeout: float = TIMEOUT_S,
    memory_mb: int = MEMORY_MB,
    asynchronous: bool = False,
    max_in_flight: int = IN_FLIGHT,
    retry: Retry | None = None,
    order: Order = "key",
) -> Any:
    """Makes a Python function callable in SQL, if `functions` of flowql.yaml names its module.

    Types come from annotations: bool, int (BIGINT), float (DOUBLE), str, bytes, date, time, datetime (TIMESTAMP,
    without a zone), list[...] (ARRAY), dict[str, ...] (MAP), dataclasses and msgspec.Structs (STRUCT with these
    fields in any case; an argument may have more), Decimal (any DECIMAL) and Annotated[Decimal, 12, 2] (DECIMAL(12,
    2)). A NULL argument gives NULL without a call, unless the parameter is annotated `... | None`. An exception
    makes the value NULL and the record a dead letter; in standard SQL the row contributes nothing.

    isolation="process": a process for each module and calling thread. A call that exceeds `timeout` seconds or
    `memory_mb` (the largest of the module), or crashes, counts as an exception. isolation="inline": in the engine's
    threads. A call that does not return blocks a thread; a crash ends the instance.

    vectorized: takes and returns Arrow arrays of a batch: pa.BooleanArray, Int64Array (BIGINT), DoubleArray,
    StringArray, BinaryArray, Date32Array, Time32Array (ms), TimestampArray (ms), Annotated[pa.ListArray,
    list[float]] (ARRAY<DOUBLE>), Annotated[pa.MapArray, dict[str, float]] (MAP) or Annotated[pa.StructArray, Point]
    with a dataclass or msgspec.Struct (STRUCT). Results depend on their row only; arrays contain NULLs. A failed
    batch is repeated row by row.

    asynchronous: an `async def`, or a blocking function that runs in threads. A task runs up to `max_in_flight`
    calls at once, each for up to `timeout`. retry: how failed calls are repeated (`flowql.exponential()`,
    `flowql.fixed(5)`); default: the record becomes a dead letter. `raise flowql.RetryAfter(...)` delays a call. order:
    which rows keep their order: "key" (those of a key), "input" (those of a partition) or "none". Calls happen at
    least once, results exactly once.

    name: the name in SQL, in upper case; default: the function's. deterministic: False if equal arguments may give
    different results (default for asynchronous functions); `flowql plan` then warns. version: letters and digits. If
    it is given, only a new version rebuilds queries; edits of modules do not. Raises DefinitionError.

    >>> @udf
    ... def net(price: float, vat: float | None) -> float:
    ...     return price / (1 + (vat or 0.19))
    >>> net(119.0, None)
    100.0
    """

    def mark(f: Callable[..., Any]) -> Callable[..., Any]:
        sql_name, limits = checked_name(name or f.__name__, version), checked_limits(isolation, timeout, memory_mb)
        repeatable = not asynchronous if deterministic is None else deterministic
        if vectorized:
            if asynchronous:
                raise DefinitionError(f"{sql_name} is vectorized and asynchronous", "leave vectorized out")
            from flowql.compiler.functions.user_vectorized import vectorized as over_columns  # Arrow: 0.1 s

            made = over_columns(f, sql_name, deterministic=repeatable, version=version, limits=limits)
            setattr(f, MARK, made)
            return f
        if not asynchronous and (retry is not None or max_in_flight != IN_FLIGHT or order != "key"):
            raise DefinitionError(
                f"{sql_name} has retry, max_in_flight or order, and is called one row after the other",
                "asynchronous=True",
            )
        options = checked_options(max_in_flight, float(timeout), retry, order) if asynchronous else None
        return _marked(
            f,
            sql_name,
            table=False,
            deterministic=repeatable,
            version=version,
            limits=limits,
            asynchronous=options,
        )

    return mark if function is None else mark(decorated(function, "udf"))


@overload
def udtf(function: F, /) -> F: ...
@overload
def udtf(
    *,
    name: str | None = None,
    deterministic: bool = True,
    version: str = "",
    isolation: Isolation = "process",
    timeout: float = TIMEOUT_S,
    memory_mb: int = MEMORY_MB,
) -> Callable[[F], F]: ...
def udtf(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    deterministic: bool = True,
    version: str = "",
    isolation: Isolation = "process",
    timeout: float = TIMEOUT_S,
    memory_mb: int = MEMORY_MB,
) -> Any:
    """Makes a Python function a table function in SQL. It is annotated `list[...]`, or `Iterator[...]` if it yields.

    Each value becomes one row (at most 1,000,000). An empty result gives no row. The rest is as for `udf`.

    >>> @udtf
    ... def words(line: str) -> Iterator[str]:
    ...     yield from line.split()
    >>> list(words("to be"))
    ['to', 'be']
    """

    def mark(f: Callable[..., Any]) -> Callable[..., Any]:
        sql_name, limits = checked_name(name or f.__name__, version), checked_limits(isolation, timeout, memory_mb)
        return _marked(f, sql_name, table=True, deterministic=deterministic, version=version, limits=limits)

    return mark if function is None else mark(decorated(function, "udtf"))


def decorated(function: Any, decorator: str) -> Any:
    """The function or class under a decorator without arguments. Raises DefinitionError for another argument."""
    if callable(function):
        return function
    raise DefinitionError(f"@{decorator} has the argument {function!r}, which has no name", f"@{decorator}(name=...)")


def checked_limits(isolation: str, timeout: float, memory_mb: int) -> Limits:
    """Raises DefinitionError."""
    if isolation not in typing.get_args(Isolation):
        raise DefinitionError(f'isolation="{isolation}" is not known', 'isolation="process" or isolation="inline"')
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise DefinitionError(f"timeout={timeout!r} is not a number of seconds", "timeout=5.0")
    if isinstance(memory_mb, bool) or not isinstance(memory_mb, int) or memory_mb <= 0:
        raise DefinitionError(f"memory_mb={memory_mb!r} is not a number of megabytes", "memory_mb=4096")
    return Limits(float(timeout), memory_mb << 20, inline=isolation == "inline")


def checked_name(name: str, version: str) -> str:
    """The name in SQL. Raises DefinitionError, also for the version."""
    for part, value in (("name", name), ("version", version)):
        if not isinstance(value, str):
            raise DefinitionError(f"{part}={value!r} is not a string", f'{part}="{value}"')
    if version and not version.isalnum():
        raise DefinitionError(f"version {version!r} has other characters than letters and digits", 'version="2"')
    if not name.isidentifier() or not name.isascii():
        raise DefinitionError(f"{name.upper()!r} cannot be called in SQL", 'name="SCORE"')
    return name.upper()


def _marked(
    function: Callable[..., Any],
    name: str,
    *,
    table: bool,
    deterministic: bool,
    version: str,
    limits: Limits,
    asynchronous: AsyncOptions | None = None,
) -> Callable[..., Any]:
    coroutine = "use @udf(asynchronous=True), or define the function without async"
    with part_of(function):
        names = parameters_of(function, name, asynchronous=asynchronous is not None, help=coroutine)
        if not table and function.__code__.co_flags & 0x20:
            raise DefinitionError(f"{name} is a generator", "return a value or a list, or decorate it with @udtf")
    found, hints = (
        parameter_types(function, names, name, rows=True),
        typing.get_type_hints(function, include_extras=True),
    )
    with part_of(function, "return"):
        given = hint_of(function, "return", name)
        result = _rows_type(given, name) if table else sql_type(given, name, rows=True)[0]
    params, nullable = tuple(t for t, _ in found), tuple(n for _, n in found)
    made = UserFunction(
        name,
        function,
        params,
        nullable,
        result,
        tuple(hints[n] for n in names),
        table=table,
        deterministic=deterministic,
        version=version,
        limits=limits,
        asynchronous=asynchronous,
    )
    setattr(function, MARK, made)
    return function


def _rows_type(hint: Any, name: str) -> SqlType:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in _LISTS and args:
        return sql_type(args[0], name, rows=True)[0]
    said = getattr(hint, "__name__", None) if origin is None else None
    raise DefinitionError(f"{name} gives {said or hint}, which is one value, not rows", "-> list[...] or Iterator[...]")


def _mark_of(value: Any) -> Any:
    """Objects of the user may raise anything when they are asked for an attribute."""
    try:
        return getattr(value, MARK, None)
    except Exception:
        return None


def marked(module: ModuleType) -> list[UserDefined]:
    """The marked functions of a module, in the order of its names, imported ones included."""
    found = [mark for value in list(vars(module).values()) if (mark := _mark_of(value)) is not None]
    users = [user for user in found if isinstance(user, UserDefined)]
    return [each for user in users for each in (user, *getattr(user, "parts", ()))]


def plain_name(name: str) -> str:
    """The name that people use."""
    return name.partition(_MODULE)[0]


def plain_names(text: str) -> str:
    """A text with the names that people use."""
    return _IN_TEXT.sub(r"\1", text)


def module_name(name: str) -> str:
    """The module of a function, by its name in plans."""
    return name.partition(_MODULE)[2].rpartition(_VERSION)[0]


def is_users(name: str) -> bool:
    """Whether a function in plans is user-defined: its name contains `@`, and no built-in name does."""
    return _MODULE in name


def entry_of(user: UserDefined, module: str, version: str) -> Entry:
    """The entry of the catalogue. version: of the module."""
    return user.entry(f"{user.name}{_MODULE}{module}{_VERSION}{user.version or version}")


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
    return found_in_plan(name, lookup, _missing)


def aggregate_in_plan(name: str) -> AggregateFunction | None:
    """As `function_in_plan`, for an aggregate."""
    return found_in_plan(name, lookup_aggregate, _missing_aggregate)


def found_in_plan(name: str, known: Callable[[str], E | None], missing: Callable[[str], E | None]) -> E | None:
    """The entry of `known` under that name, after the finders were asked; else the result of `missing`, for a name of a project."""
    found = known(name)
    if found is not None or not is_users(name):
        return found
    for find in list(_finders):
        find(name)
    return known(name) or missing(name)


def _failing(name: str) -> Callable[..., Any]:
    """Stands for a version that cannot be loaded: raises QueryFailure, so the queries that call it fail and are retried with back-off."""
    why = (
        f"the function {plain_name(name)} was deployed in a version that the module {module_name(name)} does not have here: it was edited, "
        "removed, or cannot be imported (see flowql validate); flowql deploy makes the queries call the present version"
    )

    def call(*_: Any) -> Any:
        raise QueryFailure(why)

    return call


def _missing(name: str) -> Function:
    def resolve(_: tuple[SqlType, ...]) -> Resolution:
        raise AssertionError("it is in a plan already")

    return Function(name, resolve, lambda _: _failing(name), null_propagating=False, deterministic=False)


def _missing_aggregate(name: str) -> AggregateFunction:
    step = _failing(name)
    bind: Callable[..., Callable[..., Any]] = lambda *_: step  # noqa: E731
    as_in_plan: Callable[..., Resolution] = lambda types, _: Resolution(types, types[0] if types else BIGINT)  # noqa: E731
    return AggregateFunction(name, as_in_plan, lambda *_: None, bind, bind, undo=bind, merge=bind, of_rows=bind)


def _takers(user: UserFunction) -> list[Callable[[Any], Any] | None]:
    return [_taker(hint, user.name) for hint in user.hints]


def _taker(hint: Any, name: str) -> Callable[[Any], Any] | None:
    """From a reference value to what a parameter takes; None where they are the same."""
    return None if without_none(hint) is Decimal else objects(sql_type(hint, name, rows=True)[0], hint, taker)


def _giver(user: UserFunction, *, many: bool) -> Callable[[Any], Any]:
    """Checks what a function returned, and makes it a reference value, of a limited size. many: a list of results."""
    result = array(user.result) if many else user.result
    give = bounded(giver(result), result)
    return (lambda value: give(as_data(value))) if has_rows(user.result) else give


def awaited(user: UserFunction) -> Callable[..., Any]:
    """A coroutine function over reference values. Its required arguments are not NULL."""
    take, give = _takers(user), _giver(user, many=False)

    async def call(*args: Any) -> Any:
        taken = [a if t is None or a is None else t(a) for a, t in zip(args, take, strict=True)]
        try:
            value = await user.call(*taken)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            raise RuntimeError(f"{user.name} raised {type(error).__name__}") from None
        return None if value is None else give(value)

    return call


def _reference(user: UserFunction) -> Callable[..., Any]:
    take, required = _takers(user), user.required
    give = _giver(user, many=user.table)
    call = (lambda *args: row_list(user.call(*args), user.name)) if user.table else user.call
    if user.asynchronous is not None and user.is_coroutine:
        import asyncio  # 0.03 s

        call = lambda *args: asyncio.run(user.call(*args))  # noqa: E731
    skips, plain = len(required) < len(user.params), not any(take)

    def reference(*args: Any) -> Any:
        if skips and any(args[i] is None for i in required):
            return None
        if not plain:
            args = tuple(a if t is None or a is None else t(a) for a, t in zip(args, take, strict=True))
        value = called(user.name, call, *args)
        return None if value is None else give(value)

    return reference


def row_list(found: Any, name: str) -> list[Any]:
    """The rows that a table function returned, as a list. name: the function's. Raises TypeError and ValueError."""
    if found is None:
        return []
    if isinstance(found, str | bytes | dict) or not isinstance(found, Iterable):
        raise TypeError(f"it returned {type(found).__name__}, which is not a list of rows")
    rows = list(islice(found, ROWS_MAX + 1))
    if len(rows) > ROWS_MAX:
        raise ValueError(f"{name} gave more than {ROWS_MAX:,} rows")
    return rows
