"""The WITH clause: known names, value types, units."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.options import NO_OPTIONS, QueryOptions, duration_ms
from flowql.compiler.catalog.names import did_you_mean, listing
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import Property
from flowql.compiler.plan import partitioners
from flowql.compiler.plan.event_times import USUAL_TIMES, EventTimes
from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS, OnChange, Priority
from flowql.compiler.plan.schema import KeyWindow
from flowql.compiler.schemas.ref import DEBEZIUM, JSON_OBJECT

FORMATS = ("JSON", "DELIMITED", "KAFKA", "NONE", "AVRO", "JSON_SR", "PROTOBUF", "PROTOBUF_NOSR", DEBEZIUM, JSON_OBJECT)
_SCHEMA_PROPERTIES = {
    "KEY_SCHEMA_ID": "schemaId",
    "VALUE_SCHEMA_ID": "schemaId",
    "KEY_SCHEMA_FULL_NAME": "fullSchemaName",
    "VALUE_SCHEMA_FULL_NAME": "fullSchemaName",
    "VALUE_AVRO_SCHEMA_FULL_NAME": "fullSchemaName",
    "KEY_PROTOBUF_NULLABLE_REPRESENTATION": "nullableRepresentation",
    "VALUE_PROTOBUF_NULLABLE_REPRESENTATION": "nullableRepresentation",
}
_TOPIC = {
    "KAFKA_TOPIC",
    "FORMAT",
    "KEY_FORMAT",
    "VALUE_FORMAT",
    "PARTITIONS",
    "REPLICAS",
    "RETENTION_MS",
    "CLEANUP_POLICY",
}
_TIMES = {"EARLIEST_TIME", "LATEST_TIME", "MAX_AHEAD"}
_RECORD = {"TIMESTAMP", "TIMESTAMP_FORMAT", "WRAP_SINGLE_VALUE", "VALUE_DELIMITER", "KEY_DELIMITER"}
_QUERY = {"PRIORITY", "WEIGHT", "LATENCY_TARGET", "QUERY_ID", "ON_CHANGE"}
_ON_CHANGE = ("rebuild", "forward")
_VIEW = {"RETENTION"}
_SOURCE_ONLY = {"WINDOW_TYPE", "WINDOW_SIZE", "SOURCED_BY_CONNECTOR", "PARTITIONER"}
FOR_SOURCE = frozenset(_TOPIC | _RECORD | _TIMES | _SOURCE_ONLY | set(_SCHEMA_PROPERTIES))
FOR_SINK = frozenset(_TOPIC | _RECORD | _QUERY | set(_SCHEMA_PROPERTIES))
FOR_VIEW = FOR_SINK | _VIEW
FOR_INSERT = frozenset(_QUERY)


@dataclass(frozen=True, slots=True)
class SideProperties:
    """The properties about the schema of a key or value. None and empty: not set. span: of the first of them."""

    schema_id: int | None = None
    schema_name: str = ""
    nullable: str = ""
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Properties:
    """A WITH clause, checked. None means not given; names of formats are upper case."""

    topic: str | None = None
    key_format: str | None = None
    value_format: str | None = None
    partitions: int | None = None
    timestamp: str | None = None
    timestamp_format: str | None = None
    times: EventTimes = USUAL_TIMES
    partitioner: str = ""
    wrap: bool | None = None
    key_delimiter: str | None = None
    value_delimiter: str | None = None
    window: KeyWindow | None = None
    options: QueryOptions = NO_OPTIONS
    retention_ms: int | None = None
    key_schema: SideProperties = SideProperties()
    value_schema: SideProperties = SideProperties()
    spans: Mapping[str, Span] = field(default_factory=dict)

    def span(self, name: str) -> Span:
        return self.spans.get(name, NOWHERE)


def read_properties(items: Sequence[Property], allowed: frozenset[str], fold: str = "upper") -> Properties:
    """Check every property and give them as one value. `fold`: how an unquoted column name in a property folds."""
    given: dict[str, Property] = {}
    for p in items:
        if p.name not in allowed:
            known = (
                did_you_mean(p.name, sorted(allowed))
                or f"known are {listing(sorted(allowed - set(_SCHEMA_PROPERTIES)))}"
            )
            raise mistake(
                "FQ2010", f"unknown property {p.name} in the WITH clause", p.span, "not a property", help=known
            )
        if p.name in given:
            raise mistake("FQ2010", f"property {p.name} is given twice", p.span, "given before")
        given[p.name] = p
    key_format, value_format = _formats(given)
    return Properties(
        topic=_text(given, "KAFKA_TOPIC"),
        key_format=key_format,
        value_format=value_format,
        partitions=_positive(given, "PARTITIONS"),
        timestamp=_column(given, fold),
        timestamp_format=_text(given, "TIMESTAMP_FORMAT"),
        times=_times(given),
        partitioner=_partitioner(given),
        wrap=_flag(given, "WRAP_SINGLE_VALUE"),
        key_delimiter=_delimiter(given, "KEY_DELIMITER"),
        value_delimiter=_delimiter(given, "VALUE_DELIMITER"),
        window=_window(given),
        options=_options(given),
        retention_ms=_duration(given, "RETENTION", "7 DAYS"),
        key_schema=_side(given, "KEY"),
        value_schema=_side(given, "VALUE"),
        spans={p.name: p.value_span if p.value_span != NOWHERE else p.span for p in items},
    )


def check_format_name(name: str, span: Span) -> str:
    """The name, upper case. Raises for unknown formats."""
    upper = name.upper()
    if upper not in FORMATS:
        hint = did_you_mean(upper, FORMATS) or f"known are {listing(FORMATS)}"
        raise mistake("FQ2012", f"unknown format: {upper}", span, "not a format", help=hint)
    return upper


def _formats(given: Mapping[str, Property]) -> tuple[str | None, str | None]:
    names = {
        p: check_format_name(str(given[p].value), given[p].value_span)
        for p in ("FORMAT", "KEY_FORMAT", "VALUE_FORMAT")
        if p in given
    }
    for side in ("KEY_FORMAT", "VALUE_FORMAT"):
        if "FORMAT" in names and side in names:
            title = f"cannot give both '{side}' and 'FORMAT', as 'FORMAT' sets both key and value formats"
            raise mistake(
                "FQ2011",
                title,
                given[side].span,
                "FORMAT sets it too",
                help="use FORMAT alone, or KEY_FORMAT and VALUE_FORMAT",
            )
    both = names.get("FORMAT")
    key, value = names.get("KEY_FORMAT", both), names.get("VALUE_FORMAT", both)
    if value == DEBEZIUM:  # the record's key is an object beside the event
        return JSON_OBJECT if key in (None, DEBEZIUM) else key, value
    return key, value


def _side(given: Mapping[str, Property], side: str) -> SideProperties:
    """Properties of the schema of keys or of values."""
    old_name = f"{side}_AVRO_SCHEMA_FULL_NAME"
    name = f"{side}_SCHEMA_FULL_NAME" if f"{side}_SCHEMA_FULL_NAME" in given else old_name
    nullable = f"{side}_PROTOBUF_NULLABLE_REPRESENTATION"
    found = next((n for n in (f"{side}_SCHEMA_ID", name, nullable) if n in given), None)
    how = str(given[nullable].value).upper() if nullable in given else ""
    if how not in ("", "OPTIONAL", "WRAPPER"):
        raise _invalid(given[nullable], f"{nullable} must be OPTIONAL or WRAPPER, not {how!r}", "not a representation")
    span = NOWHERE if found is None else given[found].span
    return SideProperties(_positive(given, f"{side}_SCHEMA_ID"), _text(given, name) or "", how, span)


def _invalid(item: Property, title: str, label: str, *, why: str = "", help: str = "") -> CompileError:
    """A property with a value that it cannot have, to be raised."""
    return mistake("FQ2011", title, item.value_span, label, why=why, help=help)


def _text(given: Mapping[str, Property], name: str) -> str | None:
    if name not in given or given[name].value is None:
        return None
    text = str(given[name].value)
    if not text.strip():
        raise _invalid(given[name], f"{name} cannot be empty", "needs a string")
    return text


def _word(given: Mapping[str, Property], name: str, known: Collection[str], label: str) -> str | None:
    """The value in lower case, which has to be one of the known words."""
    if name not in given:
        return None
    item = given[name]
    word = str(item.value).lower()
    if word not in known:
        hint = did_you_mean(word, known) or f"one of {listing(known, 'or')}"
        raise _invalid(item, f"unknown {name} {item.value!r}", label, help=hint)
    return word


def _column(given: Mapping[str, Property], fold: str) -> str | None:
    text = _text(given, "TIMESTAMP")
    if text is None:
        return None
    if len(text) > 2 and text[0] == text[-1] and text[0] in '`"':
        return text[1:-1]
    return text.upper() if fold == "upper" else text.lower()


def _positive(given: Mapping[str, Property], name: str) -> int | None:
    if name not in given:
        return None
    value = given[name].value
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdigit() or int(text) < 1:
        raise _invalid(given[name], f"{name} must be a whole number of at least 1, not {value!r}", "not a count")
    return int(text)


def _flag(given: Mapping[str, Property], name: str) -> bool | None:
    if name not in given:
        return None
    text = str(given[name].value).lower()
    if text not in ("true", "false"):
        title = f"{name} must be true or false, not {given[name].value!r}"
        raise _invalid(given[name], title, "not a truth value")
    return text == "true"


def _delimiter(given: Mapping[str, Property], name: str) -> str | None:
    if name not in given:
        return None
    text = str(given[name].value)
    special = {"TAB": "\t", "SPACE": " "}.get(text.upper())
    if special is not None:
        return special
    if not text.strip() or len(text) != 1:
        why = "a delimiter is one character, or the word TAB or SPACE"
        title = f"{name} is invalid: {text!r} is not a delimiter"
        raise _invalid(given[name], title, "not one character", why=why, help="for example ';'")
    return text


def _window(given: Mapping[str, Property]) -> KeyWindow | None:
    if "WINDOW_TYPE" not in given:
        if "WINDOW_SIZE" in given:
            raise mistake("FQ2011", "WINDOW_SIZE needs WINDOW_TYPE", given["WINDOW_SIZE"].span, "of which window?")
        return None
    item = given["WINDOW_TYPE"]
    kind = str(item.value).upper()
    if kind not in ("SESSION", "TUMBLING", "HOPPING"):
        hint = did_you_mean(kind, ("SESSION", "TUMBLING", "HOPPING")) or "TUMBLING, HOPPING or SESSION"
        raise _invalid(item, f"unknown WINDOW_TYPE {kind}", "not a window", help=hint)
    if kind == "SESSION":
        if "WINDOW_SIZE" in given:
            raise mistake(
                "FQ2011",
                "WINDOW_SIZE must not be set for SESSION windows",
                given["WINDOW_SIZE"].span,
                "sessions have no size",
            )
        return KeyWindow("session")
    if "WINDOW_SIZE" not in given:
        raise mistake(
            "FQ2014",
            f"WINDOW_TYPE {kind} needs WINDOW_SIZE",
            item.span,
            "of which size?",
            help="add WINDOW_SIZE='1 MINUTE'",
        )
    size = duration_ms(given["WINDOW_SIZE"].value)
    if not size or str(given["WINDOW_SIZE"].value).strip().isdigit():
        title = f"WINDOW_SIZE {given['WINDOW_SIZE'].value!r} is not a duration"
        raise _invalid(given["WINDOW_SIZE"], title, "not a duration", help="write '30 SECONDS'")
    return KeyWindow("time", size)


def _times(given: Mapping[str, Property]) -> EventTimes:
    if given.keys().isdisjoint(("EARLIEST_TIME", "LATEST_TIME", "MAX_AHEAD")):
        return USUAL_TIMES
    latest_ms = _time(given, "LATEST_TIME")
    times = EventTimes(
        _time(given, "EARLIEST_TIME"),
        USUAL_TIMES.latest_ms if latest_ms is None else latest_ms,
        _duration(given, "MAX_AHEAD", "1 DAY"),
    )
    if times.first_ms(of_column=True) >= times.latest_ms:
        item = given["LATEST_TIME" if "LATEST_TIME" in given else "EARLIEST_TIME"]
        raise _invalid(item, "EARLIEST_TIME is not before LATEST_TIME", "no record has such a time")
    return times


def _partitioner(given: Mapping[str, Property]) -> str:
    name = (_text(given, "PARTITIONER") or "").lower()
    if name and name not in partitioners.NAMES:
        hint = did_you_mean(name, partitioners.NAMES) or "murmur2, crc32 or custom"
        raise _invalid(given["PARTITIONER"], f"unknown PARTITIONER {name!r}", "not a partitioner of keys", help=hint)
    return partitioners.NAMES[name] if name else ""


def _time(given: Mapping[str, Property], name: str) -> int | None:
    if name not in given:
        return None
    text = str(given[name].value)
    try:
        time_ms = _in_ms(datetime.fromisoformat(text))
    except ValueError:
        help_ = "write a day or a time as in '2300-01-01' or '2300-01-01T12:00:00', of the years 1 to 9999, in UTC"
        raise _invalid(given[name], f"{name} {text!r} is not a time", "not a time", help=help_) from None
    return time_ms


def _in_ms(time: datetime) -> int:
    utc = time.replace(tzinfo=UTC) if time.tzinfo is None else time
    return (utc - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _duration(given: Mapping[str, Property], name: str, example: str) -> int | None:
    if name not in given:
        return None
    item = given[name]
    duration = duration_ms(item.value)
    if not duration or duration < 0:
        raise _invalid(item, f"{name} {item.value!r} is not a duration", "not a duration", help=f"write '{example}'")
    return duration


def _options(given: Mapping[str, Property]) -> QueryOptions:
    priority = cast(Priority | None, _word(given, "PRIORITY", PRIORITY_WEIGHTS, "not a priority"))
    on_change = cast(OnChange | None, _word(given, "ON_CHANGE", _ON_CHANGE, "neither of the two"))
    latency = _duration(given, "LATENCY_TARGET", "500 ms")
    return QueryOptions(priority, _positive(given, "WEIGHT"), latency, _text(given, "QUERY_ID"), on_change)
