"""All matches of a pattern follow each other as in Java and PostgreSQL, and strings with matches replaced.

The next match begins where the last one ended, or a character further where that one was empty. RE2 replaces all matches in one pass, but leaves out an
empty one right behind another; it is put in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from flowql.compiler.functions.bounds import (
    ELEMENTS_MAX,
    PART_MAX,
    VALUE_BYTES_MAX,
    check_bytes,
    check_elements,
    check_work,
    utf8_bytes,
)
from flowql.compiler.functions.lazy_arrow import Ints, np, pa, pc
from flowql.compiler.functions.patterns.engine import ALL, Kind, by_kind, of_kinds, search
from flowql.compiler.functions.patterns.program import WHOLE, Program
from flowql.compiler.functions.patterns.re2 import Ending
from flowql.compiler.functions.patterns.spans import (
    Spans,
    buffers,
    character_before,
    first_of_row,
    in_order,
    lengths,
    moved,
    next_character,
    texts,
)

# Matches of a batch that may be looked at together, in the largest arrays; above it is computed row by row.
MATCHES_TIMES = 4
NEXT, SECOND = r"\A(?s:.)(?s:.*?){}", r"\A(?s:.)|{}"
# A match alone, by whether a character stands before and behind it.
EXACT = {(before, behind): rf"\A{'(?s:.)' * before}{{}}{'(?s:.)' * behind}\z" for before in (False, True) for behind in (False, True)}  # fmt: skip
# Characters that no string has to have: one that is not in a column marks its matches.
_MARKS = [chr(c) for c in (*range(0xFDD0, 0xFDF0), *range(0xF0000, 0xF0100))]


def every(program: Program, column: pa.Array, groups: frozenset[int], skipped: int = 0) -> Spans:
    """All matches of each string. skipped: characters before the place where the search begins; each string has as many."""
    return of_kinds(
        program, column, groups, lambda kind, strings: every_of_kind(program, kind, strings, groups, skipped)
    )


def every_of_kind(program: Program, kind: Kind, strings: pa.Array, groups: frozenset[int], skipped: int) -> Spans:
    whole = _behind(program, kind, strings, skipped) if skipped else _at_once(program, kind, strings)
    read = bool(skipped) and program.placed
    if program.nullable:
        whole = _with_empty_ones(program, kind, strings, whole, read=read)
    if read:
        whole = whole.chosen(~first_of_row(whole))
    if kind.ending is Ending.PLAIN:
        return _with_groups(program, kind, strings, whole, groups)
    ended = whole.groups[WHOLE][1] == lengths(strings)[whole.rows]
    inside = _with_groups(program, kind, strings, whole.chosen(~ended), groups)
    return in_order([inside, _one_by_one(program, kind, strings, groups, whole.chosen(ended))], groups)


def _at_once(program: Program, kind: Kind, strings: pa.Array, frame: str = ALL) -> Spans:
    """In one pass: matches are marked in a copy, which is split at the marks. RE2 gives no empty match right behind another one."""
    text = program.text(frame, frozenset(), alphabet=kind.alphabet, ending=kind.ending)
    _check_matches(program, strings, text)
    mark = mark_for(strings)
    marked = pc.replace_substring_regex(strings, pattern=text, replacement=rf"{mark}\0{mark}")
    split = pc.split_pattern(marked, mark)
    pieces = split.offsets.to_numpy()
    places, _ = buffers(split.values)
    rows = np.repeat(np.arange(len(strings), dtype=np.int64), np.diff(pieces) // 2)
    at = 2 * np.arange(len(rows), dtype=np.int64) + 1 + rows  # each string has one piece more than twice its matches
    first = places[pieces[:-1]][rows]
    return Spans(rows, {WHOLE: (places[at] - first, places[at + 1] - first)})


def _check_matches(program: Program, strings: pa.Array, text: str) -> None:
    """Before all matches are made. Raises ValueTooLarge for a string with too many, or where all strings of a batch have."""
    if strings.nbytes <= ELEMENTS_MAX:
        return
    count = pc.utf8_length(strings) if program.nullable else pc.count_substring_regex(strings, text)
    check_elements(pc.max(count).as_py())
    check_elements(pc.sum(count).as_py() // MATCHES_TIMES)


def mark_for(column: pa.Array) -> str:
    """A character that is in no string of a column. Raises ValueError where all have been used."""
    for mark in _MARKS:
        if not pc.any(pc.match_substring(column, mark)).as_py():
            return mark
    raise ValueError("the strings have all characters that matches are marked with")


def _behind(program: Program, kind: Kind, strings: pa.Array, skipped: int) -> Spans:
    """As `_at_once`, from a character on. Positions look at the character before it, which is read as a match of its own."""
    rest = pc.utf8_slice_codeunits(strings, skipped - program.placed)
    found = _at_once(program, kind, rest, SECOND if program.placed else ALL)
    return moved(found, (lengths(strings) - lengths(rest))[found.rows])


def _with_empty_ones(program: Program, kind: Kind, strings: pa.Array, found: Spans, *, read: bool) -> Spans:
    """Java and PostgreSQL give an empty match right behind another one. A pattern without positions that may be empty is so everywhere.

    read: the first match of each string is the character before its matches.
    """
    rows, (begins, ends) = found.rows, found.groups[WHOLE]
    follows = np.zeros(len(rows), bool)
    follows[:-1] = (rows[1:] == rows[:-1]) & (begins[1:] == ends[:-1])
    alone = (ends > begins) & ~follows
    if kind.ending is not Ending.PLAIN:
        alone &= (ends < lengths(strings)[rows]) | (first_of_row(found) & read)
    behind = np.flatnonzero(alone)
    if program.placed:
        places = Spans(rows[behind], {WHOLE: (ends[behind], ends[behind])})
        behind = behind[_at_places(program, kind, strings, places, frozenset((WHOLE,))).rows]
    at = behind + 1
    made = np.insert(begins, at, ends[behind]), np.insert(ends, at, ends[behind])
    return Spans(np.insert(rows, at, rows[behind]), {WHOLE: made})


def _with_groups(program: Program, kind: Kind, strings: pa.Array, whole: Spans, groups: frozenset[int]) -> Spans:
    if groups == {WHOLE} or not len(whole.rows):
        return Spans(whole.rows, {g: whole.groups[WHOLE] for g in groups})
    found = _at_places(program, kind, strings, whole, groups)
    assert len(found.rows) == len(whole.rows), program.pattern.text
    return Spans(whole.rows, found.groups)


def _at_places(program: Program, kind: Kind, strings: pa.Array, places: Spans, groups: frozenset[int]) -> Spans:
    """The matches that begin and end at places, in a part of their string with the character before and behind, where the pattern looks at it.

    rows: indexes of places.
    """
    offsets, data = buffers(strings)
    rows, (begins, ends) = places.rows, places.groups[WHOLE]
    before = (begins > 0) & program.placed
    behind = (ends < np.diff(offsets)[rows]) & program.placed
    parts = []
    for (has_before, has_behind), frame in EXACT.items():
        at = np.flatnonzero((before == has_before) & (behind == has_behind))
        if not len(at):
            continue
        first = offsets[rows[at]]
        left = character_before(data, first + begins[at]) - first if has_before else begins[at]
        right = next_character(data, first + ends[at]) - first if has_behind else ends[at]
        found = search(program, kind, texts(strings, rows[at], left, right), groups, frame)
        parts.append(moved(Spans(at[found.rows], found.groups), left[found.rows]))
    return in_order(parts, groups)


def _one_by_one(program: Program, kind: Kind, strings: pa.Array, groups: frozenset[int], last: Spans) -> Spans:
    """The matches from the last one of each string on, which may have read the line terminator behind a `$`. So they are few."""
    offsets, data = buffers(strings)
    sizes = np.diff(offsets)
    rows, (at, _) = last.rows, last.groups[WHOLE]
    wanted = groups | {WHOLE}
    found: list[Spans] = []
    while len(rows):
        parts = [_from(program, kind, strings, wanted, rows[c], at[c], frame) for c, frame in ((at == 0, ALL), (at > 0, NEXT)) if c.any()]  # fmt: skip
        found.append(in_order(parts, wanted))
        rows, (begins, ends) = found[-1].rows, found[-1].groups[WHOLE]
        at = np.where(ends > begins, ends, next_character(data, offsets[rows] + ends) - offsets[rows])
        more = at <= sizes[rows]
        rows, at = rows[more], at[more]
    made = in_order(found, wanted)
    return Spans(made.rows, {g: made.groups[g] for g in groups})


def _from(
    program: Program, kind: Kind, strings: pa.Array, groups: frozenset[int], rows: Ints, at: Ints, frame: str
) -> Spans:
    """The first match of each row that begins at or behind a place."""
    offsets, data = buffers(strings)
    begin = at if frame is ALL else character_before(data, offsets[rows] + at) - offsets[rows]
    rest = texts(strings, rows, begin, np.diff(offsets)[rows])
    found = search(program, kind, rest, groups, frame)
    return moved(Spans(rows[found.rows], found.groups), begin[found.rows])


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
