"""Statements about the session itself: SET, SHOW, RESET, DISCARD, and those that have nothing to do here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from flowql.pg.errors import PgError, unsupported
from flowql.pg.settings import SessionSettings
from flowql.pg.statements import Statement, name_after, syntax_error
from flowql.pg.types import TEXT, PgColumn

_NOTHING = {
    "LISTEN": "LISTEN",
    "UNLISTEN": "UNLISTEN",
    "CHECKPOINT": "CHECKPOINT",
    "ANALYZE": "ANALYZE",
    "VACUUM": "VACUUM",
}
_TRANSACTION_VERBS = frozenset(
    ("ABORT", "BEGIN", "COMMIT", "END", "PREPARE", "RELEASE", "ROLLBACK", "SAVEPOINT", "START")
)
_TIMEZONE_NOTE = "times are shown in UTC, whatever the time zone of a session"


@dataclass(frozen=True, slots=True)
class Done:
    """tag: of CommandComplete. shown: rows that it has. notice: what the client is to know."""

    tag: str
    shown: tuple[list[PgColumn], pa.Table] | None = None
    notice: str = ""


def run(statement: Statement, settings: SessionSettings, discard: Callable[[str], None]) -> Done | None:
    """The result of a statement about the session; None for others. discard: drops `prepared` statements and `cursors`. Raises PgError."""
    verb = statement.verb
    match verb:
        case "SET":
            return _set(statement, settings)
        case "SHOW":
            return _show(statement, settings)
        case "RESET":
            return _reset(statement, settings)
        case "DISCARD":
            return _discard(statement, settings, discard)
        case "DEALLOCATE":
            name = next((w.name for w in statement.words[1:] if w.upper != "PREPARE"), None)
            discard("prepared" if name in (None, "all") else f"prepared {name}")
            return Done("DEALLOCATE ALL" if name == "all" else "DEALLOCATE")
    if verb in _NOTHING:
        if verb == "LISTEN":
            raise unsupported(
                "LISTEN is not supported: nothing is notified", "subscribe to a result with  flowql subscribe"
            )
        return Done(_NOTHING[verb])
    return None


def _discard(statement: Statement, settings: SessionSettings, discard: Callable[[str], None]) -> Done:
    match [w.upper for w in statement.words[1:]]:
        case ["ALL"]:
            if settings.in_transaction:
                raise PgError("25001", "DISCARD ALL cannot run inside a transaction block")
            discard("all")
            settings.reset_all()
            return Done("DISCARD ALL")
        case ["PLANS" | "SEQUENCES" | "TEMP" | "TEMPORARY" as what]:  # there are none
            return Done(f"DISCARD {'TEMP' if what == 'TEMPORARY' else what}")
    raise syntax_error(statement, 1)


def modes(statement: Statement, at: int) -> dict[str, str]:
    """The characteristics of a transaction from a word on: settings by name. Raises PgError."""
    words, found = [w.upper for w in statement.words], dict[str, str]()
    while at < len(words):
        match words[at:]:
            case ["ISOLATION", "LEVEL", "SERIALIZABLE", *_]:
                found["transaction_isolation"], at = "serializable", at + 3
            case [
                "ISOLATION",
                "LEVEL",
                "REPEATABLE" | "READ" as first,
                "READ" | "COMMITTED" | "UNCOMMITTED" as second,
                *_,
            ]:
                found["transaction_isolation"], at = f"{first} {second}".lower(), at + 4
            case ["READ", "ONLY" | "WRITE" as what, *_]:
                found["transaction_read_only"], at = ("on" if what == "ONLY" else "off"), at + 2
            case ["NOT", "DEFERRABLE", *_]:
                found["transaction_deferrable"], at = "off", at + 2
            case ["DEFERRABLE", *_]:
                found["transaction_deferrable"], at = "on", at + 1
            case [",", _, *_] if found:
                at += 1
            case _:
                raise syntax_error(statement, at)
    return found


def begun_modes(statement: Statement) -> dict[str, str]:
    """Those of BEGIN and START TRANSACTION. Raises PgError."""
    at = 2 if statement.words[1:2] and statement.words[1].upper in ("WORK", "TRANSACTION") else 1
    return modes(statement, at)


def chains(statement: Statement) -> bool:
    """Whether COMMIT or ROLLBACK begins another transaction."""
    return [w.upper for w in statement.words[-2:]] == ["AND", "CHAIN"]


def _set(statement: Statement, settings: SessionSettings) -> Done:
    at = 2 if len(statement.words) > 1 and statement.words[1].upper in ("SESSION", "LOCAL") else 1
    rest = [w.upper for w in statement.words[at:]]
    local = statement.follows("SET", "LOCAL")
    if rest[:1] == ["TRANSACTION"]:
        for name, value in modes(statement, at + 1).items():
            settings.set(name, value)
        return Done("SET")
    if rest[:3] == ["CHARACTERISTICS", "AS", "TRANSACTION"]:
        for name, value in modes(statement, at + 3).items():
            settings.set(f"default_{name}", value)
        return Done("SET")
    if rest[:1] == ["NAMES"]:
        settings.set("client_encoding", statement.words[at + 1].value if len(rest) > 1 else "UTF8")
        return Done("SET")
    if rest[:2] == ["TIME", "ZONE"]:
        return Done("SET", notice=_note(" ".join(rest[2:])))
    if rest[:1] == ["ROLE"] or rest[:1] == ["AUTHORIZATION"]:
        raise unsupported("a session cannot change its user")
    name, words = name_after(statement, at)
    if not words or words[0].upper not in ("=", "TO"):
        raise syntax_error(statement, len(statement.words) - len(words))
    given = words[1:]
    if not given:
        raise syntax_error(statement, len(statement.words))
    value = "".join(w.value if w.kind == "string" else w.name or w.text if w.text != "," else ", " for w in given)
    settings.set(name, None if [w.upper for w in given] == ["DEFAULT"] else value, local=local)
    return Done("SET", notice=_note(value) if name == "timezone" else "")


def _note(zone: str) -> str:
    return "" if zone.strip("'").lower() in ("utc", "default", "local", "etc/utc", "gmt", "z") else _TIMEZONE_NOTE


def _show(statement: Statement, settings: SessionSettings) -> Done | None:
    words = statement.words[1:]
    if [w.upper for w in words] == ["ALL"]:
        rows = settings.all()
        columns = [PgColumn(n, TEXT) for n in ("name", "setting", "description")]
        return Done(
            "SHOW", (columns, pa.table({"n": [n for n, _ in rows], "s": [v for _, v in rows], "d": [""] * len(rows)}))
        )
    if not words:
        raise syntax_error(statement, 1)
    name = " ".join(w.name or w.text for w in words).replace(" . ", ".")
    if name in ("tables", "databases", "schemas"):
        return None
    value = settings.get(name)
    shown = {
        "timezone": "TimeZone",
        "time zone": "TimeZone",
        "datestyle": "DateStyle",
        "intervalstyle": "IntervalStyle",
    }
    column = shown.get(name, "transaction_isolation" if name.startswith("transaction iso") else name)
    return Done("SHOW", ([PgColumn(column, TEXT)], pa.table({"v": [value]})))


def _reset(statement: Statement, settings: SessionSettings) -> Done:
    if statement.follows("RESET", "ALL"):
        settings.reset_all()
    else:
        settings.set(" ".join(w.name or w.text for w in statement.words[1:]).replace(" . ", "."), None)
    return Done("RESET")


def transaction_verb(statement: Statement) -> str:
    """BEGIN, COMMIT, ROLLBACK, SAVEPOINT, RELEASE, `ROLLBACK TO`; empty for a statement that is not about transactions. Raises PgError."""
    if statement.verb not in _TRANSACTION_VERBS:
        return ""
    match list(statement.uppers):
        case ["BEGIN", *_] | ["START", "TRANSACTION", *_]:
            return "BEGIN"
        case ["COMMIT" | "ROLLBACK", "PREPARED", *_] | ["PREPARE", "TRANSACTION", *_]:
            raise unsupported("two-phase commit is not supported")
        case ["ROLLBACK" | "ABORT", *rest] if "TO" in rest:
            return "ROLLBACK TO"
        case ["COMMIT" | "END", *_]:
            return "COMMIT"
        case ["ROLLBACK" | "ABORT", *_]:
            return "ROLLBACK"
        case ["SAVEPOINT", _, *_]:
            return "SAVEPOINT"
        case ["RELEASE", _, *_]:
            return "RELEASE"
    return ""


def savepoint_name(statement: Statement) -> str:
    """The name in SAVEPOINT, RELEASE and ROLLBACK TO: the last word."""
    name = statement.words[-1].name
    if name is None:
        raise PgError("42601", "a savepoint has a name", position=statement.words[-1].start + 1)
    return name
