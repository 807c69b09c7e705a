"""Lines of PostgreSQL's text format, split by columns: the rows are those that are read line by line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowql.topics.import_files import BadLine, TextRows, by_columns, by_lines, parse

PIECES = st.sampled_from(
    [b"a", b"1", b"", b"\\N", b"\\", b"\\t", b"\\n", b"\\\\", b"\\x41", b"\\101", b"\\.", b'"', b"'", b"\r", b" ", b"\0", b"NULL", b"\xef\xbb\xbf", "ä".encode(), b"\xff"]
)  # fmt: skip
FIELD = st.lists(PIECES, max_size=3).map(b"".join)
LINES = st.lists(st.tuples(FIELD, FIELD, FIELD), max_size=6)


def outcome(read: Callable[[bytes, int, bytes, bytes], TextRows], *given: object) -> object:
    try:
        found = read(*given)  # type: ignore[arg-type]
    except BadLine as error:
        return error.line, str(error)
    return [c.to_pylist() for c in found.columns if len(c)], found.lines, found.ended


@given(
    LINES,
    st.integers(1, 3),
    st.sampled_from((b"\t", b",", b"|", b'"')),
    st.sampled_from((b"\\N", b"", b"NULL")),
    st.sampled_from((b"\n", b"\r\n")),
    st.booleans(),
)
def test_rows_by_columns_are_those_line_by_line(
    lines: list[tuple[bytes, ...]], width: int, delimiter: bytes, null: bytes, newline: bytes, whole: bool
) -> None:
    block = newline.join(delimiter.join(line[:width]) for line in lines) + (newline if whole and lines else b"")
    wanted = outcome(by_lines, block, width, delimiter, null)
    assert outcome(parse, block, width, delimiter, null) == wanted
    found = by_columns(block, width, delimiter, null)
    assert found is None or outcome(lambda *_: found) == wanted


@pytest.mark.parametrize(
    "block",
    [b"1\ta\n2\t\\N\n", b"1\ta\r\n2\tb\r\n", b"1\tit's \"x\"\n2\t", b"1\ta\\tb\n2\t\\\\x\\101\n", "1\tä\n".encode(), b"\t\n"],
)  # fmt: skip
def test_lines_of_programs_are_read_by_columns(block: bytes) -> None:
    found = by_columns(block, 2, b"\t", b"\\N")
    assert found is not None
    assert outcome(lambda *_: found) == outcome(by_lines, block, 2, b"\t", b"\\N")
