"""Where backups are: a directory or a URL that the user has typed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowql.config.load import shown_path
from flowql.errors import CommandError
from flowql.runtime.backup.place import Place
from flowql.runtime.remote.folder import folder_of
from flowql.runtime.remote.objects import RemoteError, objects_at

TORN, OTHER, NOT_MADE = "FQ5701", "FQ5705", "FQ5706"


def url_of(typed: str) -> str:
    """A directory as a URL; a URL as it is."""
    return typed.rstrip("/") if "://" in typed else Path(typed).expanduser().absolute().as_uri()


def shown(url: str) -> str:
    """A URL as a user would type it."""
    return str(shown_path(folder_of(url))) if url.startswith("file://") else url


def place_at(typed: str, application_id: str) -> Place:
    """CommandError if the store cannot be opened."""
    with answering():
        return Place(objects_at(url_of(typed)), application_id)


@contextmanager
def answering(help_: str = "") -> Iterator[None]:
    """Errors of the store as CommandErrors."""
    try:
        yield
    except RemoteError as error:
        raise CommandError(str(error), code=NOT_MADE, help=help_) from error
