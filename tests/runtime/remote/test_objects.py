"""Every store of objects keeps the same promises: a name is written once, and an object is there as a whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flowql.runtime.backup.place import Place
from flowql.runtime.remote import folder, objects
from flowql.runtime.remote.errors import ObjectMissing, RemoteError, RemoteRefused
from flowql.runtime.remote.objects import Objects, objects_at


@pytest.fixture(params=["folder", "obstore"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    """A local folder whose name needs quotes in a URL, and obstore's memory."""
    return objects_at((tmp_path / "a b").as_uri()) if request.param == "folder" else objects._Stored("memory:///")


def test_a_name_is_written_once(store: Objects) -> None:
    assert store.put_new("app/one", b"first")
    assert not store.put_new("app/one", b"second")
    assert store.get("app/one") == b"first"
    assert store.get_range("app/one", 1, 3) == b"irs"


def test_an_object_in_parts_is_there_when_it_is_whole(store: Objects) -> None:
    writer = store.writer("app/parts")
    writer.write(b"a" * 1000)
    with pytest.raises(ObjectMissing):
        store.get("app/parts")
    assert list(store.list("app")) == []
    writer.write(b"b")
    writer.close()
    assert store.get("app/parts") == b"a" * 1000 + b"b"


def test_objects_are_listed_by_folder_and_deleted(store: Objects) -> None:
    for name in ("app/x/1", "app/x/y/2", "app/z", "other/3"):
        store.put_new(name, name.encode())
    assert sorted((o.name, o.size) for o in store.list("app/x")) == [("app/x/1", 7), ("app/x/y/2", 9)]
    assert {o.name for o in store.list("")} == {"app/x/1", "app/x/y/2", "app/z", "other/3"}
    assert list(store.list("nowhere")) == []
    store.delete(["app/x/1", "app/gone"])
    assert [o.name for o in store.list("app/x")] == ["app/x/y/2"]
    with pytest.raises(ObjectMissing):
        store.get("app/x/1")
    assert store.put_new("app/x/1", b"")


def test_looking_makes_no_folder(tmp_path: Path) -> None:
    store = objects_at((tmp_path / "none").as_uri())
    assert list(store.list("")) == []
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, RemoteError), (errno.EIO, RemoteError), (errno.EACCES, RemoteRefused)]
)
def test_an_error_of_the_disk_leaves_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[RemoteError]
) -> None:
    store = objects_at(tmp_path.as_uri())

    def fails(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    for call in ("write", "fsync", "link"):
        with monkeypatch.context() as patched:
            patched.setattr(folder.os, call, fails)
            with pytest.raises(kind) as error:
                store.put_new("app/one", b"x")
            assert type(error.value) is kind
            assert os.strerror(number) in str(error.value)
        assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    assert store.put_new("app/one", b"x")


@pytest.mark.parametrize("call", ["link", "no links"])
def test_a_writer_that_was_slower_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    named: Callable[..., None] = os.link if call == "link" else refuses
    monkeypatch.setattr(folder.os, "link", named)
    store = objects_at(tmp_path.as_uri())
    slow, fast = store.writer("app/one"), store.writer("app/one")
    for writer, data in ((slow, b"slow"), (fast, b"fast")):
        writer.write(data)
    fast.close()
    slow.close()
    assert store.get("app/one") == b"fast"
    assert [o.name for o in store.list("")] == ["app/one"]


def test_a_file_that_nobody_knows_among_the_terms_is_no_term(store: Objects) -> None:
    """A file manager's notes in a copied place gave a traceback."""
    store.put_new("shop/instance/terms/.DS_Store", b"")
    place = Place(store, "shop")
    assert [place.take_term("command"), place.take_term("instance")] == [1, 2]
    assert place.later(1) == ["instance"]


def test_an_object_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    objects = objects_at((tmp_path / "given-up").as_uri())
    writer = objects.writer("app/large")
    writer.write(b"1" * 1_000)
    writer.abandon()
    writer.abandon()
    assert [f for f in tmp_path.rglob("*") if f.is_file()] == []
