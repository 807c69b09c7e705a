"""Talks to the instance of a data directory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flowql.compiler.plan import codec
from flowql.compiler.plan.deployed import Deployed, Entry
from flowql.compiler.plan.topology import Plan
from flowql.deploy.asked import NOTHING_ELSE, Asked
from flowql.deploy.control import NewPriority
from flowql.errors import CommandError
from flowql.query.answer import Answer
from flowql.query.errors import query_error
from flowql.server.address import Address, is_alive, read_address
from flowql.server.http import Http, Reply, Unreachable
from flowql.server.streaming import decode

if TYPE_CHECKING:
    from flowql.runtime.log.appending import Redelivery

CONNECT_S, ANSWER_S = 2.0, 600.0  # a deployment waits for a commit, a question for its answer
LOST = "FQ5302"


def connect(data_dir: Path) -> Client | None:
    """The live instance of a directory, or None. One that is dead, or does not know its own token, is none."""
    address = read_address(data_dir)
    if address is None:
        return None
    client = Client(address)
    if client.answers():
        return client
    client.close()
    return None


class Client:
    """Calls of one instance. Raises CommandError with what the instance says."""

    def __init__(self, address: Address) -> None:
        self.address = address
        headers = {"Authorization": f"Bearer {address.token}"}
        self._http = Http(address.port, headers, connect_s=CONNECT_S, answer_s=ANSWER_S)

    def close(self) -> None:
        self._http.close()

    def answers(self) -> bool:
        try:
            return bool(self._call("GET", "/health")["pid"] == self.address.pid)
        except CommandError:
            return False

    def status(self, *, detail: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = self._call("GET", "/status?detail=1" if detail else "/status")
        return found

    def metrics(self) -> str:
        """What Prometheus reads."""
        return self._asked("GET", "/metrics").decode()

    def set_priority(self, wanted: NewPriority) -> dict[str, Any]:
        found: dict[str, Any] = self._call("POST", "/priority", asdict(wanted))
        return found

    def pause(self, names: Sequence[str], *, paused: bool) -> list[str]:
        """The ids of the queries meant."""
        found: list[str] = self._call("POST", "/pause", {"queries": list(names), "paused": paused})["queries"]
        return found

    def promote(self, name: str | None) -> list[str]:
        """Lets what is built serve: of one query, or all of it. The ids."""
        found: list[str] = self._call("POST", "/promote", {"query": name})["queries"]
        return found

    def abandon(self, name: str | None) -> list[str]:
        """Drops what is built. The ids."""
        found: list[str] = self._call("POST", "/abandon", {"query": name})["queries"]
        return found

    def append(self, wanted: Sequence[Redelivery]) -> dict[str, Any]:
        """Gives records to queries once more, in one commit."""
        found: dict[str, Any] = self._call("POST", "/append", {"records": [w.to_data() for w in wanted]})
        return found

    def diff(self, name: str) -> dict[str, Any]:
        """The two generations of a result, compared."""
        found: dict[str, Any] = self._call("POST", "/diff", {"result": name})
        return found

    def plan(self) -> tuple[Plan, Mapping[str, int]]:
        """What serves, and the partitions of the topics there are."""
        deployed, topics = self.deployed()
        return deployed.serving, topics

    def deployed(self) -> tuple[Deployed, Mapping[str, int]]:
        """What is on record, and the partitions of the topics there are."""
        body = self._call("GET", "/plan")
        return codec.loads_deployed(body["deployed"]), body["topics"]

    def deploy(self, wanted: Plan, asked: Asked = NOTHING_ELSE) -> dict[str, Any]:
        """wanted: the whole project."""
        body = {"plan": codec.line(wanted), **asked.to_data()}
        found: dict[str, Any] = self._call("POST", "/plan", body)
        return found

    def deployments(self, *, plans: bool = False) -> list[Entry]:
        """The last ones, the newest last; without their plans, which are long, unless asked for."""
        path = "/deployments?plans=1" if plans else "/deployments"
        return [codec.loads_entry(line) for line in self._call("GET", path)["deployments"]]

    def pin(self) -> int:
        """Have it hold its files still for a backup (`flowql.deploy.pins`); the commit of the state."""
        found: int = self._call("POST", "/backup")["state_commit"]
        return found

    def query(self, sql: str) -> pa.Table:
        """The whole answer at once."""
        with self.answer(sql) as answer:
            return answer.table()

    @contextmanager
    def answer(self, sql: str) -> Iterator[Answer]:
        """The answer, as far as it is taken."""
        try:
            with self._http.request("POST", "/query", sql.encode()) as reply:
                if not reply.is_success:
                    raise self._refused(reply, reply.read())
                yield decode(reply.pieces())
        except Unreachable as error:
            raise self._lost(error) from error

    def stop(self, timeout_s: float = 60.0) -> None:
        """Ask it to commit and end, and wait until its process is gone."""
        self._call("POST", "/stop")
        limit = time.monotonic() + timeout_s
        while is_alive(self.address.pid, self.address.started):
            if time.monotonic() > limit:
                title = f"process {self.address.pid} does not end within {timeout_s:.0f} s"
                raise CommandError(title, code=LOST, help=f"kill -9 {self.address.pid}; nothing committed is lost")
            time.sleep(0.02)

    def _call(self, method: str, path: str, document: Any = None) -> Any:
        return json.loads(self._asked(method, path, document))

    def _asked(self, method: str, path: str, document: Any = None) -> bytes:
        body = b"" if document is None else json.dumps(document).encode()
        try:
            with self._http.request(method, path, body) as reply:
                said = reply.read()
        except Unreachable as error:
            raise self._lost(error) from error
        if reply.is_success:
            return said
        refused = self._refused(reply, said)
        raise CommandError(refused.title, code=refused.code, help=refused.help)

    def _refused(self, reply: Reply, said: bytes) -> CommandError:
        """What it says; a server that ends meanwhile says nothing of ours."""
        try:
            return query_error(json.loads(said))
        except (ValueError, KeyError, TypeError):
            return self._lost(Unreachable(f"status {reply.response.status}"))

    def _lost(self, error: Unreachable) -> CommandError:
        title = f"process {self.address.pid} does not answer: {error}"
        return CommandError(title, code=LOST, help="flowql status")
