"""Names and types as SQL of ksqlDB's dialect, and the clauses of time, which both dialects have."""

from __future__ import annotations

import re
from collections.abc import Callable

from flowql.compiler.dialect.ast import TypeRef, WindowClause, WithinClause
from flowql.compiler.dialect.words import RESERVED
from flowql.compiler.plan.types import SqlType

Name = Callable[[str], str]
# Names that begin a form of their own when a bracket, parenthesis or text follows.
_SPECIAL = {"ARRAY", "MAP", "STRUCT", "INTERVAL", "DATE", "TIME", "TIMESTAMP", "DECIMAL", "DEC"}


def quote_name(name: str) -> str:
    """The name as it must be written: in back-ticks unless it is read back as it is.

    >>> quote_name("AMOUNT"), quote_name("amount"), quote_name("SELECT")
    ('AMOUNT', '`amount`', '`SELECT`')
    """
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_@]*", name) and name.upper() == name
    if plain and name.upper() not in RESERVED and name.upper() not in _SPECIAL:
        return name
    return "`" + name.replace("`", "``") + "`"


def type_sql(ref: TypeRef | SqlType, name: Name = quote_name, field: Name = quote_name) -> str:
    """The type as SQL. name, field: how names of custom types and of fields are written."""
    if isinstance(ref, TypeRef) and ref.known is not None:
        return type_sql(ref.known, name, field)
    kind = ref.name.upper() if isinstance(ref, TypeRef) else ref.kind.value
    if ref.args:
        return f"{kind}<{', '.join(type_sql(a, name, field) for a in ref.args)}>"
    if kind == "STRUCT":
        return f"STRUCT<{', '.join(f'{field(n)} {type_sql(of, name, field)}' for n, of in ref.fields)}>"
    if isinstance(ref, SqlType):
        return str(ref)
    return name(ref.name) + (f"({', '.join(map(str, ref.parameters))})" if ref.parameters else "")


def within_text(within: WithinClause) -> str:
    """The clause as SQL, with durations in milliseconds."""
    grace = f" GRACE PERIOD {within.grace_ms} MILLISECONDS" if within.grace_ms is not None else ""
    return f"WITHIN ({within.before_ms} MILLISECONDS, {within.after_ms} MILLISECONDS){grace}"


def window_text(window: WindowClause) -> str:
    """The clause as SQL, with durations in milliseconds."""
    size = f"{window.size_ms} MILLISECONDS"
    parts = [size if window.kind == "session" else f"SIZE {size}"]
    if window.kind in ("hopping", "cumulating") and window.advance_ms is not None:
        parts.append(f"ADVANCE BY {window.advance_ms} MILLISECONDS")
    if window.retention_ms is not None:
        parts.append(f"RETENTION {window.retention_ms} MILLISECONDS")
    if window.grace_ms is not None:
        parts.append(f"GRACE PERIOD {window.grace_ms} MILLISECONDS")
    return f"WINDOW {window.kind.upper()} ({', '.join(parts)})"
