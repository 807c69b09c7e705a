"""A small S3 in memory behind real HTTP, which answers as it is told: refusals, a full store, a wrong bucket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from flowql.runtime.remote.objects import OPENED

BUCKET = "bucket"
KEY, SECRET, TOKEN = "AKIAFLOWQLEXAMPLE", "wJalrXUtnFEMIexample", "FwoGZXIvYXdzEexample"
_ERROR = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{0}</Code><Message>{1}</Message><AWSAccessKeyId>{2}</AWSAccessKeyId>'
    "<StringToSign>AWS4-HMAC-SHA256 {2}</StringToSign><RequestId>1</RequestId></Error>"
)
_PROPERTIES = "<Contents><Key>{0}</Key><Size>{1}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"

Answer = tuple[int, str, str]
"""Status, S3's code and its message."""

ANSWERS: dict[str, Answer] = {
    "forbidden": (403, "AccessDenied", "Access Denied"),
    "unknown key": (403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."),
    "wrong signature": (403, "SignatureDoesNotMatch", "The request signature we calculated does not match."),
    "expired": (400, "ExpiredToken", "The provided token has expired."),
    "no bucket": (404, "NoSuchBucket", "The specified bucket does not exist"),
    "full": (507, "XMinioStorageFull", "Storage backend has reached its minimum free drive threshold."),
    "quota": (403, "QuotaExceeded", "Bucket quota exceeded"),
    "region": (301, "PermanentRedirect", "The bucket must be addressed using the specified endpoint."),
    "busy": (503, "SlowDown", "Please reduce your request rate."),
}


@dataclass
class FakeS3:
    """refuses: asked for each request, by method and key; None: it is done. expects: the key's id that is known."""

    expects: str = KEY
    data: dict[str, bytes] = field(default_factory=dict)
    refuses: Callable[[str, str], Answer | None] = lambda method, key: None

    def answers(self, kind: str, methods: str = "PUT GET POST DELETE") -> None:
        """From now on so; an empty kind: as it should."""
        self.refuses = lambda method, _: ANSWERS[kind] if kind and method in methods.split() else None


@contextmanager
def fake_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    """A server whose address and credentials are in the environment."""
    s3 = FakeS3()
    handler = type("Handler", (_Handler,), {"s3": s3})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    names = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_REGION": "us-east-1"}
    names |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    before = set(OPENED)
    try:
        yield s3
    finally:
        for url in [u for u in OPENED if u.startswith("s3://") and u not in before]:
            del OPENED[url]
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    s3: FakeS3

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        key, query = (
            unquote(url.path).removeprefix(f"/{BUCKET}").lstrip("/"),
            parse_qs(url.query, keep_blank_values=True),
        )
        refusal = self.s3.refuses(self.command, key)
        if f"Credential={self.s3.expects}/" not in self.headers.get("authorization", ""):
            refusal = ANSWERS["unknown key"]
        if refusal is not None:
            self._send(refusal[0], _ERROR.format(escape(refusal[1]), escape(refusal[2]), KEY).encode())
        elif self.command == "PUT":
            self._put(key, body)
        elif "list-type" in query:
            self._list(query["prefix"][0])
        elif self.command == "POST":
            names = [name.partition("</Key>")[0] for name in body.decode().split("<Key>")[1:]]
            for name in names:
                self.s3.data.pop(name, None)
            deleted = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
            self._send(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())
        elif self.command == "GET" and key in self.s3.data:
            self._get(self.s3.data[key])
        else:
            self._send(404, _ERROR.format("NoSuchKey", "The specified key does not exist.", KEY).encode())

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _do

    def _put(self, key: str, body: bytes) -> None:
        if self.headers.get("if-none-match") == "*" and key in self.s3.data:
            self._send(412, _ERROR.format("PreconditionFailed", "It is there", KEY).encode())
            return
        self.s3.data[key] = body
        self._send(200, b"")

    def _get(self, data: bytes) -> None:
        asked = self.headers.get("range")
        if asked is None:
            self._send(200, data)
            return
        first, last = (int(n) for n in asked.removeprefix("bytes=").split("-"))
        part = data[first : last + 1]
        self._send(206, part, {"Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(data)}"})

    def _list(self, prefix: str) -> None:
        found = [_PROPERTIES.format(escape(k), len(v)) for k, v in sorted(self.s3.data.items()) if k.startswith(prefix)]
        self._send(
            200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(found)}</ListBucketResult>".encode()
        )

    def _send(self, status: int, body: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {
            "Content-Length": str(len(body)),
            "ETag": '"1"',
            "Last-Modified": formatdate(usegmt=True),
            **(more or {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""
