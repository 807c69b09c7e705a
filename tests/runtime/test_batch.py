"""Columns of reference values."""

from __future__ import annotations

import pytest

from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, INT, STRING, array, map_of, struct
from flowql.runtime.batch import Batch, from_rows, to_arrow

PAIR = struct(("K", STRING), ("V", INT))


@pytest.mark.parametrize("t", [PAIR, array(PAIR), map_of(STRING, PAIR), array(array(PAIR)), struct(("S", PAIR))])
def test_no_values_are_a_column_of_their_type(t) -> None:
    """A list of structs without any element failed, as the mask of nothing had no type."""
    assert to_arrow([], t).to_pylist() == []
    empty = {} if t.kind.value == "MAP" else []
    if t.kind.value in ("ARRAY", "MAP"):
        assert len(to_arrow([empty, None], t)) == 2


def test_a_slice_has_the_forms_that_are_there() -> None:
    schema = Schema((Field("K", STRING, "key"), Field("V", BIGINT), Field("A", array(PAIR))))
    rows = [(f"k{n}", n, [{"K": str(n), "V": i} for i in range(n)]) for n in range(6)]
    headers = [[("n", b"%d" % n)] for n in range(6)]
    whole = from_rows(schema, rows, range(6), [0] * 6, range(6), headers)
    columns = Batch(
        schema, arrow=whole.arrow(), rowtime=whole.rowtime, op=whole.op, seq=whole.seq, headers=whole.headers
    )
    for batch in (from_rows(schema, rows, range(6), [0] * 6, range(6), headers), columns, whole):
        part = batch.slice(2, 5)
        assert (part.is_columns, len(part)) == (batch.is_columns, 3)
        assert part.rowtime.tolist() == part.seq.tolist() == [2, 3, 4]
        assert part.headers == headers[2:5]
        assert part.rows() == rows[2:5]
        assert part.arrow().equals(whole.arrow().slice(2, 3))
        assert part.numbered(part.seq + 7).rows() == rows[2:5]
    assert columns.slice(0, 6) is columns
