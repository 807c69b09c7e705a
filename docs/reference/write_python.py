"""`python.md`, and a page for each part of what `import flowql` offers. See `generate.py`."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

import flowql
from flowql.compiler.streams.relation import Relation

# Names that belong together, in the order of the page.
PARTS = {
    "Projects": ("connect", "Connection", "Instance"),
    "Answers and changes": ("Result", "Subscription", "Change", "Rebuilt"),
    "Functions in SQL": ("udf", "udtf", "udaf", "exponential", "fixed", "RetryAfter"),
    "Processors": (
        "Topology",
        "Processor",
        "BatchProcessor",
        "AsyncProcessor",
        "ProcessorContext",
        "KeyValueStore",
        "WindowStore",
        "SessionStore",
    ),
    "Streams in Python": (
        "StreamsBuilder",
        "Stream",
        "Table",
        "Grouped",
        "WindowedStream",
        "TumblingWindow",
        "HoppingWindow",
        "SessionWindow",
        "Expression",
        "col",
        "lit",
        "fn",
        "when",
    ),
    "Errors": ("ProjectError", "CompileError", "CommandError", "RuntimeFailure"),
}
# For the compiler and the engine, not for users.
INNER = {
    "Topology": {"steps", "calls", "store", "make", "check"},
    "BatchProcessor": {"process"},
    "WindowStore": {"spec"},
    "SessionStore": {"spec"},
}
HEAD = """\
# Python

`import flowql` offers these names. The [guide](/docs/guide/python.md) shows how to use them. `flowql.spark` is in
[Spark](/docs/guide/spark.md).
"""


def pages() -> dict[str, str]:
    """The index, and the pages of the parts."""
    listed = [n for names in PARTS.values() for n in names]
    assert sorted(listed) == sorted(flowql.__all__), "a public name is missing on this page, or no longer public"
    links = [f"- [{part}](python/{_file(part)}): {', '.join(f'`{n}`' for n in names)}" for part, names in PARTS.items()]
    return {
        "python.md": "\n".join([HEAD, *links, ""]),
        **{f"python/{_file(part)}": _page(part, names) for part, names in PARTS.items()},
    }


def _file(part: str) -> str:
    return part.lower().replace(" ", "-") + ".md"


def _page(part: str, names: tuple[str, ...]) -> str:
    lines = [f"# {part}\n"]
    for name in names:
        lines += _class(name) if inspect.isclass(getattr(flowql, name)) else _function(name)
    return "\n".join(lines)


def _function(name: str) -> Iterator[str]:
    function = getattr(flowql, name)
    yield f"## flowql.{name}\n"
    yield f"`{name}{_signature(function)}`\n"
    yield _prose(function)


def _class(name: str) -> Iterator[str]:
    made = getattr(flowql, name)
    yield f"## flowql.{name}\n"
    yield _prose(made)
    fields = {f.name for f in dataclasses.fields(made)} if dataclasses.is_dataclass(made) else set()
    shown = [f for f in dataclasses.fields(made) if not f.name.startswith("_")] if fields else []
    if shown:
        yield f"Fields: {', '.join(f'`{f.name}: {f.type}`' for f in shown)}\n"
    left_out = fields | INNER.get(name, set())
    for member, value in vars(made).items():
        if not (member.startswith("_") or member in left_out or not inspect.getdoc(value)):
            yield from _member(member, value)
    if issubclass(made, Relation):
        yield from _common(name)


def _common(name: str) -> Iterator[str]:
    """The methods that streams and tables share, once."""
    common = {n: v for n, v in vars(Relation).items() if not n.startswith("_") and inspect.getdoc(v)}
    if name == "Stream":
        yield "### Methods of Stream and Table\n"
        for member, value in common.items():
            yield from _member(member, value)
    else:
        yield f"{', '.join(f'`{n}`' for n in common)}: as for `Stream`.\n"


def _member(member: str, value: Any) -> Iterator[str]:
    if isinstance(value, property):
        yield f"**`{member}`**: {_prose(value)}"
    elif inspect.isfunction(value):
        yield f"**`{member}{_signature(value, bound=True)}`**: {_prose(value)}"


def _signature(function: Callable[..., Any], *, bound: bool = False) -> str:
    overloads = typing.get_overloads(function)  # the last one has the options
    found = inspect.signature(overloads[-1] if overloads else function)
    parameters = list(found.parameters.values())[1 if bound else 0 :]
    plain = [_plain(parameter) for parameter in parameters]
    text = str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    result = _annotation(found.return_annotation)
    return f"{text} -> {result}" if result is not inspect.Signature.empty and not overloads else text


class _Text(str):
    """An annotation as it is written."""

    def __repr__(self) -> str:
        return str(self)


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """Without the type, where the default shows it."""
    if parameter.default is None and isinstance(parameter.annotation, str):
        return parameter.replace(annotation=_Text(parameter.annotation.removesuffix(" | None")))
    if parameter.default is inspect.Parameter.empty:
        return parameter.replace(annotation=_annotation(parameter.annotation))
    return parameter.replace(annotation=inspect.Parameter.empty)


def _annotation(annotation: Any) -> Any:
    return _Text(annotation) if isinstance(annotation, str) else annotation


def _prose(value: Any) -> str:
    """The text of a docstring. Its examples become blocks of code."""
    lines = (inspect.getdoc(value) or "").splitlines()
    out: list[str] = []
    inside = False
    for line in lines:
        starts = re.match(r"\s*>>> ", line) is not None
        if starts and not inside:
            out.append("```python")
            inside = True
        elif inside and not line.strip():
            out.append("```")
            inside = False
        out.append(line.removeprefix("    ").removesuffix("  # doctest: +SKIP") if inside else line)
    return "\n".join([*out, *(["```"] if inside else []), ""])
