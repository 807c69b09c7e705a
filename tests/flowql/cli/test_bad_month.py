"""A small month of `tests.bad_month`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_month import lived


@pytest.mark.turns("load")
def test_a_bad_month_ends_as_if_its_records_had_been_right(tmp_path: Path) -> None:
    said: list[str] = []
    assert lived(tmp_path, 20_000, 1, said.append) == [], said
