"""Statements in the styles of other systems' documentations, each against DuckDB's answer: `python -m tests.styles`."""
