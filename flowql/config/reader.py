"""A YAML file read against a shape: values with their places, and every mistake."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from flowql.compiler.analyze.options import duration_ms
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.config.shape import (
    Anything,
    Choice,
    Constant,
    Duration,
    File,
    Fragment,
    ListOf,
    MapOf,
    Record,
    Secret,
    Shape,
    Size,
    Text,
    Whole,
)
from flowql.config.texts import ProjectTexts, Taken, Variables, take_scalar
from flowql.runtime.secret import Kind, reference

T = TypeVar("T")
UNDEFINED = "FQ3008"
_SECRETS = {"env": "the name of a variable", "file": "a file", "command": "a command"}
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_PLAIN = re.compile(r"[\w.+-]+")  # what may be a number or truth value
_NULL, _STR, _INT, _FLOAT, _BOOL = (f"tag:yaml.org,2002:{t}" for t in ("null", "str", "int", "float", "bool"))


@dataclass(frozen=True, slots=True)
class Item:
    """A checked value: a str, int, float, bool, SourceText, list of Items or dict of Items; where it stands, and its key."""

    value: Any
    span: Span
    key: Span = NOWHERE
    at: tuple[int, int, int] | None = None  # of a list: its first and last character, its column


def _owners(key: str, shape: Record) -> str:
    """The help text that names the parts of a record to which a key belongs; empty where it belongs to none."""
    found = {name: sub.shape for name, sub in shape.keys.items()}
    within = [name for name, sub in found.items() if isinstance(sub, Record) and key in sub.keys]
    if within:
        return f"`{key}` is a key of {listing(within)}:  {within[0]}: {{{key}: ...}}"
    for name, sub in found.items():
        if isinstance(sub, MapOf) and isinstance(sub.value, Record) and key in sub.value.keys:
            return f"`{key}` is a key of {sub.what}:  {name}: {{NAME: {{{key}: ...}}}}"
    return ""


def texts_under(text: str, key: str) -> list[str]:
    """The texts under a key of a file that cannot be read as a whole; none where it is no YAML."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return []
    names = found.get(key) if isinstance(found, dict) else None
    return [n for n in (names if isinstance(names, list) else [names]) if isinstance(n, str)]


def compose(path: str, text: str) -> tuple[yaml.Node | None, list[Diagnostic]]:
    """The YAML tree with marks; None for an empty or unreadable file."""
    places = ProjectTexts()
    places.add_file(path, text)
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader), []
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        at = min(mark.index, max(len(text) - 1, 0)) if mark is not None else 0
        title = f"this is not readable as YAML: {e.problem or e.context}"
        hint = ""
        if "\\t" in str(e.problem):
            hint = "indent with blanks, not with tabs"
        return None, [Diagnostic("FQ3001", title, places.span(path, at, at + 1), e.context or "here", help=hint)]
    except yaml.reader.ReaderError as e:
        at = min(int(e.position), max(len(text) - 1, 0))
        return None, [Diagnostic("FQ3001", f"this is not readable as YAML: {e.reason}", places.span(path, at, at + 1))]
    except RecursionError:
        return None, [Diagnostic("FQ3001", "this is not readable as YAML: nested too deeply", Span(path, 1, 1))]


class Reader:
    """Checks nodes of one file. Mistakes are collected in `diagnostics`; what they are about is left out.

    undefined: variables without a value in entries of which one is chosen later, by entry. They are mistakes of that entry alone.
    """

    def __init__(self, path: str, text: str, places: ProjectTexts, variables: Variables) -> None:
        self._path, self._text = path, text
        self._places, self._variables = places, variables
        self.diagnostics: list[Diagnostic] = []
        self.undefined: dict[str, list[Diagnostic]] = {}

    def read(self, node: yaml.Node, shape: Shape, name: str = "") -> Item | None:
        """The value of `node`, None when it is not of the shape. name: the key it belongs to, for messages."""
        match shape:
            case Record():
                return self._record(node, shape, name)
            case MapOf():
                return self._map(node, shape, name)
            case ListOf():
                return self._list(node, shape, name)
            case Anything():
                return self._anything(node, name)
            case Secret() if not isinstance(node, yaml.ScalarNode):
                return self._secret(node, shape, name)
        return self._scalar(node, shape, name)

    # Containers.

    def _record(self, node: yaml.Node, shape: Record, name: str) -> Item | None:
        lists = shape.short and isinstance(shape.keys[shape.short].shape, ListOf)
        if shape.short and isinstance(node, yaml.SequenceNode if lists else yaml.ScalarNode):
            only = self.read(node, shape.keys[shape.short].shape, name)
            return Item({shape.short: only}, self.span(node)) if only is not None else None
        pairs = self._pairs(node, name or shape.what)
        if pairs is None:
            return None
        where = f"{shape.what} `{name}`" if name and name != shape.what else shape.what
        found: dict[str, Item] = {}
        for key, (key_node, value) in pairs.items():
            known = shape.keys.get(key)
            if known is None:
                hint = _owners(key, shape) or did_you_mean(key, shape.keys) or f"known are {listing(shape.keys)}"
                self._mistake("FQ3003", f"unknown key `{key}` in {where}", key_node, "not a key here", hint)
                continue
            item = self.read(value, known.shape, key)
            if item is not None:
                found[key] = replace(item, key=self.span(key_node))
        for key, known in shape.keys.items():
            if known.required and key not in pairs:
                self._mistake("FQ3006", f"`{key}` is missing in {where}", node, "", f"add  {key}: {known.example}")
        return Item(found, self.span(node))

    def _map(self, node: yaml.Node, shape: MapOf, name: str) -> Item | None:
        pairs = self._pairs(node, name)
        if pairs is None:
            return None
        found: dict[str, Item] = {}
        for key, (key_node, value) in pairs.items():
            before = len(self.diagnostics)
            item = self.read(value, shape.value, key)
            if shape.chosen and (undefined := [d for d in self.diagnostics[before:] if d.code == UNDEFINED]):
                self.undefined[key] = undefined
                self.diagnostics[before:] = [d for d in self.diagnostics[before:] if d.code != UNDEFINED]
            if item is not None:
                found[key] = replace(item, key=self.span(key_node))
        return Item(found, self.span(node))

    def _pairs(self, node: yaml.Node, name: str) -> dict[str, tuple[yaml.Node, yaml.Node]] | None:
        if isinstance(node, yaml.ScalarNode) and node.tag == _NULL:
            return {}
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, f"`{name}`", "a mapping (key: value)")
            return None
        pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key_node, value in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._wrong(key_node, f"a key of `{name}`", "a word")
            elif key_node.value in pairs:
                self._mistake(
                    "FQ3005", f"`{key_node.value}` is given twice", key_node, "given before", "keep one of them"
                )
            else:
                pairs[key_node.value] = (key_node, value)
        return pairs

    def _list(self, node: yaml.Node, shape: ListOf, name: str) -> Item | None:
        if isinstance(node, yaml.SequenceNode):
            items = [self.read(n, shape.item, name) for n in node.value]
            last = max([node.start_mark.index + 1, *(n.end_mark.index for n in node.value)])
            end = node.end_mark.index if node.flow_style else last
            at = (node.start_mark.index, end, node.start_mark.column)
            return Item([i for i in items if i is not None], self.span(node), at=at)
        if isinstance(node, yaml.ScalarNode) and node.tag == _NULL:
            return Item([], self.span(node))
        if not shape.single:
            self._wrong(node, f"`{name}`", "a list (- item)")
            return None
        one = self.read(node, shape.item, name)
        return Item([one], one.span) if one is not None else None

    def _anything(self, node: yaml.Node, name: str) -> Item | None:
        _keys_as_written(node)
        try:
            return Item(yaml.SafeLoader("").construct_object(node, deep=True), self.span(node))
        except (yaml.YAMLError, ValueError, TypeError):  # an unknown tag, 2026-13-01, a list as a key
            self._wrong(node, f"`{name}`", "plain values")
            return None

    def _secret(self, node: yaml.Node, shape: Secret, name: str) -> Item | None:
        pairs = self._pairs(node, name)
        if pairs is None:
            return None
        if len(pairs) != 1 or next(iter(pairs)) not in _SECRETS:
            hint = f"{name}: {{env: NAME}}, {{file: PATH}} or {{command: 'PROGRAM ARGUMENTS'}}"
            self._mistake("FQ3004", f"`{name}` must be {shape.what} or one reference to it", node, "no reference", hint)
            return None
        ((key, (_, value)),) = pairs.items()
        shapes: Mapping[str, Shape] = {"command": ListOf(Text("a word"), single=True)}
        found = self.read(value, shapes.get(key, Text(_SECRETS[key])), key)
        if found is None:
            return None
        where = found.value
        if isinstance(where, list):
            words = [str(w.value) for w in where]
            where = shlex.split(words[0]) if isinstance(value, yaml.ScalarNode) else words
        return Item(reference(cast(Kind, key), where, Path(self._path).absolute().parent), self.span(node))

    # Scalars.

    def _scalar(self, node: yaml.Node, shape: Shape, name: str) -> Item | None:
        wanted = _wanted(shape)
        if not isinstance(node, yaml.ScalarNode):
            self._wrong(node, f"`{name}`", wanted)
            return None
        taken = take_scalar(self._text, node.value, node.style, node.start_mark.index)
        script = isinstance(shape, Fragment) and shape.script
        taken, undefined = self._variables.expand(taken, defaults_only=script)
        for variable, start, end in undefined:
            hint = (
                did_you_mean(variable, self._variables.names())
                or f"set it in the environment, under `vars`, or as --var {variable}=..., or write ${{{variable}:-default}}"
            )
            span = self._places.span(self._path, start, end)
            self.diagnostics.append(
                Diagnostic(
                    UNDEFINED, f"variable `{variable}` is not defined", span, "no value is known for it", help=hint
                )
            )
        if undefined:
            return None
        span = self.span(node)
        if isinstance(shape, Fragment):
            if not taken.text.strip():
                self._wrong(node, f"`{name}`", wanted)
                return None
            return Item(self._places.source(self._path, taken), span)
        tag = node.tag if taken.text == node.value else self._implicit(node, taken)
        value = _convert(taken.text, tag, shape)
        if value is None:
            hint = did_you_mean(taken.text, shape.words) if isinstance(shape, Choice) else ""
            self._wrong(node, f"`{name}`", wanted, hint)
            return None
        if isinstance(shape, File):
            value = str((Path(self._path).absolute().parent / Path(str(value)).expanduser()).resolve())
        return Item(value, span)

    def _implicit(self, node: yaml.ScalarNode, taken: Taken) -> str:
        """The type of a plain scalar after its variables were replaced."""
        if node.style is not None:
            return _STR
        if not _PLAIN.fullmatch(taken.text):
            return _STR
        again = yaml.compose(taken.text, Loader=yaml.SafeLoader)
        return str(again.tag) if again is not None else _STR

    # Complaining.

    def span(self, node: yaml.Node) -> Span:
        return self._places.span(self._path, node.start_mark.index, node.end_mark.index)

    def _wrong(self, node: yaml.Node, what: str, wanted: str, hint: str = "") -> None:
        self._mistake("FQ3004", f"{what} must be {wanted}, not {_found(node)}", node, f"not {wanted}", hint)

    def _mistake(self, code: str, title: str, node: yaml.Node, label: str, hint: str = "") -> None:
        self.diagnostics.append(Diagnostic(code, title, self.span(node), label, help=hint))


def size_bytes(text: str) -> int | None:
    """Bytes of `512 MB`, `1GB`, `1073741824`; units are powers of 1024.

    >>> size_bytes("1 GB")
    1073741824
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    return None if match is None else int(float(match[1]) * _UNITS[match[2].upper()])


def _convert(text: str, tag: str, shape: Shape) -> str | int | float | bool | None:
    """The value of a scalar, None when it does not fit."""
    match shape:
        case Constant() | Secret(constant=True):
            return _constant(text, tag)
        case Text() | Secret():
            return text if text and tag != _NULL else None
        case Choice(words):
            return text if text in words else None
        case Whole(least, most):
            if not re.fullmatch(r"-?\d{1,18}", text):
                return None
            number = int(text)
            return number if number >= least and (most is None or number <= most) else None
        case Size(unlimited) | Duration(unlimited) if unlimited and text == unlimited:
            return -1
        case Size(has_unit=True) | Duration(has_unit=True) if text.strip().isdigit():
            return None
        case Size(_, least_mib):
            size = size_bytes(text)
            return size if size and size >= least_mib << 20 else None
        case Duration():
            return duration_ms(text) or None
    raise AssertionError(shape)


def _constant(text: str, tag: str) -> str | int | float | bool | None:
    if tag == _INT and re.fullmatch(r"-?\d+", text):
        return int(text)
    if tag == _FLOAT and re.fullmatch(r"-?\d+\.\d+", text):
        return float(text)
    if tag == _BOOL:
        return text.lower() in ("true", "yes", "on")
    return None if tag == _NULL else text


def _wanted(shape: Shape) -> str:
    match shape:
        case Text(what) | Secret(what) | Fragment(what):
            return what
        case Choice(words):
            return listing(words, "or")
        case Whole(least, most):
            return f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most:,}"
        case Size(unlimited, least_mib, has_unit):
            bound = f", at least {least_mib} MB (a number without a unit is bytes)" if least_mib else ""
            bound += " with its unit" if has_unit else ""
            return f"an amount such as '512 MB'{bound}" + (f" or {unlimited}" if unlimited else "")
        case Duration(unlimited, has_unit):
            example = "'7 days', with its unit," if has_unit else "'500 ms'"
            return f"a duration such as {example}" + (f" or {unlimited}" if unlimited else "")
    return "a string, number or boolean"


def _found(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "nothing" if node.tag == _NULL or not node.value else f"`{node.value}`"


def texts(items: Mapping[str, Item]) -> dict[str, str]:
    """The values of a map of constants as texts; truth values as SQL writes them."""
    return {k: str(i.value).lower() if isinstance(i.value, bool) else str(i.value) for k, i in items.items()}


def plain(value: Any) -> Any:
    """A value without its places: lists become tuples."""
    if isinstance(value, Item):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    return tuple(plain(v) for v in value) if isinstance(value, list) else value


def under(given: Mapping[str, Item], key: str) -> Any:
    """The list or mapping under a key; an empty mapping without it."""
    return given[key].value if key in given else {}


def made(settings: Callable[..., T], given: Mapping[str, Any], **fields: str) -> T:
    """Settings with the checked values. fields: by key, the field that has another name."""
    return settings(**{fields.get(k, k): v for k, v in plain(given).items()})


def _keys_as_written(node: yaml.Node) -> None:
    """Keys are names: `NO`, `ON` and `Y` would be truth values to YAML, and `1` a number."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag in (_BOOL, _INT, _FLOAT, _NULL):
                key.tag = _STR
            _keys_as_written(value)
    elif isinstance(node, yaml.SequenceNode):
        for part in node.value:
            _keys_as_written(part)
