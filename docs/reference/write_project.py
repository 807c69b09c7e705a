"""`project.md`, from the table of keys. See `generate.py`."""

from __future__ import annotations

from collections.abc import Iterator

from flowql.config.shape import (
    Choice,
    Constant,
    Duration,
    Fragment,
    Key,
    ListOf,
    MapOf,
    Record,
    Shape,
    Size,
    Text,
    Whole,
)
from flowql.config.table import PROJECT

HEAD = """\
# flowql.yaml

Unknown keys are refused with a suggestion. `${NAME}` and `${NAME:-default}` are replaced by `--var`, `vars`, or the environment. Editors complete
and check the file with its [JSON Schema](/flowql/config/schema.json):

```yaml
# yaml-language-server: $schema=path/to/schema.json
name: shop
sql: [sources.sql, "queries/*.sql"]
targets:
  default: {threads: 2, memory: 1 GB}
priorities:
  ALERTS: {priority: critical, latency_target: 100 ms}
```
"""


def pages() -> dict[str, str]:
    return {"project.md": _text()}


def _text() -> str:
    """The whole page."""
    described: dict[str, str] = {}
    return "\n".join([HEAD, *(_section(path, record, described) for path, record in _records("", PROJECT))])


def _records(path: str, shape: Shape) -> Iterator[tuple[str, Record]]:
    match shape:
        case Record(keys=keys):
            yield path, shape
            for name, key in keys.items():
                yield from _records(f"{path}.{name}" if path else name, key.shape)
        case ListOf(item=item):
            yield from _records(f"{path}[]", item)
        case MapOf(value=value):
            yield from _records(f"{path}.NAME", value)


def _section(path: str, record: Record, described: dict[str, str]) -> str:
    """described: row of a key -> the section that has it. A key that an earlier section has in the same words is only named."""
    rows = {name: _row(name, key) for name, key in record.keys.items()}
    again: dict[str, list[str]] = {}
    for name, row in rows.items():
        section = described.setdefault(row, path)
        if section != path:
            again.setdefault(section, []).append(f"`{name}`")
    own = [row for row in rows.values() if described[row] == path]
    table = ["| key | value | |", "|---|---|---|", *own, ""] if own else []
    named = [line for section, names in again.items() for line in (f"As in `{section}`: {', '.join(names)}.", "")]
    return "\n".join([f"## {path or 'The file'}", "", *table, *named])


def _row(name: str, key: Key) -> str:
    return f"| `{name}` | {_value(key.shape)} | {_cell(key.doc)}{' Required.' if key.required else ''} |"


def _value(shape: Shape) -> str:
    match shape:
        case Choice(words):
            return ", ".join(f"`{w}`" for w in words)
        case Whole(least, most):
            return f"{least:,} to {most:,}" if most is not None else f"from {least:,}"
        case Size(unlimited, least_mib):
            return (
                "`1 GB`" + (f", from {least_mib} MB" if least_mib else "") + (f", `{unlimited}`" if unlimited else "")
            )
        case Duration(unlimited, has_unit):
            return ("`7 days`" if has_unit else "`500 ms`") + (f", `{unlimited}`" if unlimited else "")
        case ListOf(item, single):
            return f"{_value(item)}, or a list" if single else f"list: {_value(item)}"
        case MapOf(value):
            return f"`NAME:` {_value(value)}"
        case Record():
            return "keys"
        case Constant():
            return "a constant"
        case Text() | Fragment():
            return _cell(str(shape.what))
    return "anything"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
