"""A few rounds of `python -m tests.crash.rounds`: one of each kind, and what the watch sees where nothing is read."""

import random

import pytest

from tests.crash import rounds
from tests.crash.rounds import EVENTS, READ_AGAIN_S, Watch, run


@pytest.mark.turns("kafka")
@pytest.mark.kafka
@pytest.mark.crash
def test_members_are_stopped_killed_redeployed_and_purged_and_answers_stay_right(own_broker, tmp_path):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    run(
        own_broker, tmp_path, len(EVENTS), 2, seed, print
    )  # how long it took is asked by the program, on a quiet machine


class Standing:
    """What a member would say of a partition that it does not read."""

    position = 5

    def status(self, *, detail):
        assert detail
        partitions = [{"topic": "t", "partition": 0, "position": self.position, "lag": 9}]
        return {"queries": [{"id": "Q", "partitions": partitions}]}


def test_the_watch_sees_a_partition_that_stands_still(monkeypatch):
    now, member, watch = [0.0], Standing(), Watch()
    monkeypatch.setattr(rounds.time, "monotonic", lambda: now[0])
    for _ in range(4):
        watch.look("m0", member)
        now[0] += 4.0
    assert watch.slowest == (12.0, "m0: Q t-0")
    assert watch.slowest[0] > READ_AGAIN_S
    member.position = 6
    watch.look("m0", member)
    now[0] += 4.0
    watch.look("m0", member)
    assert watch.slowest[0] == 12.0
    now[0] += 16.0
    watch.look("m0", member)
    assert (watch.slowest[0], watch.standing[0]) == (12.0, 20.0)  # it has moved since it came
