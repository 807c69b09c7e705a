"""Settings of a session: those that drivers and pools set. Those that would change answers are refused with another value than the one they have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata

from flowql.pg.errors import PgError

SERVER_VERSION = "15.0"  # whose behaviour this follows
# Settings of a new session, by names in lower case.
_DEFAULTS = {
    "application_name": "",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "client_min_messages": "notice",
    "datestyle": "ISO, MDY",
    "default_table_access_method": "heap",
    "default_tablespace": "",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "extra_float_digits": "1",
    "idle_in_transaction_session_timeout": "1min",
    "idle_session_timeout": "0",
    "integer_datetimes": "on",
    "intervalstyle": "postgres",
    "is_superuser": "off",
    "jit": "off",
    "lc_collate": "C",
    "lc_ctype": "C",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "lock_timeout": "0",
    "max_identifier_length": "63",
    "row_security": "on",
    "role": "none",
    "search_path": '"$user", public',
    "server_encoding": "UTF8",
    "server_version": SERVER_VERSION,
    "server_version_num": "150000",
    "session_authorization": "",
    "ssl": "off",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "transaction_deferrable": "off",
    "work_mem": "4MB",
    "xmloption": "content",
}
# Facts about the server that `pg_settings` has beside the settings of a session.
SERVER_FACTS = {"block_size": "8192", "max_connections": "256", "max_function_args": "100", "max_index_keys": "32"}
# Those that a client is told when they change.
REPORTED = {
    "application_name": "application_name",
    "client_encoding": "client_encoding",
    "datestyle": "DateStyle",
    "default_transaction_read_only": "default_transaction_read_only",
    "integer_datetimes": "integer_datetimes",
    "intervalstyle": "IntervalStyle",
    "is_superuser": "is_superuser",
    "server_encoding": "server_encoding",
    "server_version": "server_version",
    "session_authorization": "session_authorization",
    "standard_conforming_strings": "standard_conforming_strings",
    "timezone": "TimeZone",
}
_READ_ONLY = frozenset(
    (
        "integer_datetimes",
        "is_superuser",
        "server_encoding",
        "server_version",
        "server_version_num",
        "ssl",
        "max_identifier_length",
        "lc_collate",
        "lc_ctype",
    )
)
# With the values that they may be given, in lower case: another one would change how rows are read or written.
_FIXED = {
    "client_encoding": ("utf8", "utf-8", "unicode", "default"),
    "standard_conforming_strings": ("on", "true", "yes", "1"),
    "intervalstyle": ("postgres",),
    "bytea_output": ("hex",),
}
_ALIASES = {
    "time zone": "timezone",
    "transaction isolation level": "transaction_isolation",
    "session authorization": "session_authorization",
    "names": "client_encoding",
}


_LEVELS = ("serializable", "repeatable read", "read committed", "read uncommitted")
_OF_TRANSACTION = ("transaction_isolation", "transaction_read_only", "transaction_deferrable")
_SWITCHES = {
    **dict.fromkeys(("on", "true", "yes", "1", "t"), "on"),
    **dict.fromkeys(("off", "false", "no", "0", "f"), "off"),
}
_UNITS_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,12}) *(ms|s|min|h|d)?")
Mark = tuple[dict[str, str], dict[str, str]]


class SessionSettings:
    """The settings of one session. Those that a transaction sets end with it: SET LOCAL always, SET if the transaction is rolled back."""

    def __init__(self, user: str, given: Mapping[str, str], database: str) -> None:
        """given: by the client as the session begins; unknown ones are options of protocols to come. Raises PgError."""
        self.user, self.database = user, database
        self._begun = {**_DEFAULTS, "session_authorization": user}
        self._values = dict(self._begun)
        self._local = dict[str, str]()  # until the end of the transaction
        self._saved: dict[str, str] | None = None  # as they were before the transaction; None outside of one
        self.changes = 0  # rises with each
        for name, value in given.items():
            if name.lower() in _DEFAULTS or "." in name:
                self.set(name, value)
        self._begun = dict(self._values)

    @property
    def in_transaction(self) -> bool:
        return self._saved is not None

    def begin(self) -> None:
        """A transaction begins."""
        self._saved = dict(self._values)

    def end(self, *, keeps: bool) -> None:
        """It ends. keeps: it was not rolled back."""
        if self._saved is not None and not keeps:
            self._values = self._saved
        self._saved, self._local = None, {}
        self.changes += 1

    def mark(self) -> Mark:
        """For `back_to`."""
        return dict(self._values), dict(self._local)

    def back_to(self, mark: Mark) -> None:
        self._values, self._local = dict(mark[0]), dict(mark[1])
        self.changes += 1

    def get(self, name: str) -> str:
        """Raises PgError for one that there is not."""
        key = _key(name)
        if key not in self._values:
            raise PgError("42704", f'unrecognized configuration parameter "{name}"')
        if key in _OF_TRANSACTION and key not in self._local:
            return self._values[f"default_{key}"]
        return self._local.get(key, self._values[key])

    def set(self, name: str, value: str | None, *, local: bool = False) -> None:
        """value: None for what the session began with. local: until the end of the transaction. Raises PgError."""
        key = _key(name)
        value = None if value is None else value.strip("'")  # as one driver puts it around those of the start
        if key not in self._values and "." not in key:
            raise PgError("42704", f'unrecognized configuration parameter "{name}"')
        if key in _READ_ONLY:
            raise PgError("55P02", f'parameter "{name}" cannot be changed')
        if local and not self.in_transaction:
            return  # there is nothing for which it would hold
        self.changes += 1
        if key in _OF_TRANSACTION:
            if self.in_transaction:
                self._local[key] = self._values[f"default_{key}"] if value is None else _checked(key, name, value)
            return
        if value is None:
            value = self._begun.get(key, "")
        elif key == "datestyle" and not value.lower().startswith(("iso", "default")):
            raise PgError("0A000", "times are shown only in ISO style")
        else:
            value = _checked(key, name, value)
        if key in _FIXED or key in ("timezone", "datestyle"):
            return
        if local:
            self._local[key] = value
        else:
            self._values[key] = value
            self._local.pop(key, None)

    def modes(self) -> dict[str, str]:
        """The characteristics of the transaction."""
        return {name: self.get(name) for name in _OF_TRANSACTION}

    def reset_all(self) -> None:
        self._values = dict(self._begun)
        self._local = {n: v for n, v in self._local.items() if n in _OF_TRANSACTION}
        self.changes += 1

    def all(self) -> list[tuple[str, str]]:
        return [(name, self.get(name)) for name in sorted(self._values)]

    def ms(self, name: str) -> int:
        """A duration in ms; 0 for none."""
        return _ms(self.get(name)) or 0

    def switched(self, name: str) -> bool:
        """Whether it is on."""
        return self.get(name) == "on"


def _checked(key: str, name: str, value: str) -> str:
    """The value as it is shown. Raises PgError."""
    folded = value.strip().lower()
    found: str | None = value
    if key in _FIXED:
        found = value if folded in _FIXED[key] else None
    elif key.endswith("_timeout"):
        ms = _ms(folded)
        found = None if ms is None else _duration(ms)
    elif key.endswith("transaction_isolation"):
        found = folded if folded in _LEVELS else None
    elif key.endswith(("transaction_read_only", "transaction_deferrable")):
        found = _SWITCHES.get(folded)
    if found is None:
        raise PgError("22023", f'invalid value for parameter "{name}": "{value}"')
    return found


def _ms(text: str) -> int | None:
    match = _DURATION.fullmatch(text.strip())
    return None if match is None else int(match[1]) * _UNITS_MS[match[2] or "ms"]


def _duration(ms: int) -> str:
    """In the largest unit in which it is a whole number."""
    unit = next((u for u in ("d", "h", "min", "s") if ms and ms % _UNITS_MS[u] == 0), "ms")
    return f"{ms // _UNITS_MS[unit]}{unit}" if ms else "0"


def defaults() -> dict[str, str]:
    """The settings of a new session."""
    return dict(_DEFAULTS)


def _key(name: str) -> str:
    folded = name.strip().lower()
    return _ALIASES.get(folded, folded)


def version_text() -> str:
    """The result of `version()`."""
    return f"PostgreSQL {SERVER_VERSION} (FlowQL {metadata.version('flowql')})"
