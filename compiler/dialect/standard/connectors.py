"""Tables over topics as Flink SQL and RisingWave write them, in FlowQL's properties.

    WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'debezium-json')
    WITH (connector = 'kafka', topic = 'orders') FORMAT DEBEZIUM ENCODE JSON

What has a meaning here becomes KAFKA_TOPIC, KEY_FORMAT and VALUE_FORMAT. All else is refused by its name, with an edit where the
statement is right without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Property
from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.standard.reader import Reader

CONNECTOR = "CONNECTOR"
_VALUE_FORMATS = {
    "json": "JSON", "debezium-json": "DEBEZIUM_JSON", "avro-confluent": "AVRO", "csv": "DELIMITED",
}  # fmt: skip
_KEY_FORMATS = {"json": "JSON_OBJECT", "raw": "KAFKA", "avro-confluent": "AVRO", "csv": "DELIMITED"}
# RisingWave's pair of words -> Flink's connector and format.
_ENCODINGS = {
    ("PLAIN", "JSON"): ("kafka", "json"), ("PLAIN", "AVRO"): ("kafka", "avro-confluent"), ("PLAIN", "CSV"): ("kafka", "csv"),
    ("UPSERT", "JSON"): ("upsert-kafka", "json"), ("UPSERT", "AVRO"): ("upsert-kafka", "avro-confluent"),
    ("DEBEZIUM", "JSON"): ("kafka", "debezium-json"),
}  # fmt: skip
_OWN = (
    "PARTITIONS",
    "TIMESTAMP",
    "TIMESTAMP_FORMAT",
    "EARLIEST_TIME",
    "LATEST_TIME",
    "MAX_AHEAD",
    "VALUE_DELIMITER",
    "PARTITIONER",
)
_FROM_THE_BEGINNING = ("earliest", "earliest-offset")
_BROKERS = "brokers and the settings of clients are those of the target in flowql.yaml; leave it out"
_STARTUP = "all records of the topic are read, from the first one; leave it out"
_ERRORS = "a record that cannot be read goes to DEAD_LETTERS, and the query continues; leave it out"
_SINK = "results are written exactly once; leave it out"


@dataclass(frozen=True, slots=True)
class Encoding:
    """FORMAT words ENCODE words, behind WITH."""

    format: str
    encode: str
    span: Span
    format_span: Span


@dataclass(frozen=True, slots=True)
class Connected:
    """The kind of a table over a topic. is_stream: its records are rows that only come."""

    properties: tuple[Property, ...]
    is_stream: bool


def parse_encoding(cur: Reader) -> Encoding | None:
    """`FORMAT UPSERT ENCODE JSON`, of RisingWave."""
    start = cur.tok
    if cur.tok.upper != "FORMAT" or cur.peek(2).upper != "ENCODE":
        return None
    cur.next()
    word = cur.next()
    cur.next()
    encode = cur.next()
    if cur.tok.op == "(":
        cur.unsupported("options of ENCODE", help="leave them out")
    return Encoding(word.upper, encode.upper, cur.span_since(start), cur.span_of(word))


def is_connected(properties: Sequence[Property], encoding: Encoding | None) -> bool:
    return encoding is not None or any(p.name == CONNECTOR for p in properties)


def connected(
    cur: Reader, properties: Sequence[Property], encoding: Encoding | None, key: Sequence[str], at: Tok
) -> Connected:
    """The properties in FlowQL's names. key: the columns of the primary key. at: where WITH stands. Raises ParseError, UnsupportedError."""
    given = {p.name: p for p in properties}
    connector, written = _connector(cur, given, encoding)
    for i, p in enumerate(properties):
        _check(cur, properties, i, p, key)
    topic = given.get("TOPIC") or given.get("KAFKA_TOPIC")
    if topic is None:
        cur.fail(
            "FQ2014", "the topic is missing", at=cur.span_of(at), label="over which topic?", help="add  topic = '...'"
        )
    value = _format(cur, written, _VALUE_FORMATS)
    made = [replace(topic, name="KAFKA_TOPIC"), replace(written, name="VALUE_FORMAT", value=value)]
    if value != "DEBEZIUM_JSON" and key and connector == "kafka":
        _refuse_key(cur, given, encoding, at)
    if connector == "upsert-kafka":
        if not key:
            cur.fail(
                "FQ2022",
                "a table whose records replace each other needs a PRIMARY KEY: the columns of the record's key",
                at=cur.span_of(at),
                label="no PRIMARY KEY",
                help="add  PRIMARY KEY (column)  behind the columns",
            )
        of_key = given.get("KEY.FORMAT") or written
        made.append(replace(of_key, name="KEY_FORMAT", value=_format(cur, of_key, _KEY_FORMATS)))
    made += [p for p in properties if p.name in _OWN]
    return Connected(tuple(made), is_stream=not key and value != "DEBEZIUM_JSON")


def _connector(cur: Reader, given: Mapping[str, Property], encoding: Encoding | None) -> tuple[str, Property]:
    """The connector, and the property that names the format of values."""
    said = given.get(CONNECTOR)
    connector = str(said.value).lower() if said is not None else "kafka"
    if said is not None and connector not in ("kafka", "upsert-kafka"):
        help = "rows come from topics: write  connector = 'kafka', and let a connector of Kafka Connect write the topic"
        if connector in ("datagen", "faker"):
            help = "write rows by INSERT, or by  flowql topic import"
        cur.unsupported(f"the connector {connector!r}", at=said.value_span, help=help)
    if encoding is None:
        written = given.get("VALUE.FORMAT") or given.get("FORMAT") or given.get("VALUE_FORMAT")
        if written is None:
            assert said is not None
            cur.fail(
                "FQ2014", "the format is missing", at=said.span, label="which format?", help="add  'format' = 'json'"
            )
        return connector, written
    pair = _ENCODINGS.get((encoding.format, encoding.encode))
    if pair is None:
        cur.unsupported(
            f"FORMAT {encoding.format} ENCODE {encoding.encode}",
            at=encoding.span,
            help="known are " + ", ".join(f"FORMAT {f} ENCODE {e}" for f, e in _ENCODINGS),
        )
    return pair[0], Property("FORMAT", pair[1], encoding.span, encoding.span)


def _format(cur: Reader, written: Property, known: Mapping[str, str]) -> str:
    name = str(written.value).lower()
    if name in known:
        return known[name]
    if str(written.value).upper() in known.values():
        return str(written.value).upper()
    cur.unsupported(f"the format {name!r}", at=written.value_span, help=f"known are {', '.join(known)}")


def _refuse_key(cur: Reader, given: Mapping[str, Property], encoding: Encoding | None, at: Tok) -> None:
    """Refuses a key of plain records: records with one key would be separate rows."""
    if encoding is not None:
        edit = Edit(encoding.format_span, "UPSERT")
        help = (
            f"write  FORMAT UPSERT ENCODE {encoding.encode}  if the record's key holds it, or leave the PRIMARY KEY out"
        )
    else:
        edit = Edit(given[CONNECTOR].value_span, "'upsert-kafka'")
        help = "write  'connector' = 'upsert-kafka'  if the record's key holds it, or leave the PRIMARY KEY out"
    cur.fail(
        "FQ2022",
        "a PRIMARY KEY over plain records: each record is a separate row",
        at=encoding.span if encoding is not None else cur.span_of(at),
        label="rows that only come",
        help=help,
        edit=edit,
    )


def _check(cur: Reader, properties: Sequence[Property], i: int, p: Property, key: Sequence[str]) -> None:
    """Raises for a property that means something else here, or nothing."""
    known = (CONNECTOR, "TOPIC", "KAFKA_TOPIC", "FORMAT", "KEY.FORMAT", "VALUE.FORMAT", "KEY_FORMAT", "VALUE_FORMAT")
    if p.name in known or p.name in _OWN or p.name in ("DEBEZIUM-JSON.SCHEMA-INCLUDE", "VALUE.FIELDS-INCLUDE"):
        return
    if p.name == "KEY.FIELDS":
        named = tuple(n.strip() for n in str(p.value).replace(",", ";").split(";"))
        if set(named) == set(key):
            return
        help = f"the record's key holds the columns of the PRIMARY KEY: {', '.join(key) or 'here none'}; leave it out"
    elif p.name == "SCAN.STARTUP.MODE":
        if str(p.value).lower() in _FROM_THE_BEGINNING:
            return
        help = _STARTUP
    elif p.name.startswith("PROPERTIES."):
        help = _BROKERS
    elif p.name.endswith(("IGNORE-PARSE-ERRORS", "FAIL-ON-MISSING-FIELD")):
        help = _ERRORS
    elif p.name.startswith(("SINK.", "SCAN.")):
        help = _SINK if p.name.startswith("SINK.") else _STARTUP
    else:
        help = "leave it out"
    cur.unsupported(
        f"the property {p.name.lower()}", at=p.span, help=help, edit=Edit(_with_comma(cur, properties, i), "")
    )


def _with_comma(cur: Reader, properties: Sequence[Property], i: int) -> Span:
    """A property and the comma behind it, or the one before it where it is the last."""
    own = properties[i]
    if i + 1 < len(properties):
        behind = properties[i + 1].span
        whole = cur.span_between(own.span, behind)
        return replace(whole, length=whole.length - behind.length)
    if i == 0:
        return cur.span_between(own.span, own.value_span)
    before = properties[i - 1].value_span
    whole = cur.span_between(before, own.value_span)
    return replace(whole, column=whole.column + before.length, length=whole.length - before.length)
