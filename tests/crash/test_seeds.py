"""Crashes from seeds in the deterministic driver: the same results as undisturbed, and a wrong commit order is noticed."""

import pytest

from flowql.runtime.commit.coordinator import CommitStep
from flowql.runtime.errors import StateError
from flowql.runtime.log.base import Position
from flowql.runtime.state.manager import StateManager
from tests.crash.contents import differences, records_of
from tests.crash.simulated import APP, Machine, expected

SEEDS, CRASHES = 20, 4


def caught(seeds):
    """What the checks say about the engine as it is now."""
    for seed in seeds:
        machine = Machine(seed)
        try:
            found = differences(expected(), machine.run(CRASHES))
        except (AssertionError, StateError) as error:
            found = [f"{type(error).__name__}: {error}"]
        if found:
            return f"seed {seed}, {machine.crashes} crashes: {found}"
    return ""


@pytest.mark.parametrize("start", range(0, SEEDS, 10))
def test_a_killed_engine_makes_what_an_undisturbed_one_makes(start):
    assert not caught(range(start, start + 10))


def test_io_errors_of_the_state_and_clocks_that_jump_change_nothing():
    """Crashes as well; the state is opened again and redone from the log."""
    errors = 0
    for seed in range(6):
        machine = Machine(seed, faults=True)
        found = differences(expected(), machine.run(2))
        assert not found, f"seed {seed}, {machine.errors} errors: {found}"
        errors += machine.errors
    assert errors > 10


def test_the_crashes_happen():
    machine = Machine(5)
    machine.run(CRASHES)
    assert machine.crashes == CRASHES


def test_the_same_seed_gives_the_same_order():
    def life():
        machine = Machine(7)
        machine.run(CRASHES)
        return [records_of(machine.log, t) for t in sorted(machine.log.topics())], machine.log.last_sequence(APP)

    assert life() == life()


def state_first(step, epoch, redo):
    """The state is applied, then the log commits."""
    step._state.apply(epoch.state, step._sequence + 1)
    step._state.flush()
    return _transaction(step, epoch, redo)


def positions_first(step, epoch, redo):
    """Positions and state are committed without the outputs."""
    records, epoch.records = epoch.records, {}
    _transaction(step, epoch, redo)
    epoch.records = records
    step._sequence += 1
    return _send(step, epoch)


def outputs_first(step, epoch, redo):
    """Outputs are committed without positions and state."""
    _send(step, epoch)
    step._sequence += 1
    epoch.records = {}
    return _transaction(step, epoch, redo)


def _send(step, epoch):
    producer = step._producer
    producer.begin()
    for tp, batches in epoch.records.items():
        for batch in batches:
            producer.send(tp, batch.records)
    producer.send_positions(APP, {tp: Position(o) for tp, o in epoch.positions.items()})
    producer.attach_redo(b"\x94\x01\x90\x90\x90")  # writes nothing
    return producer.commit()


_transaction, _apply = CommitStep._transaction, StateManager.apply


def apply_once(state, frozen, sequence, *ends):
    if sequence > state.applied_sequence:
        _apply(state, frozen, sequence, *ends)


@pytest.mark.parametrize("broken", [state_first, positions_first, outputs_first])
def test_a_broken_commit_order_is_caught(broken, monkeypatch):
    expected()
    monkeypatch.setattr(CommitStep, "_transaction", broken)
    monkeypatch.setattr(StateManager, "apply", apply_once)
    assert caught(range(12))
