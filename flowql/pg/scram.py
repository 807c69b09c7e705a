"""SCRAM-SHA-256 of the server's side (RFC 5802, RFC 7677), without channel binding.

A password is kept as PostgreSQL keeps it: `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`; one that is given in clear becomes such a verifier.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from flowql.pg.errors import PgError

MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 4_096
_VERIFIER = re.compile(r"SCRAM-SHA-256\$(\d{1,9}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")


@dataclass(frozen=True, slots=True)
class Verifier:
    """A verifier: it proves a password without containing it."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, salt: bytes | None = None) -> Verifier:
        """password: in clear, or a verifier as PostgreSQL writes it. salt: of a password in clear; None: a random one."""
        if found := _VERIFIER.fullmatch(password):
            salt_, stored, server = (base64.b64decode(found[n]) for n in (2, 3, 4))
            return cls(int(found[1]), salt_, stored, server)
        salt = salt if salt is not None else secrets.token_bytes(16)
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
        stored = hashlib.sha256(_mac(salted, b"Client Key")).digest()
        return cls(ITERATIONS, salt, stored, _mac(salted, b"Server Key"))


class Exchange:
    """One authentication: `first`, then `last`. verifier: of the user; of an unknown one any, which nothing fits."""

    def __init__(self, verifier: Verifier, nonce: str = "") -> None:
        self._verifier, self._nonce = verifier, nonce or secrets.token_urlsafe(18)
        self._bare = self._challenge = self._binding = ""

    def first(self, message: str) -> str:
        """The challenge. message: the client's first one. Raises PgError."""
        flag, _, rest = message.partition(",")
        authzid, _, self._bare = rest.partition(",")
        fields = _fields(self._bare)
        if flag not in ("n", "y") or (authzid and not authzid.startswith("a=")) or "r" not in fields or "m" in fields:
            raise PgError("08P01", "malformed SCRAM message")
        self._binding = base64.b64encode(f"{flag},{authzid},".encode()).decode()
        self._combined = fields["r"] + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        self._challenge = f"r={self._combined},s={salt},i={self._verifier.iterations}"
        return self._challenge

    def last(self, message: str) -> str | None:
        """The server's signature; None if the password is wrong. message: the client's final one. Raises PgError."""
        without, _, proof = message.rpartition(",p=")
        fields = _fields(without)
        if fields.get("r") != self._combined or fields.get("c") != self._binding:
            raise PgError("08P01", "malformed SCRAM message")
        signed = f"{self._bare},{self._challenge},{without}".encode()
        try:
            given = base64.b64decode(proof, validate=True)
        except ValueError as error:
            raise PgError("08P01", "malformed SCRAM message") from error
        signature = _mac(self._verifier.stored_key, signed)
        if len(given) != len(signature):
            return None
        key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._verifier.stored_key):
            return None
        return f"v={base64.b64encode(_mac(self._verifier.server_key, signed)).decode()}"


def _fields(text: str) -> dict[str, str]:
    return {k: v for k, sep, v in (part.partition("=") for part in text.split(",")) if sep}


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")
