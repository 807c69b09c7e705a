"""Shapes of the values in a project file: data that the reader checks against and the JSON Schema is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Text:
    """Any text. `what` names it in messages."""

    what: str = "a string"


@dataclass(frozen=True, slots=True)
class File(Text):
    """A file, relative to the one that names it; becomes an absolute path."""

    what: str = "a file"


@dataclass(frozen=True, slots=True)
class Secret:
    """A text, or a mapping that says where it is: `env`, `file` or `command`; becomes a setting for `flowql.runtime.secret.revealed`.

    constant: a number or truth value will do as well, as it is.
    """

    what: str
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number."""

    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """An amount of memory, `'1 GB'`: powers of 1024; becomes bytes. unlimited: a word that becomes -1. least_mib: MiB. has_unit: a bare
    number is refused.
    """

    unlimited: str = ""
    least_mib: int = 0
    has_unit: bool = False


@dataclass(frozen=True, slots=True)
class Duration:
    """`'500 ms'`, `'2 minutes'`, or milliseconds; becomes milliseconds. unlimited: a word that becomes -1. has_unit: a bare number is refused."""

    unlimited: str = ""
    has_unit: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some words."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A text, number or truth value, as it is."""


@dataclass(frozen=True, slots=True)
class Anything:
    """Any value, nested as it likes; becomes plain Python data."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of FlowQL; becomes a SourceText. `script`: whole statements, where `${name}` is left to the SQL parser."""

    what: str
    script: bool = False


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list. `single`: one item may stand without the list."""

    item: Shape
    single: bool = False


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping with free keys. `what` names a key in messages. chosen: of the entries one is used; see `Reader.undefined`."""

    value: Shape
    what: str
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a record. example: a value, for the message that a required key is missing."""

    shape: Shape
    doc: str
    required: bool = False
    example: str = "..."


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping with known keys. `what` names the whole in messages; a scalar alone stands for the key `short`."""

    what: str
    keys: Mapping[str, Key] = field(default_factory=dict)
    short: str = ""


Shape = Text | Secret | Whole | Size | Duration | Choice | Constant | Anything | Fragment | ListOf | MapOf | Record
