"""The one engine of regular expressions: RE2 as pyarrow has it, over columns of strings. It releases the interpreter lock.

The first match is RE2's. All matches follow each other as in Java and PostgreSQL: the next one begins where the last one ended, or a character
further where that one was empty. RE2 replaces all matches in one pass, but leaves out an empty one right behind another; it is put in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from flowql.compiler.functions.bounds import (
    ELEMENTS_MAX,
    VALUE_BYTES_MAX,
    check_bytes,
    check_elements,
    check_work,
    utf8_bytes,
)
from flowql.compiler.functions.lazy_arrow import Ints, np, pa, pc
from flowql.compiler.functions.patterns.program import WHOLE, Program
from flowql.compiler.functions.patterns.re2 import END, Ending

if TYPE_CHECKING:
    import numpy.typing as npt

# Larger columns take any alphabet: the milliseconds that RE2 needs to compile sets of letters are little beside them.
ALPHABET_MAX, ALPHABET_BYTES_MAX = 300, 200_000
# Matches of a batch that may be looked at together, in the largest arrays; above it is computed row by row.
MATCHES_TIMES = 4
# Values of the largest size that a batch of replaced strings may have together; above it is computed row by row.
TOGETHER_MAX = 16
PIECE_NS = 300  # a piece of a replacement in place of one match
ALL, NEXT, SECOND = "{}", r"\A(?s:.)(?s:.*?){}", r"\A(?s:.)|{}"
# A match alone, by whether a character stands before and behind it.
EXACT = {(before, behind): rf"\A{'(?s:.)' * before}{{}}{'(?s:.)' * behind}\z" for before in (False, True) for behind in (False, True)}  # fmt: skip
_ENDINGS = (Ending.PLAIN, Ending.BOTH, Ending.ONE)
_TERMINATORS = ("\n", "\r", "\x85", "\u2028", "\u2029")
# Characters that no string has to have: one that is not in a column marks its matches.
_MARKS = [chr(c) for c in (*range(0xFDD0, 0xFDF0), *range(0xF0000, 0xF0100))]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of strings that share a text of a program."""

    alphabet: str | None  # as of `Writer`
    ending: Ending


@dataclass(frozen=True, slots=True)
class Spans:
    """Where each match and its groups begin and end, in bytes of its string; -1 for groups that did not take part.

    rows: the row of each match, in order. groups: number -> (begins, ends).
    """

    rows: Ints
    groups: dict[int, tuple[Ints, Ints]]

    def chosen(self, which: npt.NDArray[np.bool_]) -> Spans:
        return Spans(self.rows[which], {g: (b[which], e[which]) for g, (b, e) in self.groups.items()})


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
    """What `run` makes of the strings of each kind, in the order of the column."""
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


def first(program: Program, column: pa.Array, groups: frozenset[int]) -> Spans:
    """The first match of each string that has one."""
    parts = []
    for kind, rows in kinds_of(program, column):
        strings = column if rows is None else column.take(pa.array(rows))
        found = _search(program, kind, strings, groups, ALL)
        parts.append(found if rows is None else Spans(rows[found.rows], found.groups))
    return _in_order(parts, groups)


def _in_order(parts: list[Spans], groups: frozenset[int]) -> Spans:
    """Matches by their rows; those of a row stay in the order of the parts."""
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([p.rows for p in parts]) if parts else np.zeros(0, np.int64)
    order = np.argsort(rows, kind="stable")
    made = {}
    for g in groups:
        begins, ends = (np.concatenate([p.groups[g][i] for p in parts]) if parts else rows for i in (0, 1))
        made[g] = begins[order], ends[order]
    return Spans(rows[order], made)


def _search(program: Program, kind: Kind, strings: pa.Array, groups: frozenset[int], frame: str) -> Spans:
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


def texts(column: pa.Array, rows: Ints, begins: Ints, ends: Ints) -> pa.Array:
    """The parts of strings; NULL where a part begins at -1. column: strings without nulls."""
    offsets, data = _buffers(column)
    sizes = np.where(begins < 0, 0, ends - begins)
    made = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(sizes, out=made[1:])
    source = np.repeat(offsets[rows] + np.maximum(begins, 0) - made[:-1], sizes) + np.arange(made[-1])
    picked = pa.py_buffer(data[source])
    absent = begins < 0
    valid = pa.array(~absent).buffers()[1] if absent.any() else None
    return pa.Array.from_buffers(pa.large_string(), len(rows), [valid, pa.py_buffer(made), picked]).cast(pa.string())


def _buffers(column: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Where each string begins in the bytes of a column, and these; one more for the end of the last one."""
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
    return offsets, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def lengths(column: pa.Array) -> Ints:
    """In bytes."""
    sizes: Ints = pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def mark_for(column: pa.Array) -> str:
    """A character that is in no string of a column. Raises ValueError where all have been used."""
    for mark in _MARKS:
        if not pc.any(pc.match_substring(column, mark)).as_py():
            return mark
    raise ValueError("the strings have all characters that matches are marked with")


def every(program: Program, column: pa.Array, groups: frozenset[int], skipped: int = 0) -> Spans:
    """All matches of each string. skipped: characters before the place where the search begins; each string has as many."""
    parts = []
    for kind, rows in kinds_of(program, column):
        strings = column if rows is None else column.take(pa.array(rows))
        found = _every(program, kind, strings, groups, skipped)
        parts.append(found if rows is None else Spans(rows[found.rows], found.groups))
    return _in_order(parts, groups)


def _every(program: Program, kind: Kind, strings: pa.Array, groups: frozenset[int], skipped: int) -> Spans:
    whole = _behind(program, kind, strings, skipped) if skipped else _at_once(program, kind, strings)
    read = bool(skipped) and program.placed
    if program.nullable:
        whole = _with_empty_ones(program, kind, strings, whole, read=read)
    if read:
        whole = whole.chosen(~_first_of_row(whole))
    if kind.ending is Ending.PLAIN:
        return _with_groups(program, kind, strings, whole, groups)
    ended = whole.groups[WHOLE][1] == lengths(strings)[whole.rows]
    inside = _with_groups(program, kind, strings, whole.chosen(~ended), groups)
    return _in_order([inside, _one_by_one(program, kind, strings, groups, whole.chosen(ended))], groups)


def _first_of_row(found: Spans) -> npt.NDArray[np.bool_]:
    return np.diff(found.rows, prepend=-1) > 0


def _moved(found: Spans, by: Ints) -> Spans:
    """by: bytes, of each match."""
    moved = {g: (np.where(b < 0, -1, b + by), np.where(b < 0, -1, e + by)) for g, (b, e) in found.groups.items()}
    return Spans(found.rows, moved)


def _at_once(program: Program, kind: Kind, strings: pa.Array, frame: str = ALL) -> Spans:
    """In one pass: matches are marked in a copy, which is split at the marks. RE2 gives no empty match right behind another one."""
    text = program.text(frame, frozenset(), alphabet=kind.alphabet, ending=kind.ending)
    _check_matches(program, strings, text)
    mark = mark_for(strings)
    marked = pc.replace_substring_regex(strings, pattern=text, replacement=rf"{mark}\0{mark}")
    split = pc.split_pattern(marked, mark)
    pieces = split.offsets.to_numpy()
    places, _ = _buffers(split.values)
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


def _behind(program: Program, kind: Kind, strings: pa.Array, skipped: int) -> Spans:
    """As `_at_once`, from a character on. Positions look at the character before it, which is read as a match of its own."""
    rest = pc.utf8_slice_codeunits(strings, skipped - program.placed)
    found = _at_once(program, kind, rest, SECOND if program.placed else ALL)
    return _moved(found, (lengths(strings) - lengths(rest))[found.rows])


def _with_empty_ones(program: Program, kind: Kind, strings: pa.Array, found: Spans, *, read: bool) -> Spans:
    """Java and PostgreSQL give an empty match right behind another one. A pattern without positions that may be empty is so everywhere.

    read: the first match of each string is the character before its matches.
    """
    rows, (begins, ends) = found.rows, found.groups[WHOLE]
    follows = np.zeros(len(rows), bool)
    follows[:-1] = (rows[1:] == rows[:-1]) & (begins[1:] == ends[:-1])
    alone = (ends > begins) & ~follows
    if kind.ending is not Ending.PLAIN:
        alone &= (ends < lengths(strings)[rows]) | (_first_of_row(found) & read)
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
    offsets, data = _buffers(strings)
    rows, (begins, ends) = places.rows, places.groups[WHOLE]
    before = (begins > 0) & program.placed
    behind = (ends < np.diff(offsets)[rows]) & program.placed
    parts = []
    for (has_before, has_behind), frame in EXACT.items():
        at = np.flatnonzero((before == has_before) & (behind == has_behind))
        if not len(at):
            continue
        first = offsets[rows[at]]
        left = _before(data, first + begins[at]) - first if has_before else begins[at]
        right = _next(data, first + ends[at]) - first if has_behind else ends[at]
        found = _search(program, kind, texts(strings, rows[at], left, right), groups, frame)
        parts.append(_moved(Spans(at[found.rows], found.groups), left[found.rows]))
    return _in_order(parts, groups)


def _one_by_one(program: Program, kind: Kind, strings: pa.Array, groups: frozenset[int], last: Spans) -> Spans:
    """The matches from the last one of each string on, which may have read the line terminator behind a `$`. So they are few."""
    offsets, data = _buffers(strings)
    sizes = np.diff(offsets)
    rows, (at, _) = last.rows, last.groups[WHOLE]
    wanted = groups | {WHOLE}
    found: list[Spans] = []
    while len(rows):
        parts = [_from(program, kind, strings, wanted, rows[c], at[c], frame) for c, frame in ((at == 0, ALL), (at > 0, NEXT)) if c.any()]  # fmt: skip
        found.append(_in_order(parts, wanted))
        rows, (begins, ends) = found[-1].rows, found[-1].groups[WHOLE]
        at = np.where(ends > begins, ends, _next(data, offsets[rows] + ends) - offsets[rows])
        more = at <= sizes[rows]
        rows, at = rows[more], at[more]
    made = _in_order(found, wanted)
    return Spans(made.rows, {g: made.groups[g] for g in groups})


def _from(
    program: Program, kind: Kind, strings: pa.Array, groups: frozenset[int], rows: Ints, at: Ints, frame: str
) -> Spans:
    """The first match of each row that begins at or behind a place."""
    offsets, data = _buffers(strings)
    begin = at if frame is ALL else _before(data, offsets[rows] + at) - offsets[rows]
    rest = texts(strings, rows, begin, np.diff(offsets)[rows])
    found = _search(program, kind, rest, groups, frame)
    return _moved(Spans(rows[found.rows], found.groups), begin[found.rows])


def _next(data: npt.NDArray[np.uint8], at: Ints) -> Ints:
    """Behind the character that begins at a byte; one further at the end."""
    at = at + 1
    for _ in range(3):
        inside = at < len(data)
        at = at + (inside & (data[np.where(inside, at, 0)] & 0xC0 == 0x80) if len(data) else 0)
    return at


def _before(data: npt.NDArray[np.uint8], at: Ints) -> Ints:
    """Where the character before a byte begins."""
    at = at - 1
    for _ in range(3):
        at = at - (data[at] & 0xC0 == 0x80)
    return at


def replaced(program: Program, column: pa.Array, pieces: tuple[str | int, ...]) -> pa.Array:
    """Each string with all its matches replaced. pieces: text, and numbers of groups."""
    groups = frozenset(p for p in pieces if isinstance(p, int))
    order = program.order(groups - {WHOLE})
    simple = not program.nullable and len(order) < 10

    def run(kind: Kind, strings: pa.Array) -> pa.Array:
        text = program.text(ALL, groups - {WHOLE}, alphabet=kind.alphabet)
        if not simple or kind.ending is not Ending.PLAIN or _may_be_large(strings, text, pieces):
            return spliced(strings, _every(program, kind, strings, groups | {WHOLE}, 0), pieces)
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
    begins, ends = (a.tolist() for a in found.groups[WHOLE])
    made: list[Any] = [s.encode() for s in strings.to_pylist()]
    bounds = np.searchsorted(found.rows, np.arange(len(made) + 1)).tolist()
    for row in np.unique(found.rows).tolist():
        s, out, at = made[row], [], 0
        for i in range(bounds[row], bounds[row + 1]):
            out.append(s[at : begins[i]])
            out += ((p if isinstance(p, str) else parts[p][i] or "").encode() for p in pieces)
            at = ends[i]
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


def matches_empty(program: Program) -> bool:
    """Whether it matches a string without characters."""
    return bool(tests(program, pa.array([""]))[0].as_py())
