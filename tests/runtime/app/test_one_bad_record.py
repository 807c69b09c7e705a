"""A sample of `python -m tests.one_bad_record`."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from flowql.runtime.app.careful import CarefulQueries
from tests.one_bad_record import CASES, compare

RECORDS = 6_000


@pytest.mark.parametrize("name", CASES)
def test_one_bad_record_of_an_epoch_makes_one_letter(name):
    """And is found by halving: the runs that are looked at are those of the epoch and a few per halving, not one per record."""
    looks = []
    look = CarefulQueries._check

    def counted(self, task, outputs):
        looks.append(task.id)
        look(self, task, outputs)

    with patch.object(CarefulQueries, "_check", counted):
        compare(CASES[name], RECORDS)
    assert 0 < len(looks) < 80, "halving 6,000 rows takes 13 attempts, and as many successes until runs are whole again"
