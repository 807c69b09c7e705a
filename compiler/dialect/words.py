"""Word lists of the grammar. Words not listed as reserved are ordinary names."""

from __future__ import annotations

_CLAUSE_WORDS = (
    "SELECT",
    "FROM",
    "AS",
    "ALL",
    "DISTINCT",
    "WHERE",
    "WITHIN",
    "WINDOW",
    "GROUP",
    "BY",
    "HAVING",
    "LIMIT",
)
_JOIN_WORDS = ("JOIN", "FULL", "OUTER", "INNER", "LEFT", "RIGHT", "ON", "UNION")
_OPERATOR_WORDS = (
    "OR",
    "AND",
    "IN",
    "NOT",
    "EXISTS",
    "BETWEEN",
    "LIKE",
    "IS",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CAST",
)
_STATEMENT_WORDS = ("CREATE", "INSERT", "INTO", "VALUES", "WITH", "DROP", "DELETE", "DESCRIBE")
RESERVED = frozenset(
    (*_CLAUSE_WORDS, *_JOIN_WORDS, *_OPERATOR_WORDS, *_STATEMENT_WORDS, "NULL", "TRUE", "FALSE"),
)

# Words that make a JOIN another kind of join than INNER, LEFT, RIGHT and FULL.
JOIN_KINDS = ("ANTI", "ANY", "ARRAY", "ASOF", "CROSS", "GLOBAL", "INTERVAL", "LATERAL", "LOOKUP", "NATURAL", "PASTE", "POSITIONAL", "SEMI", "TEMPORAL")  # fmt: skip

# Columns that the system gives: in every dialect they have these names, however an unquoted one is written.
SYSTEM_COLUMNS = ("ROWTIME", "ROWPARTITION", "ROWOFFSET", "WINDOWSTART", "WINDOWEND")

# Words that begin a statement; the other verbs are recognised by name only.
OTHER_VERBS = frozenset(("LIST", "SHOW", "DESCRIBE", "EXPLAIN", "PRINT", "ALTER"))
CONTROLS = ("TERMINATE", "PAUSE", "RESUME")
VERBS = (
    "CREATE",
    "INSERT",
    "DROP",
    "SELECT",
    "SET",
    "UNSET",
    "DEFINE",
    "UNDEFINE",
    "ASSERT",
    *CONTROLS,
    *sorted(OTHER_VERBS),
)

UNIT_MS = {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}
INTERVAL_UNITS = {**UNIT_MS, "WEEK": 7 * 86_400_000}
CALENDAR_UNITS = (*UNIT_MS, "WEEK", "MONTH", "YEAR")

# Functions whose first argument may be a bare unit, as in TIMESTAMPADD(DAYS, 3, t).
UNIT_FUNCTIONS = frozenset(("DATEADD", "DATESUB", "TIMEADD", "TIMESUB", "TIMESTAMPADD", "TIMESTAMPSUB"))


def singular(unit: str) -> str:
    """`DAYS` and `day` to `DAY`."""
    upper = unit.upper()
    return upper[:-1] if upper.endswith("S") else upper
