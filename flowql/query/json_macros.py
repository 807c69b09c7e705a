"""JSONB in interactive queries: DuckDB's JSON with PostgreSQL's texts in it, and functions over these texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowql.compiler.functions.json_values import canonical, equality_text, read_json, shown
from flowql.compiler.functions.json_values import write_json as write_digits
from flowql.compiler.functions.sql_jsonb import MISSING, contains, part, without
from flowql.compiler.plan.types import BOOLEAN, STRING, SqlType, array
from flowql.query.duckdb_values import json_of

JSON, FIELD, FIELD_TEXT, HOLDS, OBJECT, LIST = (
    "flowql_jsonb", "flowql_field", "flowql_field_text", "flowql_json_holds", "flowql_object", "flowql_list",
)  # fmt: skip
# Types of the arguments of functions of the catalogue: j is JSONB, a an array of texts (`catalogue`).
REFERENCES: Mapping[str, str] = {
    "jsonb_path": "ja", "jsonb_path_text": "ja", "jsonb_has": "js", "jsonb_has_any": "ja", "jsonb_has_all": "ja", "jsonb_typeof": "j",
    "jsonb_array_length": "j", "jsonb_order": "j", "jsonb_strip_nulls": "j", "jsonb_pretty": "j", "jsonb_set": "jaj jajt", "jsonb_concat": "jj",
    "jsonb_elements": "j", "jsonb_elements_text": "j", "jsonb_keys": "j", "jsonb_values": "j", "jsonb_values_text": "j",
    "jsonb_object": "a aa", "jsonb_extract_path": "js jss jsss jssss", "jsonb_extract_path_text": "js jss jsss jssss",
}  # fmt: skip
WITHOUT, JOINED, BESIDE = "flowql_without", "flowql_joined", "flowql_beside"
UNSEEN = "flowql_joined_unseen"
_IS_JSON = "(typeof(a) = 'JSON' OR typeof(b) = 'JSON')"
_WRITTEN = " OR ".join(
    f"typeof({x}) IN ('INTERVAL', 'DOUBLE', 'FLOAT')" for x in "ab"
)  # DuckDB has other texts of these
_TEXT_OF = "CAST(to_json({x}) AS VARCHAR), typeof({x})"


def _of(x: str) -> str:
    return _TEXT_OF.format(x=x)


def write_json(value: Any) -> str:
    """The text of a value without zeros at the end of fractions: DuckDB compares texts, and 1.0 equals 1."""
    return equality_text(write_digits(value))


def equal_text(text: str) -> str:
    """The text of the value that a text is, as `write_json` has it. Raises ValueError."""
    return equality_text(canonical(text))


MACROS: Mapping[str, Sequence[str]] = {
    JSON: ("(x) AS CAST(flowql_canonical(CAST(x AS VARCHAR)) AS JSON)",),
    FIELD: ("(j, k) AS CAST(flowql_json_part(CAST(j AS VARCHAR), CAST(k AS VARCHAR), typeof(k)) AS JSON)",),
    FIELD_TEXT: ("(j, k) AS flowql_json_part_text(CAST(j AS VARCHAR), CAST(k AS VARCHAR), typeof(k))",),
    WITHOUT: ("(j, k) AS CAST(flowql_removed(CAST(j AS VARCHAR), CAST(to_json(k) AS VARCHAR)) AS JSON)",),
    JOINED: (
        f"(a, b) AS CASE WHEN {_IS_JSON} THEN flowql_jsonb_concat_2(CAST(a AS VARCHAR), CAST(b AS VARCHAR)) "
        f"WHEN {_WRITTEN} THEN flowql_text(a) || flowql_text(b) ELSE a || b END",
    ),
    UNSEEN: (
        f"(a, b) AS CASE WHEN {_IS_JSON} THEN error('|| of two values of JSONB: write  CAST(a AS JSONB) || b') ELSE a || b END",
    ),
    BESIDE: ("(x, written, meant) AS CASE WHEN typeof(x) = 'JSON' THEN meant ELSE written END",),
    HOLDS: (f"(a, b) AS flowql_holds_json({_of('a')}, {_of('b')})",),
    "flowql_json_text": (f"(x) AS CASE WHEN x IS NULL THEN 'null' ELSE flowql_written_json({_of('x')}) END",),
    "to_jsonb": (f"(x) AS CASE WHEN x IS NOT NULL THEN CAST(flowql_written_json({_of('x')}) AS JSON) END",),
    OBJECT: ("(keys, vals) AS CAST(flowql_made_object(keys, vals) AS JSON)",),
    LIST: ("(vals) AS CAST(flowql_made_list(vals) AS JSON)",),
    "jsonb_of_entries": (f"(x) AS CASE WHEN x IS NOT NULL THEN CAST(flowql_of_entries({_of('x')}) AS JSON) END",),
}
CALLED: Mapping[str, Sequence[str]] = {
    WITHOUT: ("flowql_removed",), JOINED: ("jsonb_concat", "flowql_text"), JSON: ("flowql_canonical",), FIELD: ("flowql_json_part",), FIELD_TEXT: ("flowql_json_part_text",), HOLDS: ("flowql_holds_json",),
    "flowql_json_text": ("flowql_written_json",), "to_jsonb": ("flowql_written_json",), OBJECT: ("flowql_made_object",),
    LIST: ("flowql_made_list",), "jsonb_of_entries": ("flowql_of_entries",),
}  # fmt: skip


def _part(text: str, key: str, of: str) -> Any:
    return part(read_json(text), int(key) if of.endswith("INT") or of == "INTEGER" else key)


def _as_json(text: str, key: str, of: str) -> str | None:
    found = _part(text, key, of)
    return None if found is MISSING else write_json(found)


def _as_text(text: str, key: str, of: str) -> str | None:
    found = _part(text, key, of)
    return None if found is MISSING else shown(found)


def _holds(a: str, of_a: str, b: str, of_b: str) -> bool:
    """Of arrays whether one has all elements of the other; NULL is equal to none."""
    left, right = json_of(a, of_a), json_of(b, of_b)
    if "JSON" in (of_a, of_b):
        return contains(left, right)
    return all(v is not None and v in left for v in right)


def _object(keys: Sequence[str | None], values: Sequence[str]) -> str:
    if None in keys:
        raise ValueError("a key of a JSON object is NULL")
    return write_json({k: read_json(v) for k, v in zip(keys, values, strict=True) if k is not None})


def _of_entries(text: str, of: str) -> str:
    made = {}
    for entry in json_of(text, of):
        key, value = entry.values()
        if key is None:
            raise ValueError("a key of a JSON object is NULL")
        made[key] = value
    return write_json(made)


def _removed(text: str, keys: str) -> str:
    return without(text, read_json(keys))


_TEXTS = array(STRING)
FUNCTIONS: Sequence[tuple[str, tuple[SqlType, ...], SqlType, Callable[..., Any]]] = (
    ("flowql_canonical", (STRING,), STRING, equal_text),
    ("flowql_removed", (STRING, STRING), STRING, _removed),
    ("flowql_json_part", (STRING, STRING, STRING), STRING, _as_json),
    ("flowql_json_part_text", (STRING, STRING, STRING), STRING, _as_text),
    ("flowql_holds_json", (STRING, STRING, STRING, STRING), BOOLEAN, _holds),
    ("flowql_written_json", (STRING, STRING), STRING, lambda text, of: write_json(json_of(text, of))),
    ("flowql_made_object", (_TEXTS, _TEXTS), STRING, _object),
    ("flowql_made_list", (_TEXTS,), STRING, lambda values: write_json([read_json(v) for v in values])),
    ("flowql_of_entries", (STRING, STRING), STRING, _of_entries),
)
