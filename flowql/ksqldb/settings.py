"""ksqlDB's properties: which FlowQL reads as they are, which become keys of a target, and why the others have no use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flowql.compiler.analyze.options import DEFAULT_KEY, DEFAULT_VALUE, WRAP_SINGLE
from flowql.compiler.analyze.registered import REGISTRY
from flowql.compiler.analyze.tables import RESULT_PREFIX as PREFIX
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.functions.collecting_aggregates import LIMIT_PROPERTIES
from flowql.ksqldb.notes import Kind, Note

OFFSET_RESET = "auto.offset.reset"
COMMIT_INTERVAL = "commit.interval.ms"
_STREAMS = "ksql.streams."

# Properties that mean the same here, and stay what they are.
SAME = frozenset(
    (
        DEFAULT_KEY,
        DEFAULT_VALUE,
        WRAP_SINGLE,
        REGISTRY,
        PREFIX,
        "ksql.timestamp.throw.on.invalid",
        *LIMIT_PROPERTIES.values(),
    )
)

_CACHES = ("cache.max.bytes.buffering", "statestore.cache.max.bytes")
_CLIENT = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "ssl.endpoint.identification.algorithm",
)
_STORES = tuple(
    f"ssl.{store}.{part}" for store in ("truststore", "keystore") for part in ("location", "password", "type")
)
_WHY: dict[str, tuple[Kind, str, str]] = {
    "processing.guarantee": ("differs", "results are committed exactly once, whatever was asked for", ""),
    "num.standby.replicas": (
        "left out",
        "there are no standby copies yet; the new owner of a task restores its state from the changelog",
        "",
    ),
    "num.stream.threads": ("changed", "it is `threads` of the target, of all queries together", ""),
    "ksql.fail.on.deserialization.error": (
        "differs",
        "a record that cannot be read goes to the table DEAD_LETTERS, and its query continues",
        "",
    ),
    "sasl.jaas.config": (
        "check",
        "it is Java's; the client here takes a name and a password",
        "add sasl.username and sasl.password to `options` of the target",
    ),
    **dict.fromkeys(
        (*_STORES, "ssl.key.password"),
        (
            "check",
            "it is of a store of Java's; the client here takes certificates and keys as PEM",
            "add ssl.ca.location, ssl.certificate.location or ssl.key.location to `options` of the target",
        ),
    ),
    "ksql.query.pull.table.scan.enabled": ("changed", "every interactive query may look at all rows", ""),
    "ksql.extension.dir": (
        "check",
        "functions in Java cannot be used",
        "say the same with the functions there are:  flowql shell -c 'SHOW FUNCTIONS'",
    ),
}


@dataclass(slots=True)
class TargetSettings:
    """Settings of a target that follow from ksqlDB's properties."""

    bootstrap: str = ""
    app_id: str = ""
    threads: int | None = None
    replication: int | None = None
    options: dict[str, str] = field(default_factory=dict)


def plain(name: str) -> str:
    """The name without the prefix under which ksqlDB hands it to Kafka Streams."""
    return name.removeprefix(_STREAMS)


def of_interest(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that have the same meaning in FlowQL."""
    return {n: v for n, v in properties.items() if n in SAME}


def target_settings(server: Mapping[str, str], set_: Mapping[str, Sequence[tuple[str, Span]]]) -> TargetSettings:
    """The keys of a target that a server's properties, or SET in a script, give."""
    found = TargetSettings(server.get("bootstrap.servers", ""), server.get("ksql.service.id", ""))
    known = {plain(n): v for n, v in server.items()} | {plain(n): v[-1][0] for n, v in set_.items()}
    threads = known.get("num.stream.threads", "")
    if threads.isdigit() and int(threads) > 0:
        found.threads = int(threads)
    found.options = {
        n: server[n] or "none" for n in _CLIENT if n in server
    }  # Java says nothing where names do not matter
    return found


def setting_notes(name: str, given: Sequence[tuple[str, Span]]) -> Iterator[Note]:
    """Notes on a property that is not taken over unchanged."""
    value, span = given[-1]
    short = plain(name)
    if name in SAME or short in ("bootstrap.servers", "ksql.service.id", "listeners", *_CLIENT):
        return
    if short == OFFSET_RESET:
        if value != "earliest":
            yield Note("differs", f"{name} = {value}: queries read their topics from the beginning", span)
    elif short == COMMIT_INTERVAL:
        yield Note("changed", f"{name} = {value} is a latency target, or a priority", span)
    elif short in _CACHES:
        text = "several updates of a key between two commits are written as one"
        yield Note("differs", f"{name}: {text}, whatever the cache", span)
    elif short in _WHY or name in _WHY:
        kind, why, help_ = _WHY.get(short) or _WHY[name]
        yield Note(kind, f"{name}: {why}", span, help_)
    else:
        yield Note("left out", f"{name} has no meaning here", span)
