"""Limits of what one call of a function makes and how long it takes (rule R18).

All queries of an instance share one interpreter, so a call may neither allocate without limit nor keep the lock of the interpreter for long.
The registry wraps every built-in function in `bounded`, so the limit of a value holds in row kernels, in constants and in the calls that
Arrow and Spark make. Functions whose result can be far larger than their arguments, or that take more than linear time, look at their
arguments first: `check_bytes`, `check_elements`, `check_work`, and how long strings may be (`argument_limits`).

A value counts its bytes: a string in UTF-8, and 16 bytes for each element, key and field that is inside another value.
`flowql.runtime.operators.sizes` counts the same in columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

from flowql.compiler.plan.types import Kind, SqlType

VALUE_BYTES_MAX = 16 << 20  # of one value; a topic takes records of 1 MB unless it is told otherwise
PART_BYTES = 16  # each element, key or field of a value, beside the bytes of its strings
ELEMENTS_MAX = VALUE_BYTES_MAX // PART_BYTES
WORK_NS_MAX = 1_000_000_000  # one call, by the estimates that functions of more than linear time make
PART_MAX = 1 << 16  # characters or bytes for one call of the standard library, which keeps the interpreter lock
UTF8_MAX = 4  # bytes of a character
_FEW = VALUE_BYTES_MAX // UTF8_MAX  # characters that cannot be too many
# Types whose values have no fixed size.
SIZED = frozenset({Kind.STRING, Kind.BYTES, Kind.ARRAY, Kind.MAP, Kind.STRUCT})

Size = Callable[[Any], int]


class RowFailure(ValueError):
    """A row that a function fails for. code: of its dead letter."""

    code: str


class ValueTooLarge(RowFailure):
    """A function would make a value above the limit."""

    code = "FQ4072"


class CallTooLong(RowFailure):
    """A call would take too long for its arguments."""

    code = "FQ4073"


def code_of(error: BaseException, otherwise: str) -> str:
    """The code of a dead letter for an expression that failed: that of a limit or a pattern, or `otherwise`."""
    return error.code if isinstance(error, RowFailure) else otherwise


def check_bytes(count: int) -> None:
    """Before a value is made. Raises ValueTooLarge."""
    if count > VALUE_BYTES_MAX:
        too_large(count)


def check_elements(count: int) -> None:
    """Before an array or a map of so many elements is made. Raises ValueTooLarge."""
    if count > ELEMENTS_MAX:
        too_large(count * PART_BYTES)


def check_work(ns: float) -> None:
    """Before a call that is estimated to take so long. Raises CallTooLong."""
    if ns > WORK_NS_MAX:
        raise CallTooLong(
            f"the call would take about {ns / 1e9:,.0f} s for these arguments; at most {WORK_NS_MAX / 1e9:.0f} s is allowed"
        )


def too_large(count: int) -> NoReturn:
    raise ValueTooLarge(
        f"the value would have {count:,} bytes, and at most {VALUE_BYTES_MAX:,} ({VALUE_BYTES_MAX >> 20} MiB) are allowed"
    )


def utf8_bytes(s: str) -> int:
    """The bytes of a string in UTF-8."""
    return len(s) if s.isascii() else sum(len(part.encode("utf-8", "surrogatepass")) for part in parts_of(s))


def parts_of(s: str) -> list[str]:
    """A text in parts of at most PART_MAX characters; one that is not longer as it is."""
    return [s] if len(s) <= PART_MAX else [s[at : at + PART_MAX] for at in range(0, len(s), PART_MAX)]


@cache
def size_of(t: SqlType) -> Size:
    """The bytes of a value of a type; exact where it is near the limit, and never below it for one that is above."""
    if t.kind is Kind.STRING:
        return _text_size
    if t.kind is Kind.BYTES:
        return len
    if t.kind is Kind.ARRAY:
        return lambda items: _parts(items, t.element)
    if t.kind is Kind.MAP:
        return lambda m: _parts(m.keys(), t.args[0]) + _parts(m.values(), t.args[1])
    if t.kind is Kind.STRUCT:
        own, sized = PART_BYTES * len(t.fields), [(n, of) for n, of in t.fields if of.kind in SIZED]
        return lambda fields: own + sum(_of(fields[n], of) for n, of in sized)
    return lambda _value: 0


def _text_size(s: str) -> int:
    """A text that is far too long is not encoded, which would keep the lock of the interpreter: at least its bytes."""
    if len(s) <= _FEW:
        return UTF8_MAX * len(s)
    if len(s) >= VALUE_BYTES_MAX and not s.isascii():
        return len(s) + 1
    return utf8_bytes(s)


def _of(value: Any, t: SqlType) -> int:
    """The exact bytes of a value inside another one."""
    if value is None or t.kind not in SIZED:
        return 0
    return utf8_bytes(value) if t.kind is Kind.STRING else size_of(t)(value)


def _parts(items: Any, t: SqlType) -> int:
    """The bytes of elements; stops counting beyond the limit."""
    total = PART_BYTES * len(items)
    if t.kind in SIZED:
        for v in items:
            if total > VALUE_BYTES_MAX:
                break
            total += _of(v, t)
    return total


def bounded(call: Callable[..., Any], t: SqlType) -> Callable[..., Any]:
    """The same function, which raises ValueTooLarge for a result above the limit. t: of the result."""
    if t.kind not in SIZED:
        return call
    if t.kind in (Kind.STRING, Kind.BYTES):
        return _bounded_text(call, size_of(t))
    size = size_of(t)

    def checked(*args: Any) -> Any:
        value = call(*args)
        if value is not None and (found := size(value)) > VALUE_BYTES_MAX:
            too_large(found)
        return value

    return checked


def _bounded_text(call: Callable[..., Any], size: Size) -> Callable[..., Any]:
    def checked(*args: Any) -> Any:
        value = call(*args)
        if value is not None and len(value) > _FEW and (found := size(value)) > VALUE_BYTES_MAX:
            too_large(found)
        return value

    return checked
