"""Which application answers a request, and within which limit: found once, by method and path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from re import Pattern

from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

WEBSOCKET = "WEBSOCKET"  # the method of a request that becomes a WebSocket
APP = "flowql.app"  # in the scope of a request: what answers it


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of one request. body_bytes: the longest body. at_once: requests that are being answered; more are turned away. group: requests of
    one group are counted together.
    """

    body_bytes: int = 1 << 16
    at_once: int = 16
    group: str = ""


DEFAULT = Limit()


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path, whose parameters are in braces."""

    method: str
    path: str
    limit: Limit
    app: ASGIApp

    @property
    def counted(self) -> str:
        """The name under which requests are counted."""
        return self.limit.group or f"{self.method} {self.path}"


Missing = Callable[
    [str, str, Sequence[str]], ASGIApp
]  # gives what answers: method, path, and methods that the path has


class Routes:
    """The routes of a port. HEAD is answered as GET. missing: for requests without a route, which have the default limit."""

    def __init__(self, routes: Iterable[Route], missing: Missing) -> None:
        self._missing = missing
        self._fixed = dict[str, dict[str, Route]]()
        patterns = dict[str, tuple[Pattern[str], dict[str, Route]]]()
        for route in routes:
            known = self._fixed.setdefault(route.path, {})
            if "{" in route.path:
                patterns[route.path] = compile_path(route.path)[0], known
            known[route.method] = route
        self._patterns = list(patterns.values())

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """The route of a request, and the parameters in its path."""
        known, parameters = self._of_path(path)
        route = known.get("GET" if method == "HEAD" else method)
        if route is None:
            methods = [] if method == WEBSOCKET else sorted(m for m in known if m != WEBSOCKET)
            route = Route(method, path, DEFAULT, self._missing(method, path, methods))
        return route, parameters

    def _of_path(self, path: str) -> tuple[Mapping[str, Route], Mapping[str, str]]:
        fixed = self._fixed.get(path)
        if fixed is not None and "{" not in path:
            return fixed, {}
        for pattern, known in self._patterns:
            if found := pattern.match(path):
                return known, found.groupdict()
        return {}, {}


async def routed(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request whose route was found."""
    await scope[APP](scope, receive, send)
