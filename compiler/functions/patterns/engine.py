"""The one engine of regular expressions: RE2 as pyarrow has it, over columns of strings. It releases the interpreter lock.

The first match is RE2's. All matches are those of `all_matches`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowql.compiler.functions.lazy_arrow import Ints, np, pa, pc
from flowql.compiler.functions.patterns.program import WHOLE, Program
from flowql.compiler.functions.patterns.re2 import END, Ending
from flowql.compiler.functions.patterns.spans import Spans, in_order

if TYPE_CHECKING:
    import numpy.typing as npt

# Larger columns take any alphabet: the milliseconds that RE2 needs to compile sets of letters are little beside them.
ALPHABET_MAX, ALPHABET_BYTES_MAX = 300, 200_000
ALL = "{}"  # the frame of a pattern that is searched for
_ENDINGS = (Ending.PLAIN, Ending.BOTH, Ending.ONE)
_TERMINATORS = ("\n", "\r", "\x85", "\u2028", "\u2029")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of strings that share a text of a program."""

    alphabet: str | None  # as of `Writer`
    ending: Ending


def kinds_of(program: Program, column: pa.Array) -> list[tuple[Kind, Ints | None]]:
    """The kinds of its strings and the rows of each; None for all rows. column: without nulls."""
    if len(column) == 1:
        s = column[0].as_py()
        return [(Kind(_alphabet(column, s.isascii()), _ending(s) if program.final else Ending.PLAIN), None)]
    wide = ~pc.string_is_ascii(column).to_numpy(zero_copy_only=False)
    code = wide.astype(np.int8)
    if program.final:
        code = code + 2 * _ending_codes(column)
    found = np.unique(code)
    if len(found) <= 1:
        return [(_kind(int(c), column), None) for c in found]
    rows = [np.flatnonzero(code == c) for c in found]
    return [(_kind(int(c), column.take(pa.array(r))), r) for c, r in zip(found, rows, strict=True)]


def _kind(code: int, strings: pa.Array) -> Kind:
    return Kind(_alphabet(strings, code % 2 == 0), _ENDINGS[code // 2])


def _alphabet(strings: pa.Array, ascii: bool) -> str | None:
    """The characters beyond ASCII of strings, where these are few."""
    if ascii:
        return ""
    if strings.nbytes > ALPHABET_BYTES_MAX:
        return None
    found = sorted(c for c in set("".join(strings.to_pylist())) if not c.isascii())
    return "".join(found) if len(found) <= ALPHABET_MAX else None


def _ending(s: str) -> Ending:
    if not s.endswith(_TERMINATORS):
        return Ending.PLAIN
    return Ending.BOTH if s.endswith("\r\n") else Ending.ONE


def _ending_codes(column: pa.Array) -> npt.NDArray[np.int8]:
    ends = pc.match_substring_regex(column, r"[\n\r\x{85}\x{2028}\x{2029}]\z").to_numpy(zero_copy_only=False)
    made = 2 * ends.astype(np.int8)
    if ends.any():
        made[pc.ends_with(column, "\r\n").to_numpy(zero_copy_only=False)] = 1
    return made


def by_kind(program: Program, column: pa.Array, run: Callable[[Kind, pa.Array], pa.Array]) -> pa.Array:
    """The results of `run` for the strings of each kind, in the order of the column."""
    kinds = kinds_of(program, column)
    if len(kinds) == 1:
        return run(kinds[0][0], column)
    parts = [(rows, run(kind, column.take(pa.array(rows)))) for kind, rows in kinds if rows is not None]
    order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
    return pa.concat_arrays([made for _, made in parts]).take(pa.array(order))


def tests(program: Program, column: pa.Array) -> pa.Array:
    """Whether each string has a match (BOOLEAN)."""

    def run(kind: Kind, strings: pa.Array) -> pa.Array:
        return pc.match_substring_regex(
            strings, program.text(ALL, frozenset(), alphabet=kind.alphabet, ending=kind.ending)
        )

    return by_kind(program, column, run)


def matches_empty(program: Program) -> bool:
    """Whether it matches a string without characters."""
    return bool(tests(program, pa.array([""]))[0].as_py())


def first(program: Program, column: pa.Array, groups: frozenset[int]) -> Spans:
    """The first match of each string that has one."""
    return of_kinds(program, column, groups, lambda kind, strings: search(program, kind, strings, groups, ALL))


def of_kinds(
    program: Program, column: pa.Array, groups: frozenset[int], find: Callable[[Kind, pa.Array], Spans]
) -> Spans:
    """The matches that `find` gives for the strings of each kind, in the order of the column."""
    parts = []
    for kind, rows in kinds_of(program, column):
        strings = column if rows is None else column.take(pa.array(rows))
        found = find(kind, strings)
        parts.append(found if rows is None else Spans(rows[found.rows], found.groups))
    return in_order(parts, groups)


def search(program: Program, kind: Kind, strings: pa.Array, groups: frozenset[int], frame: str) -> Spans:
    """The match of each string that has one, with rows counted within `strings`."""
    wanted = groups or frozenset((WHOLE,))
    text = program.text(frame, wanted, alphabet=kind.alphabet, ending=kind.ending)
    found = pc.extract_regex_span(strings, text)
    rows = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False)).astype(np.int64)
    made = {int(f.name[1:]): _span(found, i, rows) for i, f in enumerate(found.type) if not f.name.startswith(END)}
    stops = [_span(found, i, rows)[0] for i, f in enumerate(found.type) if f.name.startswith(END)]
    if stops:
        made = _cut(made, stops)
    return Spans(rows, made)


def _cut(groups: dict[int, tuple[Ints, Ints]], stops: list[Ints]) -> dict[int, tuple[Ints, Ints]]:
    """Without the line terminator that was read behind a `$`."""
    far = np.iinfo(np.int64).max
    stop = np.min([np.where(s < 0, far, s) for s in stops], axis=0)
    return {g: (begins, np.minimum(ends, stop)) for g, (begins, ends) in groups.items()}


def _span(found: pa.StructArray, index: int, rows: Ints) -> tuple[Ints, Ints]:
    field = found.field(index)
    pairs = field.flatten() if not field.null_count else field.values
    values = field.values.slice(2 * field.offset, 2 * len(field)) if field.null_count else pairs
    flat = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).reshape(-1, 2)
    begins, sizes = flat[rows, 0], flat[rows, 1]
    ends = begins + sizes
    if field.null_count:
        absent = field.is_null().to_numpy(zero_copy_only=False)[rows]
        begins, ends = np.where(absent, -1, begins), np.where(absent, -1, ends)
    return begins, ends
