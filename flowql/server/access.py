"""Who may do what: tokens with roles, and the results that they are limited to. `authorize` decides; every door asks it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from flowql.compiler.plan.topology import Plan
from flowql.config.api import ROLES, ApiSettings
from flowql.errors import CommandError
from flowql.query.errors import UNKNOWN, QueryError
from flowql.server.failures import FORBIDDEN

Action = Literal["read", "write", "operate", "deploy"]
SHOWN = 200
RELAYED = "flowql-relayed"  # the header that names the sender of a request, on the local port


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request: a token, or a user. results: folded names of the streams and tables that it is limited to; None: of all."""

    name: str
    roles: frozenset[str] = frozenset(ROLES)
    results: frozenset[str] | None = None
    kind: str = "token"

    def visible(self, action: Action) -> frozenset[str] | None:
        """The folded names that an action may concern; None: all. Without the role, none."""
        return self.results if action in self.roles else frozenset()


def authorize_action(caller: Caller, action: Action) -> None:
    """Raises CommandError if no role of the caller permits the action, whatever it concerns."""
    if action not in caller.roles:
        roles = ", ".join(sorted(caller.roles)) or "no role"
        title = f"the {caller.kind} `{caller.name}` may not {action}: it has {roles}"
        raise CommandError(title, code=FORBIDDEN, help=f"use a {caller.kind} with the role `{action}`")


def authorize(caller: Caller, action: Action, result: str | None) -> None:
    """Raises CommandError if the caller may not do that. result: the stream or table that it concerns; None: the whole target."""
    authorize_action(caller, action)
    if caller.results is None:
        return
    who = f"{caller.kind} `{caller.name}`"
    if result is None:
        title = f"the {who} is limited to some results, and this concerns the whole target"
        raise CommandError(title, code=FORBIDDEN, help=f"use a {caller.kind} without `results`")
    if result.casefold() not in caller.results:
        title = f"the {who} may not {action} {result[:SHOWN]}"
        raise CommandError(title, code=FORBIDDEN, help=f"add it to `results` of the {who}")


@dataclass(frozen=True, slots=True)
class Relayed:
    """A request that the gateway sends on. client: address and port of its sender."""

    caller: Caller
    client: tuple[str, int] | None

    def to_header(self) -> str:
        about = asdict(self.caller)
        return json.dumps(
            {
                **about,
                "roles": sorted(self.caller.roles),
                "results": _listed(self.caller.results),
                "client": self.client,
            }
        )

    @classmethod
    def of_header(cls, text: str) -> Relayed:
        data = json.loads(text)
        results = None if data["results"] is None else frozenset(data["results"])
        caller = Caller(data["name"], frozenset(data["roles"]), results, data["kind"])
        return cls(caller, None if data["client"] is None else (data["client"][0], data["client"][1]))


def _listed(names: Iterable[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


class Tokens:
    """Callers by the hashes of their tokens. relays: whether requests with a token may have the header `RELAYED`."""

    def __init__(self, callers: Mapping[str, Caller], *, relays: bool = False) -> None:
        self._callers, self.relays = dict(callers), relays

    @classmethod
    def single(cls, token: str, name: str) -> Tokens:
        """One token, which permits everything."""
        return cls({hash_of(token): Caller(name)})

    @classmethod
    def local(cls, token: str) -> Tokens:
        """The token of the local port, which permits everything, and requests for others."""
        return cls({hash_of(token): Caller("local")}, relays=True)

    @classmethod
    def of(cls, api: ApiSettings) -> Tokens:
        """The tokens of a target's `api`."""
        limited = {
            t.hash: Caller(name, frozenset(t.roles), folded(t.results) if t.results else None)
            for name, t in api.tokens.items()
        }
        return cls({**limited, hash_of(api.revealed_token()): Caller("token")})

    def caller(self, authorization: str) -> Caller | None:
        """The caller of a request by its Authorization header. A hash that takes another time tells nothing about a token."""
        scheme, _, token = authorization.partition(" ")
        return self._callers.get(hash_of(token)) if scheme == "Bearer" else None


def hash_of(token: str) -> str:
    """SHA-256, in hexadecimal: tokens are random, so a slow hash would only slow down requests."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def folded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.casefold() for name in names)


def visible_plan(plan: Plan, names: Collection[str] | None) -> Plan:
    """The plan with these streams and tables alone; names: folded, None: all."""
    if names is None:
        return plan
    return replace(plan, sources=tuple(s for s in plan.sources if s.name.casefold() in names))


def check_reads(reads: Iterable[str], names: Collection[str] | None) -> None:
    """Raises QueryError, as for a name that does not exist, if one of them is not visible."""
    for name in reads:
        if names is not None and name.casefold() not in names:
            raise QueryError(f"there is no stream or table {name}", code=UNKNOWN)
