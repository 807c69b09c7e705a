"""Topics and relations that the statements of a project write, found before any statement is bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flowql.compiler.analyze.dependencies import Pending
from flowql.compiler.analyze.streams.statements import StreamStatement
from flowql.compiler.analyze.tables import result_topic
from flowql.compiler.dialect.ast import CreateAs
from flowql.compiler.functions.registry import Registered
from flowql.compiler.processors.topology import TopologyEntry


def results_of(pending: Sequence[Pending]) -> frozenset[str]:
    """Topics of the streams and tables that queries create, without prefix."""
    return frozenset(_results(pending))


def _results(pending: Sequence[Pending]) -> Iterator[str]:
    for p in pending:
        if isinstance(p.statement, CreateAs):
            given = (str(q.value) for q in p.statement.properties if q.name == "KAFKA_TOPIC")
            yield next(given, "") or result_topic(p.statement.name, p.properties)
        elif isinstance(p.statement, StreamStatement) and p.statement.result:
            yield p.statement.result


def written_by(pending: Sequence[Pending], declared: Mapping[str, Registered]) -> frozenset[str]:
    """Names of declared streams and tables that INSERT statements or topologies write to.

    declared: functions and topologies of the project's modules, by name.
    """
    targets = [str(getattr(p.statement, "target", "")) for p in pending]
    for entry in declared.values():
        if isinstance(entry, TopologyEntry):
            sinks = (name for s in entry.topology.steps if s.kind == "sink" for name in s.relations)
            targets += [spelling for name in sinks for spelling in (name, name.upper(), name.lower())]
    return frozenset(targets) - {""}
