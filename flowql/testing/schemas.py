"""Plans for tests: schemas keep their text and leave their registry, so that a test registers nothing and asks nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flowql.compiler.plan import codec
from flowql.compiler.plan.logical import SchemaRef
from flowql.compiler.plan.topology import Plan
from flowql.compiler.schemas.ref import content_id


def without_registry(plan: Plan) -> Plan:
    """The same plan with schemas that are numbered by their content where a registry would number them."""
    made = codec.from_data(_detached(codec.to_data(plan)))
    assert isinstance(made, Plan)
    return made


def _detached(data: Any) -> Any:
    if isinstance(data, list):
        return [_detached(d) for d in data]
    if not isinstance(data, dict):
        return data
    if data.get("$") != "SchemaRef":
        return {k: _detached(v) for k, v in data.items()}
    ref = codec.from_data(data)
    assert isinstance(ref, SchemaRef)
    return codec.to_data(replace(ref, registry="", id=ref.id or content_id(ref)))
