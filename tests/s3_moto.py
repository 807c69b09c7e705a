"""Moto's S3 with faults: `PYTHON tests/s3_moto.py PORT FOLDER KEY`, in a Python that has `moto[server]`. Nothing of FlowQL is imported here.

FOLDER/slow: requests are answered with 503 while this file exists. FOLDER/gone: connections are closed without an answer. A request with
another access key than KEY is refused as S3 refuses it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

Start = Callable[..., Any]
_ERROR = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{0}</Code><Message>{1}</Message><RequestId>1</RequestId></Error>"


class Faulty:
    def __init__(self, folder: Path, key: str) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)
        self._folder, self._key = folder, key

    def __call__(self, request: dict[str, Any], start: Start) -> Iterable[bytes]:
        if (self._folder / "gone").exists():
            request["werkzeug.socket"].shutdown(SHUT_RDWR)
            raise ConnectionError  # which the server passes over
        if (self._folder / "slow").exists():
            return _refuse(start, "503 Service Unavailable", "SlowDown", "Please reduce your request rate.")
        if f"Credential={self._key}/" not in request.get("HTTP_AUTHORIZATION", ""):
            said = "The AWS Access Key Id you provided does not exist in our records."
            return _refuse(start, "403 Forbidden", "InvalidAccessKeyId", said)
        return self._application(request, start)  # type: ignore[no-any-return]


def _refuse(start: Start, status: str, code: str, said: str) -> list[bytes]:
    start(status, [("Content-Type", "application/xml")])
    return [_ERROR.format(code, said).encode()]


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    port, folder, key = sys.argv[1:]
    run_simple("127.0.0.1", int(port), Faulty(Path(folder), key), threaded=True, request_handler=Quiet)
