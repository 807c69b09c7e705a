"""The part of a target that is about programs on other machines."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import Span
from flowql.config.reader import Item
from flowql.config.shape import Key, ListOf, Record, Text, Whole

TOKEN_LENGTH_MIN = 16
_TOKEN = re.compile(rf"[!-~]{{{TOKEN_LENGTH_MIN},}}")  # what a header carries as it is
_REFERENCE = "${FLOWQL_TOKEN}"
API = Record(
    "api",
    {
        "port": Key(Whole(1, 65_535), "Port that it listens on.", required=True, example="8321"),
        "token": Key(
            Text("a token"),
            f"Token of requests: at least {TOKEN_LENGTH_MIN} characters, best in a variable: {_REFERENCE}.",
            required=True,
            example=f"'{_REFERENCE}'",
        ),
        "address": Key(Text("an address"), "Address that it listens on; default: 127.0.0.1."),
        "names": Key(
            ListOf(Text("a host"), single=True),
            "Host names that requests may use besides its address and the name of the machine; others are refused.",
        ),
        "certificate": Key(
            Text("a file"), "Certificate for https://, with those it depends on (PEM), relative to this file."
        ),
        "key": Key(Text("a file"), "Private key of the certificate (PEM)."),
    },
)


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Where programs on other machines reach the instance. certificate, key: absolute, both empty without TLS."""

    port: int
    token: str = field(repr=False)
    address: str = "127.0.0.1"
    names: Sequence[str] = ()
    certificate: str = ""
    key: str = ""

    @property
    def called(self) -> list[str]:
        """The names that Host may have: a page in a browser that leads its own name here has another one."""
        return [self.address, socket.gethostname(), socket.getfqdn(), *self.names]


def api_settings(given: Mapping[str, Item], root: Path) -> tuple[ApiSettings | None, list[Diagnostic]]:
    """What the checked values say, None where they do not say enough; and what is wrong with them. root: of relative files."""
    if "port" not in given or "token" not in given:
        return None, []
    values = {k: i.value for k, i in given.items()}
    found = [_unfit(given["token"])] if not _TOKEN.fullmatch(values["token"]) else []
    for one, other in (("certificate", "key"), ("key", "certificate")):
        if one in given and other not in given:
            found.append(
                Diagnostic("FQ3006", f"`{other}` is missing in api", given[one].key, help=f"add  {other}: {other}.pem")
            )
    if "names" in values:
        values["names"] = tuple(i.value for i in values["names"])
    for key in ("certificate", "key"):
        if key in values:
            values[key] = str((root / Path(values[key]).expanduser()).resolve())
    return ApiSettings(**values), found


def _unfit(token: Item) -> Diagnostic:
    """Names neither the token nor its characters, and hides it in the line that is shown."""
    short = len(token.value) < TOKEN_LENGTH_MIN
    title = (
        f"the token of `api` has less than {TOKEN_LENGTH_MIN} characters"
        if short
        else "the token of `api` has blanks or characters beyond ASCII"
    )
    help_ = f'token: "{_REFERENCE}", and in the environment  FLOWQL_TOKEN=$(python -c "import secrets; print(secrets.token_urlsafe())")'
    return Diagnostic("FQ3013", title, _hidden(token.span), "too short" if short else "not a token", help=help_)


def _hidden(span: Span) -> Span:
    """A token that is written in the file is not shown; a reference to a variable is."""
    start, end = span.column - 1, span.column - 1 + span.length
    written = span.line_text[start:end]
    if "${" in written:
        return span
    return replace(span, line_text=span.line_text[:start] + "*" * len(written) + span.line_text[end:])
