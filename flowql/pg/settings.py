"""Settings of a session: those that drivers and pools set. Those that would change answers are refused with another value than the one they have."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata

from flowql.pg.errors import PgError

SERVER_VERSION = "15.0"  # whose behaviour this follows
# What a session begins with, by names in lower case.
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
    "idle_in_transaction_session_timeout": "0",
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


class SessionSettings:
    """The settings of one session."""

    def __init__(self, user: str, given: Mapping[str, str], database: str) -> None:
        """given: by the client as the session begins; unknown ones are options of protocols to come. Raises PgError."""
        self.user, self.database = user, database
        self._begun = {**_DEFAULTS, "session_authorization": user}
        self._values = dict(self._begun)
        for name, value in given.items():
            if name.lower() in _DEFAULTS or "." in name:
                self.set(name, value)
        self._begun = dict(self._values)

    def get(self, name: str) -> str:
        """Raises PgError for one that there is not."""
        key = _key(name)
        if key not in self._values:
            raise PgError("42704", f'unrecognized configuration parameter "{name}"')
        return self._values[key]

    def set(self, name: str, value: str | None) -> None:
        """value: None for what the session began with. Raises PgError."""
        key = _key(name)
        value = None if value is None else value.strip("'")  # as one driver puts it around those of the start
        if key not in self._values and "." not in key:
            raise PgError("42704", f'unrecognized configuration parameter "{name}"')
        if key in _READ_ONLY:
            raise PgError("55P02", f'parameter "{name}" cannot be changed')
        if value is None:
            self._values[key] = self._begun.get(key, "")
            return
        if key == "datestyle" and not value.lower().startswith(("iso", "default")):
            raise PgError("0A000", "times are shown in ISO style alone")
        if key in _FIXED and value.lower() not in _FIXED[key]:
            raise PgError("22023", f'invalid value for parameter "{name}": "{value}"')
        if key not in _FIXED and key not in ("timezone", "datestyle"):
            self._values[key] = value

    def reset_all(self) -> None:
        self._values = dict(self._begun)

    def all(self) -> list[tuple[str, str]]:
        return sorted(self._values.items())

    def ms(self, name: str) -> int:
        """A duration in ms; 0 for none."""
        text = self._values[name].strip().lower()
        for unit, factor in (("ms", 1), ("min", 60_000), ("s", 1_000), ("h", 3_600_000)):
            if text.endswith(unit):
                text, scale = text[: -len(unit)].strip(), factor
                break
        else:
            scale = 1
        return int(text) * scale if text.isdecimal() else 0


def defaults() -> dict[str, str]:
    """What a session begins with."""
    return dict(_DEFAULTS)


def _key(name: str) -> str:
    folded = name.strip().lower()
    return _ALIASES.get(folded, folded)


def version_text() -> str:
    """What `version()` gives."""
    return f"PostgreSQL {SERVER_VERSION} (FlowQL {metadata.version('flowql')})"
