"""Strings with matches replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from flowql.compiler.functions.bounds import PART_MAX, VALUE_BYTES_MAX, check_bytes, check_work, utf8_bytes
from flowql.compiler.functions.lazy_arrow import Ints, np, pa, pc
from flowql.compiler.functions.patterns.all_matches import every_of_kind
from flowql.compiler.functions.patterns.engine import ALL, Kind, by_kind
from flowql.compiler.functions.patterns.program import WHOLE, Program
from flowql.compiler.functions.patterns.re2 import Ending
from flowql.compiler.functions.patterns.spans import Spans, lengths, texts

# Values of the largest size that a batch of replaced strings may have together; above it is computed row by row.
TOGETHER_MAX = 16
PIECE_NS = 300  # a piece of a replacement in place of one match


def replaced(program: Program, column: pa.Array, pieces: tuple[str | int, ...]) -> pa.Array:
    """Each string with all its matches replaced. pieces: text, and numbers of groups."""
    groups = frozenset(p for p in pieces if isinstance(p, int))
    order = program.order(groups - {WHOLE})
    simple = not program.nullable and len(order) < 10

    def run(kind: Kind, strings: pa.Array) -> pa.Array:
        text = program.text(ALL, groups - {WHOLE}, alphabet=kind.alphabet)
        if not simple or kind.ending is not Ending.PLAIN or _may_be_large(strings, text, pieces):
            return spliced(strings, every_of_kind(program, kind, strings, groups | {WHOLE}, 0), pieces)
        by = "".join(
            p.replace("\\", r"\\") if isinstance(p, str) else rf"\{order.index(p) + 1 if p else 0}" for p in pieces
        )
        return pc.replace_substring_regex(strings, pattern=text, replacement=by)

    return by_kind(program, column, run)


def _may_be_large(strings: pa.Array, text: str, pieces: tuple[str | int, ...]) -> bool:
    """Whether strings may become too large by groups. Raises ValueTooLarge where they do by the text in place of each match."""
    bytes_all, added, parts = int(lengths(strings).sum()), _text_bytes(pieces), sum(isinstance(p, int) for p in pieces)
    if bytes_all * (1 + added + parts) <= VALUE_BYTES_MAX:
        return False
    matches = pc.count_substring_regex(strings, text).to_numpy(zero_copy_only=False).astype(np.int64)
    _check_bytes(matches * added)
    return bytes_all * (1 + parts) + int(matches.sum()) * added > VALUE_BYTES_MAX


def _text_bytes(pieces: tuple[str | int, ...]) -> int:
    return sum(utf8_bytes(p) for p in pieces if isinstance(p, str))


def _check_bytes(sizes: Ints) -> None:
    """sizes: of the strings of a batch. Raises ValueTooLarge for one, or if all together are more than a few of the largest ones."""
    check_bytes(int(sizes.max(initial=0)))
    check_bytes(int(sizes.sum()) // TOGETHER_MAX)


def spliced(strings: pa.Array, found: Spans, pieces: tuple[str | int, ...]) -> pa.Array:
    """Each string with the pieces in place of some of its matches."""
    _check_bytes(lengths(strings) + _added_bytes(found, pieces, len(strings)))
    check_work(PIECE_NS * len(pieces) * len(found.rows))
    parts = {g: texts(strings, found.rows, b, e).to_pylist() for g, (b, e) in found.groups.items()}
    begins, ends = found.groups[WHOLE]
    made: list[Any] = [s.encode() for s in strings.to_pylist()]
    bounds = np.searchsorted(found.rows, np.arange(len(made) + 1)).tolist()
    for row in np.unique(found.rows).tolist():
        s, out, at = made[row], [], 0
        for first in range(bounds[row], bounds[row + 1], PART_MAX):
            part = list[bytes]()
            here = slice(first, min(first + PART_MAX, bounds[row + 1]))
            for i, (begin, end) in enumerate(zip(begins[here].tolist(), ends[here].tolist(), strict=True), first):
                part.append(s[at:begin])
                part += ((p if isinstance(p, str) else parts[p][i] or "").encode() for p in pieces)
                at = end
            out.append(b"".join(part))
        made[row] = b"".join([*out, s[at:]])
    return pa.array([m.decode() for m in made], pa.string())


def _added_bytes(found: Spans, pieces: tuple[str | int, ...], count: int) -> Ints:
    """How much longer each of `count` strings becomes."""
    sizes = {g: ends - begins for g, (begins, ends) in found.groups.items()}
    each = _text_bytes(pieces) - sizes[WHOLE]
    for g, times in Counter(p for p in pieces if isinstance(p, int)).items():
        each = each + times * sizes[g]
    added: Ints = np.bincount(found.rows, each, count).astype(np.int64)
    return added


def joined(pieces: Iterable[str | int]) -> tuple[str | int, ...]:
    """Pieces of a replacement with neighbouring texts put together, in linear time."""
    made: list[str | int] = []
    for is_text, run in groupby(pieces, lambda p: isinstance(p, str)):
        parts = list(run)
        made += ["".join(map(str, parts))] if is_text else parts
    return tuple(made)
