"""Names of operators and aggregates in the plan of each dialect.

The two dialects mean different things by the same text: `a = b` is `eq` in ksqlDB's, where a comparison with NULL is FALSE, and `sql_eq` in
the standard one, where it is NULL. The binder chooses by name, so a plan says what it means and no kernel asks for a dialect.
Functions that are not listed have one meaning in both; `tests/compiler/functions/test_shared_functions.py` compares them with DuckDB's.
"""

from __future__ import annotations

from flowql.compiler.functions import builtin
from flowql.compiler.functions.arithmetic import SYMBOLS as ARITHMETIC
from flowql.compiler.functions.comparison import SYMBOLS
from flowql.compiler.functions.registry import AGGREGATE_NAMES, NAMES
from flowql.compiler.functions.sql_comparison import PREFIX

assert builtin.FAMILIES

# Names in the syntax tree -> names in the catalogue of functions.
_STANDARD = {
    **{op: PREFIX + op for op in (*SYMBOLS, *ARITHMETIC, "neg", "in", "concat")},
    "MOD": "sql_mod",
    "from_millis": "FROM_UNIXTIME",  # of windows; what people write counts seconds
    "to_millis": "UNIX_TIMESTAMP",
    **NAMES,
}


def function_name(name: str, *, standard: bool) -> str:
    """The function that `name` of the syntax tree stands for in a dialect.

    >>> function_name("eq", standard=True), function_name("eq", standard=False), function_name("UCASE", standard=True)
    ('sql_eq', 'eq', 'UCASE')
    """
    return _STANDARD.get(name, name) if standard else name


def aggregate_name(name: str, *, standard: bool) -> str:
    """The aggregate that `name` stands for in a dialect; aggregates are registered in upper case."""
    return AGGREGATE_NAMES.get(name.upper(), name.upper()) if standard else name.upper()
