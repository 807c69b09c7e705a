"""What must never be, looked at after every step that could make it so, and what must be at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowql.compiler.plan.topology import Plan
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.log.base import Position, TopicPartition
from flowql.runtime.placement.record import Placement, placement_topic
from flowql.runtime.state.changelog import changelog_topic
from flowql.runtime.state.frozen import BOUND_RECORD, DROP_RECORD
from flowql.runtime.task.status import TaskStatus
from tests.sim import project
from tests.sim.broker import Broker, Transaction, TransactionState
from tests.sim.groups import Violation

if TYPE_CHECKING:
    from tests.sim.cluster import Process, SimulatedCluster

APP = "flowql"


def one_owner(process: Process) -> None:
    """Within an instance a task is at the task manager or is restored, and nowhere if the group step does not know it."""
    manager, restoration = process.instance.manager._entries, process.instance.restoration._tasks
    if twice := manager.keys() & restoration.keys():
        raise Violation(f"{process.name}: {sorted(twice)} are at the task manager and are restored")
    if len(manager) + len(restoration) > len(process.group._tasks):
        raise Violation(f"{process.name} runs {sorted(manager)} and restores {sorted(restoration)}")


def one_process(world: SimulatedCluster) -> None:
    """A task is at one process, among those that know what became of their membership."""
    owners: dict[object, str] = {}
    for p in world.processes:
        if _up_to_date(world, p):
            for task in p.group._begun:
                if task in owners:
                    raise Violation(f"{task} is at {owners[task]} and at {p.name}")
                owners[task] = p.name


def _up_to_date(world: SimulatedCluster, process: Process) -> bool:
    """It has read the newest placement, and its reconciler knows what that means."""
    placement = process.instance.placement
    if placement.placement.number != world.watch.placement().number:
        return False
    return not (placement._events or placement._recovering or process.group._lost)


class Watch:
    """Committed positions never go back over a record (what lies between may be markers and what was aborted), and only the owner of a
    partition commits them.

    rereads: a plan is deployed in which a query begins anew; positions are the lowest of all queries.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.rereads = False
        self._positions: dict[TopicPartition, int] = {}
        self._placement, self._until = Placement(), 0
        broker.group(APP).on_moved = self.moved
        broker.on_commit = self.committed

    def placement(self) -> Placement:
        """The newest that was committed, whether readers see it yet or not."""
        place = placement_topic(APP)
        partition = self._broker.partitions.get(place)
        if partition is None or partition.end == self._until:
            return self._placement
        for entry in reversed(partition.entries):
            decided = entry.transaction is not None and entry.transaction.outcome is TransactionState.COMMITTED
            if entry.records is not None and decided:
                self._placement = Placement.decode(entry.records.column("value")[-1].as_py())
                break
        self._until = partition.end
        return self._placement

    def committed(self, transaction: Transaction) -> None:
        self._until = -1
        places = self.placement().places
        for tp in transaction.positions.get(APP, {}):
            if tp in places and f"{APP}-{places[tp].owner}" != transaction.writer:
                raise Violation(f"{transaction.writer} commits {tp}, which is {places[tp].owner}'s")

    def moved(self, positions: dict[TopicPartition, Position]) -> None:
        for tp, position in positions.items():
            before = self._positions.get(tp, 0)
            if position.offset < before and not self.rereads:
                between = self._broker.partition(tp).visible_from(position.offset)
                if between is not None and between.column(0)[0].as_py() < before:
                    raise Violation(f"{tp} went back from {before} to {position.offset}")
            self._positions[tp] = position.offset


def is_done(world: SimulatedCluster) -> bool:
    """Everything is processed and committed, and every task runs somewhere."""
    alive = world.processes
    if world.later and any("CTAS_CITIES" not in p.instance.plan.by_id for p in alive):
        return False
    if world.change is not None and any(not _has_changed(p, project.changed_plan(world.change)) for p in alive):
        return False
    if not alive or any(p.busy or p.last_commit is not None or p.frozen_ms > world.now for p in alive):
        return False
    if any(p.group._next_plan is not None for p in alive):  # half known: its tasks are not counted yet
        return False
    if any(p.open for p in world.broker.partitions.values()):  # something is not to be seen yet
        return False
    if any(not p.instance.queries or not p.instance.commit.idle for p in alive):
        return False
    tasks = [t for p in alive for t in p.group._tasks.values()]
    if len(tasks) != len(alive[0].group.planned.reads) or any(t.status is not TaskStatus.RUNNING for t in tasks):
        return False
    return all(caught_up(p.instance, source_ends(p.instance)) for p in alive)


def _has_changed(process: Process, wanted: Plan) -> bool:
    deployed = process.instance.deployed
    serving = {q.id: q.definition for q in deployed.serving.queries}
    return deployed.wanted is None and serving == {q.id: q.definition for q in wanted.queries}


def judge(world: SimulatedCluster) -> list[str]:
    """Sentences about what is wrong at the end: topics against DuckDB, every owner's state against its changelogs."""
    return [
        *world.wrong,
        *project.differences(world.outside, later=world.later, change=world.change or project.CHANGES[0]),
        *judge_states(world),
    ]


def judge_states(world: SimulatedCluster) -> list[str]:
    """Every owner's state against its changelogs."""
    return [w for p in world.processes for w in _state_of(world, p)]


def _state_of(world: SimulatedCluster, process: Process) -> list[str]:
    wrong, state = [], process.instance.state
    for name, task in sorted(process.group._tasks.items()):
        record = state.local_record(str(name))
        for store in record.stores if record is not None else ():
            here: dict[bytes, bytes] = {}
            entry = state.committed_stores().get(store)
            if entry is not None and entry.segment_ms is not None:  # rows that have expired are still in the changelog
                continue
            if entry is not None:
                low, high = entry.partition_range(name.partition)
                here = {key[len(low) :]: value for key, value in state._physical.scan(low, high)}
            there = _folded(world, TopicPartition(changelog_topic(APP, store), name.partition))
            if here != there:
                wrong.append(f"{process.name} {task.id} {store}: {len(here)} rows here, {len(there)} in its changelog")
    return wrong


def _folded(world: SimulatedCluster, tp: TopicPartition) -> dict[bytes, bytes]:
    rows: dict[bytes, bytes] = {}
    for partition, key, value in project.records_of(world.outside, tp.topic):
        if partition != tp.partition or key == BOUND_RECORD:
            continue
        assert key is not None
        if key == DROP_RECORD:
            rows.clear()
        elif value is None:
            rows.pop(key, None)
        else:
            rows[key] = value
    return rows
