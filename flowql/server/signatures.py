"""Requests that carry a signature of their body instead of a token, as webhooks do: HMAC with SHA-256 by a shared secret."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from starlette.requests import Request

from flowql.server.access import Caller

HEADER = "x-hub-signature-256"  # as GitHub and others name it: `sha256=` and 64 hexadecimal digits
_PREFIX = "sha256="


async def signer(secrets: Mapping[str, str], request: Request) -> Caller | None:
    """The caller of a request whose body is signed by the secret of the result that it names; it may write to that alone. None if it is not.

    The body is read only if the request has a signature and the result a secret.
    """
    name = str(request.path_params.get("name", "")).casefold()
    given, secret = request.headers.get(HEADER, ""), secrets.get(name)
    if secret is None or not given.startswith(_PREFIX):
        return None
    wanted = hmac.new(secret.encode(), await request.body(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(wanted.encode(), given.removeprefix(_PREFIX).encode()):
        return None
    return Caller(f"webhook {name}", frozenset({"write"}), frozenset({name}))
