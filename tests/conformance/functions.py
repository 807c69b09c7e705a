"""Functions that only the corpus needs; registered while a case that names them runs, never by the product."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flowql.compiler.functions.registry import (
    AggregateFunction,
    Function,
    register,
    register_aggregate,
    unregister,
)
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.functions.values import text_of
from flowql.compiler.plan import types as t
from flowql.compiler.plan.types import Kind, SqlType
from tests.registries import unregister_aggregate

NAMES = (
    *("TEST_UDF", "TOSTRUCT", "BAD_UDF", "WHENCONDITION", "WHENRESULT", "TEST_UDTF", "THROWING_UDTF"),
    *("TEST_UDAF", "MULTI_ARG", "FOUR_ARG", "FIVE_ARG", "VAR_ARG", "MID_VAR_ARG", "OBJ_COL_ARG", "GENERIC_VAR_ARG"),
)
S_A = t.struct(("A", t.STRING))


def _test_udf(args: tuple[SqlType, ...]) -> tuple[tuple[SqlType, ...], SqlType, Callable[..., Any]]:
    kinds = [Kind.STRING if a.kind is Kind.NULL else a.kind for a in args]  # NULL takes the overload with a text
    if not args:
        return args, S_A, lambda: {"A": "foo"}
    if len(args) == 1 and kinds[0] is Kind.STRUCT:
        return args, t.STRING, lambda s: s["A"]
    if kinds == [Kind.INT, Kind.STRING]:
        return args, t.STRING, lambda *a: "doStuffIntString"
    if kinds == [Kind.BIGINT, Kind.STRING]:
        return args, t.STRING, lambda *a: "doStuffLongString"
    if len(args) == 3 and kinds[2] is Kind.STRING:
        return (t.BIGINT, t.BIGINT, t.STRING), t.STRING, lambda *a: "doStuffLongLongString"
    if all(k in (Kind.INT, Kind.BIGINT) for k in kinds):
        return (t.BIGINT,) * len(args), t.STRING, lambda *a: "doStuffLongVarargs"
    raise FunctionTypeError(f"TEST_UDF does not accept parameters ({', '.join(map(str, args))})")


def _bad_udf_reference() -> Callable[[Resolution], Callable[..., Any]]:
    def bind(r: Resolution) -> Callable[..., Any]:
        calls = itertools.count(1)
        kind = r.args[0].kind

        def call(value: Any) -> Any:
            if kind is Kind.INT or value is True:
                raise ValueError("boom!")
            if kind is Kind.BOOLEAN:
                return 0
            return None if next(calls) % 2 else value

        return call

    return bind


def _when(value: Any, ok: Any) -> Any:
    if not ok:
        raise ValueError("was called")
    return value


def _raise_if(value: Any) -> list[Any]:
    if value:
        raise ValueError("You asked me to throw...")
    return [value]


def _scalar(name: str) -> Function | None:
    match name:
        case "TEST_UDF":
            return Function(
                name,
                lambda a: Resolution(*_test_udf(a)[:2]),
                lambda r: _test_udf(r.args)[2],
                null_propagating=False,
            )
        case "TOSTRUCT":
            return Function(
                name, lambda a: Resolution((t.STRING,), S_A), lambda r: lambda s: {"A": s}, null_propagating=False
            )
        case "BAD_UDF":
            return Function(
                name,
                lambda a: Resolution(a, t.STRING if a[0].kind is Kind.STRING else t.INT),
                _bad_udf_reference(),
                null_propagating=False,
            )
        case "WHENCONDITION":
            return Function(name, lambda a: Resolution((t.BOOLEAN, t.BOOLEAN), t.BOOLEAN), lambda r: _when)
        case "WHENRESULT":
            return Function(name, lambda a: Resolution((t.INT, t.BOOLEAN), t.INT), lambda r: _when)
        case "TEST_UDTF":
            return Function(name, _udtf_type, _udtf, null_propagating=False, table=True)
        case "THROWING_UDTF":
            return Function(name, lambda a: Resolution((t.BOOLEAN,), t.BOOLEAN), lambda r: _raise_if, table=True)
    return None


def _udtf_type(args: tuple[SqlType, ...]) -> Resolution:
    if len(args) > 1:
        return Resolution(args, t.STRING)
    return Resolution(args, t.decimal(30, 10) if args[0].kind is Kind.DECIMAL else args[0])


def _udtf(r: Resolution) -> Callable[..., list[Any]]:
    if len(r.args) == 1:
        return lambda v: [v]

    def text(value: Any, kind: SqlType) -> str:
        if kind.kind is Kind.ARRAY:
            return text(value[0], kind.element)
        if kind.kind is Kind.MAP:
            return text(next(iter(value.values())), kind.element)
        return text_of(kind)(value)

    return lambda *values: [text(v, k) for v, k in zip(values, r.args, strict=True)]


def _weight(value: Any) -> int:
    if value is None:
        return 0
    return len(value) if isinstance(value, str) else int(value)


def _sum_of(
    name: str, argument_count: Callable[[int], int], types: Callable[[Sequence[SqlType], tuple[Any, ...]], bool]
) -> AggregateFunction:
    def resolve(args: tuple[SqlType, ...], init: tuple[Any, ...]) -> Resolution:
        if not types(args, init):
            shown = [str(a) for a in args] + ["INTEGER" if isinstance(i, int) else "STRING" for i in init]
            raise FunctionTypeError(f"Function '{name}' does not accept parameters ({', '.join(shown)}).")
        return Resolution(args, t.BIGINT)

    return AggregateFunction(
        name,
        resolve,
        initial=lambda r, init: sum(_weight(i) for i in init),
        add=lambda r, init: lambda acc, *args: acc + sum(map(_weight, args)),
        undo=lambda r, init: lambda acc, *args: acc - sum(map(_weight, args)),
        merge=lambda r, init: lambda a, b: a + b - sum(_weight(i) for i in init),
        result=lambda r, init: lambda acc: acc,
        constants=lambda n: n - argument_count(n),
    )


def _kinds(init: tuple[Any, ...]) -> str:
    return "".join("s" if isinstance(v, str) else "i" for v in init)


def _texts(types: Sequence[SqlType]) -> bool:
    return all(a.kind is Kind.STRING for a in types)


def _list_of(name: str, fits: Callable[[Sequence[SqlType]], bool]) -> AggregateFunction:
    def resolve(args: tuple[SqlType, ...], init: tuple[Any, ...]) -> Resolution:
        if not fits(args):
            shown = ", ".join(map(str, args))
            raise FunctionTypeError(f"Function '{name}' does not accept parameters ({shown}).")
        return Resolution(args, t.array(args[0]))

    return AggregateFunction(
        name,
        resolve,
        initial=lambda r, init: (),
        add=lambda r, init: lambda acc, *args: (*acc, args[0]) if all(a is not None for a in args) else acc,
        merge=lambda r, init: lambda a, b: (*a, *b),
        result=lambda r, init: lambda acc: list(acc),
    )


def _test_udaf() -> AggregateFunction:
    def resolve(args: tuple[SqlType, ...], init: tuple[Any, ...]) -> Resolution:
        return Resolution(args, t.BIGINT if args[0].kind in (Kind.STRING, Kind.INT) else args[0])

    def initial(r: Resolution, init: tuple[Any, ...]) -> Any:
        if r.args[0].kind is Kind.STRUCT:
            return tuple(0 for _ in r.args[0].fields)
        return len(init[0]) if init else 0

    def add(r: Resolution, init: tuple[Any, ...]) -> Callable[..., Any]:
        if r.args[0].kind is Kind.STRUCT:
            names = [n for n, _ in r.args[0].fields]
            return lambda acc, v: acc if v is None else tuple(a + (v[n] or 0) for a, n in zip(acc, names, strict=True))
        if r.args[0].kind is Kind.STRING:
            return lambda acc, v: acc + _weight(v)
        return lambda acc, v: acc if v is None else acc + v

    def result(r: Resolution, init: tuple[Any, ...]) -> Callable[[Any], Any]:
        if r.args[0].kind is Kind.STRUCT:
            names = [n for n, _ in r.args[0].fields]
            return lambda acc: dict(zip(names, acc, strict=True))
        return lambda acc: acc

    return AggregateFunction(
        "TEST_UDAF",
        resolve,
        initial,
        add,
        result,
        undo=lambda r, init: lambda acc, v: acc if v is None else acc - v,
        constants=lambda n: n - 1,
    )


def _aggregate(name: str) -> AggregateFunction | None:
    match name:
        case "TEST_UDAF":
            return _test_udaf()
        case "MULTI_ARG":
            return _sum_of(name, lambda n: 2, lambda a, i: len(a) == 2 and _kinds(i) == "i" + "s" * (len(i) - 1))
        case "FOUR_ARG":
            return _sum_of(name, lambda n: 4, lambda a, i: len(a) == 4)
        case "FIVE_ARG":
            return _sum_of(name, lambda n: 5, lambda a, i: len(a) == 5)
        case "VAR_ARG":
            return _sum_of(name, lambda n: n, lambda a, i: all(x.kind is Kind.STRING for x in a[1:]))
        case "MID_VAR_ARG":  # a number, texts, two start arguments
            return _sum_of(
                name,
                lambda n: n - 2,
                lambda a, i: len(a) >= 2 and a[0].is_numeric and _texts(a[1:]) and _kinds(i) == "ii",
            )
        case "OBJ_COL_ARG":
            return _list_of(name, lambda a: True)
        case "GENERIC_VAR_ARG":  # the arguments from the third on are of one type
            return _list_of(name, lambda a: len(set(a[2:])) <= 1)
    return None


@contextlib.contextmanager
def registered(names: Sequence[str]) -> Iterator[None]:
    """The named test functions exist within."""
    scalars = [f for f in map(_scalar, names) if f is not None]
    aggregates = [a for a in map(_aggregate, names) if a is not None]
    for f in scalars:
        register(f, replace=True)
    for a in aggregates:
        register_aggregate(a, replace=True)
    try:
        yield
    finally:
        for f in scalars:
            unregister(f.name)
        for a in aggregates:
            unregister_aggregate(a.name)
