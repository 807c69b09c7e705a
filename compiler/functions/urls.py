"""Functions of URLs."""

from __future__ import annotations

from urllib.parse import SplitResult, quote_plus, unquote_plus, urlsplit

from compiler.functions.define import scalar, takes
from compiler.plan.types import INT, STRING


def _split(url: str) -> SplitResult:
    """Raises ValueError for what java.net.URI would refuse: blanks and control characters."""
    if any(c.isspace() or ord(c) < 32 for c in url):
        raise ValueError(f"{url!r} is not a URL")
    return urlsplit(url)


def _parameter(url: str, name: str) -> str | None:
    pairs = (p.partition("=") for p in _split(url).query.split("&"))
    return next((v for k, _, v in pairs if k == name), None)


for _name, _of, _type, _shown in (
    ("URL_EXTRACT_HOST", lambda u: _split(u).hostname, STRING, "'example.com'"),
    ("URL_EXTRACT_PORT", lambda u: _split(u).port, INT, "80"),
    ("URL_EXTRACT_PROTOCOL", lambda u: _split(u).scheme or None, STRING, "'http'"),
    ("URL_EXTRACT_PATH", lambda u: _split(u).path, STRING, "'/a'"),
    ("URL_EXTRACT_QUERY", lambda u: _split(u).query or None, STRING, "'q=1'"),
    ("URL_EXTRACT_FRAGMENT", lambda u: _split(u).fragment or None, STRING, "'f'"),
):
    scalar(
        _name,
        takes(STRING, gives=_type),
        by=_of,
        summary=f"The {_name.rpartition('_')[2].lower()} of a URL.",
        example=f"{_name}('http://example.com:80/a?q=1#f') -> {_shown}",
    )
scalar(
    "URL_EXTRACT_PARAMETER",
    takes(STRING, STRING, gives=STRING),
    by=_parameter,
    summary="A parameter in the query of a URL, as it is written there.",
    example="URL_EXTRACT_PARAMETER('http://example.com/?a=1&b=x%20y', 'b') -> 'x%20y'",
)
scalar(
    "URL_ENCODE_PARAM",
    takes(STRING, gives=STRING),
    by=lambda s: quote_plus(s, safe="*-._"),
    summary="A text encoded for the query of a URL.",
    example="URL_ENCODE_PARAM('a b&c') -> 'a+b%26c'",
)
scalar(
    "URL_DECODE_PARAM",
    takes(STRING, gives=STRING),
    by=unquote_plus,
    summary="A text decoded from the query of a URL.",
    example="URL_DECODE_PARAM('a+b%26c') -> 'a b&c'",
)
