"""When records came to be known, against a list that remembers each offset's time."""

from __future__ import annotations

import random

import pytest

from flowql.runtime.latency import CLASSES, Latencies, octaves, percentile, upper_ms
from flowql.runtime.task.arrivals import MARKS_MAX, Arrivals


@pytest.mark.parametrize("seed", range(20))
def test_every_record_counts_from_when_it_was_known(seed: int) -> None:
    rnd, arrivals, known = random.Random(seed), Arrivals(), []
    now = 1_000
    while len(known) < 500:
        now += rnd.randrange(50)
        known += [now] * rnd.randrange(40)
        arrivals.reach(len(known), now)
        arrivals.reach(rnd.randrange(len(known) + 1), now + 5)  # what is known already changes nothing
    start = rnd.randrange(400)
    end = rnd.randrange(start, len(known)) + 1
    given = arrivals.between(start, end, end - start)
    assert [ms for ms, n in given for _ in range(n)] == known[start:end]


def test_of_a_range_with_gaps_the_sum_is_right() -> None:
    arrivals = Arrivals()
    for n in range(10):
        arrivals.reach(n * 10 + 10, n)
    given = arrivals.between(0, 100, 45)  # of 100 offsets 45 are records
    assert sum(n for _, n in given) == 45
    assert given == sorted(given)


def test_nothing_is_known_of_a_partition_nobody_looked_at() -> None:
    assert Arrivals().between(0, 10, 10) == []


def test_marks_are_bounded_and_never_make_a_record_look_younger() -> None:
    arrivals, known = Arrivals(), []
    for now in range(5 * MARKS_MAX):
        known += [now] * 3
        arrivals.reach(len(known), now)
    given = [ms for ms, n in arrivals.between(0, len(known), len(known)) for _ in range(n)]
    assert len(given) == len(known)
    assert all(g <= k for g, k in zip(given, known, strict=True))
    assert given[-1] == known[-1]
    ends, times = arrivals._marks
    assert len(ends) == len(times) <= MARKS_MAX


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_a_class_above_the_exact_ones_at_most(seed: int) -> None:
    rnd, latencies = random.Random(seed), Latencies()
    took = sorted(int(2 ** (rnd.random() * 20)) for _ in range(2_000))
    for ms in took:
        latencies.add(ms, 1)
    for fraction in (0.01, 0.5, 0.9, 0.99, 1.0):
        exact = took[max(0, int(len(took) * fraction + 0.999999) - 1)]
        given = percentile(latencies.counts, fraction)
        assert given is not None
        assert exact <= given * 1.0001 <= max(1.0, exact) * 1.2
    assert latencies.sum_ms == sum(took)


def test_octaves_are_the_same_counts_summed_up() -> None:
    latencies = Latencies()
    for ms in (0, 1, 1.5, 3, 100, 10**9):
        latencies.add(int(ms), 2)
    found = octaves(latencies.counts)
    assert found[0] == (1.0, 2)
    assert found[1] == (2.0, 6)
    assert found[-2][1] == 10
    assert found[-1] == (upper_ms(CLASSES - 1), 12)
