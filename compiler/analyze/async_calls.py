"""Calls of asynchronous functions are taken out of expressions, and become operators of their own below them.

before: Project(A, S := LOOKUP(A + 1) || '!', Scan)
after:  Project(A, S := __async_0 || '!', AsyncMap(__async_0 := LOOKUP(__arg_0), Project(A, __arg_0 := A + 1, Scan)))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from flowql.compiler.analyze.mistakes import unsupported
from flowql.compiler.diagnostics.diagnostic import UnsupportedError
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.functions.asynchronous import Order, strictest
from flowql.compiler.functions.registry import AsyncFunction, lookup
from flowql.compiler.functions.user import plain_name
from flowql.compiler.plan.asynchronous import AsyncCall, AsyncMap
from flowql.compiler.plan.expr import ROWTIME, Call, Column, Expr, Lambda, children, conjunction, conjuncts, walk
from flowql.compiler.plan.logical import Aggregate, Explode, Filter, NamedExpr, Node, Project, Rekey, Sink, walk_nodes
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.visit import calls_in, exprs_of, map_expr, map_spec
from flowql.compiler.plan.watermarks import AppendOnly

_STATELESS = (Sink, Project, Filter, Explode)  # rows that overtake each other are the same rows behind these
_HOSTS = (Project, Filter, Explode, Rekey, Aggregate)
Names = Callable[[str], str]


def place_async_calls(root: Node) -> Node:
    """The plan with its asynchronous calls as operators. Raises CompileError where they cannot be."""
    if not any(map(_is_call, calls_in(root))):
        return root
    found = [node for node in walk_nodes(root) if any(map(_has_call, exprs_of(node.spec)))]
    if any(isinstance(n.spec, AppendOnly) and n.spec.watermark is not None for n in walk_nodes(root)):
        raise _refused(found[0], "in a query whose source has a watermark, which would overtake the rows that wait")
    calls = [c for node in found for e in exprs_of(node.spec) for c in walk(e) if isinstance(c, Call)]
    wanted = [f.options.order for c in calls if (f := _asynchronous(c)) is not None]
    return _placed(root, _numbered(), strictest(wanted))


def _placed(node: Node, names: Names, order: Order) -> Node:
    """order: the strictest that any call of the query wants; of the input, where something above keeps state."""
    order = order if isinstance(node.spec, _STATELESS) else "input"
    node = replace(node, inputs=tuple(_placed(i, names, order) for i in node.inputs))
    if not any(map(_has_call, exprs_of(node.spec))):
        return node
    if not isinstance(node.spec, _HOSTS):
        raise _refused(node, "in the condition of a join")
    if node.inputs[0].change == "retract":
        raise _refused(node, "over rows that are taken back when they change")
    if isinstance(node.spec, Filter):
        return _filtered(node, node.spec, names, order)
    for e in exprs_of(node.spec):
        _check(e)
    lowered = _Lowering(node.inputs[0], names, order)
    exprs = iter(lowered.without_calls(exprs_of(node.spec)))
    spec = map_spec(node.spec, lambda _: next(exprs))
    return replace(node, spec=spec, inputs=(lowered.node,))


def _filtered(node: Node, spec: Filter, names: Names, order: Order) -> Node:
    """Conditions without calls come first: no call is made for rows that they drop."""
    (below,) = node.inputs
    parts = conjuncts(spec.predicate)
    for part in parts:
        _check(part)
    if plain := [p for p in parts if not _has_call(p)]:
        below = replace(node, spec=Filter(conjunction(plain)), inputs=(below,))
    lowered = _Lowering(below, names, order)
    predicate = conjunction(lowered.without_calls([p for p in parts if _has_call(p)]))
    filtered = Node(Filter(predicate), (lowered.node,), lowered.node.schema, node.change)
    return Node(_all_of(node.schema), (filtered,), node.schema, node.change)


@dataclass(slots=True)
class _Lowering:
    """One input, and the operators over it for the calls that were found so far."""

    node: Node
    names: Names
    order: Order
    known: dict[str, Column] = field(
        default_factory=dict
    )  # by what calls are: 0.0 and -0.0 are equal, and not the same

    def without_calls(self, exprs: Sequence[Expr]) -> list[Expr]:
        """The expressions with columns in place of their calls. Equal calls are made once; independent calls are made together."""
        found = list(exprs)
        while inner := [c for e in found for c in walk(e) if isinstance(c, Call) and _is_innermost(c)]:
            self._add(list({repr(c): c for c in inner if repr(c) not in self.known}.values()))
            found = [map_expr(e, self._column) for e in found]
        return found

    def _column(self, e: Expr) -> Expr:
        return self.known.get(repr(e), e) if isinstance(e, Call) and _is_call(e) else e

    def _add(self, calls: list[Call]) -> None:
        if not calls:
            return
        exprs = {repr(a): a for c in calls for a in c.args}
        args: dict[str, Column] = {}
        for said, arg in exprs.items():
            is_own = isinstance(arg, Column) and arg.name != ROWTIME
            args[said] = arg if isinstance(arg, Column) and is_own else Column(arg.type, self.names("__arg_"))
        made = [(column, exprs[said]) for said, column in args.items() if column is not exprs[said]]
        below = self.node
        if made:
            schema = _with(below.schema, [column for column, _ in made])
            columns = (*_all_of(below.schema).columns, *(NamedExpr(column.name, arg) for column, arg in made))
            below = Node(Project(columns), (below,), schema, below.change)
        found: list[AsyncCall] = []
        for call in calls:
            column = self.known[repr(call)] = Column(call.type, self.names("__async_"))
            found.append(AsyncCall(column.name, call.name, tuple(args[repr(a)].name for a in call.args), call.type))
        schema = _with(below.schema, [self.known[repr(c)] for c in calls])
        order = strictest([self.order, "key"]) if below.change != "append" else self.order
        self.node = Node(AsyncMap(tuple(found), order), (below,), schema, below.change)


def _check(e: Expr, where: str = "") -> None:
    """Raises UnsupportedError for a call that is not made for every row."""
    if isinstance(e, Call) and _is_call(e) and where:
        raise _unsupported(e, where)
    lazy = isinstance(e, Call) and (f := lookup(e.name)) is not None and f.lazy
    for n, c in enumerate(children(e)):
        if isinstance(e, Lambda):
            where = "in a lambda"
        elif lazy and n > 0 and isinstance(e, Call):
            where = f"in an argument of {e.name.upper()}, which need not be computed"
        _check(c, where)


def _refused(node: Node, where: str) -> UnsupportedError:
    calls = [c for e in exprs_of(node.spec) for c in walk(e) if isinstance(c, Call) and _is_call(c)]
    return _unsupported(calls[0], where)


def _unsupported(call: Call, where: str) -> UnsupportedError:
    title = f"a call of the asynchronous function {plain_name(call.name)} {where}"
    help_ = "call it in a separate query that makes a stream, and read that stream here"
    return unsupported(title, _span(call), "asynchronous", help=help_)


def _span(call: Call) -> Span:
    return getattr(call, "span", NOWHERE)


def _is_innermost(e: Call) -> bool:
    return _is_call(e) and not any(map(_has_call, e.args))


def _has_call(e: Expr) -> bool:
    return any(isinstance(c, Call) and _is_call(c) for c in walk(e))


def _is_call(e: Call) -> bool:
    return _asynchronous(e) is not None


def _asynchronous(e: Call) -> AsyncFunction | None:
    function = lookup(e.name)
    return None if function is None else function.asynchronous


def _numbered() -> Names:
    """Gives names that no column of the query has."""
    counts: dict[str, int] = {}

    def name(stem: str) -> str:
        counts[stem] = counts.get(stem, -1) + 1
        return f"{stem}{counts[stem]}"

    return name


def _all_of(schema: Schema) -> Project:
    return Project(tuple(NamedExpr(f.name, Column(f.type, f.name)) for f in schema))


def _with(schema: Schema, columns: list[Column]) -> Schema:
    return Schema((*schema.fields, *(Field(c.name, c.type) for c in columns)), schema.window)
