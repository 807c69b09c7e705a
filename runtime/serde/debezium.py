"""Change events of Debezium: a row before and after a change, as JSON, with or without the part that describes its types.

A record's value is `{"before": row, "after": row, "op": "c" | "r" | "u" | "d", ...}`, or `{"schema": ..., "payload": that}`. Behind
a deletion comes a tombstone, which deletes once more. The columns of the primary key are those of the row; where a deletion does not
give them, the record's key does. Applying an event twice gives the same row.

Sources: Debezium's documentation of its connectors ("Data change events", "Temporal types", "Decimal types").
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from flowql.compiler.plan.schema import Field
from flowql.runtime.batch import Row
from flowql.runtime.errors import BadRecord
from flowql.runtime.serde.codec import UNREADABLE
from flowql.runtime.serde.debezium_values import Meaning, converters
from flowql.runtime.serde.json import JsonDecoder

Event = Mapping[str, Any]
_CHANGES = ("c", "r", "u")  # created, read by a snapshot, updated
_REMOVAL = "d"
_OTHERS = {
    "t": "TRUNCATE of the table at the source: it names no rows; delete the topic's records and take a new snapshot",
    "m": "a message of the source's log (pg_logical_emit_message), not a change of a row",
}
_PLACEHOLDER = b"__debezium_unavailable_value"
# As text, as bytes in either way that `binary.handling.mode` writes them, and as an element of a list of UUIDs.
_PLACEHOLDERS = frozenset(
    {
        _PLACEHOLDER.decode(),
        base64.b64encode(_PLACEHOLDER).decode(),
        _PLACEHOLDER.hex(),
        "b68a35a7-17ad-35b3-af2a-ae46edb4545a",  # UUID.nameUUIDFromBytes
    }
)
_AS_NUMBERS = list(_PLACEHOLDER)  # a list of whole numbers


class DebeziumDecoder:
    """Records to keys and values of a table's rows. Safe to share between threads."""

    def __init__(self, keys: Sequence[Field], values: Sequence[Field]) -> None:
        """keys: all columns of the primary key, at least one. values: the columns wanted."""
        assert keys, "a table has a key"
        fields = (*keys, *values)
        self._keys, self._count = _decoder(keys), len(keys)
        self._rows = _decoder(fields)
        self._converters = converters(fields)
        self._names, self._key_names = frozenset(f.name for f in fields), frozenset(f.name for f in keys)
        # The schema that was seen last, and what it says of the columns: one topic has few, one after the other.
        self._described: tuple[Any, Mapping[str, Meaning]] = (None, {})

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Row, Row | None] | None:
        """The key columns, and the values or None for a removal; None for a tombstone that names no row. Raises BadRecord."""
        row = self._rows.decode(value, within=self._after)
        if row is not None:
            known = row[: self._count]
            return self._named(known, key) if None in known else known, row[self._count :]
        gone = self._keys.decode(value, within=self._before)
        if gone is not None and None not in gone:
            return gone, None
        from_key = self._of_record_key(key)
        if from_key is not None:
            return from_key, None
        if gone is None and self._is_tombstone(value):
            return None
        raise BadRecord("a deletion that gives the primary key neither in `before` nor in the record's key")

    def _named(self, known: Row, key: bytes | None) -> Row:
        """Columns of the row that are missing, from the record's key."""
        return self._of_record_key(key) or known

    def _of_record_key(self, key: bytes | None) -> Row | None:
        """The row of the record's key; None unless the key is an object with all columns."""
        try:
            found = self._keys.decode(key, within=lambda d: self._meant(*_payload(d), "key"))
        except UNREADABLE:
            return None
        return None if found is None or None in found else found

    def _is_tombstone(self, value: bytes | None) -> bool:
        found: list[Any] = []
        self._keys.decode(value, within=lambda d: found.append(_payload(d)[0]))
        return not found or found[0] is None

    # --- the envelope: parsed documents to the object that holds the columns ---

    def _after(self, document: Any) -> Any:
        """The row as it is now; None if it is gone."""
        event, schema = _payload(document)
        if event is None:
            return None
        op = _operation(event)
        if op == _REMOVAL:
            return None
        after = _side(event, "after")
        if after is None:
            raise BadRecord(f"op {op!r} without a row in `after`")
        for name, value in after.items():
            if _is_unavailable(value) and _is_one(name, self._names):
                raise BadRecord(
                    f"{name}: the value was not in the source's log; set REPLICA IDENTITY FULL at the source"
                )
        before = _side(event, "before") if op == "u" else None
        if before is not None:
            self._check_key(before, after)
        return self._meant(after, schema, "after")

    def _before(self, document: Any) -> Any:
        """The row that is gone, as far as it is known."""
        event, schema = _payload(document)
        return None if event is None else self._meant(_side(event, "before"), schema, "before")

    def _check_key(self, before: Event, after: Event) -> None:
        for name, value in before.items():
            changed = value is not None and name in after and after[name] != value
            if changed and _is_one(name, self._key_names):
                title = f"an update that changes {name}, a column of the primary key, from {value!r} to {after[name]!r}"
                raise BadRecord(title)

    def _meant(self, row: Event | None, schema: Any, side: str) -> Event | None:
        """The row with its times and numbers as JSON formats have them."""
        if not isinstance(row, dict) or not self._converters:
            return row
        meanings = self._meanings(schema, side)
        changed: dict[str, Any] = {}
        for name, value in row.items():
            convert = None if value is None else self._converters.get(name) or self._converters.get(name.upper())
            if convert is not None:
                try:
                    changed[name] = convert(value, meanings.get(name))
                except (ValueError, ArithmeticError) as e:
                    raise BadRecord(f"{name}: {e}") from e
        return {**row, **changed} if changed else row

    def _meanings(self, schema: Any, side: str) -> Mapping[str, Meaning]:
        """The meanings of columns in a schema. Columns of one table are described alike before and after a change."""
        if not isinstance(schema, dict):
            return {}
        known, meanings = self._described
        if known != schema:
            fields = _fields(schema)
            if side != "key":
                fields = next((_fields(f) for f in fields if f.get("field") == side), [])
            meanings = {f["field"]: Meaning.of(f) for f in fields if isinstance(f.get("field"), str)}
            if side == "after":
                self._described = (schema, meanings)
        return meanings


def _is_one(name: str, columns: AbstractSet[str]) -> bool:
    """Whether a field of a record is one of these columns, as `JsonDecoder` finds them."""
    return name in columns or name.upper() in {c.upper() for c in columns}


def _decoder(fields: Sequence[Field]) -> JsonDecoder:
    names, types = [f.name for f in fields], [f.type for f in fields]
    return JsonDecoder(names, types, range(len(fields)), wrapped=True, standard=True)  # a format of standard SQL alone


def _fields(schema: Event) -> list[dict[str, Any]]:
    found = schema.get("fields")
    return [f for f in found if isinstance(f, dict)] if isinstance(found, list) else []


def _payload(document: Any) -> tuple[Any, Any]:
    """The payload of a document, and its schema, if it comes with one."""
    if isinstance(document, dict) and "payload" in document and "schema" in document and "op" not in document:
        return document["payload"], document["schema"]
    return document, None


def _operation(event: Any) -> str:
    """Raises BadRecord for what changes no row."""
    if not isinstance(event, dict):
        raise BadRecord("no event of Debezium: the value is not an object")
    op = event.get("op")
    if isinstance(op, str):
        if op in _CHANGES or op == _REMOVAL:
            return op
        if op in _OTHERS:
            raise BadRecord(_OTHERS[op])
    if op is not None:
        raise BadRecord(f"op {op!r} is not c, r, u or d")
    if event.get("status") in ("BEGIN", "END"):
        raise BadRecord("the beginning or end of a transaction (provide.transaction.metadata), not a change of a row")
    if "ddl" in event or "tableChanges" in event:
        raise BadRecord("a change of the table's schema at the source, not of a row")
    raise BadRecord("no event of Debezium: it has no `op`; rows without an envelope have VALUE_FORMAT = 'JSON'")


def _is_unavailable(value: Any) -> bool:
    """Whether a value, or an element or entry in it, stands for one that the source's log did not hold (a TOASTed column that did not change)."""
    if isinstance(value, str):
        return value in _PLACEHOLDERS
    if isinstance(value, dict):
        return any(_is_unavailable(v) for v in (*value, *value.values()))
    return isinstance(value, list) and (value == _AS_NUMBERS or any(map(_is_unavailable, value)))


def _side(event: Event, side: str) -> dict[str, Any] | None:
    row = event.get(side)
    if row is None or isinstance(row, dict):
        return row
    what = "a string, as MongoDB's connector writes it" if isinstance(row, str) else "no object"
    raise BadRecord(f"`{side}` is {what}: it has no columns")
