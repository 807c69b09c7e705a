"""Columns of the arguments of user-defined functions, where a function that takes values gets them from columns."""

from __future__ import annotations

from decimal import Decimal

from flowql.compiler.functions.signatures import AnyDecimal
from flowql.compiler.functions.user import UserFunction
from flowql.compiler.functions.user_aggregates import UserAggregate
from flowql.compiler.functions.user_rows import without_none
from flowql.compiler.functions.user_types import sql_type
from flowql.compiler.plan.types import STRING, SqlType


def column_types(user: UserFunction | UserAggregate) -> tuple[SqlType, ...]:
    """One per parameter. A DECIMAL of any digits comes as a text: no column has all of them."""
    if isinstance(user, UserAggregate):
        return tuple(p if isinstance(p, SqlType) else STRING for p in user.params)
    hints = (without_none(hint) for hint in user.hints)
    return tuple(STRING if h is Decimal else sql_type(h, user.name, rows=True)[0] for h in hints)


def decimals_of(user: UserFunction | UserAggregate) -> frozenset[int]:
    """Places of the parameters that take a DECIMAL of any digits."""
    return frozenset(i for i, p in enumerate(user.params) if isinstance(p, AnyDecimal))
