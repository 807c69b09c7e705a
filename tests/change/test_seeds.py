"""A few stories of `python -m tests.change`: changes that touch nothing else, with an engine that dies on the way."""

import pytest

from tests.change.__main__ import live
from tests.change.story import Options


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kills", [False, True])
def test_what_is_added_leaves_the_rest_as_from_the_beginning(seed, kills):
    outcome = live(seed, Options("safe", kills, turns=3, records=40))
    assert not outcome.wrong, str(outcome)
