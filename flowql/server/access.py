"""Who may do what: tokens with roles, and the results that they are limited to. `authorize` decides; every door asks it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from flowql.compiler.plan.topology import Plan
from flowql.config.api import ROLES, ApiSettings
from flowql.errors import CommandError
from flowql.query.errors import UNKNOWN, QueryError
from flowql.server.failures import FORBIDDEN

Action = Literal["read", "write", "operate", "deploy"]
SHOWN = 200


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


class Tokens:
    """Callers by the hashes of their tokens."""

    def __init__(self, callers: Mapping[str, Caller]) -> None:
        self._callers = dict(callers)

    @classmethod
    def single(cls, token: str, name: str) -> Tokens:
        """One token, which permits everything."""
        return cls({hash_of(token): Caller(name)})

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
