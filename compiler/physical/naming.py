"""Names of operators, stores and internal topics."""

from __future__ import annotations

from collections import Counter


class OperatorNames:
    """`scan-1`, `scan-2`, `aggregate-1`, ... within one query: the role of an operator and its place among its like."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._count: Counter[str] = Counter()

    def operator(self, role: str) -> str:
        self._count[role] += 1
        return f"{role}-{self._count[role]}"

    def upcoming(self, role: str) -> str:
        """The name the next operator of that role will get."""
        return f"{role}-{self._count[role] + 1}"

    def store(self, operator: str) -> str:
        return f"{self._query}-{operator}"

    def repartition(self, operator: str) -> str:
        return f"{self._query}-{operator}-repartition"
