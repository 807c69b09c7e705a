"""Faults of the disk at some of its I/O calls (`python -m tests.faults`: at all), in a real process with real files."""

from __future__ import annotations

import time

import pytest

from tests.faults.shim import KINDS, READS, NoCompiler
from tests.faults.sweep import DAY_S, HOUR_S, JUMPS_S, Fault, nursery

CALLS = {"log": 170, "state": 115}  # about so many there are in a life
# Somewhere in the middle of a life: where the state is written to its files, and where the log is.
SAMPLE = [Fault("state", "eio", n) for n in (62, 66, 88)]
SAMPLE += [Fault("state", "enospc", 75), Fault("state", "torn", 70), Fault("state", "halved", 100)]
SAMPLE += [Fault("log", kind, 60 + 40 * n) for n, kind in enumerate(KINDS)]
# Where files of the log are opened and read: the commit log, its lock and the segments.
SAMPLE += [Fault("log", READS, n) for n in (134, 142, 150, 158)]
# The second call fails while what the first one left is taken back: the process had to be started again.
SAMPLE += [Fault("log", "eio", n, times=2) for n in (81, 107, 139)]


@pytest.fixture(scope="module")
def made():
    try:
        with nursery() as found:
            yield found
    except NoCompiler as reason:
        pytest.skip(str(reason))


@pytest.mark.turns("cases")
@pytest.mark.parametrize("fault", SAMPLE, ids=lambda f: f"{f.what}-{f.kind}-{f.at}-{f.times}")
def test_an_instance_goes_on_or_comes_back(made, fault):
    found = made.strike(fault)
    assert found.met, f"{found.seen} calls were seen"
    assert not found.wrong, f"{found.met}: {found.wrong} {found.said}"


@pytest.mark.parametrize("what", CALLS)
def test_calls_are_counted(made, what):
    """RocksDB is in the driver, and calls libc as others do."""
    found = made.strike(Fault(what, "none", 0))
    assert not found.wrong
    assert found.seen > CALLS[what] // 2
    assert not found.met


def test_an_io_error_of_the_state_is_said_and_mended(made):
    lives = (
        made.strike(Fault("state", "eio", n)) for n in (66, 62, 70, 64)
    )  # which call has that number goes by timing
    found = next(life for life in lives if any("Input/output error" in line for line in life.said))
    assert found.starts == 1
    assert found.events["state.reopened"] == 1


@pytest.mark.parametrize("jumps", [(-HOUR_S,), (HOUR_S,), (-DAY_S,), (DAY_S,), JUMPS_S], ids=str)
def test_a_clock_that_jumps_holds_nothing_up(made, jumps):
    """Commits waited for an hour when it was set back by one. A life takes half a second, and must not take much longer."""
    begun = time.monotonic()
    found = made.strike(Fault("state", "none", 0, jumps_s=jumps))
    assert not found.wrong
    assert found.jumped_s == sum(jumps)
    assert time.monotonic() - begun < 20


def test_a_clock_that_jumps_and_an_io_error(made):
    found = made.strike(Fault("state", "eio", 66, jumps_s=JUMPS_S))
    assert found.met
    assert not found.wrong
