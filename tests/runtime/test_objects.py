"""The door to object stores, over a local folder; S3 is tried by `python -m benchmarks.remote`."""

from pathlib import Path

import pytest

pytest.importorskip("obstore")

from flowql.runtime.remote.objects import ObjectMissing, Objects, RemoteError, objects_at


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return objects_at(f"file://{tmp_path}/store")


def test_a_name_is_written_once(objects: Objects) -> None:
    assert objects.put_new("app/a", b"first")
    assert not objects.put_new("app/a", b"second")
    assert objects.get("app/a") == b"first"


def test_an_object_in_parts_is_there_as_a_whole_or_not_at_all(objects: Objects) -> None:
    writer = objects.writer("app/large")
    writer.write(b"1" * (9 << 20))
    writer.write(b"23")
    assert list(objects.list("app")) == []
    writer.close()
    assert [(o.name, o.size) for o in objects.list("app")] == [("app/large", (9 << 20) + 2)]
    assert objects.get_range("app/large", (9 << 20) - 1, 2) == b"12"


def test_what_is_gone_is_deleted_without_an_error(objects: Objects) -> None:
    objects.put_new("app/a", b"1")
    objects.delete(["app/a", "app/b"])
    with pytest.raises(ObjectMissing, match="there is no app/a"):
        objects.get("app/a")


def test_an_address_that_is_none_is_an_error_of_the_user() -> None:
    with pytest.raises(RemoteError, match="nowhere://x cannot be opened"):
        objects_at("nowhere://x")
