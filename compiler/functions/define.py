"""Short ways to register functions: the entry in the catalogue reads as one line per fact.

`scalar` is for functions that mean the same in both dialects, `standard` for those that only standard SQL has, or that mean something
else there than in ksqlDB. In the catalogue and in plans such a function is called `sql_` and its name, so that the ksqlDB dialect does not
know it; `NAMES` tells what is written for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions.registry import Function, Lowering, Reference, Resolution, register
from flowql.compiler.functions.signatures import Overload, Pattern, describe, not_accepted
from flowql.compiler.plan.types import SqlType

Sql = Callable[..., str]
Resolve = Callable[[tuple[SqlType, ...]], Resolution]
# Of standard SQL: the name as written, in upper case -> that in the catalogue.
NAMES: dict[str, str] = {}


def takes(*params: Pattern, gives: Pattern | Callable[[tuple[SqlType, ...]], SqlType]) -> Overload:
    """An overload with exactly these parameters."""
    return Overload(params, gives)


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
            forms = (f"{name}({', '.join(map(describe, o.params))}{', ...' if o.variadic else ''})" for o in overloads)
            raise not_accepted(name, types, "it takes " + " or ".join(forms))
        return min(fits, key=lambda f: f[0])[1]

    return resolve


def scalar(
    name: str,
    *overloads: Overload,
    by: Reference | None = None,
    by_types: Callable[[Resolution], Reference] | None = None,
    summary: str,
    example: str,
    aliases: Sequence[str] = (),
    duckdb: Lowering | None = None,
    declines: Lowering | None = None,
    **more: Any,
) -> None:
    """Register a scalar function under its name and aliases. Give the meaning as `by` or, typed, as `by_types`."""
    reference = by_types or same_for_all(_given(name, by))
    for n in (name, *aliases):
        register(
            Function(
                n,
                resolver(n, *overloads),
                reference,
                duckdb=duckdb,
                declines=declines,
                summary=summary,
                example=example,
                **more,
            )
        )


def standard(
    written: str,
    *overloads: Overload,
    by: Reference | None = None,
    by_types: Callable[[Resolution], Reference] | None = None,
    resolve: Resolve | None = None,
    summary: str,
    example: str,
    name: str = "",
    also: Sequence[str] = (),
    duckdb: Lowering | None = None,
    declines: Lowering | None = None,
    **more: Any,
) -> None:
    """Register a scalar function of standard SQL. also: other names for it. resolve: takes the place of overloads.

    name: in the catalogue, where it is not `sql_` and what is written.
    """
    name = name or f"sql_{written.lower()}"
    reference = by_types or same_for_all(_given(written, by))
    for n in (written, *also):
        NAMES[n] = name
    register(
        Function(
            name,
            resolve if resolve is not None else resolver(written, *overloads),
            reference,
            duckdb=duckdb,
            declines=declines,
            summary=summary,
            example=example,
            **more,
        )
    )


def _given(name: str, by: Reference | None) -> Reference:
    if by is None:
        raise ValueError(f"{name} has no reference meaning")
    return by


def ascii_only(args: Sequence[str], _r: Resolution) -> str:
    """Declines rows whose first text has other than ASCII characters (case mapping and classes differ there)."""
    return f"(strlen({args[0]}) <> length({args[0]}))"
