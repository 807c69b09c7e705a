"""Schemas by id: those of plans, and those of a schema registry, asked once each.

A plan names the schemas it writes with, and numbers them by their content where no registry does. Such schemas are known to
every process that has read the plan, and again after a restart; a registry in memory would forget them, and records would
outlive their schema. With a registry's URL the ids are the registry's.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol

from flowql.compiler.plan.logical import SchemaRef
from flowql.runtime.errors import BadRecord, PlanUnsupported, RegistryUnavailable

USER_INFO = "FLOWQL_SCHEMA_REGISTRY_USER_INFO"
LOGIN_HINT = f"it asks who we are: set {USER_INFO}=user:password"
_MAGIC, PREFIX = 0, 5
_GONE = (40401, 40402, 40403)  # no such subject, version, schema


class Registry(Protocol):
    """Where schemas are. Every method may wait for a network; it raises RegistryUnavailable, which is worth another try."""

    def latest(self, subject: str) -> SchemaRef | None:
        """The newest schema of a subject; None when the subject does not exist."""
        ...

    def by_id(self, schema_id: int) -> SchemaRef | None:
        """The schema of that id; None when there is none."""
        ...

    def register(self, ref: SchemaRef) -> int:
        """The id of a schema under its subject; registered if it is not yet."""
        ...


class PlanRegistry:
    """Schemas of the plans this process has read. Shared by all threads."""

    def __init__(self) -> None:
        self._by_id: dict[int, SchemaRef] = {}
        self._latest: dict[str, SchemaRef] = {}

    def remember(self, refs: Iterable[SchemaRef]) -> None:
        """Know these from now on. Single assignments to dicts: no lock is needed."""
        for ref in refs:
            self._by_id[ref.id] = self._latest[ref.subject] = ref

    def latest(self, subject: str) -> SchemaRef | None:
        return self._latest.get(subject)

    def by_id(self, schema_id: int) -> SchemaRef | None:
        return self._by_id.get(schema_id)

    def register(self, ref: SchemaRef) -> int:
        self.remember((ref,))
        return ref.id


class ConfluentRegistry:
    """A registry with Confluent's interface, by its own client. `mock://name` is one in this process."""

    def __init__(self, url: str) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            hint = "install FlowQL with the extra `registry`: pip install 'flowql[registry]'"
            raise PlanUnsupported(f"the schema registry at {url} needs {error.name}; {hint}") from error
        # Queries that need it are retried with back-off anyway, and compiling a project should fail soon.
        config: dict[str, Any] = {"url": url, "max.retries": 2, "retries.wait.ms": 200, "retries.max.wait.ms": 1000}
        if user := os.environ.get(USER_INFO):
            config["basic.auth.user.info"] = user
        self._url = url
        self._client = SchemaRegistryClient.new_client(config)
        # Threads may ask the same twice; single assignments to dicts need no lock.
        self._known: dict[int, SchemaRef] = {}
        self._ids: dict[SchemaRef, int] = {}

    def close(self) -> None:
        """Give up the connection."""
        self._client.__exit__(None, None, None)

    def latest(self, subject: str) -> SchemaRef | None:
        found = self._ask(self._client.get_latest_version, subject)
        return None if found is None else self._ref(found.schema_id, found.schema, subject)

    def by_id(self, schema_id: int) -> SchemaRef | None:
        if schema_id not in self._known:
            found = self._ask(self._client.get_schema, schema_id)
            if found is None:
                return None
            self._known[schema_id] = self._ref(schema_id, found, "")
        return self._known[schema_id]

    def register(self, ref: SchemaRef) -> int:
        if ref not in self._ids:
            from confluent_kafka.schema_registry import Schema

            schema = Schema(ref.text, ref.kind, [])
            made = self._ask(self._client.register_schema, ref.subject, schema)
            if made is None:
                raise RegistryUnavailable(
                    f"the schema registry at {self._url} does not take the schema of {ref.subject}"
                )
            self._ids[ref] = int(made)
        return self._ids[ref]

    def _ask(self, request: Any, *args: Any) -> Any:
        """The answer; None for what does not exist."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return request(*args)
        except SchemaRegistryError as error:
            if error.error_code in _GONE or error.http_status_code == 404:
                return None
            reason = str(error.error_message) + (f"; {LOGIN_HINT}" if error.http_status_code in (401, 403) else "")
            raise RegistryUnavailable(f"the schema registry at {self._url}: {reason}") from error
        except Exception as error:  # its HTTP library has its own
            raise RegistryUnavailable(f"the schema registry at {self._url}: {error}") from error

    def _ref(self, schema_id: int, schema: Any, subject: str) -> SchemaRef:
        references = tuple((r.name, self._text_of(r)) for r in schema.references or ())
        kind = schema.schema_type or "AVRO"
        return SchemaRef(kind, schema.schema_str, schema_id, subject, references, registry=self._url)

    def _text_of(self, reference: Any) -> str:
        found = self._ask(self._client.get_version, reference.subject, reference.version)
        return "" if found is None else str(found.schema.schema_str)


KNOWN = PlanRegistry()


@functools.lru_cache(maxsize=64)
def registry_at(url: str) -> Registry:
    """The registry of a URL; empty: the plans'."""
    return ConfluentRegistry(url) if url else KNOWN


def numbered(ref: SchemaRef) -> SchemaRef:
    """The schema with its id, from the registry where the plan does not have it."""
    if ref.id:
        if not ref.registry:
            KNOWN.remember((ref,))
        return ref
    return replace(ref, id=registry_at(ref.registry).register(ref)) if ref.registry else ref


def written_by(schema_id: int, ref: SchemaRef | None, kind: str) -> SchemaRef:
    """The schema that a record names. ref: the one its source is declared with. kind: of schema. Raises BadRecord."""
    if ref is not None and ref.id == schema_id:
        return ref
    found = registry_at(ref.registry if ref is not None else "").by_id(schema_id)
    if found is None:
        raise BadRecord(f"schema {schema_id} is not in the registry")
    if found.kind != kind:
        raise BadRecord(f"schema {schema_id} is one of {found.kind}, not of {kind}")
    return found if ref is None or not ref.message else replace(found, message=ref.message)


def prefix(schema_id: int) -> bytes:
    """The prefix of the data of a record: a zero byte and the schema id."""
    return bytes([_MAGIC]) + schema_id.to_bytes(4, "big")


def split_prefix(data: bytes) -> int:
    """The id of the schema a record was written with. Raises BadRecord."""
    if len(data) < PREFIX or data[0] != _MAGIC:
        raise BadRecord("the record does not begin with the id of a schema")
    return int.from_bytes(data[1:PREFIX], "big")
