"""The compiler's view of a schema registry. It only reads: the writers of records register schemas."""

from __future__ import annotations

from typing import Protocol

from flowql.compiler.plan.logical import SchemaRef


class SchemaLookup(Protocol):
    """A registry of schemas. Both methods may wait for a network and raise what their implementation says."""

    def latest(self, subject: str) -> SchemaRef | None:
        """The newest schema of a subject; None when the subject does not exist."""
        ...

    def by_id(self, schema_id: int) -> SchemaRef | None:
        """The schema of that id; None when there is none."""
        ...


class NoSchemas:
    """A registry without schemas."""

    def latest(self, subject: str) -> SchemaRef | None:
        return None

    def by_id(self, schema_id: int) -> SchemaRef | None:
        return None


NO_SCHEMAS = NoSchemas()
