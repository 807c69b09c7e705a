"""Answers over the wire, in pieces."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from flowql.query.answer import Answer
from flowql.query.errors import QueryError
from flowql.server.streaming import decode, encode

TABLE = pa.table({"A": list(range(10)), "B": [None, "x"] * 5}).replace_schema_metadata({"about": "this"})


def answer(batches: Iterator[pa.RecordBatch]) -> Answer:
    return Answer(TABLE.schema, (b for b in batches))


def cut(parts: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in pieces of another size, as a network gives them."""
    data = b"".join(parts)
    yield from (data[i : i + size] for i in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_what_is_sent_arrives(size: int) -> None:
    found = decode(cut(encode(answer(iter(TABLE.to_batches(3)))), size)).table()
    assert found.equals(TABLE, check_metadata=True)


def test_pieces_are_sent_before_the_end_is_known() -> None:
    taken = []

    def batches() -> Iterator[pa.RecordBatch]:
        for n, batch in enumerate(TABLE.to_batches(3)):
            taken.append(n)
            yield batch

    parts = encode(answer(batches()))
    assert next(parts)
    assert taken == [0]


def test_an_answer_that_breaks_off_says_why() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches(3)[0]
        raise QueryError("no more of it", code="FQ5102", help="ask less")

    found = decode(encode(answer(batches())))
    assert next(found.batches).num_rows == 3
    with pytest.raises(QueryError) as broken:
        next(found.batches)
    assert (broken.value.title, broken.value.code, broken.value.help) == ("no more of it", "FQ5102", "ask less")
