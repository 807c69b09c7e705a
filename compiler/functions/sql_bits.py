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


_PAIRS: tuple[tuple[str, Callable[[Resolution], Reference], Lowering], ...] = (
    ("BITS_AND", _same(lambda a, b: a & b), _between("&")),
    ("BITS_OR", _same(lambda a, b: a | b), _between("|")),
    ("BITS_XOR", _same(lambda a, b: a ^ b), lambda a, _r: f"xor({a[0]}, {a[1]})"),
)  # fmt: skip
for _name, _by, _sql in _PAIRS:
    standard(
        _name,
        takes(INT, INT, gives=INT),
        takes(BIGINT, BIGINT, gives=BIGINT),
        by_types=_by,
        duckdb=_sql,
    )
for _name, _by in (
    ("BITS_LEFT", _left),
    ("BITS_RIGHT", _right),
):  # fmt: skip
    standard(_name, takes(INT, INT, gives=INT), takes(BIGINT, INT, gives=BIGINT), by_types=_by)
standard(
    NOT,
    takes(INT, gives=INT),
    takes(BIGINT, gives=BIGINT),
    by=lambda v: ~v,
    duckdb=lambda a, _r: f"(~{a[0]})",
)
