"""The catalogue of scalar and table functions, operators included.

Each entry has one reference meaning in Python. DuckDB and Spark lowerings are optional and are proven equal to
it by property tests; where a lowering differs on some inputs it must say so through `declines`.

`scalar` is for functions that mean the same in both dialects, `standard` for those that only standard SQL has, or that mean something
else there than in ksqlDB. In the catalogue and in plans such a function is called `sql_` and its name, so that the ksqlDB dialect does not
know it; `NAMES` tells what is written for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from flowql.compiler.functions.aggregate_forms import Add, Init, OnSpark, OverRelations
from flowql.compiler.functions.bounds import bounded, limited
from flowql.compiler.functions.signatures import Overload, Pattern, Resolution, describe, not_accepted
from flowql.compiler.plan.types import SqlType, array

if TYPE_CHECKING:
    import pyarrow as pa

    from flowql.compiler.functions.asynchronous import AsyncOptions


class QueryFailure(Exception):
    """Raised by a user function to fail the whole query (restart with backoff), not just the value."""

    code = "FQ4033"


class RunTooLong(QueryFailure):
    """Raised in a run of several records when a call has taken long to fail: other records are to be processed one by one."""


# Errors that no value causes, but code that is broken for all values: they fail the query as well.
FAILURES = (QueryFailure, AssertionError, NameError, ImportError, NotImplementedError)


P = ParamSpec("P")
T = TypeVar("T")
Reference = Callable[..., Any]
# (types, arguments with None for the one that is no constant) -> the reference of that one alone; None: the usual one is to be called.
Prepare = Callable[[Resolution, Sequence[Any]], Reference | None]
Lowering = Callable[[Sequence[str], Resolution], str]


# Suffix of a DuckDB function that tells for which rows of the statement the function over columns has failed.
FAILED = "!failed"
# Suffix of a function over columns of which a row alone costs no more than it does in Python.
CHEAP_ROWS = "!cheap"


class ColumnFailures(Protocol):
    """The rows of a statement for which a function over columns has failed."""

    def begin(self) -> None:
        """Forgets the failures of the statement before."""

    def of(self, columns: Sequence[pa.Array], types: Sequence[SqlType]) -> pa.Array:
        """Which rows failed (BOOLEAN)."""

    def all_declined(self) -> bool:
        """Whether `of` has reported every failure."""


@dataclass(frozen=True, slots=True)
class ArrowCall:
    """A function over columns: arrays of `arrow_type(args[i])`, all of one length, to one of `arrow_type(result)` and that length.

    failures: of a call that gives NULL for rows that it fails for; None where it raises.
    """

    args: tuple[SqlType, ...]
    result: SqlType
    call: Callable[[Sequence[pa.Array]], pa.Array]
    failures: ColumnFailures | None = None


@dataclass(frozen=True, slots=True)
class AsyncFunction:
    """A function whose calls take long and are made many at once. call: over reference values; it blocks, or gives a coroutine.

    required: places of the arguments that may not be NULL; without one of them the value is NULL, and no call is made. key: names the same function
    to everyone who makes its calls. home: of calls in a process of their own; None: in threads of the engine.
    """

    options: AsyncOptions
    call: Callable[..., Any]
    is_coroutine: bool
    required: tuple[int, ...]
    key: str
    home: Any = None


@dataclass(frozen=True, slots=True)
class Function:
    """One function.

    resolve:   argument types -> Resolution; raises FunctionTypeError. A lambda argument is given as the LAMBDA type
               with the type of its body as `args[0]` (`signatures.lambda_type`); see `lambda_params` for how its parameters are typed.
    reference: Resolution -> Python callable over reference values (see `flowql.compiler.plan.types`). An exception it raises
               makes the value NULL and is recorded as a dead letter, except FAILURES.
    null_propagating: any NULL argument gives NULL without a call of the reference.
    prepare:   of a call whose arguments are constants but for one, which are read once. Means what `reference` means.
    lazy:      arguments are passed as zero-argument callables (CASE, COALESCE, AND, OR).
    duckdb / spark: SQL text of the arguments -> SQL text; None when there is no lowering, "" when there is none for
               these types. Text that gives NULL or nonsense for declined rows is fine, text that fails is not.
               Spark's mean the same in every session of Spark (`spark_sql`) and decline no rows.
    spark_fails: Spark SQL predicate that is TRUE for rows where the reference raises (the lowering gives NULL there).
    declines:  DuckDB SQL predicate that is true for rows the DuckDB lowering must not compute; None or "" if never.
    arrow:     what the DuckDB lowering calls by the name of this function; None where it calls none.
    lambda_params: (types of the arguments before the lambda, index of lambda) -> types of the lambda's parameters.
    table:     a table function: the reference returns a list of elements, one output row each.
    deterministic: False for NOW, UUID, RANDOM (never folded, evaluated once per row).
    folds: names of fields in its result are as Python says them, and fold as the dialect's names do (`Catalog.function`).
    asynchronous: of a function that queries call without waiting for it (`AsyncMap`); `reference` waits.
    """

    name: str
    resolve: Callable[[tuple[SqlType, ...]], Resolution]
    reference: Callable[[Resolution], Reference]
    null_propagating: bool = True
    prepare: Prepare | None = None
    lazy: bool = False
    duckdb: Lowering | None = None
    spark: Lowering | None = None
    declines: Lowering | None = None
    arrow: ArrowCall | None = None
    spark_fails: Lowering | None = None
    lambda_params: Callable[[tuple[SqlType, ...], int], tuple[SqlType, ...]] | None = None
    table: bool = False
    deterministic: bool = True
    asynchronous: AsyncFunction | None = None
    folds: bool = False


_FUNCTIONS: dict[str, Function] = {}


def register(function: Function, *, replace: bool = False) -> Function:
    """Add a function (at import), with its results bounded. Names are unique unless `replace`."""
    if function.name in _FUNCTIONS and not replace:
        raise ValueError(f"function {function.name} is registered twice")
    _FUNCTIONS[function.name] = found = _with_limit(function)
    return found


def _with_limit(function: Function) -> Function:
    """The same, with the limits of a value and of strings (`flowql.compiler.functions.bounds`), unless it gives one of its arguments or a part of it."""
    if function.lazy or function.name in ("field", "subscript"):
        return function
    make = function.reference

    def reference(r: Resolution) -> Reference:
        return bounded(limited(make(r), function.name, r), array(r.result) if function.table else r.result)

    return replace(function, reference=reference, prepare=_prepare_with_limit(function))


def _prepare_with_limit(function: Function) -> Prepare | None:
    make = function.prepare
    if make is None:
        return None

    def prepare(r: Resolution, constants: Sequence[Any]) -> Reference | None:
        try:
            limited(lambda *_: None, function.name, r)(*constants)
            found = make(r, constants)
        except ValueError:  # each row is to say so
            return None
        return None if found is None else bounded(found, r.result)

    return prepare


def unregister(name: str) -> None:
    """Remove a function that is not built in (tests)."""
    _FUNCTIONS.pop(name, None)


_OVER_COLUMNS: dict[str, ArrowCall] = {}


def register_columns(name: str, call: ArrowCall) -> None:
    """A function over columns that lowerings of functions call. name: of capital letters and digits, with an @."""
    _OVER_COLUMNS[name] = call


def arrow_call(name: str) -> ArrowCall | None:
    """The function that DuckDB calls by a name, without the suffix FAILED."""
    found = _OVER_COLUMNS.get(name)
    if found is not None:
        return found
    function = lookup(name)
    return None if function is None else function.arrow


def lookup(name: str) -> Function | None:
    """The function of that name (operators lower case, functions upper case), or None."""
    found = _FUNCTIONS.get(name) or _OF_PROJECTS.get(name)
    return found if isinstance(found, Function) else None


def all_functions() -> Mapping[str, Function]:
    return dict(sorted(_FUNCTIONS.items()))


# Short ways to register functions: the entry in the catalogue reads as one line per fact.


def _registering(make: Callable[P, T], add: Callable[[T], T]) -> Callable[P, None]:
    def defined(*args: P.args, **facts: P.kwargs) -> None:
        add(make(*args, **facts))

    return defined


# Registers a function with the fields of `Function`.
define = _registering(Function, register)
Sql = Callable[..., str]
Resolve = Callable[[tuple[SqlType, ...]], Resolution]
# Names of standard SQL: as written, in upper case -> that in the catalogue.
NAMES: dict[str, str] = {}


def takes(
    *params: Pattern, gives: Pattern | Callable[[tuple[SqlType, ...]], SqlType], needs: int | None = None
) -> Overload:
    """An overload with these parameters. needs: those after so many may be left out."""
    return Overload(params, gives, needs=needs)


def takes_many(
    *params: Pattern, gives: Pattern | Callable[[tuple[SqlType, ...]], SqlType], at_least: int = 1
) -> Overload:
    """An overload whose last parameter repeats, `at_least` times or more."""
    return Overload(params, gives, variadic=True, min_repeat=at_least)


def text(template: Sql) -> Lowering:
    """A lowering from a function of the argument texts alone."""
    return lambda args, _r: template(*args)


def named(function: str) -> Lowering:
    """A lowering to the SQL function of that name, with the same arguments."""
    return lambda args, _r: f"{function}({', '.join(args)})"


def same_for_all(function: Reference) -> Callable[[Resolution], Reference]:
    """A reference that does not depend on the types."""
    return lambda _r: function


def resolver(name: str, *overloads: Overload) -> Resolve:
    """`Function.resolve` over a list of overloads."""

    def resolve(types: tuple[SqlType, ...]) -> Resolution:
        fits = [f for f in (o.fit(types) for o in overloads) if f is not None]
        if not fits:
            forms = (
                f"{name}({', '.join(map(describe, o.params[:n]))}{', ...' if o.variadic else ''})"
                for o in overloads
                for n in range(len(o.params) if o.needs is None else o.needs, len(o.params) + 1)
            )
            raise not_accepted(name, types, "it takes " + " or ".join(forms))
        return min(fits, key=lambda f: f[0])[1]

    return resolve


def scalar(
    name: str,
    *overloads: Overload,
    by: Reference | None = None,
    by_types: Callable[[Resolution], Reference] | None = None,
    aliases: Sequence[str] = (),
    **more: Any,
) -> None:
    """Register a scalar function under its name and aliases. Give the meaning as `by` or, typed, as `by_types`."""
    reference = by_types or same_for_all(_given(name, by))
    for n in (name, *aliases):
        register(Function(n, resolver(n, *overloads), reference, **more))


def standard(
    written: str,
    *overloads: Overload,
    by: Reference | None = None,
    by_types: Callable[[Resolution], Reference] | None = None,
    resolve: Resolve | None = None,
    name: str = "",
    also: Sequence[str] = (),
    **more: Any,
) -> None:
    """Register a scalar function of standard SQL. also: other names for it. resolve: takes the place of overloads.

    name: in the catalogue, where it is not `sql_` and what is written.
    """
    name = name or f"sql_{written.lower()}"
    reference = by_types or same_for_all(_given(written, by))
    for n in (written, *also):
        NAMES[n] = name
    register(Function(name, resolve or resolver(written, *overloads), reference, **more))


def _given(name: str, by: Reference | None) -> Reference:
    if by is None:
        raise ValueError(f"{name} has no reference meaning")
    return by


# (accumulator, arguments of its rows) of groups -> of each group the accumulator, and where rows failed with what text.
AddMany = Callable[[Sequence[tuple[Any, Sequence[tuple[Any, ...]]]]], Sequence[tuple[Any, Sequence[tuple[int, str]]]]]
# accumulators -> of each the value, and the text of its failure or nothing.
ResultMany = Callable[[Sequence[Any]], Sequence[tuple[Any, str]]]
# (accumulators, offsets, columns of arguments as reference values) -> accumulators; the rows of group `i` are those from
# `offsets[i]` to `offsets[i + 1]`, in order. Raises what a row raises; then no accumulator has changed.
AddRuns = Callable[[Sequence[Any], Sequence[int], Sequence[Sequence[Any]]], list[Any]]


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """One aggregate.

    resolve:  (argument types, constant init arguments) -> Resolution; `constants` tells how many trailing SQL arguments
              are init constants (TOPK's k).
    initial:  (Resolution, init) -> the empty accumulator. Accumulators are immutable reference values: None, bool, int,
              float, str, bytes, Decimal, and tuples or lists or dicts of them that are never changed in place, so that
              state can be shared between layers and encoded; or `DistinctValues`, which a store keeps as the tuple.
    add:      (Resolution, init) -> function (acc, *args) -> acc.
    undo:     the inverse of add for table aggregation, or None if the aggregate cannot be undone.
    merge:    (Resolution, init) -> function (acc, acc) -> acc, for sessions and partial aggregation; None if impossible.
    result:   (Resolution, init) -> function acc -> value.
    of_rows:  Resolution -> function (arguments of the rows) -> value: all of a group at once; None where there is none.
    add_many, result_many: `add` and `result` for many groups in one call, where a call has a price; None where it has none.
    add_runs: Resolution -> `add` for many rows of many groups, with arguments in columns; None where there is none.
    relation: the forms of the same aggregate over relations and over rows that are all there; None where it has none.
    spark: the same as an aggregate of Spark; None where the place or the order of rows makes a difference there.
    takes_null: NULL is a value like others to it, and not left out.
    arrow: the aggregations of Arrow that fold a batch per group: the partial results that `from_partial` takes; none where it has no vector form.
    from_partial: (Resolution, init) -> function (*partials) -> acc, to be combined with `merge`.
    """

    name: str
    resolve: Callable[[tuple[SqlType, ...], tuple[Any, ...]], Resolution]
    initial: Callable[[Resolution, Init], Any]
    add: Callable[[Resolution, Init], Add]
    result: Callable[[Resolution, tuple[Any, ...]], Callable[[Any], Any]]
    undo: Callable[[Resolution, Init], Add] | None = None
    merge: Callable[[Resolution, tuple[Any, ...]], Callable[[Any, Any], Any]] | None = None
    arrow: tuple[str, ...] = ()
    from_partial: Callable[[Resolution, Init], Add] | None = None
    constants: Callable[[int], int] = field(default=lambda n: 0)
    of_rows: Callable[[Resolution], Callable[[Iterable[tuple[Any, ...]]], Any]] | None = None
    add_many: AddMany | None = None
    result_many: ResultMany | None = None
    add_runs: Callable[[Resolution], AddRuns] | None = None
    relation: OverRelations | None = None
    spark: OnSpark | None = None
    takes_null: bool = False


_AGGREGATES: dict[str, AggregateFunction] = {}
# Names of standard SQL: as written -> the aggregate over relations, and its name in plans of streams.
OVER_RELATIONS: dict[str, OverRelations] = {}
AGGREGATE_NAMES: dict[str, str] = {}


def register_aggregate(function: AggregateFunction, *, replace: bool = False) -> AggregateFunction:
    if function.name in _AGGREGATES and not replace:
        raise ValueError(f"aggregate {function.name} is registered twice")
    _AGGREGATES[function.name] = function
    if function.relation is not None:
        register_relation(function.relation)
        AGGREGATE_NAMES.update(dict.fromkeys(function.relation.names, function.name))
    return function


def register_relation(relation: OverRelations) -> None:
    """Add an aggregate that only relations have."""
    OVER_RELATIONS.update(dict.fromkeys(relation.names, relation))


# Registers an aggregate with the fields of `AggregateFunction`.
define_aggregate = _registering(AggregateFunction, register_aggregate)


def lookup_aggregate(name: str) -> AggregateFunction | None:
    found = _AGGREGATES.get(name) or _OF_PROJECTS.get(name)
    return found if isinstance(found, AggregateFunction) else None


def all_aggregates() -> Mapping[str, AggregateFunction]:
    return dict(sorted(_AGGREGATES.items()))


class Registered(Protocol):
    """A declaration in a project's module: a function, an aggregate, a topology."""

    @property
    def name(self) -> str:
        """In plans, with the version."""
        ...


_OF_PROJECTS: dict[str, Registered] = {}  # by the names of their versions (`flowql.compiler.functions.user`)


def register_of_project(entry: Registered) -> None:
    """Add a version of what a project declares: visible to the lookups, not listed by `all_functions` and `all_aggregates`."""
    _OF_PROJECTS[entry.name] = entry


def registered(name: str) -> Registered | None:
    """The registered version with that name, if this process has it."""
    return _OF_PROJECTS.get(name)


def registered_of_project(name: str) -> bool:
    """Whether that version is here."""
    return name in _OF_PROJECTS
