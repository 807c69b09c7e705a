"""The metadata of committed offsets."""

from __future__ import annotations

import pytest

from flowql.runtime.commit.positions import offset_metadata, readers, readers_in
from flowql.runtime.log.base import Position


@pytest.mark.parametrize("of", ["", readers(["q/0_0"])])
@pytest.mark.parametrize("writer", ["app", "app-7f by=x"])
def test_a_committed_offset_tells_its_commit_and_its_readers(writer: str, of: str) -> None:
    metadata = offset_metadata(writer, 12, of)
    assert (Position(0, metadata).commit, readers_in(metadata)) == ((writer, 12), of)


@pytest.mark.parametrize("metadata", ["", "seq=12", "written by=hand", "7 by=x", "checkpoint"])
def test_metadata_of_other_programs_tells_nothing(metadata: str) -> None:
    assert (Position(0, metadata).commit, readers_in(metadata)) == (None, "")


def test_readers_are_a_set_of_tasks() -> None:
    one, two, three = readers(["a"]), readers(["a", "b"]), readers(["a", "b", "c"])
    assert len({one, two, three, readers(["b", "c"]), readers([])}) == 5
    assert two == readers(["b", "a"])
