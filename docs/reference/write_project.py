"""`project.md`, from the table of keys. See `generate.py`."""

from __future__ import annotations

from collections.abc import Iterator

from flowql.config.shape import (
    Choice,
    Constant,
    Duration,
    Fragment,
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
    return "\n".join([HEAD, *(_section(path, record) for path, record in _records("", PROJECT))])


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


def _section(path: str, record: Record) -> str:
    lines = [f"## {path or 'The file'}", "", "| key | value | |", "|---|---|---|"]
    for name, key in record.keys.items():
        required = " Required." if key.required else ""
        lines.append(f"| `{name}` | {_value(key.shape)} | {_cell(key.doc)}{required} |")
    return "\n".join(lines) + "\n"


def _value(shape: Shape) -> str:
    match shape:
        case Choice(words):
            return ", ".join(f"`{w}`" for w in words)
        case Whole(least, most):
            return f"a number from {least:,}" + (f" to {most:,}" if most is not None else "")
        case Size(_, least_mib):
            return "a size, `1 GB`" + (f", from {least_mib} MB" if least_mib else "")
        case Duration():
            return "a duration, `500 ms`"
        case ListOf(item, single):
            return f"{'one or a list' if single else 'a list'}: {_value(item)}"
        case MapOf(value):
            return f"names with {_value(value)} each"
        case Record():
            return "keys, below"
        case Constant():
            return "a string, number or boolean"
        case Text() | Fragment():
            return _cell(str(shape.what))
    return "anything"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
