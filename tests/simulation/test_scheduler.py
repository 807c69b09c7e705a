"""The guarantees of the scheduler (docs/guide/priorities.md), over random workloads from printed seeds."""

from __future__ import annotations

import random

import pytest

from tests.simulation.scheduler import Workload, simulate

pytestmark = pytest.mark.turns("long")

CLASS_WEIGHTS = (64, 16, 4, 1)


def random_workloads(rnd: random.Random) -> list[Workload]:
    return [
        Workload(
            f"q{i}",
            rnd.choice(CLASS_WEIGHTS),
            slice_ns=rnd.choice([1_000_000, 2_000_000, 5_000_000]),
            overrun=rnd.choice([0.0, 0.2, 0.8]),
        )
        for i in range(rnd.randint(2, 6))
    ]


@pytest.mark.turns("cases")
@pytest.mark.parametrize("seed", range(40))
def test_shares_bound_and_no_starvation(seed: int) -> None:
    print("seed", seed)
    workloads = random_workloads(random.Random(seed))
    accounts, samples = simulate(workloads, seed=seed, duration_ns=10_000_000_000)
    total = sum(a.received_ns for a in accounts.values())
    weights = sum(w.weight for w in workloads)
    longest = max(a.longest_slice_ns for a in accounts.values())
    for w in workloads:
        ideal = total * w.weight / weights
        # 5 % of the share, and one slice of grain for a query whose whole share is a few slices
        assert abs(accounts[w.name].received_ns - ideal) <= max(0.05 * ideal, longest), w
        assert accounts[w.name].slices > 0
    # |A_q/w_q - A_r/w_r| <= S_q/w_q + S_r/w_r for queries backlogged throughout
    for sample in samples[:: max(1, len(samples) // 200)]:
        lags = {w.name: sample[w.name] / w.weight for w in workloads}
        for q in workloads:
            for r in workloads:
                bound = accounts[q.name].longest_slice_ns / q.weight + accounts[r.name].longest_slice_ns / r.weight
                assert abs(lags[q.name] - lags[r.name]) <= bound, (seed, q, r)


@pytest.mark.turns("cases")
@pytest.mark.parametrize("seed", range(10))
def test_shares_on_two_threads(seed: int) -> None:
    workloads = random_workloads(random.Random(seed))
    accounts, _ = simulate(workloads, seed=seed, workers=2, duration_ns=10_000_000_000)
    total = sum(a.received_ns for a in accounts.values())
    weights = sum(w.weight for w in workloads)
    for w in workloads:
        ideal = total * w.weight / weights
        assert abs(accounts[w.name].received_ns - ideal) <= max(0.05 * ideal, 2 * accounts[w.name].longest_slice_ns)


@pytest.mark.turns("cases")
@pytest.mark.parametrize("seed", range(10))
def test_a_critical_query_waits_at_most_one_slice(seed: int) -> None:
    rnd = random.Random(seed)
    arrivals = sorted(rnd.randrange(5_000_000_000) for _ in range(200))  # far within its share
    batch = [Workload(f"batch{i}", 1) for i in range(3)]
    critical = Workload("critical", 64, slice_ns=1_000_000, tasks=1, arrivals=arrivals)
    accounts, _ = simulate([*batch, critical], seed=seed, duration_ns=6_000_000_000)
    longest = max(a.longest_slice_ns for a in accounts.values())
    own = accounts["critical"].longest_slice_ns
    waits = sorted(accounts["critical"].waits_ns)
    assert len(waits) == 200
    # one slice of another query, and its own earlier arrivals
    assert waits[int(0.99 * len(waits))] <= longest + 3 * own


def test_most_buffered_gives_no_such_guarantee() -> None:
    batch = [Workload(f"batch{i}", 1) for i in range(3)]
    critical = Workload("critical", 64)
    accounts, _ = simulate([*batch, critical], seed=1, policy="most_buffered", duration_ns=5_000_000_000)
    share = accounts["critical"].received_ns / sum(a.received_ns for a in accounts.values())
    assert share < 0.5, "the policy by buffered rows does not know weights"


def test_an_idle_query_hoards_no_credit() -> None:
    sleeper = Workload("sleeper", 1, arrivals=[4_000_000_000 + i for i in range(1000)])
    busy = Workload("busy", 1)
    _, samples = simulate([sleeper, busy], seed=3, duration_ns=6_000_000_000)
    late = [s for s in samples if s["busy"] > 4_000_000_000]
    gained = late[-1]["sleeper"] - late[0]["sleeper"]
    assert gained <= (late[-1]["busy"] - late[0]["busy"]) * 1.05 + 10_000_000
