"""Keys and values as JSON, to and from the bytes that a declared source has on its topic."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import orjson

from flowql.compiler.plan.logical import Format
from flowql.compiler.plan.partitioners import MURMUR2
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.compiler.plan.types import STRING, Kind
from flowql.compiler.schemas.ref import DEBEZIUM
from flowql.errors import CommandError
from flowql.runtime.errors import BadRecord
from flowql.runtime.serde.codec import RowDecoder, row_decoder, row_encoder
from flowql.runtime.serde.windowed import split_window
from flowql.topics.typed_texts import retyped_document

_JSON = Format("JSON", standard=True)
_KAFKA = Format("KAFKA", wrap=False)
_ANY_KEY = (Field("KEY", STRING, "key"),)


def source_over(plan: Plan, topic: str) -> SourceDef | None:
    """The first source declared over a topic."""
    return next((s for s in plan.sources if s.topic == topic), None)


def refuse_unwritable(source: SourceDef | None) -> None:
    """CommandError for a local table, whose rows have rules that records do not know, and for a topic whose producers place keys otherwise than FlowQL."""
    if source is not None and source.is_own_table:
        title = f"the topic {source.topic} holds the rows of the table {source.name}, which statements change"
        raise CommandError(
            title,
            code="FQ5017",
            help=f'flowql import FILE --table {source.name}  or  flowql exec "INSERT INTO {source.name} ..."',
        )
    if source is not None and source.partitioner not in ("", MURMUR2):
        title = f"records of {source.topic} are placed by {source.partitioner} (PARTITIONER of {source.name}), and FlowQL places records by {MURMUR2}"
        raise CommandError(title, code="FQ4089", help="write them with the producers of this topic")


class KeyWriter:
    """Encodes keys given as JSON objects of the key columns, as the source says; without one, a text as KAFKA STRING.

    `columns`: the names of the key columns; without a source one column whose name does not matter.
    """

    def __init__(self, source: SourceDef | None, key_format: str | None = None) -> None:
        fields: Sequence[Field] = source.schema.key if source is not None else _ANY_KEY
        if source is not None and source.schema.window is not None:
            title = f"{source.name} has windowed keys, which cannot be written by hand"
            raise CommandError(title, code="FQ5010", help="insert into its sources")
        fmt = source.key_format if source is not None else _KAFKA
        if key_format is not None and key_format.upper() != fmt.name:
            fmt = Format(key_format.upper(), wrap=False)
        self.fields = fields
        self.columns = tuple(f.name for f in fields)
        self._decode = row_decoder(fields, _JSON, fields, is_key=False) if fields else None
        self._encode = row_encoder(fields, fmt, is_key=True)

    def encode(self, document: bytes) -> bytes | None:
        """The key of a JSON object that has the key columns; null when all of them are. Raises BadRecord."""
        row = self._decode.decode(retyped_document(document, self.fields)) if self._decode is not None else None
        return None if row is None or all(v is None for v in row) else self._encode.encode(row)

    def encode_one(self, value: Any) -> bytes | None:
        """A key given as one JSON value: of the single column, or an object of several."""
        if value is None:
            return None
        if isinstance(value, dict) and set(value) == {"base64"}:
            return _from_base64(value["base64"])
        several = isinstance(value, dict) and set(value) <= set(self.columns)
        if not several and len(self.columns) != 1:
            raise BadRecord(f"the key has the columns {', '.join(self.columns) or '(none)'}")
        document = value if several else {self.columns[0]: _text(value, self.fields[0])}
        return self.encode(orjson.dumps(document))


class ValueWriter:
    """Encodes values given as JSON: as they are for JSON, through the declared columns for other formats."""

    def __init__(self, source: SourceDef | None) -> None:
        self._reader: RowDecoder | None = None
        self._fields = source.schema.value if source is not None else ()
        self.as_is = source is None or source.value_format.name in ("JSON", DEBEZIUM)
        if source is not None and source.value_format.name == "JSON":
            self._reader = row_decoder(self._fields, source.value_format, self._fields, is_key=False)
        if source is not None and not self.as_is:
            self._decode = row_decoder(self._fields, _JSON, self._fields, is_key=False)
            self._encode = row_encoder(self._fields, source.value_format, is_key=False)

    def encode(self, document: bytes) -> bytes | None:
        """The value of a JSON document. Raises BadRecord."""
        if self.as_is:
            return document
        row = self._decode.decode(document)
        return self._encode.encode(row) if row is not None else None

    def encode_one(self, value: Any) -> bytes | None:
        """A value given as JSON; null is a tombstone, a bare text is written as it is."""
        if value is None:
            return None
        if isinstance(value, dict) and set(value) == {"base64"}:
            return _from_base64(value["base64"])
        if isinstance(value, str):
            return value.encode()
        return self.encode(self.retyped(orjson.dumps(value))) if isinstance(value, dict) else orjson.dumps(value)

    def retyped(self, document: bytes) -> bytes:
        """The document, or, where it cannot be read as it is, with texts as what they stand for: ISO times, spellings of NULL. What they
        do not make readable stays as it is.
        """
        try:
            if self._reader is not None:
                self._reader.decode(document)
                return document
        except BadRecord:
            pass
        try:
            return retyped_document(document, self._fields)
        except (ValueError, TypeError, RecursionError):  # what JSON does not allow, or half a surrogate pair
            return document


def _from_base64(text: Any) -> bytes:
    """Characters that are none of base64 would be passed over."""
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise BadRecord(f"{text!r} is not base64") from None


class RecordReader:
    """Shows keys and values as JSON texts: decoded as declared, else as text where it is text, else as base64."""

    def __init__(self, source: SourceDef | None) -> None:
        self._source = source
        if source is None:
            return
        self._key_fields, self._value_fields = source.schema.key, source.schema.value
        self._key = row_decoder(self._key_fields, source.key_format, self._key_fields, is_key=True)
        self._value = row_decoder(self._value_fields, source.value_format, self._value_fields, is_key=False)

    def key(self, data: bytes | None) -> bytes:
        """The key as JSON: one column as its value, several (or a windowed key) as an object."""
        if data is None:
            return b"null"
        if self._source is None or not self._key_fields:
            return _unknown(data)
        window = self._source.schema.window
        try:
            bounds: dict[str, Any] = {}
            if window is not None:
                data, start, end = split_window(data, window)
                bounds = {"WINDOWSTART": start, "WINDOWEND": end}
            row = self._key.decode(data)
        except BadRecord:
            return _unknown(data)
        if row is None:
            return b"null"
        if len(row) == 1 and not bounds:
            return _dumps(shown(row[0]))
        return _dumps({f.name: shown(v) for f, v in zip(self._key_fields, row, strict=True)} | bounds)

    def value(self, data: bytes | None) -> bytes:
        """The value as JSON."""
        if data is None:
            return b"null"
        if self._source is None or self._source.value_format.name in ("JSON", DEBEZIUM):
            return _unknown(data)
        try:
            row = self._value.decode(data)
        except BadRecord:
            return _unknown(data)
        if row is None:
            return b"null"
        return _dumps({f.name: shown(v) for f, v in zip(self._value_fields, row, strict=True)})


def shown(value: Any) -> Any:
    """A reference value as JSON holds it: DECIMAL as text, BYTES as base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(k): shown(v) for k, v in value.items()}
    if isinstance(value, list):
        return [shown(v) for v in value]
    return value


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)


def _unknown(data: bytes) -> bytes:
    """Bytes of no declared meaning: JSON as it stands, else a text, else `{"base64": ...}`."""
    if data[:1] in (b"{", b"["):
        try:
            parsed = orjson.loads(data)
        except orjson.JSONDecodeError:
            pass
        else:
            return orjson.dumps(parsed) if b"\n" in data else data  # as it stands: numbers keep their digits
    try:
        return orjson.dumps(data.decode())
    except UnicodeDecodeError:
        return orjson.dumps({"base64": base64.b64encode(data).decode()})


def _text(value: Any, field: Field) -> Any:
    """A key typed as a text for a column that is none."""
    if isinstance(value, str) and field.type.kind in (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.BOOLEAN, Kind.DECIMAL):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            raise BadRecord(f"{value!r} is not a {field.type}") from None
    return value
