"""Expressions over columns: what `col("price") * 2` builds is the syntax tree that SQL gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Ast, CastTo, Func, LambdaFn, Lit, Name, TypeRef
from flowql.compiler.dialect.texts import text_of
from flowql.compiler.dialect.walks import walk
from flowql.compiler.functions.user import MARK, UserDefined
from flowql.compiler.functions.user_types import DefinitionError, parameters_of, sql_type
from flowql.compiler.plan.types import DATE, TIMESTAMP
from flowql.compiler.streams.rows import here

# --- Names in syntax trees that Python has built ---


def fold(name: str, case: str) -> str:
    """A name as the catalogue has it: in the given case, or as it is in back-ticks.

    >>> fold("price", "upper"), fold("`price`", "upper")
    ('PRICE', 'price')
    """
    if len(name) > 2 and name[0] == name[-1] == "`":
        return name[1:-1]
    return name.upper() if case == "upper" else name.lower()


@dataclass(frozen=True, slots=True)
class Renaming:
    """The new forms of names, types of casts and names of fields."""

    column: Callable[[Name], Ast]
    type: Callable[[TypeRef], TypeRef] = lambda t: t
    field: Callable[[str], str] = str


def renamed(ast: Ast, to: Renaming, bound: frozenset[str] = frozenset()) -> Ast:
    """The tree with other names. bound: parameters of lambdas around it, which stay."""
    match ast:
        case Name():
            return ast if ast.parts[0] in bound else to.column(ast)
        case Func():
            args = tuple(renamed(a, to, bound) for a in ast.args)
            fields = {"field": range(1, 2), "struct": range(0, len(args), 2)}.get(ast.name, ())
            return replace(ast, args=tuple(_field(a, to) if i in fields else a for i, a in enumerate(args)))
        case CastTo():
            return replace(ast, operand=renamed(ast.operand, to, bound), type=to.type(ast.type))
        case LambdaFn():
            return replace(ast, body=renamed(ast.body, to, bound | set(ast.params)))
    return ast


def _field(ast: Ast, to: Renaming) -> Ast:
    return replace(ast, value=to.field(str(ast.value))) if isinstance(ast, Lit) else ast


def names_in(ast: Ast, bound: frozenset[str] = frozenset()) -> Iterator[Name]:
    """The columns that it names."""
    match ast:
        case Name():
            if ast.parts[0] not in bound:
                yield ast
        case Func():
            for arg in ast.args:
                yield from names_in(arg, bound)
        case CastTo():
            yield from names_in(ast.operand, bound)
        case LambdaFn():
            yield from names_in(ast.body, bound | set(ast.params))


def calls_in(asts: Iterable[Ast]) -> Iterator[str]:
    """The names of the functions and operators that they call."""
    return (n.name for ast in asts for n in walk(ast) if isinstance(n, Func))


_INT_MAX, _BIGINT_MAX = 2**31 - 1, 2**63 - 1


class Expression:
    """An expression over columns, with the meaning of SQL.

    Operators: `+ - * / %`, comparisons, `&` (AND), `|` (OR), `~` (NOT), `[i]` (element of an ARRAY or MAP).

    >>> (col("price") * col("quantity") > 100) & ~col("cancelled")
    (((PRICE * QUANTITY) > 100) AND (NOT CANCELLED))
    """

    __slots__ = ("ast",)
    __hash__ = None  # type: ignore[assignment]  # `==` builds an expression

    def __init__(self, ast: Ast) -> None:
        self.ast = ast

    def __add__(self, other: Any) -> Expression:
        return _operator("add", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _operator("add", other, self)

    def __sub__(self, other: Any) -> Expression:
        return _operator("sub", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _operator("sub", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _operator("mul", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _operator("mul", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return _operator("div", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _operator("div", other, self)

    def __mod__(self, other: Any) -> Expression:
        return _operator("mod", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return _operator("mod", other, self)

    def __neg__(self) -> Expression:
        return _operator("neg", self)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return _operator("eq", self, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return _operator("ne", self, other)

    def __lt__(self, other: Any) -> Expression:
        return _operator("lt", self, other)

    def __le__(self, other: Any) -> Expression:
        return _operator("le", self, other)

    def __gt__(self, other: Any) -> Expression:
        return _operator("gt", self, other)

    def __ge__(self, other: Any) -> Expression:
        return _operator("ge", self, other)

    def __and__(self, other: Any) -> Expression:
        return _operator("and", self, other)

    def __rand__(self, other: Any) -> Expression:
        return _operator("and", other, self)

    def __or__(self, other: Any) -> Expression:
        return _operator("or", self, other)

    def __ror__(self, other: Any) -> Expression:
        return _operator("or", other, self)

    def __invert__(self) -> Expression:
        return _operator("not", self)

    def __getitem__(self, index: Any) -> Expression:
        return _operator("subscript", self, index)

    def __bool__(self) -> bool:
        raise DefinitionError("an expression has no truth value: its rows have", "write & | ~ in place of and, or, not")

    def __iter__(self) -> Any:
        raise DefinitionError("an expression cannot be iterated over: its rows can", "fn.EXPLODE, or flat_map_values")

    def __repr__(self) -> str:
        return _text(self.ast)

    def is_null(self) -> Expression:
        """IS NULL."""
        return _operator("is_null", self)

    def is_not_null(self) -> Expression:
        """IS NOT NULL."""
        return _operator("is_not_null", self)

    def is_distinct_from(self, other: Any) -> Expression:
        """IS DISTINCT FROM: as `!=`, with NULL as a value."""
        return _operator("is_distinct", self, other)

    def is_in(self, *values: Any) -> Expression:
        """IN (...).

        >>> col("state").is_in("open", "held")
        (STATE IN ('open', 'held'))
        """
        if not values:
            raise DefinitionError("is_in() has no values", 'col("state").is_in("open", "held")')
        return _operator("in", self, *values)

    def between(self, low: Any, high: Any) -> Expression:
        """BETWEEN low AND high, both included."""
        return _operator("between", self, low, high)

    def like(self, pattern: str) -> Expression:
        """LIKE: % is any string, _ any character."""
        return _operator("like", self, pattern)

    def field(self, name: str) -> Expression:
        """A field of a STRUCT."""
        at = here()
        return Expression(Func("field", (self.ast, Lit("string", name, at)), at))

    def cast(self, to: Any) -> Expression:
        """CAST. to: a type in SQL, or an annotation (`float` is DOUBLE).

        >>> col("price").cast(int)
        CAST(PRICE AS BIGINT)
        """
        at = here()
        if isinstance(to, str):
            return Expression(CastTo(self.ast, TypeRef(to, span=at), at))
        return Expression(CastTo(self.ast, TypeRef(known=sql_type(to, "cast")[0], span=at), at))


def col(name: str) -> Expression:
    """A column. Names fold as in SQL, except in backticks.

    >>> col("price") / 2, col("`price`")
    ((PRICE / 2), price)
    """
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"{name!r} is not a valid name of a column", 'col("price")')
    return Expression(Name((name,), here()))


def lit(value: Any) -> Expression:
    """A constant: None, bool, int, float, str, Decimal, date, datetime (without a zone), or a list (ARRAY) or dict
    (STRUCT).

    >>> lit(["a", None])
    ARRAY['a', NULL]
    """
    return Expression(as_ast(value, here()))


class Functions:
    """Calls built-in and project functions by their SQL names: `fn.ROUND(col("price"), 2)`, `fn("SCORE",
    col("price"))`.

    Aggregates (`fn.SUM`, `fn.COUNT()`) are for `aggregate`. A Python lambda is a lambda of SQL, over expressions.

    >>> fn.TRANSFORM(col("prices"), lambda x: x * 2)
    TRANSFORM(PRICES, X => (X * 2))
    """

    def __call__(self, name: str | Callable[..., Any], *args: Any) -> Expression:
        """name: in SQL, or a Python function that `udf`, `udaf` or `udtf` declares."""
        at = here()
        called = getattr(name, MARK, None)
        text = called.name if isinstance(called, UserDefined) else name
        if not isinstance(text, str) or not text.isidentifier():
            raise DefinitionError(f"{text!r} is not a function that SQL can call", 'fn("UPPER", col("name")), or @udf')
        return Expression(Func(text.upper(), tuple(as_ast(a, at) for a in args), at))

    def __getattr__(self, name: str) -> Callable[..., Expression]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args: self(name, *args)


fn = Functions()


class When:
    """A CASE without its end: `when(condition, value).when(...).otherwise(value)`."""

    def __init__(self, args: tuple[Ast, ...]) -> None:
        self._args = args

    def when(self, condition: Expression, value: Any) -> When:
        """A further case."""
        at = here()
        return When((*self._args, as_ast(condition, at), as_ast(value, at)))

    def otherwise(self, value: Any) -> Expression:
        """The value of rows without a case; `otherwise(None)` is NULL."""
        at = here()
        args = self._args if value is None else (*self._args, as_ast(value, at))
        return Expression(Func("case", args, at))


def when(condition: Expression, value: Any) -> When:
    """CASE WHEN condition THEN value.

    >>> when(col("amount") > 100, "large").otherwise("small")
    (CASE WHEN (AMOUNT > 100) THEN 'large' ELSE 'small' END)
    """
    at = here()
    return When((as_ast(condition, at), as_ast(value, at)))


def as_ast(value: Any, at: Span) -> Ast:
    """The tree of an expression or constant. Raises DefinitionError for what SQL has no constant of."""
    match value:
        case Expression():
            return value.ast
        case None:
            return Lit("null", None, at)
        case bool():
            return Lit("bool", value, at)
        case int():
            return _whole(value, at)
        case float() if math.isfinite(value):
            return Lit("double", value, at)
        case Decimal() if value.is_finite():
            return Lit("decimal", value, at)
        case str():
            return Lit("string", value, at)
        case datetime() if value.tzinfo is None:
            return CastTo(
                Lit("string", value.isoformat(timespec="milliseconds"), at), TypeRef(known=TIMESTAMP, span=at), at
            )
        case date() if not isinstance(value, datetime):
            return CastTo(Lit("string", value.isoformat(), at), TypeRef(known=DATE, span=at), at)
        case list() | tuple():
            return Func("array", tuple(as_ast(v, at) for v in value), at)
        case dict():
            parts = [p for k, v in value.items() for p in (Lit("string", str(k), at), as_ast(v, at))]
            return Func("struct", tuple(parts), at)
    if callable(value):
        return _lambda(value, at)
    raise DefinitionError(
        f"{value!r} has no constant in SQL", "None, bool, int, float, str, Decimal, date, datetime, a list or dict"
    )


def _whole(value: int, at: Span) -> Lit:
    if -_INT_MAX - 1 <= value <= _INT_MAX:
        return Lit("int", value, at)
    if -_BIGINT_MAX - 1 <= value <= _BIGINT_MAX:
        return Lit("bigint", value, at)
    raise DefinitionError(f"{value} is out of the range of BIGINT", f'Decimal("{value}")')


def _lambda(function: Callable[..., Any], at: Span) -> LambdaFn:
    names = tuple(n.upper() for n in parameters_of(function, "the lambda"))
    body = function(*(Expression(Name((n,), at)) for n in names))
    return LambdaFn(names, as_ast(body, at), at)


def _operator(name: str, *args: Any) -> Expression:
    at = here()
    return Expression(Func(name, tuple(as_ast(a, at) for a in args), at))


def _text(ast: Ast) -> str:
    """The expression as text, with names in upper case as in ksqlDB's dialect."""
    to = Renaming(lambda n: Name(tuple(fold(p, "upper") for p in n.parts)), field=lambda f: fold(f, "upper"))
    return text_of(renamed(ast, to))
