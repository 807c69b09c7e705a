"""Functions of URLs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus, unquote, unquote_plus

from flowql.compiler.functions.registry import scalar, takes
from flowql.compiler.plan.types import INT, STRING

_URL = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?P<rest>(?://(?P<authority>[^/?#]*+))?(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?)(?:#(?P<fragment>.*))?"
)
_AUTHORITY = re.compile(r"(?:[^@]*@)?(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])?(?::(?P<port>\d*))?")
_NOT_IN_URLS = re.compile(r"[\s\x00-\x20\x7f\"<>\\^`{|}]|%(?![0-9A-Fa-f]{2})")


def _part(url: str, name: str) -> str | None:
    """A part of a URL, as RFC 2396 divides it, decoded; None where it is absent.

    A URL that has a scheme and then no slash (`mailto:a@b`) has neither path nor query. Raises ValueError for what is no URL.
    """
    found = _URL.fullmatch(url)
    if found is None or _NOT_IN_URLS.search(url):
        raise ValueError(f"{url!r} is not a URL")
    if found["scheme"] and not found["rest"].startswith("/") and name in ("path", "query"):
        return None
    value = found[name]
    return None if value is None else unquote(value)


def _server(url: str, name: str) -> str | None:
    """Host or port; both are None where the authority is no host name (it may be a name of another kind of registry)."""
    found = _AUTHORITY.fullmatch(_part(url, "authority") or "")
    return None if found is None or not found["host"] else found[name]


def _port(url: str) -> int | None:
    text = _server(url, "port")
    return int(text) if text else None


def _parameter(url: str, name: str) -> str | None:
    pairs = (p.partition("=") for p in (_part(url, "query") or "").split("&"))
    return next((v for k, _, v in pairs if k == name), None)


_PARTS: tuple[tuple[str, Callable[[str], Any]], ...] = (
    ("URL_EXTRACT_HOST", lambda u: _server(u, "host")),
    ("URL_EXTRACT_PORT", _port),
    ("URL_EXTRACT_PROTOCOL", lambda u: _part(u, "scheme")),
    ("URL_EXTRACT_PATH", lambda u: _part(u, "path")),
    ("URL_EXTRACT_QUERY", lambda u: _part(u, "query")),
    ("URL_EXTRACT_FRAGMENT", lambda u: _part(u, "fragment")),
)
for _name, _of in _PARTS:
    _what = _name.rpartition("_")[2].lower()
    scalar(_name, takes(STRING, gives=INT if _what == "port" else STRING), by=_of)
scalar("URL_EXTRACT_PARAMETER", takes(STRING, STRING, gives=STRING), by=_parameter)
scalar("URL_ENCODE_PARAM", takes(STRING, gives=STRING), by=lambda s: quote_plus(s, safe="*-._"))
scalar("URL_DECODE_PARAM", takes(STRING, gives=STRING), by=unquote_plus)
