"""Times of interactive queries with parts of a millisecond, where DuckDB means something else: CAST to a number of digits, and texts beside columns in
milliseconds, which DuckDB would cut.
"""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.functions.sql_micros import DIGITS
from flowql.compiler.functions.sql_text_casts import has_finer_part
from flowql.query.errors import INVALID, QueryError
from flowql.query.standard_arrays import call, number

ROUNDED = {"timestamp": "flowql_rounded", "timestamptz": "flowql_rounded_tz"}
_COMPARED = ("=", "<>", "!=", "<", "<=", ">", ">=")
_ALIKE = ("coalesce", "greatest", "least", "nullif")
_SINCE = "(epoch_us(x) - 946684800000000)"  # PostgreSQL rounds halves away from the year 2000
_UNITS = f"(CASE WHEN {_SINCE} >= 0 THEN ({_SINCE} + unit // 2) // unit ELSE -((unit // 2 - {_SINCE}) // unit) END)"
MACROS = {
    ROUNDED["timestamp"]: (f"(x, unit) AS make_timestamp(946684800000000 + {_UNITS} * unit)",),
    ROUNDED["timestamptz"]: (f"(x, unit) AS make_timestamptz(946684800000000 + {_UNITS} * unit)",),
}


def rounded(made: t.Expr, to: t.TypeName) -> t.Expr:
    """A moment of a type to the digits of a second that the type names. Raises QueryError."""
    if to.name not in ROUNDED or not to.parameters or to.parameters == (DIGITS,):
        return made
    if to.parameters[0] > DIGITS:
        raise QueryError(
            f"{to.name.upper()}({to.parameters[0]}) is not a type",
            code=INVALID,
            help=f"write  {to.name.upper()}({DIGITS})",
        )
    return call(ROUNDED[to.name], made, number(10 ** (DIGITS - to.parameters[0])))


def plain(to: t.TypeName) -> t.TypeName:
    """The type without a number of digits."""
    return replace(to, parameters=()) if to.name in ROUNDED else to


def exact_texts(node: t.Node, moments: frozenset[str]) -> t.Node:
    """A node whose operands have one type: texts in quotes beside a column of these names are read to a microsecond.

    moments: columns of TIMESTAMP, as which DuckDB would read the texts.
    """

    def exact(e: t.Expr) -> t.Expr:
        finer = isinstance(e, t.Constant) and e.kind == "string" and has_finer_part(e.value)
        return t.Cast(e, t.TypeName("timestamp")) if finer else e

    def beside(*nodes: t.Expr | None) -> bool:
        return any(isinstance(n, t.ColumnRef) and n.parts[-1] in moments for n in nodes)

    if isinstance(node, t.Binary) and node.op in _COMPARED and beside(node.left, node.right):
        return replace(node, left=exact(node.left), right=exact(node.right))
    if isinstance(node, t.Between) and beside(node.operand, node.low, node.high):
        return replace(node, operand=exact(node.operand), low=exact(node.low), high=exact(node.high))
    if isinstance(node, t.InList) and beside(node.operand, *node.items):
        return replace(node, operand=exact(node.operand), items=tuple(map(exact, node.items)))
    if isinstance(node, t.Call) and node.name[-1] in _ALIKE and beside(*node.args):
        return replace(node, args=tuple(map(exact, node.args)))
    if isinstance(node, t.Case) and beside(node.otherwise, *(then for _, then in node.whens)):
        whens = tuple((when, exact(then)) for when, then in node.whens)
        return replace(node, whens=whens, otherwise=None if node.otherwise is None else exact(node.otherwise))
    return node
