"""`flowql dlq replay --to-test`: a test of the project from bad records, with what the queries make of them as expectation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.dlq.repair import NOT_HERE, Repaired
from flowql.errors import CommandError
from flowql.testing.case import Case, Expected, Given, Row
from flowql.testing.create import text_of
from flowql.testing.feed import records_of, timings
from flowql.testing.run import needed, partitions_of, run
from flowql.topics.codecs import RecordReader


def test_of(repaired: Sequence[Repaired], plan: Plan) -> str:
    """The text of a test file. The records are given as they are to be read, byte by byte. CommandError for bytes that are no text."""
    by_topic: dict[str, list[Repaired]] = {}
    for r in repaired:
        assert r.letter.tp is not None, "checked when it was repaired"
        by_topic.setdefault(r.letter.tp.topic, []).append(r)
    sources = {t: next(s for s in plan.sources if s.topic == t) for t in by_topic}
    given = tuple(Given(sources[t].name, tuple(_row(r, sources[t]) for r in some)) for t, some in by_topic.items())
    queries = [q for q in plan.queries if any(q.id in r.letter.queries for r in repaired)]
    names = list(dict.fromkeys(q.sink for q in queries))
    case = Case(f"{len(repaired)} dead letters of {', '.join(by_topic)}", "", 1, given=given)
    part = needed(plan, names)
    outcome = run(case, part, next(timings(case, records_of(case, part, partitions_of(case, part)), 0, 0)), [])
    return text_of(case, [Expected(n, outcome.final.get(n, outcome.records.get(n, ()))) for n in names])


def _row(r: Repaired, source: SourceDef) -> Row:
    value = r.repair.value
    key: Any = orjson.loads(RecordReader(source).key(r.repair.key))
    if not isinstance(key, dict):
        key = {f.name: key for f in source.schema.key[:1]}
    try:
        if value is not None:
            value.decode()
    except UnicodeDecodeError as error:
        title = f"{r.letter.name}: its bytes are not text, so a test file cannot contain them"
        raise CommandError(title, code=NOT_HERE, help="leave it out with --where, or set its VALUE") from error
    return Row(key, r.repair.timestamp_ms, value is None, value)
