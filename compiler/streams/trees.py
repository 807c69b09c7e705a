"""Names in syntax trees that Python has built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from flowql.compiler.dialect.ast import Ast, CastTo, Func, LambdaFn, Lit, Name, TypeRef
from flowql.compiler.dialect.walks import walk


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
