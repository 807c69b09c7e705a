"""Bugs to plant: each breaks one rule of the engine or of the brokers, and has to be found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from unittest.mock import patch

from flowql.compiler.plan.deployed import Deployed
from flowql.runtime.app import plan_writer, restoration
from flowql.runtime.app.group import GroupStep
from flowql.runtime.app.group_swap import GroupSwap
from flowql.runtime.app.plan_writer import PlanWriter
from flowql.runtime.commit.coordinator import CommitStep
from flowql.runtime.placement import leader
from flowql.runtime.placement.record import Place, PlacementChange
from flowql.runtime.placement.step import PlacementStep
from flowql.runtime.state.changelog import ChangelogWriter
from tests.sim.broker import Broker
from tests.sim.embedded_plants import EMBEDDED_PLANTS
from tests.sim.log import SimulatedProducer
from tests.sim.remote_plants import REMOTE_PLANTS

_transaction, _send_positions, _init = CommitStep._transaction, SimulatedProducer.send_positions, Broker.__init__
_run_once = CommitStep.run_once
_reached, _cursors = ChangelogWriter.reached, restoration.cursors_of


def _outputs_apart(step, epoch, redo):
    """Positions and state are committed after the outputs, by another transaction."""
    producer, records = step._producer, epoch.records
    producer.begin()
    for tp in sorted(records):
        for outgoing in records[tp]:
            producer.send(tp, outgoing.records)
    step._sequence = producer.commit()
    epoch.records = {}
    try:
        return _transaction(step, epoch, redo)
    finally:
        epoch.records = records


def _give_up_without_commit(group, tasks):
    """What is revoked is closed and acknowledged; what was processed and not committed stays for the next commit."""
    leaving, state = set(group._leaving), group._host.state
    yield from group._stop(tasks)
    with state.epoch_lock:
        group.mine.leave(tasks, committed=False)
    for task in tasks:
        state._dirty.pop(str(task.id), None)
        del state._tasks[str(task.id)], group._tasks[task.id]
    if group._revoking and leaving == group._leaving:
        group._owned -= leaving
        group._leaving, group._revoking = set(), False
        group._host.placement.acknowledge()


def _no_comparison(group, wanted, written):
    """Local state is taken as it is, whoever had the task meanwhile."""
    return {}, []


def _no_fences(broker, *args):
    """Brokers do not look at epochs of producers."""
    _init(broker, *args)
    broker.fences = False


def _send_again(step):
    """A commit without an answer is taken for one that failed."""
    if step._unknown:
        step._renew_producer()
        step._sequence = step._log.last_sequence(step._writer)


def _take_for_done(step):
    """A commit without an answer is taken for one that was made."""
    if step._unknown:
        step._renew_producer()
        return step._log.last_sequence(step._writer) + 1
    return None


def _keep_what_was_lost(group, event):
    """A loss is taken for a revoke that nobody waits for: what there is may be committed with the next proof."""
    tps = set(event.partitions)
    if event.change is PlacementChange.LOST:
        group._owned, group._leaving, group._revoking = set(), set(), False
    elif event.change is PlacementChange.ASSIGN:
        group._owned |= tps
    elif event.change is PlacementChange.REVOKE:
        group._leaving |= tps
        group._revoking = True


def _unstable(broker, group, tps):
    """Positions of transactions that are not finished are those before them."""
    return {tp: p for tp, p in broker.group(group).positions.items() if tp in set(tps)}


def _commit_by_the_wall_clock(step, _now_ms):
    """Commits are due by a clock that can be set, as `now_ms` of the clock port was."""
    step.highest_ms = max(getattr(step, "highest_ms", 0), step._clock.wall_ms())
    return _run_once(step, step.highest_ms)


def _position_ahead(writer, frozen, sequence, ends):
    """The position of a commit is that of the next one: one more record than it has written, and the marker between."""
    return {s: replace(p, offset=p.offset + 2) for s, p in _reached(writer, frozen, sequence, ends).items()}


def _delta_too_short(*args):
    """A restoration that goes on from a position begins behind the first record there; the marker of a transaction is ahead of it."""
    cursors = _cursors(*args)
    for cursor in cursors:
        if cursor.kept is not None:
            cursor.position = min(cursor.end, cursor.position + 2)
    return cursors


def _apart(writer, records):
    """What is appended, and how far that is, are transactions of their own."""
    for record in records:
        _transact(writer, [record])


def _reassign_unfenced(step, alive):
    """Others get the partitions of a silent member before its producer is fenced."""
    step._transactional_id = "another of {}".format
    _decide(step, alive)


def _any_leader(step, now_ms):
    """Who leads shuts out nobody: each writes with a producer of its own."""
    app, step._app = step._app, f"{step._app}-{step.member}"
    try:
        _lead(step, now_ms)
    finally:
        step._app = app


def _anybody(application_id):
    """Who writes the plan shuts out nobody."""
    return f"{application_id}-plan-{next(_NUMBERS)}"


_transact, _NUMBERS = PlanWriter.transact, count()
_decide, _lead = PlacementStep._decide, PlacementStep._lead
# Found where queries are changed (`--rebuilds`).
REBUILD_PLANTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "moves-apart": (PlanWriter, "transact", _apart),
    "many-writers": (plan_writer, "writer_id", _anybody),
    "begin-parked": (GroupSwap, "forbids", lambda swap, task: False),
    "positions-as-they-were": (
        Deployed,
        "position",
        lambda deployed, topic, partition, positions: positions.get(topic),
    ),
}
# Found by a task that moves away and back (`test_positions`): lives by seed rarely have rows to go on with.
POSITION_PLANTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "position-ahead-of-rows": (ChangelogWriter, "reached", _position_ahead),
    "delta-from-a-wrong-offset": (restoration, "cursors_of", _delta_too_short),
}
PLANTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "commit-by-wall-clock": (CommitStep, "run_once", _commit_by_the_wall_clock),
    "outputs-apart": (CommitStep, "_transaction", _outputs_apart),
    "revoke-without-commit": (GroupStep, "_give_up", _give_up_without_commit),
    "stale-state": (GroupStep, "_compare", _no_comparison),
    "no-fences": (Broker, "__init__", _no_fences),
    "unknown-is-failed": (CommitStep, "_resolve", _send_again),
    "unknown-is-done": (CommitStep, "_resolve", _take_for_done),
    "keep-what-is-lost": (GroupStep, "_take", _keep_what_was_lost),
    "unconfirmed": (PlacementStep, "confirm", lambda step: None),
    "unfenced": (PlacementStep, "_decide", _reassign_unfenced),
    "two-leaders": (PlacementStep, "_lead", _any_leader),
    "released-at-once": (leader, "_towards", lambda now, tp, member, alive: Place(member, member)),
    "unstable-positions": (Broker, "stable_positions", _unstable),
    **REBUILD_PLANTS,
    **POSITION_PLANTS,
    **REMOTE_PLANTS,
    **EMBEDDED_PLANTS,
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """With a bug, or without one."""
    if name is None:
        yield
        return
    owner, attribute, broken = PLANTS[name]
    with patch.object(owner, attribute, broken):
        yield
