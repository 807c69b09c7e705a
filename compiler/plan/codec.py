"""Plans and expressions to and from JSON: stable, complete, without spans.

Every dataclass becomes `{"$": class name, field: value, ...}` with default-valued fields left out, so adding
a field with a default keeps old files readable. Tuples become arrays, Decimal and bytes tagged objects.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
from decimal import Decimal
from enum import Enum
from typing import Any

from compiler.plan import changes, deployed, expr, logical, schema, tables, topology, types

_CLASSES: dict[str, type] = {
    c.__name__: c
    for module in (types, schema, expr, changes, logical, tables, topology, deployed)
    for c in vars(module).values()
    if isinstance(c, type) and dataclasses.is_dataclass(c)
}
_SKIPPED = frozenset({"span"})
_LINES_KEPT = 4
_lines: tuple[tuple[topology.Plan, str], ...] = ()  # replaced as a whole, as several threads deploy


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
        data: dict[str, Any] = {"$": type(value).__name__}
        for name, default in _fields(value.__class__):
            v = getattr(value, name)
            if not (default is not dataclasses.MISSING and type(v) is type(default) and v == default):
                data[name] = to_data(v)
        return data
    if isinstance(value, Decimal):
        return {"$": "Decimal", "value": str(value)}
    if isinstance(value, bytes):
        return {"$": "bytes", "value": base64.b64encode(value).decode()}
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return {"$": "float", "value": repr(value)}
    return value


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


def dumps(plan: topology.Plan, *, indent: int | None = 1) -> str:
    """`plan.json`: indented, keys in field order, newline at the end. indent: None is a line, ten times as quick."""
    return json.dumps(to_data(plan), indent=indent, ensure_ascii=False) + "\n"


def line(plan: topology.Plan) -> str:
    """The plan in one line; equal plans have equal lines. Of a plan that is used again it is not made again."""
    global _lines
    known = next((text for other, text in _lines if other is plan), None)
    if known is None:
        known = dumps(plan, indent=None)
        _lines = (*_lines[1 - _LINES_KEPT :], (plan, known))
    return known


def deployed_line(record: deployed.Deployed) -> str:
    """What the plan topic holds, in one line."""
    return json.dumps(to_data(record), ensure_ascii=False) + "\n"


def entry_line(entry: deployed.Entry) -> str:
    """A deployment of the history, in one line."""
    return json.dumps(to_data(entry), ensure_ascii=False) + "\n"


def loads_entry(text: str) -> deployed.Entry:
    found = from_data(json.loads(text))
    if not isinstance(found, deployed.Entry):
        raise ValueError("not a deployment of FlowQL")
    _check_format(found.plan)
    return found


def loads(text: str) -> topology.Plan:
    plan = from_data(json.loads(text))
    if not isinstance(plan, topology.Plan):
        raise ValueError("not a FlowQL plan")
    _check_format(plan)
    return plan


def loads_deployed(text: str) -> deployed.Deployed:
    """What the plan topic holds. A plan alone, as FlowQL wrote it before there were generations, serves."""
    found = from_data(json.loads(text))
    if isinstance(found, topology.Plan):
        found = deployed.Deployed(found)
    if not isinstance(found, deployed.Deployed):
        raise ValueError("not a record of a deployment of FlowQL")
    _check_format(found.serving)
    return found


def _check_format(plan: topology.Plan) -> None:
    if plan.format > topology.PLAN_FORMAT:
        raise ValueError(f"plan format {plan.format} is newer than {topology.PLAN_FORMAT}, which this FlowQL reads")
