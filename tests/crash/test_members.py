"""A second instance joins and leaves, and nobody can tell from the results (`python -m tests.crash.members`: kills and zombies)."""

import random

import pytest

from tests.crash.kills import Shape
from tests.crash.members import check


@pytest.mark.turns("kafka")
@pytest.mark.kafka
@pytest.mark.crash
def test_instances_share_an_application(own_broker, tmp_path):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    wrong = check(own_broker, tmp_path, Shape(300, 4.0, 0, seed, moments=seed), ["join", "leave"], print)
    assert not wrong, f"seed {seed}: {wrong}"
