"""Rows of a join's output, put together from a key and the rows of both sides."""

from __future__ import annotations

from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import Kind
from flowql.runtime.batch import Row
from flowql.runtime.operators.keys import RowKey, picker
from flowql.runtime.state.rows import Key

VECTOR_ROWS = 256  # joins take fewer rows one by one
# Keys that can be dictionary-encoded, so that each distinct one is looked up once.
DICTIONARY_KEYS = frozenset({Kind.INT, Kind.BIGINT, Kind.STRING, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS})

NOT_ONE_KEY = "its key is not one column that can be dictionary-encoded"


class JoinedRow:
    """Makes output rows; an absent side gives nulls.

    Key columns of the output are the parts of the join key, whichever side is present; other columns are found by name,
    left before right. `keyed_by_left` (foreign-key joins): the output key is the left row's own.
    """

    __slots__ = ("_arrange", "_left_nulls", "_parts", "_right_nulls")

    def __init__(self, plan: Operator, left: Schema, right: Schema, *, keyed_by_left: bool = False) -> None:
        key = RowKey(left)
        self._parts = key.parts
        n, width = len(key.fields), len(left.names)
        own = [] if keyed_by_left else [f.name for f in plan.schema.key]
        if plan.schema.window is not None and not keyed_by_left:
            own += [f.name for f in plan.schema if f.role == "window"]
        assert keyed_by_left or len(own) <= n, "the output key is the join key"
        indices = []
        for name in plan.schema.names:
            if name in own:
                indices.append(own.index(name))
            elif name in left.names:
                indices.append(n + left.names.index(name))
            else:
                indices.append(n + width + right.names.index(name))
        self._arrange = picker(indices)
        self._left_nulls: Row = (None,) * width
        self._right_nulls: Row = (None,) * len(right.names)

    def __call__(self, key: Key, left: Row | None, right: Row | None) -> Row:
        """One output row; `key` is the frozen join key (of the left row for foreign-key joins)."""
        return self._arrange(
            self._parts(key)
            + (self._left_nulls if left is None else left)
            + (self._right_nulls if right is None else right)
        )
