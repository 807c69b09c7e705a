"""An address that cannot be used is refused before Spark starts, where that is certain. The store is a server of this test that knows some buckets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flowql.runtime.spark.errors import StorageFailed
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.spark.store_check import check_store
from tests.spark_here import skip_without_spark

_LISTED = "<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"
# By bucket: the answer to HEAD, and to a list of its objects.
BUCKETS = {
    "lake": (200, 200, ""),
    "limited": (403, 200, ""),  # credentials for a part of it
    "wrong": (403, 403, "InvalidAccessKeyId"),
    "signed": (403, 403, "SignatureDoesNotMatch"),
    "denied": (403, 403, "AccessDenied"),
    "missing": (404, 404, "NoSuchBucket"),
    "busy": (503, 503, "SlowDown"),
    "moved": (301, 301, "PermanentRedirect"),
}


class _Store(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self._answer(BUCKETS[self._bucket][0], "")

    def do_GET(self) -> None:
        _, status, code = BUCKETS[self._bucket]
        self._answer(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>" if code else _LISTED)

    @property
    def _bucket(self) -> str:
        return self.path.split("?")[0].split("/")[1]

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def conf() -> Iterator[dict[str, str]]:
    """Properties of a Spark that reaches the store."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Store) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = {
            "endpoint": f"127.0.0.1:{server.server_port}",
            "connection.ssl.enabled": "false",
            "path.style.access": "true",
            "access.key": "AKIA",
            "secret.key": "hidden",
            "bucket.silent.endpoint": "http://127.0.0.1:1",
        }
        yield {f"spark.hadoop.fs.s3a.{name}": value for name, value in found.items()}
        server.shutdown()


@pytest.mark.parametrize(
    ("bucket", "why"),
    [
        ("wrong", "access is refused"),
        ("signed", "access is refused"),
        ("denied", "access is refused"),
        ("missing", "there is no such bucket"),
        ("silent", r"its server 127\.0\.0\.1:1 does not answer"),
    ],
)
def test_what_is_certain_is_refused(conf: dict[str, str], bucket: str, why: str) -> None:
    with pytest.raises(StorageFailed, match=f"s3a://{bucket}/flowql cannot be used: {why}.*\nhelp: ") as refused:
        check_store(conf, f"s3a://{bucket}/flowql")
    assert "hidden" not in str(refused.value)


def test_what_is_not_certain_is_left_to_spark(conf: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a target that works would be refused."""
    for address in ("", "/data/flowql", "hdfs://silent/flowql", "s3a://key:secret@silent/flowql"):
        check_store(conf, address)
    for bucket in ("lake", "limited", "busy", "moved"):
        check_store(conf, f"s3a://{bucket}/flowql")
    check_store({k: v for k, v in conf.items() if "access.key" not in k}, "s3a://wrong/flowql")
    for option in ("proxy.host", "aws.credentials.provider", "bucket.silent.assumed.role.arn"):
        check_store({**conf, f"spark.hadoop.fs.s3a.{option}": "other"}, "s3a://silent/flowql")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    check_store(conf, "s3a://wrong/flowql")


def test_an_instance_is_refused_before_a_session_starts(
    conf: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With it an address whose server does not answer took a session's start and 15 s."""
    skip_without_spark()
    from flowql.runtime.spark.engine import instance  # with PySpark

    monkeypatch.setattr(instance, "open_session", lambda *_: pytest.fail("a session was started"))
    settings = SparkSettings("spark://elsewhere:7077", conf, checkpoint="s3a://silent/flowql")
    made = instance.SparkInstance(tmp_path / "log", tmp_path / "state", settings, "app", mode="bounded")
    with pytest.raises(StorageFailed, match="does not answer"):
        made.start()
    made.stop()
