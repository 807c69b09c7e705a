"""Draw shares of processor time against weights, under both policies, from the simulation of the scheduler.

    python -m tests.simulation.plot_shares FILE.png [--seed N]

Eight queries that never run out of work, of all four classes, with slices that overrun. Under `weighted_fair` the received
shares lie on the ideal ones; `most_buffered` does not know weights.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.plots import plotted
from tests.simulation.scheduler import Workload, simulate

CLASSES = {"batch": 1, "normal": 4, "high": 16, "critical": 64}
DURATION_NS = 20_000_000_000


def shares(policy: str, seed: int) -> list[tuple[str, float, float]]:
    """(class, ideal share, received share) of each query."""
    workloads = [Workload(f"{c}-{i}", weight, overrun=0.5) for c, weight in CLASSES.items() for i in range(2)]
    accounts, _ = simulate(workloads, seed=seed, duration_ns=DURATION_NS, policy=policy)
    total = sum(a.received_ns for a in accounts.values())
    weights = sum(w.weight for w in workloads)
    return [(w.name.split("-")[0], w.weight / weights, accounts[w.name].received_ns / total) for w in workloads]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with plotted(options.file, size=(5, 4)) as axes:
        for policy, mark in (("weighted_fair", "o"), ("most_buffered", "x")):
            points = shares(policy, options.seed)
            axes.plot([i for _, i, _ in points], [r for _, _, r in points], mark, label=policy)
            for name, ideal, received in points:
                print(f"{policy:15}{name:10}ideal {ideal:7.2%}  received {received:7.2%}")
        axes.plot([0.003, 0.6], [0.003, 0.6], color="grey", linewidth=0.5)
        axes.set(xscale="log", yscale="log", xlabel="share by weight", ylabel="share received")
        axes.legend()


if __name__ == "__main__":
    main()
