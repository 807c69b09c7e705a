"""The schema registry of a case: what its topics bring, numbered as the origin numbers them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.ast import CreateSource
from flowql.compiler.dialect.parser import parse_statements
from flowql.compiler.plan.logical import SchemaRef
from flowql.compiler.schemas.ref import KINDS, REGISTRY_FORMATS, subject_of


class CaseRegistry:
    """Schemas of the topics a case names. Ids count from 1, first for sources with columns, as they make topics first."""

    def __init__(self, case: dict[str, Any]) -> None:
        self._latest: dict[str, SchemaRef] = {}
        self._by_id: dict[int, SchemaRef] = {}
        topics = case.get("topics", [])
        number = _declared(case["statements"], {t["name"] for t in topics}) if topics else 0
        for topic in topics:
            for side in ("key", "value"):
                if f"{side}Schema" in topic:
                    number += self._add(topic, side, topic.get(f"{side}SchemaId", number + 1))

    def _add(self, topic: dict[str, Any], side: str, schema_id: int) -> bool:
        """Whether the schema is a new one: equal ones have one id, whatever their subject."""
        schema, fmt = topic[f"{side}Schema"], topic.get(f"{side}Format", "AVRO")
        kind = {"JSON": "JSON"}.get(fmt) or KINDS[fmt]
        references = tuple((r["name"], _text(r["schema"])) for r in topic.get(f"{side}SchemaReferences", []))
        subject = subject_of(topic["name"], is_key=side == "key")
        ref = SchemaRef(kind, _text(schema), schema_id, subject, references)
        known = next(
            (k for k in self._by_id.values() if (k.kind, k.text, k.references) == (kind, ref.text, references)), None
        )
        if known is not None and f"{side}SchemaId" not in topic:
            ref = replace(ref, id=known.id)
        self._latest[subject] = ref
        self._by_id.setdefault(ref.id, ref)
        return known is None

    def latest(self, subject: str) -> SchemaRef | None:
        return self._latest.get(subject)

    def by_id(self, schema_id: int) -> SchemaRef | None:
        return self._by_id.get(schema_id)


def _text(schema: Any) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema, default=int)


def _declared(statements: list[str], given: set[str]) -> int:
    """How many schemas the sources with columns register, over topics that the case does not describe."""
    return sum(len(list(_registers(s, given))) for s in statements)


def _registers(text: str, given: set[str]) -> Iterator[str]:
    parsed, _ = parse_statements(SourceText("case.sql", text), "ksql", {})
    for s in parsed:
        if not isinstance(s, CreateSource) or not s.columns:
            continue
        properties = {p.name: str(p.value) for p in s.properties}
        if properties.get("KAFKA_TOPIC") in given:
            continue
        roles = {"key" if c.role in ("key", "primary_key") else "value" for c in s.columns}
        for side in ("key", "value"):
            fmt = properties.get(f"{side.upper()}_FORMAT", properties.get("FORMAT", ""))
            if side in roles and fmt.upper() in REGISTRY_FORMATS:
                yield side
