"""The part of a target that is about clients of PostgreSQL's protocol."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.config.api import CONNECTIONS, CONNECTIONS_MAX, ROLES
from flowql.config.reader import Item
from flowql.config.shape import Choice, Key, ListOf, MapOf, Record, Secret, Text, Whole

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
        "certificate": Key(
            Text("a file"), "Certificate for TLS, with those it depends on (PEM), relative to this file."
        ),
        "key": Key(Text("a file"), "Private key of the certificate (PEM)."),
    },
    short="port",
)


@dataclass(frozen=True, slots=True)
class PgUser:
    """password: or a verifier of it. results: the streams and tables that the user may use; empty: all."""

    password: str = field(repr=False)
    roles: Sequence[str] = ROLES
    results: Sequence[str] = ()


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


def pg_settings(given: Mapping[str, Item], root: Path) -> tuple[PgSettings | None, list[Diagnostic]]:
    """The settings, None where there is no port; and what is wrong with them. root: of relative files."""
    if "port" not in given:
        return None, []
    values = {k: i.value for k, i in given.items()}
    values["users"] = {n: _user(i.value) for n, i in values.get("users", {}).items()}
    found = [
        Diagnostic("FQ3006", f"`{other}` is missing in pg", given[one].key, help=f"add  {other}: {other}.pem")
        for one, other in (("certificate", "key"), ("key", "certificate"))
        if one in given and other not in given
    ]
    for key in ("certificate", "key"):
        if key in values:
            values[key] = str((root / Path(values[key]).expanduser()).resolve())
    made = PgSettings(**values)
    if not made.is_loopback:
        found += [
            Diagnostic(
                "FQ3020",
                f"`{key}` is missing in pg: {made.address} can be reached from other machines",
                given["address"].span,
                "not of this machine",
                help=help_,
            )
            for key, help_ in (
                ("users", f'add  users: {{ada: "{_REFERENCE}"}}'),
                ("certificate", "add  certificate: server.pem  and  key: server.key"),
            )
            if not values.get(key)
        ]
    return made, found


def _user(given: Mapping[str, Item]) -> PgUser:
    values = {k: i.value for k, i in given.items()}
    for key in ("roles", "results"):
        if key in values:
            values[key] = tuple(i.value for i in values[key])
    return PgUser(values.get("password", ""), values.get("roles", ROLES), values.get("results", ()))
