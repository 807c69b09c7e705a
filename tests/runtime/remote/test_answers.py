"""Answers of stores over HTTP become errors of one line, with the right code and without credentials."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowql.runtime.remote.errors import ObjectMissing, RemoteError, RemoteRefused
from flowql.runtime.remote.objects import Objects, objects_at
from tests.fake_s3 import BUCKET, KEY, SECRET, TOKEN, FakeS3, fake_s3

REFUSED = {
    "forbidden": "403 AccessDenied: Access Denied",
    "unknown key": "403 InvalidAccessKeyId: The AWS Access Key Id you provided does not exist in our records.",
    "wrong signature": "403 SignatureDoesNotMatch: The request signature we calculated does not match.",
    "expired": "the credentials have expired (400 ExpiredToken: The provided token has expired.)",
    "no bucket": "there is no such bucket (404 NoSuchBucket: The specified bucket does not exist)",
    "region": "the bucket is in another region: set AWS_REGION, or AWS_ENDPOINT_URL",
}
LATER = {
    "full": "the store has no space left (507 XMinioStorageFull: Storage backend has reached its minimum free drive threshold.)",
    "quota": "the store has no space left (403 QuotaExceeded: Bucket quota exceeded)",
    "busy": "503 SlowDown: Please reduce your request rate.",
}
CALLS = {
    "written": lambda store: store.put_new("app/one", b"x"),
    "listed": lambda store: list(store.list("app")),
    "read": lambda store: store.get("app/one"),
}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    pytest.importorskip("obstore")
    with fake_s3(monkeypatch) as s3:
        yield s3


@pytest.fixture
def store(s3: FakeS3) -> Objects:
    return objects_at(f"s3://{BUCKET}/shop")


def test_objects_over_http(store: Objects) -> None:
    assert store.put_new("app/one", b"first")
    assert not store.put_new("app/one", b"second")
    assert (store.get("app/one"), store.get_range("app/one", 1, 3)) == (b"first", b"irs")
    assert [(o.name, o.size) for o in store.list("app")] == [("app/one", 5)]
    store.delete(["app/one"])
    with pytest.raises(ObjectMissing):
        store.get("app/one")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", [*REFUSED, *LATER])
def test_an_answer_is_told_in_one_line(s3: FakeS3, store: Objects, kind: str, call: str) -> None:
    """A forbidden list is not an unreachable store, and a missing bucket is not a deleted object."""
    s3.answers(kind)
    with pytest.raises(RemoteError) as raised:
        CALLS[call](store)
    assert type(raised.value) is (RemoteRefused if kind in REFUSED else RemoteError)
    what = "app cannot be listed" if call == "listed" else f"app/one cannot be {call}"
    assert str(raised.value) == f"s3://{BUCKET}/shop: {what}: {(REFUSED | LATER)[kind]}"
    assert not any(secret in str(raised.value) for secret in (KEY, SECRET, TOKEN))


def test_new_credentials_are_taken_after_a_refusal(s3: FakeS3, store: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance need not start again when its credentials expire."""
    s3.expects = "AKIANEW"
    with pytest.raises(RemoteRefused, match="does not exist in our records"):
        store.put_new("app/one", b"x")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANEW")
    assert store.put_new("app/one", b"x")
