"""The one door to object stores, by URL: a local folder (`folder`), and by obstore S3, Google Cloud Storage and Azure.

obstore was chosen by what a checkpoint needs (docs/internals/remote.md): a put that fails if the name is there, reads of ranges that release the
interpreter lock, uploads in parts, and one wheel of 6 MB without dependencies. fsspec has no conditional put, and its S3 needs aiobotocore.

Credentials come from where the store's own tools find them: the environment, the machine's role, and for S3 the files of the AWS tools if boto3 is
installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Any, ParamSpec, Protocol, TypeVar

from flowql.runtime.remote.answers import failure, names_no_bucket
from flowql.runtime.remote.errors import ObjectDamaged, ObjectInfo, ObjectMissing, RemoteError, RemoteRefused
from flowql.runtime.remote.folder import Folder
from flowql.runtime.remote.readers import Readers

__all__ = [
    "ObjectDamaged",
    "ObjectInfo",
    "ObjectMissing",
    "ObjectWriter",
    "Objects",
    "RemoteError",
    "RemoteRefused",
    "objects_at",
]

P = ParamSpec("P")
T = TypeVar("T")

DELETED_AT_ONCE = 1_000
PART_BYTES, PARTS_UNDER_WAY = 8 << 20, 2  # of an upload in parts; S3 takes none below 5 MiB
_TIMEOUT, _CONNECT_TIMEOUT, _RETRY_TIMEOUT, _RETRIES = "30s", "5s", timedelta(seconds=20), 3


class ObjectWriter(Protocol):
    """An object on its way. It is there as a whole after `close`, and not at all before."""

    def write(self, data: bytes) -> None:
        """RemoteError."""

    def close(self) -> None:
        """RemoteError."""

    def abandon(self) -> None:
        """Gives up before `close`, which may have been called. On S3 parts that are there already go with the bucket's rule for incomplete uploads."""


class Objects(Protocol):
    """Named objects that are written once. Every call may raise RemoteError. Any thread."""

    url: str

    def put_new(self, name: str, data: bytes) -> bool:
        """Writes an object if there is none of that name; whether it did."""
        ...

    def writer(self, name: str) -> ObjectWriter:
        """For what is too large to be held in memory. The name must be one that nobody else writes."""
        ...

    def get(self, name: str) -> bytes:
        """A whole object. ObjectMissing."""
        ...

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Some bytes of an object. ObjectMissing."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects in a folder and below it, in no order."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Those that are gone already are no error."""
        ...

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Calls beside each other, at most `readers.READERS` at a time."""
        ...


OPENED: dict[str, Objects] = {}
"""By URL. The simulation puts stores with faults here."""


def objects_at(url: str) -> Objects:
    """The store behind a URL: file:///folder, or s3, gs or az with a bucket and a folder in it. RemoteError if there is none. Any thread."""
    found = OPENED.get(url)
    if found is None:
        found = OPENED.setdefault(url, Folder(url) if url.startswith("file://") else _Stored(url))
    return found


class _Stored(Readers):
    """Implements `Objects`."""

    def __init__(self, url: str) -> None:
        try:
            import obstore  # not installed by default
        except ImportError as error:
            raise RemoteRefused(f"{url} needs the package obstore:  pip install 'flowql[remote]'") from error
        self.url, self._obstore = url, obstore
        self._opened: Any = None
        self._store  # noqa: B018  says at once what is wrong with the settings

    @property
    def _store(self) -> Any:
        """Opened again after a refusal: somebody may have brought new credentials."""
        found = self._opened
        if found is None:
            try:
                found = self._opened = _open(self.url)
            except Exception as error:  # of settings, and of what obstore makes of them
                raise failure(f"{self.url} cannot be opened", error) from error
        return found

    def _failure(self, what: str, error: Exception) -> RemoteError:
        if isinstance(error, RemoteError):
            return error
        found = failure(f"{self.url}: {what}", error)
        if isinstance(found, RemoteRefused):
            self._opened = None
        return found

    def put_new(self, name: str, data: bytes) -> bool:
        try:
            self._obstore.put(self._store, name, data, mode="create", use_multipart=False)
        except self._obstore.exceptions.AlreadyExistsError:
            return False
        except self._obstore.exceptions.PreconditionError:
            return False
        except Exception as error:
            raise self._failure(f"{name} cannot be written", error) from error
        return True

    def writer(self, name: str) -> ObjectWriter:
        return _Writer(self, name)

    def get(self, name: str) -> bytes:
        return self._read(name, lambda: self._obstore.get(self._store, name).bytes())

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._read(name, lambda: self._obstore.get_range(self._store, name, start=start, length=length))

    def _read(self, name: str, read: Callable[[], Any]) -> bytes:
        try:
            return bytes(read())
        except FileNotFoundError as error:
            if not names_no_bucket(error):
                raise ObjectMissing(f"{self.url}: there is no {name}") from error
            raise self._failure(f"{name} cannot be read", error) from error
        except Exception as error:
            raise self._failure(f"{name} cannot be read", error) from error

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        try:
            for part in self._obstore.list(self._store, prefix):
                for found in part:
                    yield ObjectInfo(found["path"], found["size"], int(found["last_modified"].timestamp() * 1000))
        except Exception as error:
            raise self._failure(f"{prefix} cannot be listed", error) from error

    def delete(self, names: Sequence[str]) -> None:
        for at in range(0, len(names), DELETED_AT_ONCE):
            try:
                with suppress(FileNotFoundError):
                    self._obstore.delete(self._store, list(names[at : at + DELETED_AT_ONCE]))
            except Exception as error:
                raise self._failure(f"{names[at]} cannot be deleted", error) from error


class _Writer:
    """Implements `ObjectWriter`."""

    def __init__(self, stored: _Stored, name: str) -> None:
        self._stored, self._name, open_writer = stored, name, stored._obstore.open_writer
        try:
            self._inner = open_writer(stored._store, name, buffer_size=PART_BYTES, max_concurrency=PARTS_UNDER_WAY)
        except Exception as error:
            raise self._stored._failure(f"{self._name} cannot be written", error) from error

    def write(self, data: bytes) -> None:
        try:
            self._inner.write(data)
        except Exception as error:
            raise self._stored._failure(f"{self._name} cannot be written", error) from error

    def close(self) -> None:
        try:
            self._inner.close()
        except Exception as error:
            raise self._stored._failure(f"{self._name} cannot be written", error) from error

    def abandon(self) -> None:
        self._inner = None  # obstore's writer ends without completing the object


def _open(url: str) -> Any:
    from obstore.store import from_url

    options: dict[str, Any] = {
        "client_options": {"timeout": _TIMEOUT, "connect_timeout": _CONNECT_TIMEOUT, "allow_http": _plain_endpoint()},
        "retry_config": {"max_retries": _RETRIES, "retry_timeout": _RETRY_TIMEOUT},
    }
    if url.startswith("s3://"):
        with suppress(ImportError):
            from obstore.auth.boto3 import Boto3CredentialProvider

            options["credential_provider"] = Boto3CredentialProvider()
    return from_url(url, **options)


def _plain_endpoint() -> bool:
    """Whether the user names an endpoint without TLS, as MinIO on a local network may have it."""
    named = (
        os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT")
    )
    return named is not None and named.startswith("http://")
