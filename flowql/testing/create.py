"""`flowql test --create`: a test from real records of a topic, with what the query makes of them as expectation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import yaml

from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.errors import CommandError
from flowql.runtime.log.base import EARLIEST, Log, TopicPartition
from flowql.testing.case import Case, Expected, Given, Row, Verdict
from flowql.testing.feed import records_of, timings
from flowql.testing.run import needed, partitions_of, read_topics, run
from flowql.testing.yaml_form import rows_text
from flowql.topics.codecs import RecordReader

_INDENT = 4


def create(plan: Plan, log: Log, query_name: str, topic: str, rows: int) -> str:
    """The text of a test file. CommandError: an unknown query or topic, or one the query does not read."""
    query = _query(plan, query_name)
    source = _source(plan, query, topic)
    given = Given(source.name, tuple(_rows(log, source, rows)))
    case = Case(f"{query.sink} from {rows} records of {topic}", "", 1, given=(given,))
    part = needed(plan, [query.sink])
    outcome = run(case, part, next(timings(case, records_of(case, part, partitions_of(case, part)), 0, 0)), [])
    found = outcome.final.get(query.sink, outcome.records.get(query.sink, ()))
    return text_of(case, [Expected(query.sink, found)])


def _query(plan: Plan, name: str) -> QueryPlan:
    for q in plan.queries:
        if name.upper() in (q.id.upper(), q.sink.upper()):
            return q
    raise CommandError(
        f"there is no query {name}", code="FQ5072", help=f"there are {', '.join(q.id for q in plan.queries)}"
    )


def _source(plan: Plan, query: QueryPlan, topic: str) -> SourceDef:
    read = [s for s in plan.sources if s.topic in read_topics(query)]
    for s in read:
        if topic.upper() in (s.topic.upper(), s.name.upper()):
            return s
    known = ", ".join(s.topic for s in read)
    raise CommandError(f"{query.id} does not read topic {topic}", code="FQ5072", help=f"it reads {known}")


def _rows(log: Log, source: SourceDef, rows: int) -> Iterator[Row]:
    """The first records of a topic: of all its partitions, by time."""
    reader = RecordReader(source)
    found = []
    for partition in range(log.admin().topics()[source.topic].partitions):
        at, left = log.reader(TopicPartition(source.topic, partition), EARLIEST), rows
        while left > 0 and (batch := at.read(left, 1 << 26)) is not None:
            found += batch.records.to_pylist()
            left -= batch.records.num_rows
    for record in sorted(found, key=lambda r: int(r["timestamp"]))[:rows]:
        yield _row(record, reader, source)


def _row(record: dict[str, Any], reader: RecordReader, source: SourceDef) -> Row:
    key, value = orjson.loads(reader.key(record["key"])), orjson.loads(reader.value(record["value"]))
    if not isinstance(key, dict):
        key = {f.name: key for f in source.schema.key[:1]}
    if not isinstance(value, dict):
        value = {f.name: value for f in source.schema.value[:1]} if value is not None else {}
    named = {n.upper(): n for n in value}
    columns = {f.name: value[named[f.name.upper()]] for f in source.schema.value if f.name.upper() in named}
    return Row({**key, **columns}, int(record["timestamp"]), record["value"] is None)


def text_of(case: Case, expected: Sequence[Expected]) -> str:
    """A case as a test file."""
    lines = [yaml.safe_dump({"name": case.name}, width=10_000).strip(), "given:"]
    for given in case.given:
        lines += [f"  {given.source}:", " " * _INDENT + rows_text([_shown(r) for r in given.rows], _INDENT)]
    lines.append("expect:")
    for each in expected:
        lines += [f"  {each.name}:", " " * _INDENT + rows_text([dict(r.values) for r in each.rows], _INDENT)]
    return "\n".join([*lines, ""])


def _shown(row: Row) -> dict[str, Any]:
    more: dict[str, Any] = {"TOMBSTONE": True} if row.tombstone else {}
    if row.raw is not None:
        more["RAW"] = row.raw.decode()
    return {**row.values, "ROWTIME": row.rowtime_ms, **more}


# --- `flowql test --update`: expectations in YAML files rewritten to what was found ---

Change = tuple[int, int, str]


def update(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """Rewrite the rows of failed expectations; the rest of the file stays as it is. File -> expectations rewritten."""
    changes: dict[str, list[Change]] = {}
    for v in verdicts:
        for f in v.findings:
            if f.expected is not None and f.expected.at is not None:
                start, end, column = f.expected.at
                is_block = Path(v.case.file).read_text()[start] != "["
                text = rows_text([_columns(r, f.expected) for r in f.actual], column if is_block else None)
                changes.setdefault(v.case.file, []).append((start, end, text))
    for name, found in changes.items():
        path = Path(name)
        path.write_text(_applied(path.read_text(), found))
    return {name: len(found) for name, found in changes.items()}


def _applied(text: str, changes: Sequence[Change]) -> str:
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _columns(row: Row, expected: Expected) -> dict[str, Any]:
    """A found row in the columns that the expectation named; all, where it named none."""
    named = {c.upper() for r in expected.rows for c in r.values}
    out = {c: v for c, v in row.values.items() if not named or c.upper() in named}
    if any(r.rowtime_ms is not None for r in expected.rows) and row.rowtime_ms is not None:
        out["ROWTIME"] = row.rowtime_ms
    return {**out, "TOMBSTONE": True} if row.tombstone else out
