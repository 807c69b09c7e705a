"""Types that a column of standard SQL takes without a CAST, and the converted value: PostgreSQL's assignment.

| value | column | becomes |
|---|---|---|
| a string in quotes | of any type | read as that type |
| a number | of numbers | rounded to the nearest one; an error out of range |
| a date, a moment | of dates or moments | its midnight, its day |
| a moment | TIME | its time of day |
| ARRAY, MAP, STRUCT | of the same kind | element by element |
| all but an interval of a column | STRING | its text |

`CAST` converts the same way where both have a meaning, so a value never depends on the way it takes into a column.
Every way in uses this: VALUES, UPDATE, DEFAULT, the rows of a query, values of Python.
"""

from __future__ import annotations

from collections.abc import Iterator

from flowql.compiler.diagnostics.source import NOWHERE
from flowql.compiler.functions.casts import can_cast
from flowql.compiler.functions.sql_calendar import finer
from flowql.compiler.functions.sql_casts import sql_cast
from flowql.compiler.plan.expr import Call, Expr, Literal
from flowql.compiler.plan.types import INTERVAL, SPAN, STRING, Kind, SqlType

_CONSTRUCTORS = ("array", "map", "struct")
_MOMENTS = (Kind.TIMESTAMP, Kind.MICROS)


def assigned(e: Expr, to: SqlType, *, quoted: bool = False) -> Expr | None:
    """`e` as a value of a column of type `to`; None if it needs a CAST. quoted: it is a string in quotes, also where it is no literal.

    >>> from flowql.compiler.plan.types import DOUBLE, INT
    >>> call = assigned(Literal(DOUBLE, 2.7), INT)
    >>> call.name, assigned(Literal(INT, 1), SqlType(Kind.BOOLEAN))
    ('sql_to_int', None)
    """
    span = getattr(e, "span", NOWHERE)
    if e.type == to:
        return e
    if e.type.kind is Kind.NULL or (isinstance(e, Literal) and e.value is None):
        return Literal(to, None, span)
    if isinstance(e, Call) and e.name in _CONSTRUCTORS and e.type.kind is to.kind:
        return _constructed(e, to)
    if e.type == STRING and to == SPAN and quoted:
        return Call(to, "sql_interval_kept", (Call(INTERVAL, "sql_to_interval", (e,), span),), span)
    if not (e.type == STRING and (quoted or isinstance(e, Literal))) and not _is_assigned(e.type, to):
        return None
    name = sql_cast(e.type, to) or ("cast" if can_cast(e.type, to) else "")
    return Call(to, name, (e,), span) if name else None


def advice(source: SqlType, to: SqlType) -> str:
    """Help for a value of type `source` that a column of type `to` does not take."""
    if source.kind is Kind.MICROS and to.kind is Kind.TIMESTAMP:
        return f"declare the column {finer(to)}, or write  CAST(... AS {to}(3))  to round"
    return f"write  CAST(... AS {to})"


def _constructed(e: Call, to: SqlType) -> Expr | None:
    """The elements are values of the element's type, each by itself."""
    if to.kind is Kind.STRUCT:
        given = {n: a for (n, _), a in zip(e.type.fields, e.args, strict=True)}
        if not given.keys() <= dict(to.fields).keys():
            return None
        pairs = [(given.get(n, Literal(t, None)), t) for n, t in to.fields]
    else:
        if (
            e.args
            and to.args[0] != STRING
            and all(isinstance(a, Literal) and a.type == STRING and a.value is None for a in e.args)
        ):
            return None  # ARRAY[NULL] is one of texts
        pairs = [(a, to.args[i % len(to.args)]) for i, a in enumerate(e.args)]
    args = [assigned(a, t) for a, t in pairs]
    return Call(to, e.name, tuple(a for a in args if a is not None), e.span) if None not in args else None


def _is_assigned(source: SqlType, to: SqlType) -> bool:
    """Whether PostgreSQL has a cast that assignments use."""
    if source.kind in _MOMENTS:
        loses = source.kind is Kind.MICROS and to.kind in (Kind.TIMESTAMP, Kind.TIME)
        return to == STRING or (to.kind in (*_MOMENTS, Kind.DATE, Kind.TIME) and not loses)
    if source.kind is to.kind and source.kind in (Kind.ARRAY, Kind.MAP, Kind.STRUCT):
        return all(a == b or _is_assigned(a, b) for a, b in _parts(source, to))
    numbers = source.is_numeric and to.is_numeric
    return numbers or (source.kind is Kind.DATE and to.kind in _MOMENTS) or (to == STRING and source != SPAN)


def _parts(source: SqlType, to: SqlType) -> Iterator[tuple[SqlType, SqlType]]:
    """Types of elements, of keys and values, and of fields of one name."""
    yield from zip(source.args, to.args, strict=True)
    for name, t in source.fields:
        yield t, to.field(name) or SqlType(Kind.LAMBDA)  # a field that would be lost
