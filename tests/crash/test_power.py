"""Power loss under a whole instance, at some of its I/O calls (`python -m tests.crash --power`: at all)."""

import pytest

from tests.crash import power
from tests.crash.contents import differences

pytestmark = pytest.mark.turns("long")


@pytest.mark.turns("disks")
def test_power_loss_changes_no_result():
    calls, losses = power.everywhere(step=19, first=3)
    assert calls > 200
    assert losses > 10


def test_state_lost_to_any_flush_comes_back():
    """The log is whole; the state is what had reached the disk by itself."""
    for kept in range(0, 40, 8):
        computer = power.Computer(power.SimulatedDisk(fail_at=250), power.LossyPhysical())
        try:
            computer.work()
        except power.PowerLoss:
            survivor = computer.physical.after_crash(kept)
        again = power.Computer(computer.disk.after_power_loss("none"), survivor)
        assert not differences(power.undisturbed()[0], again.work())


def test_a_disk_that_is_full_for_a_while_changes_no_result():
    for n in range(2, 180, 24):
        power.trouble(power.SimulatedDisk(full_at=n, full_for=1 + n % 7))


def test_a_disk_that_fails_once_changes_no_result():
    for n in range(5, power.undisturbed()[1], 40):
        power.trouble(power.SimulatedDisk(error_at=n))
