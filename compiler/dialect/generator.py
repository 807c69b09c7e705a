"""Names and types as SQL of ksqlDB's dialect."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flowql.compiler.dialect.ast import TypeRef
from flowql.compiler.dialect.words import RESERVED
from flowql.compiler.plan.types import Kind, SqlType

# Names that begin a form of their own when a bracket, parenthesis or text follows.
_SPECIAL = {"ARRAY", "MAP", "STRUCT", "INTERVAL", "DATE", "TIME", "TIMESTAMP", "DECIMAL", "DEC"}


def type_sql(ref: TypeRef | SqlType) -> str:
    """The type as SQL."""
    if isinstance(ref, SqlType):
        if ref.args:
            return f"{ref.kind.value}<{', '.join(map(type_sql, ref.args))}>"
        return _struct(ref.fields) if ref.kind is Kind.STRUCT else str(ref)
    if ref.known is not None:
        return type_sql(ref.known)
    if ref.kind == "STRUCT":
        return _struct(ref.fields)
    return f"{ref.kind}<{', '.join(map(type_sql, ref.args))}>" if ref.kind else quote_name(ref.custom)


def _struct(fields: Sequence[tuple[str, TypeRef]] | Sequence[tuple[str, SqlType]]) -> str:
    return f"STRUCT<{', '.join(f'{quote_name(n)} {type_sql(t)}' for n, t in fields)}>"


def quote_name(name: str) -> str:
    """The name as it must be written: in back-ticks unless it is read back as it is.

    >>> quote_name("AMOUNT"), quote_name("amount"), quote_name("SELECT")
    ('AMOUNT', '`amount`', '`SELECT`')
    """
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_@]*", name) and name.upper() == name
    if plain and name.upper() not in RESERVED and name.upper() not in _SPECIAL:
        return name
    return "`" + name.replace("`", "``") + "`"
