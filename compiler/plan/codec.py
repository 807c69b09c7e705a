"""Plans and expressions to and from JSON: stable, complete, without spans.

Every dataclass becomes `{"$": class name, field: value, ...}` with default-valued fields left out, so adding
a field with a default keeps old files readable. Tuples become arrays, Decimal and bytes tagged objects.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import weakref
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec
import orjson

from flowql.compiler.plan import (
    asynchronous,
    changes,
    deployed,
    expr,
    logical,
    processors,
    schema,
    tables,
    temporal_filters,
    topology,
    types,
    watermarks,
)

_CLASSES: dict[str, type] = {
    c.__name__: c
    for module in (
        types,
        schema,
        expr,
        watermarks,
        temporal_filters,
        changes,
        asynchronous,
        processors,
        logical,
        tables,
        topology,
        deployed,
    )
    for c in vars(module).values()
    if isinstance(c, type) and dataclasses.is_dataclass(c)
}
_SKIPPED = frozenset({"span"})
# Parts of plans that are in use, encoded: by their ids, and the other way. Records of deployments hold the same parts again and again.
_PARTS = (topology.QueryPlan, topology.SourceDef, topology.InsertValues, tables.TableChange)
_HOLDERS = (topology.Plan, deployed.Deployed, deployed.Entry)  # what holds parts, at some depth
_texts: dict[int, tuple[weakref.ref[Any], bytes]] = {}
_parts: weakref.WeakValueDictionary[bytes, Any] = weakref.WeakValueDictionary()


@functools.cache
def _fields(cls: type) -> tuple[tuple[str, Any], ...]:
    """The fields that are written, with the default that is not."""
    return tuple((f.name, f.default) for f in dataclasses.fields(cls) if f.name not in _SKIPPED)


def to_data(value: Any) -> Any:
    """A plan, node or expression as JSON-ready data."""
    if value is None or isinstance(value, (str, bool)) or type(value) is int:
        return value
    if isinstance(value, (tuple, list)):
        return [to_data(v) for v in value]
    if isinstance(value, Enum):
        return {"$": "Kind", "value": value.value}
    if dataclasses.is_dataclass(value):
        return _object(value, to_data)
    if isinstance(value, Decimal):
        return {"$": "Decimal", "value": str(value)}
    if isinstance(value, bytes):
        return {"$": "bytes", "value": base64.b64encode(value).decode()}
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return {"$": "float", "value": repr(value)}
    return value


def _object(value: Any, convert: Callable[[Any], Any]) -> dict[str, Any]:
    data: dict[str, Any] = {"$": type(value).__name__}
    for name, default in _fields(value.__class__):
        v = getattr(value, name)
        if not (default is not dataclasses.MISSING and type(v) is type(default) and v == default):
            data[name] = convert(v)
    return data


def _in_parts(value: Any) -> Any:
    """As `to_data`, for what holds parts of plans: one that was encoded before is not converted again."""
    if isinstance(value, _PARTS):
        return orjson.Fragment(_text(value))
    if isinstance(value, tuple):
        return [_in_parts(v) for v in value]
    return _object(value, _in_parts) if isinstance(value, _HOLDERS) else to_data(value)


def _text(part: Any) -> bytes:
    key = id(part)
    known = _texts.get(key)
    if known is not None and known[0]() is part:
        return known[1]

    def forget(ref: weakref.ref[Any]) -> None:
        if _texts.get(key, (None,))[0] is ref:  # else another part has this id by now
            del _texts[key]

    text = orjson.dumps(to_data(part))
    _texts[key] = weakref.ref(part, forget), text
    _parts.setdefault(text, part)
    return text


def _from_text(text: bytes) -> Any:
    """The inverse of `_in_parts`: equal texts of parts become one object, which is decoded once."""
    if (known := _parts.get(text)) is not None:
        return known
    if text.startswith(b"["):
        return tuple(_from_text(bytes(t)) for t in msgspec.json.decode(text, type=list[msgspec.Raw]))
    if not text.startswith(b"{"):
        return orjson.loads(text)
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    cls = _CLASSES.get(orjson.loads(bytes(fields.pop("$"))))
    if cls in _HOLDERS:
        return cls(**{k: _from_text(bytes(v)) for k, v in fields.items()})
    found = from_data(orjson.loads(text))
    if cls in _PARTS:
        _parts[text] = found  # not in `_texts`: an older version wrote another spelling
    return found


def from_data(data: Any) -> Any:
    """The inverse of `to_data`. Raises ValueError for an unknown class (a plan of a newer FlowQL)."""
    if isinstance(data, list):
        return tuple(from_data(v) for v in data)
    if not isinstance(data, dict):
        return data
    name = data["$"]
    if name == "Kind":
        return types.Kind(data["value"])
    if name == "Decimal":
        return Decimal(data["value"])
    if name == "bytes":
        return base64.b64decode(data["value"])
    if name == "float":
        return float(data["value"])
    cls = _CLASSES.get(name)
    if cls is None:
        raise ValueError(f"this plan holds a {name!r}, which this version of FlowQL does not know")
    return cls(**{k: from_data(v) for k, v in data.items() if k != "$"})


def dumps(plan: topology.Plan) -> str:
    """`plan.json`, for people: indented, keys in field order, newline at the end."""
    return json.dumps(to_data(plan), indent=1, ensure_ascii=False) + "\n"


def line(record: topology.Plan | deployed.Deployed | deployed.Entry) -> str:
    """A plan, or what the plan topic holds, in one line; equal ones have equal lines."""
    return orjson.dumps(_in_parts(record), option=orjson.OPT_APPEND_NEWLINE).decode()


def loads(text: str) -> topology.Plan:
    plan = _from_text(text.strip().encode())
    if not isinstance(plan, topology.Plan):
        raise ValueError("not a FlowQL plan")
    _check_format(plan)
    return plan


def loads_entry(text: str) -> deployed.Entry:
    found = _from_text(text.strip().encode())
    if not isinstance(found, deployed.Entry):
        raise ValueError("not a deployment of FlowQL")
    _check_format(found.plan)
    return found


def loads_deployed(text: str) -> deployed.Deployed:
    """The record in the plan topic. A plan without generations, as older versions wrote it, is the serving one."""
    found = _from_text(text.strip().encode())
    if isinstance(found, topology.Plan):
        found = deployed.Deployed(found)
    if not isinstance(found, deployed.Deployed):
        raise ValueError("not a record of a deployment of FlowQL")
    _check_format(found.serving)
    return found


def _check_format(plan: topology.Plan) -> None:
    if plan.format > topology.PLAN_FORMAT:
        raise ValueError(f"plan format {plan.format} is newer than {topology.PLAN_FORMAT}, which this FlowQL reads")
