"""ASSERT TOPIC and ASSERT SCHEMA: looked at before anything is deployed, again and again until they hold or time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing

from flowql.compiler.analyze.assertions import Assertion, SchemaAssertion, TopicAssertion
from flowql.compiler.analyze.registered import REGISTRY
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.topology import Plan
from flowql.compiler.schemas.ref import SchemaLookup
from flowql.config.project import Project
from flowql.config.storage import open_log
from flowql.runtime.log.base import TopicInfo
from flowql.runtime.serde.registry import PlanRegistry, registry_at

FAILED = "FQ5206"
_WAIT_S = 0.05
UNKNOWN_REPLICAS = 0  # of a topic that is seen through an instance
Topics = Callable[[], Mapping[str, TopicInfo]]


def check_assertions(
    assertions: Sequence[Assertion], project: Project, plan: Plan, there: Topics | None = None
) -> None:
    """Raises CompileError with all that do not hold within their time.

    plan: whose schemas count where the project has no registry. there: the topics, by default those of the project's log.
    """
    if not assertions:
        return
    with ExitStack() as stack:
        topics = there or stack.enter_context(closing(open_log(project))).admin().topics
        wrong = failing(assertions, topics, schemas_of(project, plan))
    if wrong:
        raise CompileError(
            *(Diagnostic(FAILED, title, a.span, "does not hold", help=help_) for a, title, help_ in wrong)
        )


def schemas_of(project: Project, plan: Plan) -> SchemaLookup:
    """Where schemas are looked up: the registry of the project, else the plan itself."""
    url = project.properties.get(REGISTRY, "")
    if url:
        return registry_at(url)
    known = PlanRegistry()
    known.remember(plan.schemas)
    return known


def failing(assertions: Sequence[Assertion], topics: Topics, schemas: SchemaLookup) -> list[tuple[Assertion, str, str]]:
    """Those that do not hold in their time, each with what is wrong and what to do. One after the other, as in a script."""
    found = []
    for a in assertions:
        limit = time.monotonic() + a.timeout_ms / 1000
        while True:
            wrong = _topic(a, topics()) if isinstance(a, TopicAssertion) else _schema(a, schemas)
            if wrong is None or time.monotonic() >= limit:
                break
            time.sleep(_WAIT_S)
        if wrong is not None:
            found.append((a, *wrong))
    return found


def _topic(a: TopicAssertion, topics: Mapping[str, TopicInfo]) -> tuple[str, str] | None:
    info = topics.get(a.topic)
    if not a.exists:
        return None if info is None else (f"topic {a.topic} exists", f"flowql topic delete {a.topic}")
    if info is None:
        hint = did_you_mean(a.topic, topics) or f"flowql topic create {a.topic}"
        return f"topic {a.topic} does not exist", hint
    for what, wanted, there in (("partition", a.partitions, info.partitions), ("replica", a.replicas, info.replicas)):
        if wanted is not None and what == "replica" and there == UNKNOWN_REPLICAS:
            return f"the replicas of topic {a.topic} are not known over a URL", "deploy on the machine of the instance"
        if wanted is not None and wanted != there:
            return (
                f"topic {a.topic} has {there} {what}{'s' * (there != 1)}, not {wanted}",
                "flowql topic describe " + a.topic,
            )
    return None


def _schema(a: SchemaAssertion, schemas: SchemaLookup) -> tuple[str, str] | None:
    by_subject = schemas.latest(a.subject) if a.subject else None
    by_id = schemas.by_id(a.schema_id) if a.schema_id is not None else None
    if a.subject and a.schema_id is not None:
        there = (by_subject is not None and by_subject.id == a.schema_id) or (
            by_id is not None and by_id.subject == a.subject
        )
    else:
        there = by_subject is not None or by_id is not None
    if there == a.exists:
        return None
    named = [
        *([f"subject {a.subject}"] if a.subject else []),
        *([f"id {a.schema_id}"] if a.schema_id is not None else []),
    ]
    return f"a schema of {listing(named)} {'does not exist' if a.exists else 'exists'}", ""
