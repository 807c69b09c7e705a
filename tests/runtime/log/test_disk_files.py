"""Files of the operating system, as the embedded log uses them."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flowql.runtime.log.files import _IOV_MAX, DiskFile, DiskFiles, size_of


@pytest.mark.parametrize("most", [None, 1, 3, 7])
def test_all_parts_are_written_however_few_bytes_the_system_takes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int | None
) -> None:
    whole = os.pwritev

    def pwritev(fd: int, views: Sequence[Any], offset: int) -> int:
        if most is None:
            return whole(fd, views, offset)
        return whole(fd, [b"".join(bytes(v) for v in views)[:most]], offset)

    monkeypatch.setattr(os, "pwritev", pwritev)
    parts = [b"ab", b"", b"cdefg", b"", b"h", *[b"%d" % (n % 10) for n in range(_IOV_MAX + 5)]]
    file = DiskFiles().open(str(tmp_path / "f"), create=True)
    file.pwrite(3, parts)
    file.pwrite(0, [])
    assert file.pread(0, 10_000) == b"\0\0\0" + b"".join(parts)
    assert size_of(DiskFiles(), str(tmp_path / "f")) == 3 + len(b"".join(parts))
    file.close()


def test_a_file_is_opened_for_what_is_asked(tmp_path: Path) -> None:
    files, path = DiskFiles(), str(tmp_path / "f")
    for write in (False, True):
        with pytest.raises(FileNotFoundError):
            files.open(path, write=write)
    made = files.open(path, create=True)
    made.pwrite(0, [b"abcd"])
    made.truncate(3)
    made.fsync()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.open(path).pwrite(0, [b"x"])
    files.open(path, write=True).pwrite(0, [b"x"])
    assert (made.pread(0, 9), made.pread(1, 1), made.size()) == (b"xbc", b"b", 3)
    assert made.linked_size() == made.size()
    files.unlink(path)
    files.unlink(path)
    assert made.linked_size() is None
    made.close()
    made.close()


def test_mapped_bytes_show_later_writes_and_outlive_their_file(tmp_path: Path) -> None:
    file = DiskFiles().open(str(tmp_path / "f"), create=True)
    file.pwrite(0, [b"abcd"])
    mapped = file.map(0, 4)
    file.pwrite(1, [b"X"])
    assert mapped.to_pybytes() == b"aXcd"
    with pytest.raises(OSError, match="Invalid argument"):
        file.map(1, 4)  # no offset of a page
    file.close()
    assert mapped.slice(2, 2).to_pybytes() == b"cd"


@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_several_files_are_made_durable_and_a_failure_of_any_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    files, synced = DiskFiles(), list[str]()
    monkeypatch.setattr(DiskFile, "fsync", lambda file: synced.append(file.path))
    opened = [files.open(str(tmp_path / str(n)), create=True) for n in range(count)]
    files.fsync_all(opened)
    files.fsync_all(opened[:1])
    assert sorted(synced) == sorted([f.path for f in opened] + [f.path for f in opened[:1]])

    def fails(file: DiskFile) -> None:
        if file.path == opened[-1].path:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(DiskFile, "fsync", fails)
    if count:
        with pytest.raises(OSError, match="Input/output"):
            files.fsync_all(opened)


def test_a_lock_is_held_by_one_opening_until_it_is_released(tmp_path: Path) -> None:
    files, path = DiskFiles(), str(tmp_path / "l")
    held = files.lock(path, wait=False)
    assert held is not None
    assert files.lock(path, wait=False) is None
    held.write("the first owner")
    held.write("owner")
    assert Path(path).read_text() == "owner"
    held.release()
    again = files.lock(path, wait=True)
    held.release()
    assert again is not None
    assert files.lock(path, wait=False) is None, "releasing once more releases nothing of others"
    assert files.lock(path, wait=True, within_s=0.05) is None
    assert files.holder(path) == (os.getpid() if sys.platform == "linux" else None)
    again.release()
    assert files.holder(path) is None
    assert files.lock(path, wait=True, within_s=5.0) is not None


def test_folders_are_for_their_owner_alone_also_those_of_older_versions(tmp_path: Path) -> None:
    files, made = DiskFiles(), tmp_path / "a" / "b"
    files.makedirs(str(made))
    assert [stat.S_IMODE(os.stat(p).st_mode) for p in (made, made.parent)] == [0o700, 0o700]
    for mode, then in ((0o755, 0o700), (0o500, 0o500)):
        os.chmod(made, mode)
        files.makedirs(str(made))
        assert stat.S_IMODE(os.stat(made).st_mode) == then
    os.chmod(made, 0o700)
    files.fsync_dir(str(made))


def test_names_are_changed_and_what_is_missing_or_not_empty_is_left(tmp_path: Path) -> None:
    files, folder = DiskFiles(), tmp_path / "d"
    assert files.listdir(str(folder)) == []
    files.rmdir(str(folder))
    files.makedirs(str(folder))
    for name in ("b", "a"):
        files.open(str(folder / name), create=True).pwrite(0, [name.encode()])
    assert files.listdir(str(folder)) == ["a", "b"]
    with pytest.raises(FileExistsError):
        files.link(str(folder / "a"), str(folder / "b"))
    files.link(str(folder / "a"), str(folder / "c"))
    files.rename(str(folder / "a"), str(folder / "b"))
    assert [(n, (folder / n).read_bytes()) for n in files.listdir(str(folder))] == [("b", b"a"), ("c", b"a")]
    files.rmdir(str(folder))
    assert files.exists(str(folder / "b"))
    for name in ("b", "c"):
        files.unlink(str(folder / name))
    files.rmdir(str(folder))
    assert not files.exists(str(folder))
