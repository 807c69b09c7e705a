"""Whether each object of backups is what its manifest says. Reads every byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from flowql.backup.places import answering, url_of
from flowql.runtime.backup.manifest import Piece, piece_name
from flowql.runtime.backup.place import Place
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.remote.objects import ObjectMissing, objects_at


def problem_of(place: Place, path: str, piece: Piece) -> str:
    """Describes the damage of a piece of a file; empty if it is whole. RemoteError if the store does not answer."""
    name = piece_name(place.folder, path, piece)
    try:
        data = place.objects.get(name)
    except ObjectMissing:
        return f"{name} is missing in {place.url}"
    return damage_of(place, path, piece, data)


def damage_of(place: Place, path: str, piece: Piece, data: bytes) -> str:
    """As `problem_of`, for the bytes of an object."""
    name = piece_name(place.folder, path, piece)
    where = f"bytes {piece.start} to {piece.end - 1} of {path}"
    if len(data) != piece.length:
        return f"{name} in {place.url} has {len(data):,} bytes instead of {piece.length:,}: {where}"
    if hashlib.sha256(data).hexdigest() != piece.sha256:
        return f"{name} in {place.url} is not as it was written: its SHA-256 is another one: {where}"
    return ""


def problems(place: Place, pieces: Iterable[tuple[str, Piece]]) -> Iterator[str]:
    """A sentence for each piece that is not as it was written."""
    for path, piece in pieces:
        if problem := problem_of(place, path, piece):
            yield problem


def applications_in(typed: str) -> list[Place]:
    """The places of all applications that have backups in a directory or at a URL. CommandError."""
    url = url_of(typed)
    with answering():
        objects = objects_at(url)
        names = Place(objects, "").applications()
        return [place for place in (Place(objects, name) for name in names) if place.manifests()]


def examined(place: Place) -> tuple[list[str], str]:
    """Checks all backups of an application. Returns the problems and a summary. CommandError if the store does not answer."""
    found: list[str] = []
    pieces: dict[str, tuple[str, Piece]] = {}
    newest, count = "", 0
    with answering():
        for name in place.manifests():
            try:
                manifest, _ = place.read(name)
            except RuntimeFailure as error:
                if error.retriable:
                    raise
                found.append(f"{error} ({place.url})")
                continue
            newest = newest or f"at commit {manifest.commit}, {manifest.taken_at}"
            count += 1
            pieces |= {piece_name(place.folder, path, piece): (path, piece) for path, piece in manifest.pieces()}
        found += problems(place, pieces.values())
    more = f", and {count - 1} older" if count > 1 else ""
    return found, f"{place.application_id} {newest}{more}: {len(pieces)} objects, all whole"
