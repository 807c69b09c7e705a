"""The disk of crash tests and simulation: what its faults hit, and what is left of it after a power loss."""

from __future__ import annotations

import errno

import pytest

from tests.simulated_disk import Keep, PowerLoss, SimulatedDisk


def content(disk: SimulatedDisk, path: str) -> bytes | None:
    if not disk.exists(path):
        return None
    file = disk.open(path)
    return file.pread(0, file.size())


def synced(disk: SimulatedDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.pwrite(0, [data])
    file.fsync()
    disk.fsync_dir("d")


def test_only_a_file_that_is_created_or_exists_can_be_opened() -> None:
    disk = SimulatedDisk()
    with pytest.raises(FileNotFoundError):
        disk.open("d/a")
    disk.open("d/a", create=True).pwrite(2, [b"xy", b"z"])
    disk.open("d/a", create=True)
    assert content(disk, "d/a") == b"\0\0xyz", "what is not written is zero"
    assert disk.trace == ["create a", "write a"]


def test_a_file_is_cut_or_filled_with_zeros_to_its_new_length() -> None:
    disk = SimulatedDisk()
    file = disk.open("d/a", create=True)
    file.pwrite(0, [b"abcd"])
    file.truncate(2)
    assert content(disk, "d/a") == b"ab"
    file.truncate(4)
    assert content(disk, "d/a") == b"ab\0\0"


def test_bytes_that_are_mapped_show_what_is_written_later() -> None:
    disk = SimulatedDisk()
    file = disk.open("d/a", create=True)
    file.pwrite(0, [b"abcdef"])
    mapped = file.map(2, 3)
    file.pwrite(0, [b"123456"])
    assert mapped.to_pybytes() == b"345"
    file.truncate(3)
    assert mapped.to_pybytes()[:1] == b"3"


def test_names_change_as_on_a_disk() -> None:
    disk = SimulatedDisk()
    disk.makedirs("d/e")
    first = disk.open("d/a", create=True)
    disk.link("d/a", "d/b")
    with pytest.raises(FileExistsError):
        disk.link("d/a", "d/b")
    with pytest.raises(FileNotFoundError):
        disk.link("d/none", "d/c")
    assert disk.listdir("d/") == ["a", "b", "e"]
    disk.unlink("d/a")
    assert first.linked_size() == first.size(), "by its other name"
    disk.open("d/c", create=True)
    disk.rename("d/c", "d/b")
    assert first.linked_size() is None
    assert disk.open("d/b").linked_size() is not None
    disk.unlink("d/b")
    disk.unlink("d/b")
    assert disk.trace.count("unlink b") == 1, "of one that is not there nothing is done"
    disk.makedirs("d/e/f")
    disk.rmdir("d/e")
    assert disk.exists("d/e"), "it has something in it"
    disk.rmdir("d/e/f")
    disk.rmdir("d/e")
    assert not disk.exists("d/e")


def test_a_lock_is_held_by_one_until_it_is_released_or_its_process_ends() -> None:
    disk = SimulatedDisk()
    lock = disk.lock("d/l", wait=False)
    assert lock is not None
    assert disk.lock("d/l", wait=False) is None
    lock.write("owner")
    assert content(disk, "d/l") == b"owner"
    lock.release()
    assert disk.lock("d/l", wait=False) is not None
    disk.process_killed()
    assert disk.lock("d/l", wait=True) is not None


def test_power_goes_at_the_call_that_is_named_and_stays_away_until_the_process_is_gone() -> None:
    disk = SimulatedDisk(fail_at=2)
    file = disk.open("d/a", create=True)
    for _ in range(2):
        with pytest.raises(PowerLoss):
            file.pwrite(0, [b"x"])
    assert file.size() == 0
    disk.process_killed()
    file.pwrite(0, [b"x"])
    assert content(disk, "d/a") == b"x"


def test_so_many_calls_fail_as_are_named_and_a_full_disk_takes_half_of_a_write() -> None:
    disk = SimulatedDisk(error_at=2, error_for=2)
    file = disk.open("d/a", create=True)
    for _ in range(2):
        with pytest.raises(OSError, match="a") as raised:
            file.pwrite(0, [b"abcd"])
        assert raised.value.errno == errno.EIO
    assert file.size() == 0
    file.pwrite(0, [b"abcd"])
    full = SimulatedDisk(full_at=2, full_for=2)
    file = full.open("d/a", create=True)
    file.pwrite(0, [b"ab"])
    for _ in range(2):
        with pytest.raises(OSError, match="a") as raised:
            file.pwrite(2, [b"cdef"])
        assert raised.value.errno == errno.ENOSPC
    assert content(full, "d/a") == b"abcd"
    file.pwrite(2, [b"cdef"])
    assert content(full, "d/a") == b"abcdef"
    once = SimulatedDisk(error_at=1, full_at=1)
    with pytest.raises(OSError, match="a"):
        once.open("d/a", create=True)
    file = once.open("d/a", create=True)
    with pytest.raises(OSError, match="a"):
        file.pwrite(0, [b"ab"])
    file.pwrite(0, [b"ab"])


@pytest.mark.parametrize("forgets", [False, True])
def test_what_a_failed_fsync_left_is_written_by_the_next_one_unless_the_disk_forgets(forgets: bool) -> None:
    disk = SimulatedDisk(error_at=3, forgets=forgets)
    disk.fsync_dir("d")
    file = disk.open("d/a", create=True)
    disk.error_at = 4
    file.pwrite(0, [b"ab"])
    with pytest.raises(OSError, match="a"):
        file.fsync()
    disk.fsync_all([file])
    disk.fsync_dir("d")
    assert content(disk, "d/a") == b"ab"
    assert content(disk.after_power_loss("none"), "d/a") == (b"" if forgets else b"ab")


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        ("none", {"same": b"1234", "gone": b"x", "target": b"t", "moved": b"m", "new": None, "linked": None}),
        ("all", {"same": b"12ab", "gone": None, "target": b"m", "moved": None, "new": b"n", "linked": b"12ab"}),
    ],
)
def test_names_and_bytes_that_are_not_synced_are_lost_or_kept(keep: Keep, left: dict[str, bytes | None]) -> None:
    disk = SimulatedDisk()
    disk.makedirs("d")
    for name, data in {"same": b"1234", "gone": b"x", "target": b"t", "moved": b"m"}.items():
        synced(disk, f"d/{name}", data)
    disk.open("d/same").pwrite(2, [b"ab"])
    disk.unlink("d/gone")
    disk.rename("d/moved", "d/target")
    disk.open("d/new", create=True).pwrite(0, [b"n"])
    disk.link("d/same", "d/linked")
    disk.fsync_dir("other")
    after = disk.after_power_loss(keep)
    assert {name: content(after, f"d/{name}") for name in left} == left
    assert after.exists("d")
    assert {name: content(after.after_power_loss("none"), f"d/{name}") for name in left} == left, (
        "all that is left is safe"
    )


def test_of_writes_that_are_not_synced_any_part_may_survive_and_a_seed_repeats_it() -> None:
    disk = SimulatedDisk()
    synced(disk, "d/a", b"....")
    disk.open("d/a").pwrite(0, [b"1234"])
    disk.open("d/new", create=True)
    found = {content(disk.after_power_loss("some", seed), "d/a") for seed in range(300)}
    none, torn, zeros = {b"...."}, {b"1...", b"12..", b"123."}, {b"\0\0\0\0", b"1\0\0\0", b"12\0\0", b"123\0"}
    assert found == none | torn | zeros | {b"1234"}
    assert {disk.after_power_loss("some", seed).exists("d/new") for seed in range(20)} == {True, False}
    again, once_more = (disk.after_power_loss("some", 7) for _ in range(2))
    assert content(again, "d/a") == content(once_more, "d/a")
