"""Talks to an instance by its URL, from any machine. There is no directory here, and no process to look at."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Generator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import pyarrow as pa

from flowql.compiler.plan import codec
from flowql.compiler.plan.topology import SourceDef
from flowql.deploy.assertions import UNKNOWN_REPLICAS
from flowql.errors import CommandError
from flowql.query.answer import Done
from flowql.query.arrow_changes import of_batch
from flowql.query.change import Change, Rebuilt
from flowql.query.dead_letters import Letter, letter_of
from flowql.query.tick_text import as_ends
from flowql.runtime.log.base import TopicInfo
from flowql.server.address import LOST
from flowql.server.change_stream import SILENCE_S, Begun, decode
from flowql.server.client import ANSWER_S, OTHER_VERSION, PROTOCOL, Calls
from flowql.server.failures import NO_ROUTE, Failure
from flowql.server.frames import arrow_stream
from flowql.server.http import NO_HEADERS, Http, Reply, Unreachable
from flowql.server.streaming import ARROW
from flowql.topics.producing import Written

CONNECT_S = 10.0
LETTERS_AT_ONCE = 1_000
BAD_URL, WRONG_TOKEN = "FQ5309", "FQ5301"
_URL_HELP = "write it as  http://shop.example.com:8321  with the port of `api` in the instance's flowql.yaml"


class _Records(msgspec.Struct):
    """Records of a topic, each left as it was sent."""

    records: list[msgspec.Raw]
    position: str


@dataclass(frozen=True, slots=True)
class Url:
    """Where an instance listens."""

    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, text: str) -> Url:
        """Raises CommandError, which does not repeat what may be a password."""
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise CommandError(f"this is not a URL: {error}", code=BAD_URL, help=_URL_HELP) from None
        if "@" in parts.netloc:
            title = "the URL has a name or a password: it would be kept in histories and logs"
            raise CommandError(title, code=BAD_URL, help='flowql.connect("http://shop.example.com:8321", token=...)')
        if parts.scheme not in ("http", "https") or not host:
            raise CommandError(f"{text} is not a URL of an instance", code=BAD_URL, help=_URL_HELP)
        if parts.path.strip("/") or parts.query or parts.fragment:
            title = f"{text} names something behind the port of an instance"
            raise CommandError(title, code=BAD_URL, help=_URL_HELP)
        tls = parts.scheme == "https"
        return cls(host, port or (443 if tls else 80), tls)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


class RemoteClient(Calls):
    """Calls of an instance by its URL. Raises CommandError; RuntimeFailure and CompileError where the instance did, and says so."""

    def __init__(self, url: str, token: str, certificate: str | Path | None = None) -> None:
        """certificate: whom to trust, instead of those whom the system trusts. Raises CommandError also if no instance answers there."""
        self.url = Url.of(url)
        headers = {"Authorization": f"Bearer {token}"}
        if not token.isascii() or not token.isprintable():
            raise CommandError(f"the token for {self.url} is none: it has characters beyond ASCII", code=WRONG_TOKEN)
        tls = _trusting(certificate) if self.url.tls else None
        http = Http(self.url.port, headers, connect_s=CONNECT_S, answer_s=ANSWER_S, host=self.url.host, tls=tls)
        help_ = "check the URL, and on the instance's machine:  flowql status; it listens there if its target has `api`"
        super().__init__(http, str(self.url), help_)
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def topics(self) -> dict[str, TopicInfo]:
        """The topics there, as far as the instance tells."""
        _, topics = self.deployed()
        return {name: TopicInfo(name, partitions, replicas=UNKNOWN_REPLICAS) for name, partitions in topics.items()}

    def source(self, name: str) -> SourceDef:
        """A stream or table that is deployed, whatever the case of its name. CommandError if there is none."""
        found = self._exactly("GET", f"/v1/streams/{quote(name, safe='')}")
        with self._understood():
            (source,) = codec.loads(found["plan"]).sources
            return source

    def produce(self, name: str, rows: pa.Table | pa.RecordBatch, timestamp: str | None) -> Written:
        """Writes rows in one transaction; they are durable when it returns. The outcome is unknown if no answer comes."""
        path = f"/v1/streams/{quote(name, safe='')}/rows"
        asked = "" if timestamp is None else f"?{urlencode({'timestamp': timestamp})}"
        said = self._exactly("POST", path + asked, arrow_stream(rows), {"Content-Type": ARROW})
        with self._understood():
            return Written(said["rows"], as_ends(said["tick"]))

    def execute(self, statements: str, variables: Mapping[str, str], retry: int = 0) -> list[Done]:
        """As `statements`, without the rows of RETURNING, which are for those who may read."""
        body = json.dumps({"statements": statements, "variables": dict(variables), "retry": retry}).encode()
        said = self._exactly("POST", "/v1/execute", body)
        with self._understood():
            return [Done(d["statement"].upper(), d["table"], d["rows"], tick=d["tick"]) for d in said["statements"]]

    def letters(self) -> list[Letter]:
        """All open dead letters, with their records."""
        found: list[Letter] = []
        while True:
            asked = {"limit": LETTERS_AT_ONCE, "skip": len(found)}
            said = self._exactly("GET", f"/v1/dead-letters?{urlencode(asked)}")
            with self._understood():
                part = [letter_of(data) for data in said["dead_letters"]]
            found = part + found
            if not part or len(found) >= said["open"]:
                return found

    def records(self, topic: str, asked: Mapping[str, str | int]) -> tuple[list[bytes], str]:
        """Records of a topic as JSON objects, and the position behind them. asked: parameters of the request."""
        said = self._said("GET", f"/v1/topics/{quote(topic, safe='')}/records?{urlencode(asked)}")
        with self._understood():
            found = msgspec.json.decode(said, type=_Records)
            return [bytes(record) for record in found.records], found.position

    def log_lines(self, asked: Mapping[str, str | int]) -> tuple[list[dict[str, Any]], str]:
        """Lines of the instance's log, and the position behind them. asked: parameters of `/v1/logs`."""
        said = self._exactly("GET", f"/v1/logs?{urlencode(asked)}")
        with self._understood():
            return said["lines"], said["position"]

    def changes(self, what: str, start: str, limit: int | None) -> Told:
        """A subscription; close it."""
        body = json.dumps({"sql": what, "start": start, "limit": limit}).encode()
        with ExitStack() as stack:
            try:
                reply = stack.enter_context(self._http.request("POST", "/v1/subscribe", body))
                if not reply.is_success:
                    raise self._raised(reply, reply.read())
            except Unreachable as error:
                raise self._lost(error) from error
            reply.within(SILENCE_S)
            return Told(self, reply, stack.pop_all())

    def broken_off(self, reason: str) -> CommandError:
        title = f"the subscription at {self.url} broke off: {reason}"
        return CommandError(title, code=LOST, help="changes until then are complete; subscribe again to continue")

    def _check(self) -> None:
        """CommandError if there is no instance, one that refuses the token, or one of another protocol."""
        found = self._call("GET", "/health")
        theirs = found.get("protocol") if isinstance(found, dict) else None
        if theirs != PROTOCOL:
            version = found.get("version", "an older one") if isinstance(found, dict) else "unknown"
            title = (
                f"the instance at {self.url} has another version of FlowQL ({version}) than this program ({_version()})"
            )
            raise CommandError(title, code=OTHER_VERSION, help="use one version of FlowQL on both sides")

    def _exactly(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS) -> Any:
        """The decoded reply. Raises the error that was raised in the instance."""
        said = self._said(method, path, body, headers)
        with self._understood():
            return json.loads(said)

    def _raised(self, reply: Reply, said: bytes) -> Failure:
        found = super()._raised(reply, said)
        if isinstance(found, CommandError) and found.code in (WRONG_TOKEN, NO_ROUTE):
            return self._refused(reply, said)
        return found

    def _refused(self, reply: Reply, said: bytes) -> CommandError:
        status = reply.response.status
        if status == 401:
            title = f"{self.url} refuses the token"
            return CommandError(title, code=WRONG_TOKEN, help="give the `token` of `api` in the instance's flowql.yaml")
        if said[:1] == b"{" and f'"{NO_ROUTE}"'.encode() not in said:
            return super()._refused(reply, said)
        title = (
            f"{self.url} answers with status {status}: no instance of FlowQL listens there, or one of another version"
        )
        return CommandError(title, code=OTHER_VERSION, help=_URL_HELP)

    def _lost(self, error: Unreachable, *, writes: bool = False) -> CommandError:
        """Names the reasons that a person can remove."""
        known = None if error.sent else _reason(error.__cause__, self.url)
        if known is None:
            return super()._lost(error, writes=writes)
        title, help_ = known
        return CommandError(f"{self._name} cannot be reached: {title}", code=LOST, help=help_)


def _reason(cause: BaseException | None, url: Url) -> tuple[str, str] | None:
    """The error and its remedy, where no request was sent."""
    match cause:
        case ssl.SSLCertVerificationError():
            help_ = "name the instance's certificate, or that of its authority:  certificate: server.pem  (in Python: certificate=)"
            return f"its certificate is not trusted: {cause.verify_message}", help_
        case ssl.SSLError():
            return "it does not speak TLS", f"if its target has no `certificate`, write  http://{url.host}:{url.port}"
        case ConnectionRefusedError():
            help_ = f"start the instance; its target needs  api: {{port: {url.port}}}  and an `address` that other machines reach"
            return f"nothing listens on port {url.port} of {url.host}", help_
        case socket.gaierror():
            return f"no machine is called {url.host}", "check the URL"
        case TimeoutError():
            return "it does not answer in time", "check the URL, and whether a firewall is in between"
    return None


class Told:
    """The changes of a subscription. One thread iterates it; any thread may close it."""

    def __init__(self, client: RemoteClient, reply: Reply, connection: ExitStack) -> None:
        self._client, self._reply, self._connection = client, reply, connection
        self._closed = Event()
        self._found = self._read()
        self._changes = self._one_by_one()

    def __iter__(self) -> Generator[Change | Rebuilt]:
        """Changes with values as Python has them."""
        return self._changes

    def frames(self) -> Generator[Begun | Rebuilt | pa.RecordBatch]:
        """As they come, instead of the iteration over single changes."""
        return self._found

    def close(self) -> None:
        self._closed.set()
        self._reply.break_off()
        with suppress(ValueError):  # another thread is in it, and releases the connection
            self._changes.close()
            self._found.close()
            self._connection.close()

    def _one_by_one(self) -> Generator[Change | Rebuilt]:
        for found in self._found:
            if isinstance(found, pa.RecordBatch):
                yield from of_batch(found)
            elif isinstance(found, Rebuilt):
                yield found

    def _read(self) -> Generator[Begun | Rebuilt | pa.RecordBatch]:
        try:
            yield from decode(self._reply.pieces())
        except Unreachable as error:
            if not self._closed.is_set():
                raise self._client.broken_off(str(error)) from error
        except (ValueError, KeyError, TypeError) as error:
            if not self._closed.is_set():
                raise self._client.broken_off(str(error)) from error
        finally:
            self._connection.close()


def _trusting(certificate: str | Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if certificate is None else str(certificate))
    except OSError as error:
        title = f"the certificate {certificate} cannot be used: {error}"
        raise CommandError(title, code=BAD_URL, help="name a file of certificates in PEM") from error


def _version() -> str:
    return metadata.version("flowql")
