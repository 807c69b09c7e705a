"""Joins with tables in columns: whole batches against row by row, with every type of value, NULLs, tombstones and any split."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, STRING
from flowql.runtime.batch import Batch
from tests.runtime.operators.test_materialise import FEW, VALUES
from tests.runtime.operators.world import Task, batch, cuts, join

LEFT = Schema((Field("k", STRING, "key"), Field("a", BIGINT)))
RIGHT = Schema((Field("r", STRING, "key"), *(Field(n, t) for n, (t, _) in VALUES.items())))
OUT = Schema(
    (Field("k", STRING, "key"), Field("a", BIGINT), Field("r", STRING), *(Field(n, t) for n, (t, _) in VALUES.items()))
)
KEYS = st.sampled_from(["b\0", "a", "b\0", "a", "c", None])
EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just(0), st.sampled_from("+++-"), st.tuples(KEYS, st.none() | st.integers(0, 1)), st.integers(0, 9)
        ),
        st.tuples(
            st.just(1), st.sampled_from("+>><-"), st.tuples(KEYS, FEW).map(lambda r: (r[0], *r[1])), st.integers(0, 9)
        ),
    ),
    min_size=8,
    max_size=30,
)
POINTS = st.lists(st.integers(1, 30), max_size=3)


def in_columns(schemas: Sequence[Schema], part: Any, start: int, *, together: bool = False) -> list[Batch | None]:
    """Events as batches, one per side. together: rows share a place in the run, two and two."""
    sides: Any = [[] for _ in schemas]
    for seq, (side, *row) in enumerate(part, start):
        sides[side].append((seq // 2 if together else seq, row))
    found: list[Batch | None] = []
    for s, rows in zip(schemas, sides, strict=True):
        b = batch(s, *[r for _, r in rows], seqs=[q for q, _ in rows])
        marks = [("h", str(i).encode()) for i in range(len(b))]
        columns = Batch(s, arrow=b.arrow(), rowtime=b.rowtime, op=b.op, seq=b.seq, headers=marks)
        found.append(columns if rows else None)
    return found


def feed(task: Task, events: Any, points: Any, *, together: bool) -> list[Any]:
    """The task's output for each part, with headers."""
    out, start = [], 0
    for part in cuts(events, points):
        made = task.run_batch(*in_columns((LEFT, RIGHT), part, start, together=together)) if part else None
        start += len(part)
        if made is not None:
            out.append((made.op.tolist(), repr(made.rows()), made.rowtime.tolist(), made.seq.tolist(), made.headers))
    return out


@settings(max_examples=120, deadline=None)
@given(EVENTS, POINTS, st.sampled_from(["inner", "left"]), st.booleans())
def test_stream_table(events, points, kind, together):
    found = []
    for vector in (False, True):
        task = Task(*join(LEFT, RIGHT, OUT, "stream-table", kind, inputs=("append", "upsert")), vector=vector)
        found.append((feed(task, events, points, together=together), repr(sorted(task.table().items()))))
    assert found[0] == found[1]


@settings(max_examples=150, deadline=None)
@given(
    EVENTS,
    POINTS,
    st.sampled_from(["inner", "left", "right", "full"]),
    st.booleans(),
    st.sampled_from(["retract", "upsert"]),
)
def test_table_table(events, points, kind, together, change):
    found = []
    for vector in (False, True):
        plan = join(LEFT, RIGHT, OUT, "table-table", kind, change=change, inputs=("upsert", "upsert"))
        task = Task(*plan, coalesce=True, vector=vector)
        out = feed(task, events, points, together=together)
        found.append((out, [repr(sorted(s.published.items())) for s in task.state.stores.values()]))
    assert found[0] == found[1]
