"""Errors of an object store, and the description of an object."""

from __future__ import annotations

from dataclasses import dataclass

from flowql.runtime.errors import RuntimeFailure


class RemoteError(RuntimeFailure, code="FQ4091", retriable=True):
    """An object store does not do what was asked, and may do it later."""


class RemoteRefused(RemoteError, code="FQ4092"):
    """The store knows who asks, or does not, and says no. Somebody has to change a right or a credential."""


class ObjectMissing(RemoteError, code="FQ4093", retriable=False):
    """There is no object of that name."""


class ObjectDamaged(RemoteError, code="FQ4093", retriable=False):
    """Bytes of an object are not what was written. name, place: the object, and what of it."""

    def __init__(self, url: str, name: str, place: str) -> None:
        self.name, self.place = name, place
        super().__init__(f"{url}: {name} is damaged in {place}: its checksum is another one")

    def __reduce__(self) -> tuple[type[RemoteError], tuple[str]]:
        return RemoteError, (str(self),)


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """name: below the URL. modified_ms: wall clock of the store."""

    name: str
    size: int
    modified_ms: int
