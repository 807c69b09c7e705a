"""Reading `.proto` texts (proto2 and proto3) as far as records need them: messages, fields, enums, oneofs, maps, imports.

Services, extensions and options other than the parameters that Confluent keeps in `field_meta` are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Label = Literal["", "repeated", "optional", "required"]
_TOKEN = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/|(?P<text>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')|(?P<word>[A-Za-z_.][\w.]*|-?\d[\w.+]*)|(?P<op>.)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class ProtoField:
    """A field. key: the key type of a map field, whose `type` is that of its values. oneof: the group it is in."""

    name: str
    number: int
    type: str
    label: Label = ""
    key: str = ""
    oneof: str = ""
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ProtoEnum:
    """An enum with its values in order."""

    name: str
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ProtoMessage:
    """A message with what is declared inside it."""

    name: str
    fields: tuple[ProtoField, ...] = ()
    messages: tuple[ProtoMessage, ...] = ()
    enums: tuple[ProtoEnum, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtoFile:
    """A text. package: empty where none is declared."""

    messages: tuple[ProtoMessage, ...]
    enums: tuple[ProtoEnum, ...] = ()
    imports: tuple[str, ...] = ()
    package: str = ""
    syntax: Literal["proto2", "proto3"] = "proto2"


@dataclass(slots=True)
class _Body:
    """The parts of a file or message."""

    fields: list[ProtoField] = field(default_factory=list)
    messages: list[ProtoMessage] = field(default_factory=list)
    enums: list[ProtoEnum] = field(default_factory=list)


def parse_proto(text: str) -> ProtoFile:
    """The file of a text. Raises ValueError with the line of what cannot be read."""
    reader = _Reader(text)
    body = _Body()
    imports: list[str] = []
    package, syntax = "", "proto2"
    while not reader.at_end():
        word = reader.next()
        if word in ("syntax", "edition"):
            reader.expect("=")
            syntax = _unquoted(reader.next())
            reader.expect(";")
        elif word == "import":
            name = reader.next()
            imports.append(_unquoted(reader.next() if name in ("public", "weak") else name))
            reader.expect(";")
        elif word == "package":
            package = reader.next()
            reader.expect(";")
        elif not _declaration(reader, word, body):
            reader.skip_statement()
    known: Literal["proto2", "proto3"] = "proto2" if syntax == "proto2" else "proto3"
    return ProtoFile(tuple(body.messages), tuple(body.enums), tuple(imports), package, known)


def _declaration(reader: _Reader, word: str, body: _Body) -> bool:
    """Read a message or an enum; False where something else begins."""
    if word == "message":
        body.messages.append(_message(reader))
    elif word == "enum":
        body.enums.append(_enum(reader))
    else:
        return word == ";"
    return True


def _message(reader: _Reader) -> ProtoMessage:
    name = reader.next()
    reader.expect("{")
    body = _Body()
    while not reader.accept("}"):
        word = reader.next()
        if _declaration(reader, word, body):
            continue
        if word in ("option", "reserved", "extensions", "extend"):
            reader.skip_statement()
        elif word == "oneof":
            group = reader.next()
            reader.expect("{")
            while not reader.accept("}"):
                first = reader.next()
                if first == "option":
                    reader.skip_statement()
                elif first != ";":
                    body.fields.append(_field(reader, first, "", oneof=group))
        elif word in ("repeated", "optional", "required"):
            body.fields.append(_field(reader, reader.next(), word))  # type: ignore[arg-type]
        else:
            body.fields.append(_field(reader, word, ""))
    return ProtoMessage(name, tuple(body.fields), tuple(body.messages), tuple(body.enums))


def _field(reader: _Reader, type_: str, label: Label, *, oneof: str = "") -> ProtoField:
    key = ""
    if type_ == "map" and reader.accept("<"):
        key = reader.next()
        reader.expect(",")
        type_ = reader.next()
        reader.expect(">")
    elif type_ == "group":
        raise ValueError(f"line {reader.line()}: groups are not supported; use a message")
    name = reader.next()
    reader.expect("=")
    number = reader.number()
    parameters: tuple[tuple[str, str], ...] = ()
    if reader.accept("["):
        parameters = _parameters(list(reader.until_closed("[", "]")))
    reader.expect(";")
    return ProtoField(name, number, type_, label, key, oneof, parameters)


def _parameters(option: list[str]) -> tuple[tuple[str, str], ...]:
    """`params: [{key: "scale", value: "2"}]` of Confluent's field_meta."""
    found: list[tuple[str, str]] = []
    key: str | None = None
    value: str | None = None
    for name, colon, text in zip(option, option[1:], option[2:], strict=False):
        if colon != ":" or name not in ("key", "value"):
            continue
        key, value = (_unquoted(text), value) if name == "key" else (key, _unquoted(text))
        if key is not None and value is not None:
            found.append((key, value))
            key = value = None
    return tuple(found)


def _enum(reader: _Reader) -> ProtoEnum:
    name = reader.next()
    reader.expect("{")
    values: list[tuple[str, int]] = []
    while not reader.accept("}"):
        word = reader.next()
        if word in ("option", "reserved"):
            reader.skip_statement()
        elif word != ";":
            reader.expect("=")
            values.append((word, reader.number()))
            if reader.accept("["):
                list(reader.until_closed("[", "]"))
            reader.expect(";")
    return ProtoEnum(name, tuple(values))


def _unquoted(text: str) -> str:
    return text[1:-1] if text[:1] in ("'", '"') else text


class _Reader:
    """Tokens from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(m[0], m.start()) for m in _TOKEN.finditer(text) if m.lastgroup]
        self._pos = 0

    def at_end(self) -> bool:
        return self._pos >= len(self._tokens)

    def line(self) -> int:
        at = self._tokens[min(self._pos, len(self._tokens) - 1)][1] if self._tokens else 0
        return self._text.count("\n", 0, at) + 1

    def next(self) -> str:
        if self.at_end():
            raise ValueError(f"line {self.line()}: the text ends in the middle of a declaration")
        self._pos += 1
        return self._tokens[self._pos - 1][0]

    def accept(self, op: str) -> bool:
        if self.at_end() or self._tokens[self._pos][0] != op:
            return False
        self._pos += 1
        return True

    def expect(self, op: str) -> None:
        line = self.line()
        found = self.next()
        if found != op:
            raise ValueError(f"line {line}: expected {op!r}, found {found!r}")

    def number(self) -> int:
        line, sign = self.line(), -1 if self.accept("-") else 1
        found = self.next()
        try:
            return sign * int(found, 0)
        except ValueError:
            raise ValueError(f"line {line}: expected a number, found {found!r}") from None

    def skip_statement(self) -> None:
        """To behind the next `;` or the block that comes before it."""
        while True:
            token = self.next()
            if token == ";":
                return
            if token == "{":
                list(self.until_closed("{", "}"))
                return

    def until_closed(self, opening: str, closing: str) -> Iterator[str]:
        """The tokens up to the bracket that closes one already open; that is stepped over."""
        depth = 1
        while True:
            token = self.next()
            depth += (token == opening) - (token == closing)
            if not depth:
                return
            yield token
