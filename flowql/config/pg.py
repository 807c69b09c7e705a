"""The part of a target that is about clients of PostgreSQL's protocol."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.config.api import CONNECTIONS, CONNECTIONS_MAX, PRIVATE_KEY, ROLES, unpaired_files
from flowql.config.reader import Item, made, under
from flowql.config.shape import Choice, File, Key, ListOf, MapOf, Record, Secret, Text, Whole

if TYPE_CHECKING:
    import ssl

_REFERENCE = "${PG_PASSWORD}"
PG = Record(
    "pg",
    {
        "port": Key(Whole(1, 65_535), "Port that it listens on, usually 5432.", required=True, example="5432"),
        "address": Key(
            Text("an address"),
            "Address that it listens on; default: 127.0.0.1. Other addresses need `users`, `certificate` and `key`.",
        ),
        "connections": Key(
            Whole(1, CONNECTIONS_MAX),
            f"How many clients are connected at the same time; default: {CONNECTIONS}.",
        ),
        "users": Key(
            MapOf(
                Record(
                    "a user",
                    {
                        "password": Key(
                            Secret("a password"),
                            f"Password, best in a variable: {_REFERENCE}, or a SCRAM-SHA-256 verifier.",
                            required=True,
                            example=f"'{_REFERENCE}'",
                        ),
                        "roles": Key(
                            ListOf(Choice(ROLES), single=True),
                            "What the user may do: `read` queries and subscriptions, `write` rows, `operate`, `deploy`; default: all.",
                        ),
                        "results": Key(
                            ListOf(Text("a stream or table"), single=True),
                            "Streams and tables that the user is limited to; default: all.",
                        ),
                    },
                    short="password",
                ),
                "a user",
            ),
            "Users and their passwords, each with rights. Without users everybody on this machine may connect.",
        ),
        "certificate": Key(File(), "Certificate for TLS, with those it depends on (PEM), relative to this file."),
        "key": PRIVATE_KEY,
    },
    short="port",
)


@dataclass(frozen=True, slots=True)
class PgUser:
    """password: or a verifier of it. results: the streams and tables that the user may use; empty: all."""

    password: str = field(default="", repr=False)
    roles: tuple[str, ...] = ROLES
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PgSettings:
    """Where clients of PostgreSQL's protocol reach the instance. certificate, key: absolute, both empty without TLS. connections: at most at a time."""

    port: int
    address: str = "127.0.0.1"
    users: Mapping[str, PgUser] = field(default_factory=dict, repr=False)
    certificate: str = ""
    key: str = ""
    connections: int = CONNECTIONS

    def tls(self) -> ssl.SSLContext | None:
        """The context that encrypts connections; None without a certificate. Raises OSError if a file cannot be used."""
        if not self.certificate:
            return None
        import ssl  # 10 ms

        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.load_cert_chain(self.certificate, self.key)
        return made

    @property
    def is_loopback(self) -> bool:
        """Whether this machine alone reaches it."""
        if self.address == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return False


def pg_settings(given: Mapping[str, Item]) -> tuple[PgSettings | None, list[Diagnostic]]:
    """The settings, None without a port, and the mistakes."""
    if "port" not in given:
        return None, []
    users = {name: made(PgUser, user.value) for name, user in under(given, "users").items()}
    settings = made(PgSettings, {**given, "users": users})
    found = unpaired_files("pg", given)
    if not settings.is_loopback:
        found += [
            Diagnostic(
                "FQ3020",
                f"`{key}` is missing in pg: {settings.address} can be reached from other machines",
                given["address"].span,
                "not of this machine",
                help=help_,
            )
            for key, help_ in (
                ("users", f'add  users: {{ada: "{_REFERENCE}"}}'),
                ("certificate", "add  certificate: server.pem  and  key: server.key"),
            )
            if not getattr(settings, key)
        ]
    return settings, found
