"""Folders of checkpoints and staged results: of this machine (`pathlib.Path`), or at an address (`HadoopPath`). No pyspark.

What is at an address goes through Spark's own file systems, in the JVM of the driver and of the executors, so credentials stay in Spark's
configuration: no Python process of a worker opens such a file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import quote

from flowql.runtime.spark.storage import ends_within, hadoop, is_remote, told_of_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MISSING = "java.io.FileNotFoundException"


class Folder(Protocol):
    """The used part of `pathlib.Path`. A missing file is FileNotFoundError."""

    @property
    def name(self) -> str: ...

    def __truediv__(self, name: str, /) -> Self: ...

    def iterdir(self) -> Iterator[Self]: ...

    def read_bytes(self) -> bytes: ...

    def read_text(self, encoding: str) -> str: ...


class HadoopPath:
    """Implements `Folder` at an address. session: whose file systems are used, asked for with each access. StorageFailed where one refuses or
    does not answer, which Hadoop's clients may try for minutes.
    """

    def __init__(self, session: Callable[[], SparkSession], address: str) -> None:
        self._session, self._address = session, address.rstrip("/")

    def __str__(self) -> str:
        return self._address

    @property
    def name(self) -> str:
        return self._address.rpartition("/")[2]

    def __truediv__(self, name: str, /) -> HadoopPath:
        return HadoopPath(self._session, f"{self._address}/{name}")

    def iterdir(self) -> Iterator[HadoopPath]:
        with self._access() as (system, at):
            names = [str(status.getPath().getName()) for status in system.listStatus(at)]
        return (self / name for name in names)

    def read_bytes(self) -> bytes:
        with self._access() as (system, at):
            opened = system.open(at)
            try:
                return bytes(self._session()._jvm.org.apache.commons.io.IOUtils.toByteArray(opened))
            finally:
                opened.close()

    def read_text(self, encoding: str) -> str:
        return self.read_bytes().decode(encoding)

    def write_bytes(self, data: bytes) -> None:
        """Replaces a file; an object store shows the old or the new one."""
        with self._access() as (system, at):
            opened = system.create(at, True)
            opened.write(bytearray(data))
            opened.close()

    def copy_to(self, file: Path) -> None:
        """A file of this machine with the same content. It passes through Java's memory in small pieces."""
        with self._access() as (system, at):
            local = self._session()._jvm.org.apache.hadoop.fs.Path(f"file:{file.absolute().as_posix()}")
            system.copyToLocalFile(False, at, local, True)

    def remove(self) -> None:
        """It is gone, with all that is in it; again is no harm."""
        with self._access() as (system, at):
            system.delete(at, True)

    def remove_within(self, seconds: float) -> None:
        """The same where it can be done in that time: what fails here stands in the way of nothing."""

        def remove() -> None:
            with suppress(Exception):  # of Java, of every kind
                self.remove()

        ends_within(seconds, remove)

    @contextmanager
    def _access(self) -> Iterator[tuple[Any, Any]]:
        with told_of_storage(self._address):
            try:
                yield hadoop(self._session(), self._address)
            except Exception as error:  # of Java
                if _MISSING in str(error):
                    raise FileNotFoundError(self._address) from error
                raise


def folder_at(place: str, session: Callable[[], SparkSession], owner: str) -> Folder:
    """The folder of an owner below a place, which is a path of this machine or an address."""
    if is_remote(place):
        return HadoopPath(session, place) / quote(owner, safe="")
    return Path(place) / quote(owner, safe="")


def remove(folder: Folder) -> None:
    """It is gone, with all that is in it; again is no harm."""
    if isinstance(folder, HadoopPath):
        folder.remove()
    else:
        shutil.rmtree(str(folder), ignore_errors=True)
