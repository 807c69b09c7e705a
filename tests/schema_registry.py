"""A schema registry over HTTP, as small as its public interface allows: subjects, versions, ids, lookup, compatibility, a password.

It keeps what it is told, in memory, and answers as Confluent's REST interface is documented to, errors included. Compatibility is
judged for Avro records, as BACKWARD asks: who reads with the new schema must be able to read what the older one wrote.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TYPE = "application/vnd.schemaregistry.v1+json"
WIDER = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
}


class Refused(Exception):
    """An error of the interface: HTTP status, code, text."""


@dataclass(slots=True)
class Store:
    """Schemas by id (equal ones have one id) and subjects with their versions, first to last. `lock` guards both."""

    schemas: list[dict[str, Any]] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def register(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        schema = _schema(body)
        with self.lock:
            versions = self.subjects.setdefault(subject, [])
            if schema not in self.schemas:
                if versions and not compatible(schema, self.schemas[versions[-1] - 1]):
                    raise Refused(
                        409,
                        409,
                        f"Schema being registered is incompatible with an earlier schema for subject {subject}",
                    )
                self.schemas.append(schema)
            schema_id = self.schemas.index(schema) + 1
            if schema_id not in versions:
                versions.append(schema_id)
            return {"id": schema_id}

    def lookup(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        versions, schema = self._versions(subject), _schema(body)
        for n, schema_id in enumerate(versions, 1):
            if self.schemas[schema_id - 1] == schema:
                return self._shown(subject, n)
        raise Refused(404, 40403, "Schema not found")

    def by_id(self, number: str) -> dict[str, Any]:
        if not 0 < int(number) <= len(self.schemas):
            raise Refused(404, 40403, "Schema not found")
        return self.schemas[int(number) - 1]

    def version(self, subject: str, number: str) -> dict[str, Any]:
        versions = self._versions(subject)
        n = len(versions) if number == "latest" else int(number)
        if not 0 < n <= len(versions):
            raise Refused(404, 40402, f"Version {number} not found.")
        return self._shown(subject, n)

    def versions(self, subject: str) -> list[int]:
        return list(range(1, len(self._versions(subject)) + 1))

    def fits(self, subject: str, number: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"is_compatible": compatible(_schema(body), self.by_id(str(self.version(subject, number)["id"])))}

    def _versions(self, subject: str) -> list[int]:
        if not self.subjects.get(subject):
            raise Refused(404, 40401, f"Subject '{subject}' not found.")
        return self.subjects[subject]

    def _shown(self, subject: str, n: int) -> dict[str, Any]:
        schema_id = self.subjects[subject][n - 1]
        return {"subject": subject, "version": n, "id": schema_id, **self.schemas[schema_id - 1]}


def _schema(body: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a request: AVRO is not named in answers."""
    kind, text = body.get("schemaType", "AVRO"), body.get("schema")
    if not isinstance(text, str) or not text:
        raise Refused(422, 42201, "Empty schema")
    if kind in ("AVRO", "JSON"):
        try:
            json.loads(text)
        except ValueError as error:
            raise Refused(422, 42201, f"Invalid schema {text}") from error
    named = {} if kind == "AVRO" else {"schemaType": kind}
    references = body.get("references") or []
    return {"schema": text, **named, **({"references": references} if references else {})}


def compatible(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """Whether `new` reads what `old` wrote."""
    if new.get("schemaType") or old.get("schemaType"):
        return new.get("schemaType") == old.get("schemaType")
    reads, wrote = json.loads(new["schema"]), json.loads(old["schema"])
    if not (isinstance(reads, dict) and isinstance(wrote, dict) and reads["type"] == wrote["type"] == "record"):
        return bool(reads == wrote)
    before = {f["name"]: f["type"] for f in wrote["fields"]}
    return all(_reads(f["type"], before[f["name"]]) if f["name"] in before else "default" in f for f in reads["fields"])


def _reads(new: Any, old: Any) -> bool:
    if isinstance(old, list):
        return all(_reads(new, o) for o in old)
    if isinstance(new, list):
        return any(_reads(n, old) for n in new)
    return bool(new == old) or (isinstance(new, str) and isinstance(old, str) and (old, new) in WIDER)


ROUTES: list[tuple[str, str, Callable[..., Any]]] = [
    ("GET", "/subjects", lambda s: sorted(s.subjects)),
    ("GET", "/subjects/([^/]+)/versions", Store.versions),
    ("GET", "/subjects/([^/]+)/versions/([^/]+)", Store.version),
    ("POST", "/subjects/([^/]+)/versions", Store.register),
    ("POST", "/subjects/([^/]+)", Store.lookup),
    ("GET", r"/schemas/ids/(\d+)", Store.by_id),
    ("POST", "/compatibility/subjects/([^/]+)/versions/([^/]+)", Store.fits),
    ("GET", "/config(?:/[^/]+)?", lambda s: {"compatibilityLevel": "BACKWARD"}),
]  # fmt: skip


def _handler(store: Store, login: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer("GET", {})

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self._answer("POST", json.loads(self.rfile.read(length) or b"{}"))

        def _answer(self, method: str, body: dict[str, Any]) -> None:
            path = urlsplit(self.path).path
            store.requests.append(f"{method} {path}")
            try:
                self._send(200, self._result(method, path, body))
            except Refused as refused:
                status, code, text = refused.args
                self._send(status, {"error_code": code, "message": text})

        def _result(self, method: str, path: str, body: dict[str, Any]) -> Any:
            given = self.headers.get("Authorization", "")
            if login and given != "Basic " + base64.b64encode(login.encode()).decode():
                raise Refused(401, 401, "Unauthorized")
            for of, pattern, call in ROUTES:
                match = re.fullmatch(pattern, path)
                if of == method and match is not None:
                    return call(store, *map(unquote, match.groups()), *([body] if method == "POST" else []))
            raise Refused(404, 404, "HTTP 404 Not Found")

        def _send(self, status: int, answer: Any) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", TYPE)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on stderr."""

    return Handler


@contextmanager
def served(login: str = "") -> Iterator[tuple[str, Store]]:
    """A registry at a free port: its address, and what it keeps. login: `user:password` that it asks for."""
    store = Store()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(store, login))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
