"""Times of interactive queries where DuckDB means something else: CAST to a number of digits, texts with parts of a millisecond beside columns in
milliseconds, which DuckDB would cut, and time zones, which DuckDB reads by ICU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.functions.sql_micros import DIGITS
from flowql.compiler.functions.sql_text_casts import has_finer_part, names_zone, read_microstz
from flowql.compiler.functions.sql_zone_functions import moment_in, shown_in
from flowql.compiler.plan.types import MICROS, MICROSTZ, STRING, SqlType
from flowql.query.errors import INVALID, QueryError
from flowql.query.standard_arrays import call, number

ROUNDED = {"timestamp": "flowql_rounded", "timestamptz": "flowql_rounded_tz"}
AT_ZONE, MADE_IN_ZONE, TRUNCATED_IN = "flowql_at_zone", "flowql_made_in_zone", "sql_date_trunc_in"
_MOMENT, _READ = "flowql_timestamptz", "flowql_read_timestamptz"
_COMPARED = ("=", "<>", "!=", "<", "<=", ">", ">=")
_ALIKE = ("coalesce", "greatest", "least", "nullif")
_SINCE = "(epoch_us(x) - 946684800000000)"  # PostgreSQL rounds halves away from the year 2000
_UNITS = f"(CASE WHEN {_SINCE} >= 0 THEN ({_SINCE} + unit // 2) // unit ELSE -((unit // 2 - {_SINCE}) // unit) END)"
_EAST = (
    "(CASE WHEN datepart('year', z) <> 0 OR datepart('month', z) <> 0 OR datepart('day', z) <> 0 "
    "THEN error('an interval time zone must not include months or days') ELSE to_seconds(trunc(epoch(z))) END)"
)
_ZONED = "TIMESTAMP WITH TIME ZONE"
MACROS = {
    AT_ZONE: (
        f"(z VARCHAR, x {_ZONED}) AS flowql_shown_in_zone(z, CAST(x AS TIMESTAMP))",
        f"(z VARCHAR, x TIMESTAMP) AS CAST(flowql_moment_in_zone(z, x) AS {_ZONED})",
        "(z VARCHAR, x DATE) AS flowql_shown_in_zone(z, CAST(x AS TIMESTAMP))",
        f"(z INTERVAL, x {_ZONED}) AS timezone('UTC', x) + {_EAST}",
        f"(z INTERVAL, x TIMESTAMP) AS timezone('UTC', CAST(x AS TIMESTAMP)) - {_EAST}",
        f"(z INTERVAL, x DATE) AS timezone('UTC', CAST(x AS {_ZONED})) + {_EAST}",
    ),
    _MOMENT: (
        f"(x VARCHAR) AS CAST({_READ}(x) AS {_ZONED})",
        f"(x {_ZONED}) AS x",
        f"(x TIMESTAMP) AS CAST(x AS {_ZONED})",
        f"(x DATE) AS CAST(x AS {_ZONED})",
    ),
    ROUNDED["timestamp"]: (f"(x, unit) AS make_timestamp(946684800000000 + {_UNITS} * unit)",),
    ROUNDED["timestamptz"]: (f"(x, unit) AS make_timestamptz(946684800000000 + {_UNITS} * unit)",),
}
FUNCTIONS: Sequence[tuple[str, tuple[SqlType, ...], SqlType, Callable[..., Any]]] = (
    ("flowql_shown_in_zone", (STRING, MICROSTZ), MICROS, shown_in),
    ("flowql_moment_in_zone", (STRING, MICROS), MICROSTZ, moment_in),
    (_READ, (STRING,), MICROSTZ, read_microstz),
)
CALLED = {AT_ZONE: ("flowql_shown_in_zone", "flowql_moment_in_zone"), _MOMENT: (_READ,)}


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


def as_moment(e: t.Expr) -> t.Expr:
    """CAST(e AS TIMESTAMPTZ)."""
    return call(_MOMENT, e)


def at_zone(node: t.AtTimeZone) -> t.Expr:
    return in_zone((node.zone, node.operand))


def in_zone(args: Sequence[t.Expr]) -> t.Expr:
    """TIMEZONE(zone, x); a text in quotes is a moment."""
    given = [
        as_moment(a) if i == 1 and isinstance(a, t.Constant) and a.kind == "string" else a for i, a in enumerate(args)
    ]
    return call(AT_ZONE, *given)


def exact_texts(node: t.Node, moments: frozenset[str]) -> t.Node:
    """A node whose operands have one type: texts in quotes beside a column of these names are read to a microsecond.

    moments: columns of TIMESTAMP, as which DuckDB would read the texts.
    """

    def exact(e: t.Expr) -> t.Expr:
        finer = isinstance(e, t.Constant) and e.kind == "string" and has_finer_part(e.value)
        return t.Cast(e, t.TypeName("timestamp")) if finer else e

    return _beside(node, moments, exact)


def zoned_texts(node: t.Node, moments: frozenset[str]) -> t.Node:
    """As `exact_texts`, of columns of TIMESTAMPTZ: texts in quotes that name a zone."""

    def read(e: t.Expr) -> t.Expr:
        named = isinstance(e, t.Constant) and e.kind == "string" and names_zone(e.value)
        return as_moment(e) if named else e

    return _beside(node, moments, read)


def _beside(node: t.Node, names: frozenset[str], exact: Callable[[t.Expr], t.Expr]) -> t.Node:
    def beside(*nodes: t.Expr | None) -> bool:
        return any(isinstance(n, t.ColumnRef) and n.parts[-1] in names for n in nodes)

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
