"""`python -m tests.sim --seeds 3000`: whole instances on a simulated cluster; `--seed N` shows one, `--plant NAME` breaks something."""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.sim import project
from tests.sim.cluster import SimulatedCluster
from tests.sim.embedded import EMBEDDED, EmbeddedWorld
from tests.sim.faults import DISKS, LOST, LOST_ALONE, REBUILDS
from tests.sim.groups import Violation
from tests.sim.plants import PLANTS, planted

OF_MACHINES = {"alone": LOST_ALONE, "members": LOST, "embedded": EMBEDDED}
World = SimulatedCluster | EmbeddedWorld


def live(seed: int, *, rebuilds: bool = False, disk: bool = False, lost: str = "") -> tuple[World, list[str]]:
    """A world's life, and what is wrong with it.

    rebuilds: queries are changed, again and again. disk: disks fail, too. lost: machines, of one or of several processes on Kafka, or of one on the embedded log.
    """
    world: World
    if lost == "embedded":
        world = EmbeddedWorld(seed)
    elif rebuilds:
        faults = replace(REBUILDS, count=18, kinds=(*REBUILDS.kinds, *DISKS.kinds)) if disk else REBUILDS
        world = SimulatedCluster(seed, faults, change=project.CHANGES[0])
    else:
        world = SimulatedCluster(
            seed, OF_MACHINES[lost] if lost else DISKS if disk else None, orders=90 if lost else 36
        )
    try:
        return world, world.run()
    except Violation as violation:
        return world, [str(violation)]


def show(seed: int, plant: str | None, *, rebuilds: bool = False, disk: bool = False, lost: str = "") -> int:
    world, wrong = live(seed, rebuilds=rebuilds, disk=disk, lost=lost)
    print("\n".join(world.trace))
    print("\n".join(wrong) or f"seed {seed}: as DuckDB says, after {world.turns} steps")
    return int(bool(wrong) != bool(plant))


def search(
    first: int, count: int, plant: str | None, *, rebuilds: bool = False, disk: bool = False, lost: str = ""
) -> int:
    """0 when no seed finds anything, or with a planted bug when one does."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as progress:
        bar = progress.add_task(plant or "seeds", total=count)
        for seed in range(first, first + count):
            world, wrong = live(seed, rebuilds=rebuilds, disk=disk, lost=lost)
            if wrong:
                break
            progress.advance(bar)
    if not wrong:
        print(f"{count} seeds from {first} on: {'the bug is NOT found' if plant else 'all as DuckDB says'}")
        return int(plant is not None)
    planting = (
        (" --rebuilds" if rebuilds else "")
        + (" --disk" if disk else "")
        + (f" --lost {lost}" if lost else "")
        + (f" --plant {plant}" if plant else "")
    )
    print("\n".join(world.trace))
    print("\n".join(wrong))
    print(f"seed {seed}, the {seed - first + 1}. of {count}; again with: python -m tests.sim --seed {seed}{planting}")
    return int(plant is None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, metavar="N", help="so many seeds, one after the other")
    parser.add_argument("--seed", type=int, help="the first one; without --seeds this one alone, with its story")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="break this; a check must find it")
    parser.add_argument("--rebuilds", action="store_true", help="queries are changed, again and again")
    parser.add_argument(
        "--disk", action="store_true", help="disks fail and wall clocks jump more than anything else happens"
    )
    parser.add_argument(
        "--lost",
        choices=sorted(OF_MACHINES),
        default="",
        help="machines are lost with their disks more than anything else happens",
    )
    given = parser.parse_args()
    with planted(given.plant):
        if given.seeds is None and given.seed is not None:
            return show(given.seed, given.plant, rebuilds=given.rebuilds, disk=given.disk, lost=given.lost)
        first = random.randrange(1 << 20) if given.seed is None else given.seed
        return search(first, given.seeds or 200, given.plant, rebuilds=given.rebuilds, disk=given.disk, lost=given.lost)


if __name__ == "__main__":
    sys.exit(main())
