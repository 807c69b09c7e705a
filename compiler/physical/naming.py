"""Names of operators, stores and internal topics, and what decides whether a query is the same as before."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

from compiler.plan.codec import to_data
from compiler.plan.logical import Node


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


def definition_hash(node: Node) -> str:
    """The compatibility check of a query: a hash of its bound, unoptimised plan. Never part of a name."""
    text = json.dumps(to_data(node), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
