"""One move of partitions from a member to another, with a fault at each call to the brokers on the way: `python -m tests.sim.handover`.

Two members run; a third one joins, or the second one is killed. From then on until all tasks run again, each call of each member is one place. At each place
the member that calls is killed, or suspended until the others have given it up; then the run has to end as DuckDB says, and nobody but its owner may ever
commit a partition (`tests.sim.checks.Watch`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.progress import track

from tests.sim.checks import judge
from tests.sim.cluster import SILENT_MS, Process, SimulatedCluster
from tests.sim.faults import CALM, Killed
from tests.sim.groups import Violation

MOVES = ("join", "death")
FAULTS = ("kill", "suspend")
LOOKS = {"poll", "read", "end offsets"}  # at these a fault does what it does at the call before


@dataclass(frozen=True)
class Case:
    """A move, and what happens to the member that makes call number `call` of it. No fault: the calls are counted."""

    move: str
    fault: str = ""
    call: int = -1

    def __str__(self) -> str:
        return f"{self.move}: {self.fault} at call {self.call}"


class Handover:
    """One run of a case. calls: who made each call, and which."""

    def __init__(self, case: Case) -> None:
        self.case, self.calls, self.moving = case, list[tuple[str, str]](), False
        self.world = SimulatedCluster(1, CALM, orders=24)

    def watch(self, process: Process) -> None:
        call = process.link.call

        def counted(what: str) -> None:
            call(what)
            if self.moving and what not in LOOKS:
                self._at_a_call(process, what)

        process.link.call = counted  # type: ignore[method-assign]

    def _at_a_call(self, process: Process, what: str) -> None:
        number = len(self.calls)
        self.calls.append((process.name, what))
        if number != self.case.call:
            return
        if self.case.fault == "kill":
            self.world.kill(process)
            self.world.at(self.world.now + 3 * SILENT_MS, lambda: self.world.start(process.name))
            raise Killed
        self.world.interlude(process, SILENT_MS + 500, freeze=True)

    def run(self) -> list[str]:
        world = self.world
        members = [world.begin()]
        self.watch(members[0])
        members.append(self._start())
        world.run_until(lambda: self._settled(2))
        for n in range(len(world.input) // 2):
            world.feed(n)
        self.moving = True
        if self.case.move == "join":
            self._start()
        else:
            world.kill(members[1])
        for n in range(len(world.input) // 2, len(world.input)):
            world.at(world.now + n * 20, lambda n=n: world.feed(n))
        world.run_for(2 * SILENT_MS + 300)
        self.moving = False
        world.settle()
        return judge(world)

    def _start(self) -> Process:
        process = self.world.start()
        assert process is not None, "brokers can be reached"
        self.watch(process)
        return process

    def _settled(self, members: int) -> bool:
        alive = self.world.processes
        tasks = [len(p.group._tasks) for p in alive]
        return len(alive) == members and all(tasks) and sum(tasks) == len(alive[0].group.planned.reads)


def tried(case: Case) -> list[str]:
    try:
        return Handover(case).run()
    except Violation as violation:
        return [str(violation)]


def cases(step: int = 1, first: int = 0) -> Iterator[Case]:
    """Every `step`-th place of each move, with each fault."""
    for move in MOVES:
        counted = Handover(Case(move))
        assert not counted.run(), "without a fault nothing is wrong"
        for fault in FAULTS:
            for call in range(first, len(counted.calls), step):
                yield Case(move, fault, call)


def search(found: Sequence[Case], show: Callable[[Sequence[Case]], Iterator[Case]] = iter) -> list[str]:
    return [f"{case}: {line}" for case in show(found) for line in tried(case)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, default=1, help="only every so many places")
    given = parser.parse_args()
    found = list(cases(given.step))
    wrong = search(found, lambda them: iter(track(them, "places")))  # type: ignore[arg-type]
    print("\n".join(wrong) or f"{len(found)} places: as DuckDB says")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
