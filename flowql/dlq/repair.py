"""Repairs of a record: expressions over its raw parts, and a check that its queries can read the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from flowql.compiler.plan.logical import Scan
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.errors import CommandError
from flowql.query.dead_letters import BAD_CONDITION, Letter, evaluate, shown_bytes, shown_time, table_of, text_of
from flowql.runtime.errors import BadRecord
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.log.repairs import Repair
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.serde.delimited import delimiter_of, fields_of, line_of

STILL_BAD, NOT_HERE = "FQ5802", "FQ5803"
_TIME, _KEY, _VALUE = "ROWTIME", "KEY", "VALUE"
_RAW = (_KEY, _VALUE, _TIME)
_SHOWN = 3  # records that a message names


@dataclass(frozen=True, slots=True)
class Repaired:
    """A letter, and what its record is to be read as. changes: (what, was, is read as), as texts."""

    letter: Letter
    repair: Repair
    changes: tuple[tuple[str, str | None, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """`column = expression`. column: of the source, or KEY, VALUE or ROWTIME of the record."""

    column: str
    expression: str


def assignment_of(text: str) -> Assignment:
    """The assignment in an argument of --set."""
    column, sign, expression = text.partition("=")
    if not sign or not column.strip() or not expression.strip():
        raise CommandError(
            f"--set {text!r} is not `column = expression`", code=BAD_CONDITION, help='--set "AMOUNT = 0"'
        )
    return Assignment(column.strip().strip('"`'), expression.strip())


def matching(letters: Sequence[Letter], condition: str | None, plan: Plan) -> list[Letter]:
    """Those for which a condition in DuckDB's SQL holds: over the columns of `table_of` and those of the sources of their topics.

    A column is NULL for records of sources without it. CommandError for a condition that is none.
    """
    if condition is None or not letters:
        return list(letters)
    topics = {x.tp.topic for x in letters if x.tp is not None}
    sources = {s.topic: s for s in reversed(plan.sources) if s.topic in topics}
    documents = [_document(x, sources.get(x.tp.topic) if x.tp is not None else None) for x in letters]
    fields = [str(f.name) for s in sources.values() for f in s.schema.value]
    given = _with_columns(letters, documents, fields)
    numbers = evaluate(given, f"SELECT number FROM letters WHERE ({condition}\n) ORDER BY number", "--where")
    return [letters[n] for n in numbers.column(0).to_pylist()]


def _document(letter: Letter, source: SourceDef | None) -> dict[str, Any]:
    """Columns of the value, as far as they can be told apart."""
    parts = None if source is None else _PARTS.get(source.value_format.name)
    return {} if parts is None or source is None else parts.read(letter.value, source)


def _with_columns(letters: Sequence[Letter], documents: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> pa.Table:
    """`table_of` with the fields of the documents as texts. What a letter has itself comes before a field of that name."""
    given, found = table_of(letters), [{n.casefold(): v for n, v in d.items()} for d in documents]
    for name in fields:
        if name.casefold() not in {c.casefold() for c in given.column_names}:
            given = given.append_column(name, pa.array([_as_text(d.get(name.casefold())) for d in found], pa.string()))
    return given


def repaired(letters: Sequence[Letter], assignments: Sequence[Assignment], plan: Plan) -> list[Repaired]:
    """The repaired records; every query that failed can read them. CommandError with the reasons otherwise."""
    for letter in letters:
        _check_repairable(letter, plan)
    by_topic: dict[str, list[Letter]] = {}
    for letter in letters:
        assert letter.tp is not None, "checked above"
        by_topic.setdefault(letter.tp.topic, []).append(letter)
    found = [r for topic, some in by_topic.items() for r in _of_topic(some, assignments, _source(plan, topic))]
    _check_readable(found, plan)
    return found


def _check_repairable(letter: Letter, plan: Plan) -> None:
    if letter.tp is None:
        title = f"{letter.queries[0]}: {letter.failures[0].message}: this letter names no record of a topic"
        raise CommandError(title, code=NOT_HERE, help='leave it out:  --where "topic IS NOT NULL"')
    writers = [q.id for q in plan.queries if any(s.topic == letter.tp.topic and s.query == q.id for s in plan.sources)]
    if writers:
        title = f"{letter.name} was written by {', '.join(writers)}: its query recomputes it"
        raise CommandError(title, code=NOT_HERE, help="repair the records that the query reads, or correct the query")


def _source(plan: Plan, topic: str) -> SourceDef:
    found = next((s for s in plan.sources if s.topic == topic), None)
    if found is None:
        raise CommandError(f"no stream or table is declared over {topic}", code=NOT_HERE)
    return found


def _of_topic(letters: Sequence[Letter], assignments: Sequence[Assignment], source: SourceDef) -> list[Repaired]:
    fields = [str(f.name) for f in source.schema.value]
    parts = _PARTS.get(source.value_format.name)
    documents = [_document(x, source) for x in letters]
    given = _with_columns(letters, documents, fields)
    new = [_New() for _ in letters]
    for a in assignments:
        raw, name = _meant(a, fields, source, editable=parts is not None)
        rows = evaluate(given, f"SELECT to_json({a.expression}\n) FROM letters ORDER BY number", f"--set {a.column}")
        for values, value in zip(new, rows.column(0).to_pylist(), strict=True):
            (values.raw if raw else values.columns)[name] = None if value is None else orjson.loads(value)
    return [_put(x, d, n, source, parts) for x, d, n in zip(letters, documents, new, strict=True)]


@dataclass(frozen=True, slots=True)
class _New:
    """The assignments for one record. columns: of its value. raw: whole parts, KEY, VALUE and ROWTIME."""

    columns: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)


def _meant(a: Assignment, fields: Sequence[str], source: SourceDef, *, editable: bool) -> tuple[bool, str]:
    """Whether a whole part of the record is set, and the name of what is set, as declared."""
    alike = [f for f in fields if f.casefold() == a.column.casefold()]
    name = a.column if a.column in fields else alike[0] if alike else None
    if name is not None and editable:
        return False, name
    if a.column.upper() in _RAW:
        return True, a.column.upper()
    if name is not None:
        title = f"columns of {source.value_format.name} records cannot be set one by one"
        raise CommandError(title, code=NOT_HERE, help="--set \"VALUE = '...'\" sets the whole value")
    there = ", ".join((*fields, *_RAW))
    raise CommandError(f"--set: {source.name} has no column {a.column}", code=BAD_CONDITION, help=f"there are {there}")


def _put(letter: Letter, before: Mapping[str, Any], new: _New, source: SourceDef, parts: _Parts | None) -> Repaired:
    value = letter.value
    if new.columns:
        assert parts is not None, "checked when the column was looked up"
        value = parts.write(letter, new.columns, source)
    if _VALUE in new.raw:
        value = _bytes(new.raw[_VALUE])
    time = new.raw.get(_TIME, letter.timestamp_ms)
    if not isinstance(time, int):
        raise CommandError(f"--set ROWTIME: {time!r} is not a number of milliseconds", code=BAD_CONDITION)
    key = _bytes(new.raw[_KEY]) if _KEY in new.raw else letter.key
    whole = {_KEY: shown_bytes(letter.key), _VALUE: shown_bytes(letter.value), _TIME: shown_time(letter.timestamp_ms)}
    columns = tuple((c, _as_text(before.get(c)), _as_text(v)) for c, v in new.columns.items())
    raw = tuple((c, whole[c], shown_time(time) if c == _TIME else _as_text(v)) for c, v in new.raw.items())
    return Repaired(letter, Repair(key, value, time), (*columns, *raw))


def _bytes(value: Any) -> bytes | None:
    return None if value is None else value.encode() if isinstance(value, str) else orjson.dumps(value)


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class _Parts:
    """Columns of raw values. read: as far as they can be told apart. write: a value with other columns."""

    read: Callable[[bytes | None, SourceDef], dict[str, Any]]
    write: Callable[[Letter, Mapping[str, Any], SourceDef], bytes]


def _read_json(value: bytes | None, source: SourceDef) -> dict[str, Any]:
    try:
        document = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(document, dict):
        return {}
    names = {str(f.name).casefold(): str(f.name) for f in source.schema.value}
    return {str(names.get(k.casefold(), k)): v for k, v in document.items()}


def _write_json(letter: Letter, columns: Mapping[str, Any], source: SourceDef) -> bytes:
    try:
        document = orjson.loads(letter.value or b"null")
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        title = f"{letter.name}: the value is not a JSON object, so no column of it can be set"
        raise CommandError(title, code=STILL_BAD, help="--set \"VALUE = '...'\" sets the whole value")
    spelled = {k.casefold(): k for k in document}
    return orjson.dumps({**document, **{spelled.get(c.casefold(), c): v for c, v in columns.items()}})


def _read_line(value: bytes | None, source: SourceDef) -> dict[str, Any]:
    text = (text_of(value) if value is not None else None) or ""
    names = [f.name for f in source.schema.value]
    try:
        cells = fields_of(text, delimiter_of(source.value_format.delimiter))
    except BadRecord:
        return {}
    return dict(zip(names, cells, strict=True)) if len(cells) == len(names) else {}


def _write_line(letter: Letter, columns: Mapping[str, Any], source: SourceDef) -> bytes:
    cells = _read_line(letter.value, source)
    if not cells:
        title = f"{letter.name}: the line has not {len(source.schema.value)} columns, so none of it can be set"
        raise CommandError(title, code=STILL_BAD, help="--set \"VALUE = '...'\" sets the whole line")
    new = [_as_text({**cells, **columns}[f.name]) for f in source.schema.value]
    return line_of(new, delimiter_of(source.value_format.delimiter)).encode()


_PARTS = {
    "JSON": _Parts(_read_json, _write_json),
    "JSON_SR": _Parts(_read_json, _write_json),
    "DELIMITED": _Parts(_read_line, _write_line),
}


def _check_readable(found: Sequence[Repaired], plan: Plan) -> None:
    """CommandError with the records that would fail again."""
    by_partition: dict[TopicPartition, list[Repaired]] = {}
    for r in found:
        assert r.letter.tp is not None, "checked above"
        by_partition.setdefault(r.letter.tp, []).append(r)
    bad = [why for tp, some in by_partition.items() for why in _troubles(tp, some, plan)]
    if bad:
        more = f" (and {len(bad) - _SHOWN} more)" if len(bad) > _SHOWN else ""
        title = f"still not readable: {'; '.join(bad[:_SHOWN])}{more}"
        raise CommandError(
            title, code=STILL_BAD, help="nothing was written: correct --set, or leave records out with --where"
        )


def check_never_read(found: Sequence[Repaired], plan: Plan) -> None:
    """CommandError with a record that one of its queries could read as it was, and failed on a row made of it.

    Other rows of such a record may have been used, and those before the failing operator were.
    """
    by_partition: dict[TopicPartition, list[Repaired]] = {}
    for r in found:
        assert r.letter.tp is not None, "checked when it was repaired"
        known = r.letter.timestamp_ms if r.letter.timestamp_ms is not None else r.repair.timestamp_ms
        before = Repaired(r.letter, Repair(r.letter.key, r.letter.value, known))
        by_partition.setdefault(r.letter.tp, []).append(before)
    for tp, some in by_partition.items():
        some.sort(key=lambda r: r.letter.offset or 0)
        for name in sorted({q for r in some for q in r.letter.queries}):
            mine, query = [r for r in some if name in r.letter.queries], plan.by_id.get(name)
            reasons = _reasons(tp, mine, query) if query is not None else {}
            if read := [r for n, r in enumerate(mine) if n not in reasons]:
                title = f"{name} could read {read[0].letter.name}, and failed on a row made of it: to give it the record once more counts twice"
                raise CommandError(
                    title, code=NOT_HERE, help="replay it without --append, or leave it out with --where"
                )


def _troubles(tp: TopicPartition, some: Sequence[Repaired], plan: Plan) -> Iterator[str]:
    """Why queries could not read repaired records of a partition, as sentences: one for a record and query."""
    some = sorted(some, key=lambda r: r.letter.offset or 0)
    for name in sorted({q for r in some for q in r.letter.queries}):
        mine = [r for r in some if name in r.letter.queries]
        query = plan.by_id.get(name)
        reasons = _reasons(tp, mine, query) if query is not None else {}
        yield from (f"{mine[n].letter.name}: {name}: {why}" for n, why in sorted(reasons.items()))


def _reasons(tp: TopicPartition, some: Sequence[Repaired], query: QueryPlan) -> dict[int, str]:
    """By place in `some`, why a query could not read it. All at once: a decode per record takes a millisecond."""
    found: dict[int, str] = {}
    for sub in query.subtopologies:
        for op in sub.operators:
            if isinstance(op.spec, Scan) and op.spec.topic == tp.topic:
                run = MicroBatchContext(NO_STATE)
                Decoder(op.spec, op.schema).decode(_batch(tp, some), run)
                for letter in run.dead_letters:
                    found.setdefault(letter.seq, letter.message)
    return found


def _batch(tp: TopicPartition, some: Sequence[Repaired]) -> RawBatch:
    rows = [(r.letter.offset, r.repair.timestamp_ms, r.repair.key, r.repair.value, None) for r in some]
    columns = zip(zip(*rows, strict=True), RECORD_SCHEMA, strict=True)
    records = pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in columns], schema=RECORD_SCHEMA)
    return RawBatch(tp, records, (some[-1].letter.offset or 0) + 1, records.nbytes)
