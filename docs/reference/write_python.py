"""`python.md`, from what `import flowql` offers. See `generate.py`."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

import flowql
from flowql.compiler.streams.relation import Relation

# What belongs together, in the order of the page.
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
HEAD = """# Python

Everything that `import flowql` offers; generated from the code. The guide `docs/guide/python.md` shows how it is used. `flowql.spark` is
described in `docs/guide/spark.md`.
"""


def pages() -> dict[str, str]:
    return {"python.md": _text()}


def _text() -> str:
    listed = [n for names in PARTS.values() for n in names]
    assert sorted(listed) == sorted(flowql.__all__), "a public name is missing on this page, or no longer public"
    text = [HEAD]
    for title, names in PARTS.items():
        text.append(f"## {title}\n")
        for name in names:
            text += _class(name) if inspect.isclass(getattr(flowql, name)) else _function(name)
    return "\n".join(text)


def _function(name: str) -> Iterator[str]:
    function = getattr(flowql, name)
    yield f"### flowql.{name}\n"
    yield f"`{name}{_signature(function)}`\n"
    yield _prose(function)


def _class(name: str) -> Iterator[str]:
    made = getattr(flowql, name)
    yield f"### flowql.{name}\n"
    yield _prose(made)
    fields = {f.name for f in dataclasses.fields(made)} if dataclasses.is_dataclass(made) else set()
    for f in dataclasses.fields(made) if dataclasses.is_dataclass(made) else ():
        if not f.name.startswith("_"):
            yield f"- `{f.name}: {f.type}`"
    if fields:
        yield ""
    for member, value in _members(made):
        if member.startswith("_") or member in fields or not inspect.getdoc(value):
            continue
        if isinstance(value, property):
            yield f"#### {name}.{member}\n"
            yield _prose(value)
        elif inspect.isfunction(value):
            yield f"#### {name}.{member}\n"
            yield f"`{member}{_signature(value, bound=True)}`\n"
            yield _prose(value)


def _members(made: type) -> Iterator[tuple[str, Any]]:
    """Of the class, and of what streams and tables have in common."""
    yield from vars(made).items()
    if issubclass(made, Relation):
        yield from vars(Relation).items()


def _signature(function: Callable[..., Any], *, bound: bool = False) -> str:
    overloads = typing.get_overloads(function)  # the last one has the options
    found = inspect.signature(overloads[-1] if overloads else function)
    parameters = list(found.parameters.values())[1 if bound else 0 :]
    plain = [p.replace(annotation=_annotation(p.annotation)) for p in parameters]
    text = str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    result = _annotation(found.return_annotation)
    return f"{text} -> {result}" if result is not inspect.Signature.empty and not overloads else text


class _Text(str):
    """An annotation as it is written."""

    def __repr__(self) -> str:
        return str(self)


def _annotation(annotation: Any) -> Any:
    return _Text(annotation) if isinstance(annotation, str) else annotation


def _prose(value: Any) -> str:
    """Of a docstring: its examples become blocks of code."""
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
