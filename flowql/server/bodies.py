"""Bodies of requests, read against their shape before anything is done with them.

Whatever is wrong with a body is `Malformed`, which names the field: a request that cannot be read is no failure of the instance.
"""

from __future__ import annotations

import functools
import json
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from decimal import Decimal
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from starlette.requests import Request

T = TypeVar("T")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_KINDS: Mapping[Any, str] = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}


class Malformed(Exception):
    """A request that is not what the endpoint takes. status: its HTTP status."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


async def read_body(request: Request, shape: Callable[[Any], T]) -> T:
    """The JSON body in its shape. Raises Malformed; what goes wrong with what it asks for comes later."""
    raw = await request.body()
    try:
        body = json.loads(raw, parse_constant=_no_constant)
        if _SURROGATE.search(raw):
            json.dumps(body, ensure_ascii=False).encode()  # half of a pair is no character
    except UnicodeEncodeError as error:
        surrogate = f"\\u{ord(error.object[error.start]):04x}"
        raise Malformed(
            f"the string with {surrogate} is not a Unicode text: half of a surrogate pair is missing"
        ) from error
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Malformed("the body is not a JSON object")
    try:
        return shape(body)
    except KeyError as error:
        raise Malformed(f"the field `{error.args[0]}` is missing") from error
    except (ValueError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise Malformed(str(error) or type(error).__name__) from error


def json_documents(raw: bytes) -> list[Any]:
    """The JSON documents of a body, one after the other; fractions are Decimal. Raises Malformed."""
    found: list[Any] = []
    try:
        text = raw.decode()
        at = _BLANK.match(text).end()  # type: ignore[union-attr]
        while at < len(text):
            document, at = _DOCUMENTS.raw_decode(text, at)
            at = _BLANK.match(text, at).end()  # type: ignore[union-attr]
            found.append(document)
        if _SURROGATE.search(raw):
            json.dumps(found, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        raise Malformed("half of a surrogate pair is missing in a string") from error
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the body is not JSON: {error}") from error
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_BLANK = re.compile(r"[ \t\r\n]*")
_DOCUMENTS = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant)


def text_field(body: Mapping[str, Any], name: str) -> str:
    """KeyError or TypeError if it is missing or no string."""
    return typed(body[name], str, name)


def typed(value: Any, kind: Any, name: str) -> Any:
    """The value, if it is of that type: str, bool, int, None, Literal, list and tuple of one type, dict of two, or a union of them.

    Raises TypeError with the name. A list becomes a tuple where a tuple is wanted.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (kind,) = [a for a in arguments if a is not type(None)]
        return typed(value, kind, name)
    if origin is Literal:
        if value not in arguments or not isinstance(value, str):
            raise TypeError(f"`{name}` is {' or '.join(map(str, arguments))}")
        return value
    if origin in (list, tuple):
        if not isinstance(value, list):
            raise TypeError(f"`{name}` is a list")
        found = [typed(v, arguments[0], name) for v in value]
        return tuple(found) if origin is tuple else found
    if origin is dict:
        if not isinstance(value, dict):
            raise TypeError(f"`{name}` is an object")
        return {typed(k, arguments[0], name): typed(v, arguments[1], name) for k, v in value.items()}
    if type(value) is not kind:
        raise TypeError(f"`{name}` is {_KINDS[kind]}")
    return value


@functools.lru_cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def fields_of(body: Mapping[str, Any], cls: type[T]) -> dict[str, Any]:
    """The fields of a dataclass that a body has, checked. KeyError for one that is missing, TypeError for one of another type, or
    unknown.
    """
    hints, known = _hints(cls), {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    if unknown := [name for name in body if name not in known]:
        raise TypeError(f"the field `{unknown[0]}` is unknown; known fields: {', '.join(known)}")
    for name, field in known.items():
        if name not in body and field.default is MISSING and field.default_factory is MISSING:
            raise KeyError(name)
    return {name: typed(body[name], hints[name], name) for name in known if name in body}
