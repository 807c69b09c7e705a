"""Talks to an instance: `connect` finds that of a data directory; `flowql.server.remote_client` has that of a URL."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from flowql.errors import CommandError
from flowql.query.options import QUERY_DEFAULTS, QueryOptions
from flowql.server.address import LOST, SEEN, Address
from flowql.server.failures import Failure, of_wire, query_error_of_wire
from flowql.server.http import NO_HEADERS, Http, Reply, Unreachable

if TYPE_CHECKING:
    import pyarrow as pa

    from flowql.compiler.plan.deployed import Deployed, Entry
    from flowql.compiler.plan.topology import Plan
    from flowql.deploy.control import NewPriority
    from flowql.deploy.request import DeployRequest
    from flowql.query.answer import Answer, Done
    from flowql.runtime.log.appending import Redelivery
    from flowql.runtime.log.base import TopicPartition

CONNECT_S, ANSWER_S = 2.0, 600.0  # a deployment waits for a commit, an interactive query for its answer
# The version of the messages between an instance and a client elsewhere, plans included. Both must have the same one.
PROTOCOL = 3
OTHER_VERSION = "FQ5311"


class Calls:
    """The requests that any program may send to an instance. Raises CommandError with the instance's message."""

    def __init__(self, http: Http, name: str, help_: str) -> None:
        """name, help_: of the instance, in messages when it does not answer."""
        self._http, self._name, self._help = http, name, help_

    def close(self) -> None:
        self._http.close()

    def status(self, *, detail: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = self._call("GET", "/v1/status?detail=1" if detail else "/v1/status")
        return found

    def metrics(self) -> str:
        """The metrics in the text format of Prometheus."""
        return self._asked("GET", "/metrics").decode()

    def set_priority(self, wanted: NewPriority) -> dict[str, Any]:
        found: dict[str, Any] = self._call("POST", "/v1/priority", asdict(wanted))
        return found

    def pause(self, names: Sequence[str], *, paused: bool) -> list[str]:
        """The ids of the queries meant."""
        found: list[str] = self._call("POST", "/v1/pause", {"queries": list(names), "paused": paused})["queries"]
        return found

    def promote(self, name: str | None) -> list[str]:
        """Lets what is built serve: of one query, or all of it. The ids."""
        found: list[str] = self._call("POST", "/v1/promote", {"query": name})["queries"]
        return found

    def abandon(self, name: str | None) -> list[str]:
        """Drops what is built. The ids."""
        found: list[str] = self._call("POST", "/v1/abandon", {"query": name})["queries"]
        return found

    def diff(self, name: str) -> dict[str, Any]:
        """The two generations of a result, compared."""
        found: dict[str, Any] = self._call("POST", "/v1/diff", {"result": name})
        return found

    def append(self, wanted: Sequence[Redelivery]) -> dict[str, Any]:
        """Gives records to queries once more, in one commit."""
        body = {"records": [w.to_data() for w in wanted]}
        found: dict[str, Any] = self._call("POST", "/v1/dead-letters/append", body)
        return found

    def replay(self, parts: Sequence[Sequence[Redelivery]]) -> dict[str, Any]:
        """Repairs records and rebuilds the queries that they name, once the last request has arrived. Returns the document of the deployment.

        parts: the records of each request; at least one part.
        """
        name, found = os.urandom(8).hex(), dict[str, Any]()
        for number, some in enumerate(parts, 1):
            body = {"records": [w.to_data() for w in some], "replay": name, "more": number < len(parts)}
            found = self._call("POST", "/v1/dead-letters/replay", body)
        return found

    def plan(self) -> tuple[Plan, Mapping[str, int]]:
        """The serving plan, and the number of partitions of each existing topic."""
        deployed, topics = self.deployed()
        return deployed.serving, topics

    def deployed(self) -> tuple[Deployed, Mapping[str, int]]:
        """The recorded deployment, and the number of partitions of each existing topic."""
        from flowql.compiler.plan import codec  # the plan's data types: 0.05 s, which `status` does without

        body = self._call("GET", "/v1/plan")
        with self._understood():
            return codec.loads_deployed(body["deployed"]), body["topics"]

    def deploy(self, wanted: Plan, request: DeployRequest | None = None) -> dict[str, Any]:
        """wanted: the whole project."""
        found: dict[str, Any] = self._call("POST", "/v1/deployments", _deployment(wanted, request))
        return found

    def planned(self, wanted: Plan, request: DeployRequest | None = None) -> dict[str, Any]:
        """The document of a deployment, of which nothing is carried out. Arguments as for `deploy`."""
        found: dict[str, Any] = self._call("POST", "/v1/plan", _deployment(wanted, request))
        return found

    def deployments(self, *, plans: bool = False) -> list[Entry]:
        """The last ones, the newest last; without their plans, which are long, unless asked for."""
        from flowql.compiler.plan import codec

        path = "/v1/deployments?plans=1" if plans else "/v1/deployments"
        found = self._call("GET", path)
        with self._understood():
            return [codec.loads_entry(line) for line in found["deployments"]]

    def query(self, sql: str) -> pa.Table:
        """The whole answer at once."""
        with self.answer(sql) as answer:
            return answer.table()

    @contextmanager
    def answer(self, sql: str, options: QueryOptions = QUERY_DEFAULTS, seen: int = 0) -> Iterator[Answer]:
        """The answer, as far as it is taken. seen: a commit that it must show."""
        from flowql.server.streaming import ARROW, decode  # Arrow: 0.2 s

        try:
            body = json.dumps(
                {"sql": sql, **{name: value for name, value in asdict(options).items() if value not in (None, False)}}
            ).encode()
            with self._http.request("POST", "/v1/query", body, headers={"Accept": ARROW, SEEN: str(seen)}) as reply:
                if not reply.is_success:
                    raise self._refused(reply, reply.read())
                yield decode(reply.pieces())
        except Unreachable as error:
            raise self._lost(error) from error

    def statements(
        self, statements: str, variables: Mapping[str, str], *, retry: int = 0, one_returns: bool = False
    ) -> list[Done]:
        """Carries out INSERT, UPDATE and DELETE. Returns their row counts and the rows of RETURNING.

        one_returns: exactly one statement must have RETURNING. Raises the error that the instance raised. Never sends a request twice.
        """
        from flowql.server.statement_streams import read_done  # Arrow: 0.2 s
        from flowql.server.streaming import ARROW

        asked = {"statements": statements, "variables": dict(variables), "retry": retry, "one_returns": one_returns}
        said = self._said("POST", "/v1/execute", json.dumps(asked).encode(), {"Accept": ARROW})
        with self._understood():
            return read_done(said)

    def _said(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS) -> bytes:
        """The body of the reply. Raises the error that was raised in the instance."""
        try:
            with self._http.request(method, path, body, headers=headers) as reply:
                said = reply.read()
        except Unreachable as error:
            raise self._lost(error, writes=method == "POST") from error
        if not reply.is_success:
            raise self._raised(reply, said)
        return said

    def _raised(self, reply: Reply, said: bytes) -> Failure:
        try:
            return of_wire(json.loads(said))
        except (ValueError, KeyError, TypeError):
            return self._refused(reply, said)

    def _call(self, method: str, path: str, document: Any = None) -> Any:
        with self._understood():
            return json.loads(self._asked(method, path, document))

    def _asked(self, method: str, path: str, document: Any = None) -> bytes:
        refused, said = self._sent(method, path, b"" if document is None else json.dumps(document).encode())
        if refused is not None:
            raise CommandError(refused.title, code=refused.code, help=refused.help)
        return said

    def _sent(self, method: str, path: str, body: bytes) -> tuple[CommandError | None, bytes]:
        """The error with which the instance refuses the request, if any, and the body of its reply."""
        try:
            with self._http.request(method, path, body) as reply:
                said = reply.read()
        except Unreachable as error:
            raise self._lost(error, writes=method == "POST") from error
        return None if reply.is_success else self._refused(reply, said), said

    def _refused(self, reply: Reply, said: bytes) -> CommandError:
        """The error in a reply. A server that is ending may send a reply that is not in FlowQL's format."""
        try:
            return query_error_of_wire(json.loads(said))
        except (ValueError, KeyError, TypeError):
            return self._lost(Unreachable(f"status {reply.response.status}"))

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """CommandError for what this version of FlowQL cannot read."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            title = (
                f"{self._name} says what this version of FlowQL does not understand: {type(error).__name__}: {error}"
            )
            raise CommandError(title, code=OTHER_VERSION, help="use one version of FlowQL on both sides") from error

    def _lost(self, error: Unreachable, *, writes: bool = False) -> CommandError:
        title = f"{self._name} does not answer: {error}"
        if writes and error.sent:
            title += "; the request may have been carried out nevertheless"
        return CommandError(title, code=LOST, help=self._help)


def _deployment(wanted: Plan, request: DeployRequest | None) -> dict[str, Any]:
    from flowql.compiler.plan import codec

    return {"plan": codec.line(wanted), **(request.to_data() if request is not None else {})}


class Client(Calls):
    """Calls of an instance of this machine."""

    def __init__(self, address: Address) -> None:
        self.address = address
        headers = {"Authorization": f"Bearer {address.token}"}
        http = Http(address.port, headers, connect_s=CONNECT_S, answer_s=ANSWER_S)
        super().__init__(http, f"process {address.pid}", "flowql status")

    def answers(self, within_s: float) -> bool:
        """Whether it says in time that it is the instance of this address."""
        try:
            with self._understood(), self._http.request("GET", "/health", answer_s=within_s) as reply:
                return reply.is_success and bool(json.loads(reply.read())["pid"] == self.address.pid)
        except (CommandError, Unreachable):
            return False

    def pin(self) -> int:
        """Have it hold its files still for a backup (`flowql.deploy.pins`); the commit of the state."""
        found: int = self._call("POST", "/backup")["state_commit"]
        return found

    def whole_ends(self, *topics: str) -> dict[TopicPartition, int] | None:
        """See `flowql.server.engine.Engine`."""
        from flowql.runtime.log.base import TopicPartition  # Arrow: 0.2 s

        ends = self._call("GET", f"/ends?topics={quote(','.join(topics), safe='')}")["ends"]
        return None if ends is None else {TopicPartition(t, p): end for t, p, end in ends}

    def copied_state(self) -> Path | None:
        """See `flowql.server.engine.Engine.copied`."""
        path = self._call("POST", "/state-copy")["path"]
        return None if path is None else Path(path)

    def request_stop(self) -> None:
        """Ask it to commit and end; see `flowql.server.ending` for all of it."""
        self._call("POST", "/stop")
