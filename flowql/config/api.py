"""The part of a target that is about programs on other machines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import Span
from flowql.config.reader import Item, made, under
from flowql.config.sections import ADDRESS, NAMES, Named
from flowql.config.shape import Choice, File, Key, ListOf, MapOf, Record, Secret, Text, Whole
from flowql.errors import CommandError
from flowql.runtime.secret import is_reference, revealed

TOKEN_LENGTH_MIN = 16
BAD_TOKEN = "FQ3013"
CONNECTIONS, CONNECTIONS_MAX = 256, 16_384
SUBSCRIPTIONS, SUBSCRIPTIONS_MAX = 16, 1_024  # of different ones: each has a reader, with up to 128 MB
ROLES = ("read", "write", "operate", "deploy")
_HASH = re.compile(r"[0-9a-f]{64}")
_ORIGIN = re.compile(r"https?://[a-z0-9.:\[\]-]+")
_TOKEN = re.compile(rf"[!-~]{{{TOKEN_LENGTH_MIN},}}")  # what a header carries as it is
_REFERENCE = "${FLOWQL_TOKEN}"
PRIVATE_KEY = Key(File(), "Private key of the certificate (PEM).")
API = Record(
    "api",
    {
        "port": Key(Whole(1, 65_535), "Port that it listens on.", required=True, example="8321"),
        "token": Key(
            Secret("a token"),
            f"Token of requests: at least {TOKEN_LENGTH_MIN} characters, best in a variable: {_REFERENCE}.",
            required=True,
            example=f"'{_REFERENCE}'",
        ),
        "address": ADDRESS,
        "names": NAMES,
        "certificate": Key(File(), "Certificate for https://, with those it depends on (PEM), relative to this file."),
        "key": PRIVATE_KEY,
        "tokens": Key(
            MapOf(
                Record(
                    "a token",
                    {
                        "hash": Key(
                            Text("a hash"),
                            "SHA-256 of the token, 64 hexadecimal digits.",
                            required=True,
                            example=f"'{'0' * 64}'",
                        ),
                        "roles": Key(
                            ListOf(Choice(ROLES), single=True),
                            "What it permits: `read` queries and subscriptions, `write` rows, `operate`, `deploy`.",
                            required=True,
                            example="[read]",
                        ),
                        "results": Key(
                            ListOf(Text("a stream or table"), single=True),
                            "Streams and tables that it is limited to; default: all.",
                        ),
                    },
                ),
                "a token",
            ),
            "More tokens, by name, each with roles.",
        ),
        "webhooks": Key(
            MapOf(Secret("a secret"), "a stream or table"),
            "Secrets by stream or table: events that are signed with one need no token.",
        ),
        "origins": Key(
            ListOf(Text("an origin"), single=True),
            "Web pages whose scripts may send requests, as https://shop.example.com; default: none.",
        ),
        "connections": Key(
            Whole(1, CONNECTIONS_MAX),
            f"How many connections the port serves at the same time; default: {CONNECTIONS}.",
        ),
        "subscriptions": Key(
            Whole(1, SUBSCRIPTIONS_MAX),
            f"How many different subscriptions over HTTP the instance serves at once; default: {SUBSCRIPTIONS}.",
        ),
    },
)


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """The rights of a token. hash: SHA-256 of the token, in hexadecimal. results: the streams and tables that it may use; empty: all."""

    hash: str = ""
    roles: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApiSettings(Named):
    """Where programs on other machines reach the instance. certificate, key: absolute, both empty without TLS."""

    port: int
    token: str = field(repr=False)
    address: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    certificate: str = ""
    key: str = ""
    tokens: Mapping[str, TokenSettings] = field(default_factory=dict)
    webhooks: Mapping[str, str] = field(default_factory=dict, repr=False)
    origins: tuple[str, ...] = ()
    connections: int = CONNECTIONS
    subscriptions: int = SUBSCRIPTIONS

    def revealed_token(self) -> str:
        """Raises SecretMissing, and CommandError if what the token refers to is not one."""
        token = revealed(self.token)
        if not _TOKEN.fullmatch(token):
            title = f"the token of `api` needs at least {TOKEN_LENGTH_MIN} characters, without blanks and in ASCII"
            raise CommandError(title, code=BAD_TOKEN, help="change the secret that flowql.yaml refers to")
        return token

    def revealed_webhooks(self) -> dict[str, str]:
        """Secrets by folded names of streams and tables. Raises SecretMissing."""
        return {name.casefold(): revealed(secret) for name, secret in self.webhooks.items()}


def api_settings(given: Mapping[str, Item]) -> tuple[ApiSettings | None, list[Diagnostic]]:
    """Reads the section `api`: its settings and its mistakes. Without a port or a token there are no settings (None)."""
    if "port" not in given or "token" not in given:
        return None, []
    token = given["token"]
    found = [] if is_reference(token.value) or _TOKEN.fullmatch(token.value) else [_unfit(token)]
    tokens = {name: made(TokenSettings, t.value) for name, t in under(given, "tokens").items()}
    tokens = {name: replace(t, hash=t.hash.lower()) for name, t in tokens.items()}
    origins = [o.value.rstrip("/") for o in under(given, "origins")]
    settings = made(ApiSettings, {**given, "tokens": tokens, "origins": origins})
    return settings, [*found, *unpaired_files("api", given), *_mistakes_of_rights(given, settings)]


def unpaired_files(section: str, given: Mapping[str, Item]) -> list[Diagnostic]:
    """The mistake of a certificate without its key, or the reverse."""
    return [
        Diagnostic("FQ3006", f"`{other}` is missing in {section}", given[one].key, help=f"add  {other}: {other}.pem")
        for one, other in (("certificate", "key"), ("key", "certificate"))
        if one in given and other not in given
    ]


def _mistakes_of_rights(given: Mapping[str, Item], settings: ApiSettings) -> list[Diagnostic]:
    found = []
    for name, token in under(given, "tokens").items():
        digest, made = token.value.get("hash"), settings.tokens[name]
        if digest is not None and not _HASH.fullmatch(made.hash):
            title = f"`hash` of the token `{name}` is not an SHA-256 in hexadecimal"
            found.append(Diagnostic("FQ3021", title, _hidden(digest.span), "not 64 digits", help=_HASH_HELP))
        if made.results and (whole := set(made.roles) & {"operate", "deploy"}):
            title = f"the token `{name}` has `results`, and the role `{min(whole)}` concerns the whole target"
            help_ = "leave out `results`, or give it only the roles read and write"
            found.append(Diagnostic("FQ3021", title, token.value["results"].span, "not for this role", help=help_))
    for secret in under(given, "webhooks").values():
        if not is_reference(secret.value) and len(secret.value) < TOKEN_LENGTH_MIN:
            title = f"a secret of `webhooks` has fewer than {TOKEN_LENGTH_MIN} characters"
            found.append(Diagnostic("FQ3021", title, _hidden(secret.span), "too short", help="use a longer secret"))
    for origin in under(given, "origins"):
        if not _ORIGIN.fullmatch(origin.value.rstrip("/")):
            title = f"{origin.value} is not an origin of web pages"
            help_ = "write it as  https://shop.example.com  or  http://localhost:3000"
            found.append(Diagnostic("FQ3021", title, origin.span, "not an origin", help=help_))
    return found


_HASH_HELP = (
    'python -c "import secrets, hashlib; t = secrets.token_urlsafe(); print(t, hashlib.sha256(t.encode()).hexdigest())"'
)


def _unfit(token: Item) -> Diagnostic:
    """Names neither the token nor its characters, and hides it in the line that is shown."""
    short = len(token.value) < TOKEN_LENGTH_MIN
    title = (
        f"the token of `api` has fewer than {TOKEN_LENGTH_MIN} characters"
        if short
        else "the token of `api` has blanks or characters beyond ASCII"
    )
    help_ = f'token: "{_REFERENCE}", and in the environment  FLOWQL_TOKEN=$(python -c "import secrets; print(secrets.token_urlsafe())")'
    return Diagnostic(BAD_TOKEN, title, _hidden(token.span), "too short" if short else "not a token", help=help_)


def _hidden(span: Span) -> Span:
    """A token that is written in the file is not shown; a reference to a variable is."""
    start, end = span.column - 1, span.column - 1 + span.length
    written = span.line_text[start:end]
    if "${" in written:
        return span
    return replace(span, line_text=span.line_text[:start] + "*" * len(written) + span.line_text[end:])
