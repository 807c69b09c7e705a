"""Requests to a server on this machine: which connections are used again, and what is said when there is no answer."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from flowql.server.http import Http, Unreachable
from tests.open_files import many_open_files


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        if self.path == "/pieces":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in (b"one", b"two"):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
            return
        body = str(self.client_address[1]).encode()  # tells connections apart
        self.send_header("Content-Length", str(len(body) + 9 * (self.path == "/cut")))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.path in ("/cut", "/leaves")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def http() -> Iterator[Http]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made = Http(server.server_address[1], {}, connect_s=2.0, answer_s=5.0)
    yield made
    made.close()
    server.shutdown()
    server.server_close()


def ask(http: Http, path: str) -> bytes:
    with http.request("GET", path) as reply:
        assert reply.is_success
        return reply.read()


def test_a_connection_is_used_again(http: Http) -> None:
    first = ask(http, "/whole")
    assert ask(http, "/whole") == first
    assert ask(http, "/pieces") == b"onetwo"
    assert ask(http, "/whole") == first


def test_also_in_a_process_with_thousands_of_open_files() -> None:
    with many_open_files():
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made = Http(server.server_address[1], {}, connect_s=2.0, answer_s=5.0)
        first = ask(made, "/whole")
        assert ask(made, "/whole") == first
        made.close()
        server.shutdown()
        server.server_close()


def test_one_that_was_idle_is_not(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server closed it while it was used, and a command was told that nobody answers."""
    first = ask(http, "/whole")
    monkeypatch.setattr("flowql.server.http.REUSE_S", 0.0)
    assert ask(http, "/whole") != first


def test_also_after_an_answer_whose_end_nobody_read(http: Http) -> None:
    with http.request("GET", "/whole") as reply:
        first = next(reply.pieces())
    assert ask(http, "/whole") == first


def test_two_requests_at_a_time_have_two_connections(http: Http) -> None:
    with http.request("GET", "/whole") as one, http.request("GET", "/whole") as other:
        assert one.read() != other.read()


def test_one_that_the_server_has_closed_is_not(http: Http) -> None:
    first = ask(http, "/leaves")
    ((kept, _),) = http._free
    assert select.select([kept.sock], [], [], 10)[0], "it says so"
    assert ask(http, "/whole") != first


def test_an_answer_that_breaks_off_and_nobody_there_are_told(http: Http) -> None:
    with pytest.raises(Unreachable, match="IncompleteRead"):
        ask(http, "/cut")
    nobody = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    nobody.server_close()
    with pytest.raises(Unreachable, match="ConnectionRefusedError"):
        ask(Http(nobody.server_address[1], {}, connect_s=1.0, answer_s=1.0), "/whole")


def test_faults_of_who_reads_are_left_alone(http: Http) -> None:
    """A full disk while an answer is written to a file is no fault of the server."""
    with pytest.raises(OSError, match="no space"), http.request("GET", "/whole"):
        raise OSError("no space left")
