"""Assertions of a script about topics and schemas, as data. The caller checks them: nothing here knows a log."""

from __future__ import annotations

from dataclasses import dataclass

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.catalog.names import did_you_mean
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import AssertSchema, AssertTopic

TIMEOUT_MS = 1_000  # ksqlDB's, where none is written
_CHECKED = ("PARTITIONS", "REPLICAS")


@dataclass(frozen=True, slots=True)
class TopicAssertion:
    """A topic is there, with as many partitions and replicas where they are given; or it is not there."""

    topic: str
    exists: bool
    partitions: int | None = None
    replicas: int | None = None
    timeout_ms: int = TIMEOUT_MS
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class SchemaAssertion:
    """A schema is in the registry, by its subject, its id or both; or it is not there."""

    subject: str
    schema_id: int | None
    exists: bool
    timeout_ms: int = TIMEOUT_MS
    span: Span = NOWHERE


Assertion = TopicAssertion | SchemaAssertion


def bind_assertion(statement: AssertTopic | AssertSchema, catalog: Catalog) -> Assertion:
    """Raises CompileError for properties that cannot be asserted."""
    timeout = TIMEOUT_MS if statement.timeout_ms is None else statement.timeout_ms
    if isinstance(statement, AssertSchema):
        topic, dash, side = statement.subject.rpartition("-")
        subject = f"{_topic(topic, catalog)}-{side}" if dash else statement.subject
        return SchemaAssertion(subject, statement.schema_id, statement.exists, timeout, statement.name_span)
    counts: dict[str, int] = {}
    for p in statement.properties:
        if p.name not in _CHECKED:
            hint = did_you_mean(p.name, _CHECKED) or "PARTITIONS and REPLICAS can be asserted"
            raise mistake("FQ2010", f"ASSERT TOPIC does not check {p.name}", p.span, "not checked", help=hint)
        if isinstance(p.value, bool) or not str(p.value).isdigit() or int(str(p.value)) < 1:
            raise mistake(
                "FQ2011", f"{p.name} must be a whole number of at least 1, not {p.value!r}", p.value_span, "not a count"
            )
        counts[p.name] = int(str(p.value))
    return TopicAssertion(
        _topic(statement.topic, catalog),
        statement.exists,
        counts.get("PARTITIONS"),
        counts.get("REPLICAS"),
        timeout,
        statement.name_span,
    )


def _topic(named: str, catalog: Catalog) -> str:
    """The topic that a name in the project stands for: one that FlowQL creates has the target's prefix."""
    made = catalog.naming.made(named)
    return made if named in catalog.naming.results or made in catalog.topics() else named
