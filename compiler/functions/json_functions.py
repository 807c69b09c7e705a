"""Functions of texts that hold JSON. Numbers keep their digits (`1.50` stays `1.50`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from flowql.compiler.functions.numeric import double_text
from flowql.compiler.functions.registry import Reference, scalar, takes, takes_many
from flowql.compiler.functions.signatures import Resolution, T
from flowql.compiler.functions.values import same, text_of
from flowql.compiler.plan.types import BOOLEAN, INT, STRING, Kind, SqlType, array, map_of

_STEP = re.compile(r"\.([^.\[\]]+)|\[(-?\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")


def _reject(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def parse(text: str) -> Any:
    """The value of a JSON text: int, Decimal, str, bool, None, list, dict. Raises ValueError."""
    return json.loads(text, parse_float=Decimal, parse_constant=_reject)


def compact(v: Any) -> str:
    """A parsed value as JSON without blanks."""
    if isinstance(v, dict):
        return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{compact(x)}" for k, x in v.items()) + "}"
    if isinstance(v, list):
        return "[" + ",".join(map(compact, v)) + "]"
    return str(v) if isinstance(v, Decimal) else json.dumps(v, ensure_ascii=False)


def _as_text(v: Any) -> str:
    return v if isinstance(v, str) else compact(v)


@lru_cache(maxsize=256)
def path_of(path: str) -> tuple[str | int, ...]:
    """`$.a.b[0]` as names and indexes. Raises ValueError."""
    if not path.startswith("$"):
        raise ValueError(f"the JSON path {path!r} must start with $")
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        m = _STEP.match(path, at)
        if m is None:
            raise ValueError(f"the JSON path {path!r} is wrong at character {at + 1}")
        steps.append(int(m[2]) if m[2] else next(g for g in (m[1], m[3], m[4]) if g is not None))
        at = m.end()
    return tuple(steps)


_MISSING = object()


def _walk(v: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(v, list):
            index = int(step) if isinstance(step, int) or step.isdigit() else -1
            v = v[index] if 0 <= index < len(v) else _MISSING
        elif isinstance(v, dict):
            v = v.get(str(step), _MISSING)
        else:
            return _MISSING
    return v


def extract(text: str, path: str) -> str | None:
    """The text of the value at a path: texts bare, everything else as JSON; NULL when it is not there."""
    v = _walk(parse(text), path_of(path))
    return None if v is _MISSING else _as_text(v)


def is_json(text: str | None) -> bool:
    if not text:
        return False
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _items(text: str) -> list[str] | None:
    v = parse(text)
    return [compact(x) for x in v] if isinstance(v, list) else None


def _length(text: str | None) -> int | None:
    if not is_json(text):
        return None
    assert text is not None
    v = parse(text)
    return len(v) if isinstance(v, list) else None


def _keys(text: str) -> list[str] | None:
    v = parse(text)
    return list(v) if isinstance(v, dict) else None


def _records(text: str) -> dict[str, str] | None:
    v = parse(text)
    return {k: _as_text(x) for k, x in v.items()} if isinstance(v, dict) else None


def _contains(text: str | None, wanted: Any) -> bool:
    if not is_json(text):
        return False
    assert text is not None
    v = parse(text)
    return isinstance(v, list) and any(_equal(x, wanted) for x in v)


def _equal(found: Any, wanted: Any) -> bool:
    if found is None or wanted is None:
        return found is wanted
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(wanted, float):
        return isinstance(found, (int, Decimal)) and float(found) == wanted
    return isinstance(found, str) == isinstance(wanted, str) and same(found, wanted)


def _concat(*texts: str) -> str:
    """Objects are merged, anything else is joined to one array."""
    values = [parse(t) for t in texts]
    if all(isinstance(v, dict) for v in values):
        return compact({k: x for v in values for k, x in v.items()})
    return compact([x for v in values for x in (v if isinstance(v, list) else [v])])


def writer(t: SqlType) -> Callable[[Any], str]:
    """TO_JSON_STRING for values of a type, NULL included."""
    inner = _writer(t)
    return lambda v: "null" if v is None else inner(v)


def _writer(t: SqlType) -> Callable[[Any], str]:
    if t.kind is Kind.ARRAY:
        element = writer(t.element)
        return lambda v: "[" + ",".join(map(element, v)) + "]"
    if t.kind is Kind.MAP:
        key, value = text_of(t.args[0]), writer(t.args[1])
        return lambda v: "{" + ",".join(f"{_quote(key(k))}:{value(x)}" for k, x in v.items()) + "}"
    if t.kind is Kind.STRUCT:
        fields = [(n, writer(f)) for n, f in t.fields]
        return lambda v: "{" + ",".join(f"{_quote(n)}:{f(v[n])}" for n, f in fields) + "}"
    if t.kind is Kind.DOUBLE:
        return lambda v: double_text(v) if v == v and abs(v) != float("inf") else _quote(double_text(v))
    text = text_of(t)
    bare = t.is_numeric or t.kind in (Kind.BOOLEAN, Kind.NULL)
    return text if bare else (lambda v: _quote(text(v)))


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _to_json(r: Resolution) -> Reference:
    return writer(r.args[0])


scalar("EXTRACTJSONFIELD", takes(STRING, STRING, gives=STRING), by=extract)
scalar("IS_JSON_STRING", takes(STRING, gives=BOOLEAN), by=is_json, null_propagating=False)
scalar("JSON_ARRAY_LENGTH", takes(STRING, gives=INT), by=_length)
scalar("JSON_ARRAY_CONTAINS", takes(STRING, T, gives=BOOLEAN), by=_contains, null_propagating=False)
scalar("JSON_ITEMS", takes(STRING, gives=array(STRING)), by=_items)
scalar("JSON_KEYS", takes(STRING, gives=array(STRING)), by=_keys)
scalar("JSON_RECORDS", takes(STRING, gives=map_of(STRING, STRING)), by=_records)
scalar("JSON_CONCAT", takes_many(STRING, gives=STRING), by=_concat)
scalar("TO_JSON_STRING", takes(T, gives=STRING), by_types=_to_json, null_propagating=False)
