"""Pieces of DuckDB's SQL text: string constants, and what lowerings may ask about the text of an argument."""

from __future__ import annotations


def quoted_text(value: str) -> str:
    """A string constant. value: without NUL."""
    return "'" + value.replace("'", "''") + "'"


def constant_text(sql: str) -> str | None:
    """The value of a string constant, or None. sql: an argument as a lowering gets it."""
    inner = sql[1:-1]
    if len(sql) < 2 or not sql.startswith("'") or not sql.endswith("'") or "'" in inner.replace("''", ""):
        return None
    return inner.replace("''", "'")
