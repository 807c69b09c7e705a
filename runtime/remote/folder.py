"""Objects in a local folder, durable when a call returns. It needs no package, so backups into a folder work everywhere.

A name is given by a hard link to a file that is written under another name, so an object is there as a whole or not at all. obstore's local store
does not wait for the disk, and what it has written may be gone after a power failure.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from flowql.runtime.remote.errors import ObjectInfo, ObjectMissing, RemoteError, RemoteRefused
from flowql.runtime.remote.readers import Readers

_READ_MAX = 1 << 30
_UNFINISHED = ".unfinished-"  # begins the names of files that are being written
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)  # of file systems without hard links


class Folder(Readers):
    """Implements `flowql.runtime.remote.objects.Objects`."""

    def __init__(self, url: str) -> None:
        self.url, self._root = url, folder_of(url)
        self._numbers = itertools.count()
        self._durable: set[Path] = set()  # folders whose names are on the disk

    def put_new(self, name: str, data: bytes) -> bool:
        writer = self.writer(name)
        writer.write(data)
        return writer.finish()

    def writer(self, name: str) -> FolderWriter:
        path = self._path(name)
        if path.exists():
            return FolderWriter(self.url, name, path, None)
        try:
            self._make(path.parent)
            unfinished = path.with_name(f"{_UNFINISHED}{os.getpid()}-{next(self._numbers)}")
            return FolderWriter(self.url, name, path, unfinished)
        except OSError as error:
            raise failure(self.url, f"{name} cannot be written", error) from error

    def get(self, name: str) -> bytes:
        return self._read(name, 0, None)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._read(name, start, length)

    def _read(self, name: str, start: int, length: int | None) -> bytes:
        try:
            fd = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                if length is None:
                    length = os.fstat(fd).st_size
                    if hasattr(os, "posix_fadvise"):  # a whole object is read to see what the disk has, not the memory
                        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                return _bytes_of(fd, start, length)
            finally:
                os.close(fd)
        except FileNotFoundError as error:
            raise ObjectMissing(f"{self.url}: there is no {name}") from error
        except OSError as error:
            raise failure(self.url, f"{name} cannot be read", error) from error

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        try:
            for folder, _, files in os.walk(self._path(prefix), onerror=_raise_unless_missing):
                for file in files:
                    path = Path(folder, file)
                    if not file.startswith(_UNFINISHED):
                        with suppress(FileNotFoundError):  # deleted meanwhile
                            about = path.stat()
                            name = path.relative_to(self._root).as_posix()
                            yield ObjectInfo(name, about.st_size, about.st_mtime_ns // 1_000_000)
        except OSError as error:
            raise failure(self.url, f"{prefix or 'it'} cannot be listed", error) from error

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            path = self._path(name)
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise failure(self.url, f"{name} cannot be deleted", error) from error
            for folder in itertools.takewhile(lambda p: p != self._root, path.parents):
                self._durable.discard(folder)
                try:
                    folder.rmdir()
                except OSError:  # it is not empty
                    break

    def _path(self, name: str) -> Path:
        assert ".." not in PurePosixPath(name).parts, "an object is in its folder"
        return self._root / name

    def _make(self, folder: Path) -> None:
        if folder in self._durable and folder.is_dir():
            return
        if folder != folder.parent and not folder.is_dir():
            self._make(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(folder.parent)
        self._durable.add(folder)


class FolderWriter:
    """An object on its way. unfinished: None if the object exists already."""

    def __init__(self, url: str, name: str, path: Path, unfinished: Path | None) -> None:
        self._url, self._name, self._path, self._unfinished = url, name, path, unfinished
        self._fd = -1
        if unfinished is not None:
            self._fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        """Appends bytes. RemoteError."""
        if self._fd < 0:
            return
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            self._drop()
            raise failure(self._url, f"{self._name} cannot be written", error) from error

    def close(self) -> None:
        """Makes the object durable and gives it its name. RemoteError."""
        self.finish()

    def finish(self) -> bool:
        """As `close`. Returns False if the name exists."""
        if self._fd < 0 or self._unfinished is None:
            return False
        try:
            os.fsync(self._fd)
            found = _named(self._unfinished, self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            raise failure(self._url, f"{self._name} cannot be written", error) from error
        finally:
            self._drop()
        return found

    def abandon(self) -> None:
        """Nothing is left of it."""
        if self._fd >= 0:
            self._drop()

    def _drop(self) -> None:
        with suppress(OSError):
            os.close(self._fd)
        self._fd = -1
        with suppress(OSError):
            assert self._unfinished is not None
            self._unfinished.unlink(missing_ok=True)


def _bytes_of(fd: int, start: int, length: int) -> bytes:
    """Fewer where the file ends. One call of the system reads at most 2 GiB."""
    parts: list[bytes] = []
    while length > 0 and (part := os.pread(fd, min(length, _READ_MAX), start)):
        parts.append(part)
        start, length = start + len(part), length - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _named(unfinished: Path, path: Path) -> bool:
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():  # here two writers of one name may both believe that they were first
            return False
        unfinished.rename(path)
    return True


def folder_of(url: str) -> Path:
    """The folder behind a URL like file:///folder."""
    return Path(unquote(urlsplit(url).path))


def sync_folder(folder: Path) -> None:
    """Makes names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def failure(url: str, what: str, error: OSError) -> RemoteError:
    """An error of the file system in words."""
    kind = RemoteRefused if error.errno in _REFUSED else RemoteError
    return kind(f"{url}: {what}: {error.strerror or error}")


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error
