"""The operators of bits in standard SQL, over whole numbers in two's complement: `a & b`, `a | b`, `a # b`, `~a`, `a << n`, `a >> n`.

A shift counts its places modulo the bits of the number, and what is shifted out is lost, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable

from flowql.compiler.functions.registry import Lowering, Reference, standard, takes
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.types import BIGINT, INT, Kind

# The operator as written -> the function in the syntax tree.
OPERATORS = {"&": "BITS_AND", "|": "BITS_OR", "#": "BITS_XOR", "<<": "BITS_LEFT", ">>": "BITS_RIGHT"}
NOT = "BITS_NOT"


def _left(r: Resolution) -> Reference:
    bits = 32 if r.result.kind is Kind.INT else 64
    half = 1 << (bits - 1)

    def shifted(v: int, places: int) -> int:
        return ((v << (places & (bits - 1))) + half & (1 << bits) - 1) - half

    return shifted


def _right(r: Resolution) -> Reference:
    mask = (32 if r.result.kind is Kind.INT else 64) - 1
    return lambda v, places: v >> (places & mask)


def _same(function: Callable[..., int]) -> Callable[[Resolution], Reference]:
    return lambda _r: function


def _between(sign: str) -> Lowering:
    return lambda a, _r: f"({a[0]} {sign} {a[1]})"


_PAIRS: tuple[tuple[str, Callable[[Resolution], Reference], Lowering, str, str], ...] = (
    ("BITS_AND", _same(lambda a, b: a & b), _between("&"), "Bitwise AND.", "6 & 3 -> 2"),
    ("BITS_OR", _same(lambda a, b: a | b), _between("|"), "Bitwise OR.", "6 | 3 -> 7"),
    ("BITS_XOR", _same(lambda a, b: a ^ b), lambda a, _r: f"xor({a[0]}, {a[1]})", "Bitwise exclusive OR.", "6 # 3 -> 5"),
)  # fmt: skip
for _name, _by, _sql, _summary, _example in _PAIRS:
    standard(
        _name,
        takes(INT, INT, gives=INT),
        takes(BIGINT, BIGINT, gives=BIGINT),
        by_types=_by,
        duckdb=_sql,
        summary=_summary,
        example=_example,
    )
for _name, _by, _summary, _example in (
    ("BITS_LEFT", _left, "Shifts bits to the left.", "3 << 2 -> 12"),
    ("BITS_RIGHT", _right, "Shifts bits to the right, keeping the sign.", "-12 >> 2 -> -3"),
):  # fmt: skip
    standard(
        _name,
        takes(INT, INT, gives=INT),
        takes(BIGINT, INT, gives=BIGINT),
        by_types=_by,
        summary=_summary,
        example=_example,
    )
standard(
    NOT,
    takes(INT, gives=INT),
    takes(BIGINT, gives=BIGINT),
    by=lambda v: ~v,
    duckdb=lambda a, _r: f"(~{a[0]})",
    summary="Bitwise NOT.",
    example="~5 -> -6",
)
