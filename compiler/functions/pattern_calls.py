"""Functions of patterns: one meaning over a column of strings, which a row uses as a column of one.

Calls are grouped by all that is not the string: the pattern, flags, numbers. These are mostly constants, so that a batch is one call of the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

from flowql.compiler.functions.bounds import check_elements
from flowql.compiler.functions.duckdb_text import constant_text
from flowql.compiler.functions.lazy_arrow import np, pa, pc
from flowql.compiler.functions.patterns import spans
from flowql.compiler.functions.patterns.program import WHOLE, Program
from flowql.compiler.functions.patterns.short import short
from flowql.compiler.functions.patterns.spans import Spans
from flowql.compiler.functions.patterns.tree import StringTooLong, shown
from flowql.compiler.functions.registry import (
    CHEAP_ROWS,
    FAILED,
    ArrowCall,
    Lowering,
    Prepare,
    Reference,
    register_columns,
    standard,
    takes,
)
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.types import SqlType, arrow_type

if TYPE_CHECKING:
    import numpy.typing as npt

_WHOLE = re.compile(r"CAST\('(-?\d+)' AS (?:INTEGER|BIGINT)\)")
PREPARED_MAX = 500
AT_ONCE = 10_000  # elements that become Python's while no other thread runs
FEW = 100  # pieces of a replacement in a row


def _by_columns(s: str) -> NoReturn:
    raise AssertionError("a row is a column of one")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call but for its strings. over: of strings without NULL, gives as many values. every: it asks for all matches.

    row: the same of one string of at most `row_chars_max` characters; row_ascii: and of ASCII.
    """

    program: Program
    over: Callable[[pa.Array], pa.Array]
    every: bool = False
    row: Callable[[str], Any] = _by_columns
    row_chars_max: int = -1
    row_ascii: bool = False

    def with_row(self, make: Callable[[re.Pattern[str]], Callable[[str], Any]], groups: Iterable[int] = ()) -> Prepared:
        """With a row by `short`, where the pattern allows it. groups: that `make` takes."""
        found = None if self.every and self.program.nullable else short(self.program.pattern, frozenset(groups))
        return (
            self
            if found is None
            else replace(self, row=make(found.regex), row_chars_max=found.chars_max, row_ascii=found.ascii_only)
        )

    @property
    def bytes_max(self) -> int:
        return self.program.bytes_max(every=self.every)


@dataclass(frozen=True, slots=True)
class PatternFunction:
    """name: in the catalogue. prepare: of the arguments without the string, which is at `subject`; it raises ValueError."""

    name: str
    args: tuple[SqlType, ...]
    result: SqlType
    subject: int
    prepare: Callable[..., Prepared]

    def value(self, *args: Any) -> Any:
        """The meaning of one row, without NULL. Raises ValueError."""
        if self.subject:
            before, s, *others = args
            return _value(self.prepare(before, *others), s)
        s, *others = args
        return _value(self.prepare(*others), s)

    def prepared(self, constants: Sequence[Any]) -> Callable[[str], Any] | None:
        """The same of the string alone; None where another argument is not constant. constants: the arguments, None for what is not. Raises ValueError."""
        others = (*constants[: self.subject], *constants[self.subject + 1 :])
        if None in others:
            return None
        prepared = self.prepare(*others)
        row, most = prepared.row, -1 if prepared.row_ascii else prepared.row_chars_max
        return lambda s: row(s) if len(s) <= most else _value(prepared, s)

    def column(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The values of many rows; NULL where an argument is NULL or the row fails."""
        parts = [(rows, p.over(strings)) for rows, p, strings in self._calls(columns)]
        rows = np.concatenate([r for r, _ in parts]) if parts else np.zeros(0, np.int64)
        values = pa.concat_arrays([v for _, v in parts]) if parts else pa.nulls(0, arrow_type(self.result))
        count = len(columns[0])
        if len(rows) == count and (rows[:-1] < rows[1:]).all():
            return values
        place = np.full(count, -1, np.int64)
        place[rows] = np.arange(len(rows))
        return values.take(pa.array(place, mask=place < 0))

    def failed(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Which rows fail (BOOLEAN)."""
        asked = _valid(columns)
        for rows, _, _ in self._calls(columns):
            asked[rows] = False
        return pa.array(asked)

    def _calls(self, columns: Sequence[pa.Array]) -> Iterator[tuple[npt.NDArray[np.int64], Prepared, pa.Array]]:
        """The rows that do not fail, by what is not their string."""
        strings = columns[self.subject]
        others = [*columns[: self.subject], *columns[self.subject + 1 :]]
        for key, rows in _grouped(others, np.flatnonzero(_valid(columns))):
            try:
                prepared = self.prepare(*key)
            except ValueError:
                continue
            taken = strings if len(rows) == len(strings) else strings.take(pa.array(rows))
            if taken.nbytes > prepared.bytes_max:
                fits = pc.binary_length(taken).to_numpy(zero_copy_only=False) <= prepared.bytes_max
                rows, taken = rows[fits], taken.filter(pa.array(fits))
            if len(rows):
                yield rows, prepared, taken


def _value(prepared: Prepared, s: str) -> Any:
    if len(s) <= prepared.row_chars_max and (not prepared.row_ascii or s.isascii()):
        return prepared.row(s)
    strings = pa.array([s], pa.string())
    if strings.nbytes > prepared.bytes_max:
        _check(s, prepared)
    return as_python(prepared.over(strings)[0])


def as_python(value: pa.Scalar) -> Any:
    """In steps, between which other threads run."""
    if not isinstance(value, pa.ListScalar) or not value.is_valid or len(value) <= AT_ONCE:
        return value.as_py()
    return [v for i in range(0, len(value), AT_ONCE) for v in value.values.slice(i, AT_ONCE).to_pylist()]


def _check(s: str, prepared: Prepared) -> None:
    size = len(s.encode())
    if size > prepared.bytes_max:
        pattern = shown(prepared.program.pattern.text)
        raise StringTooLong(
            f"a string of {size:,} bytes is too long for the pattern {pattern}: at most {prepared.bytes_max:,}"
        )


def _valid(columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    made = np.ones(len(columns[0]), bool)
    for c in columns:
        if c.null_count:
            made &= c.is_valid().to_numpy(zero_copy_only=False)
    return made


def _grouped(
    others: Sequence[pa.Array], rows: npt.NDArray[np.int64]
) -> Iterator[tuple[tuple[Any, ...], npt.NDArray[np.int64]]]:
    """The values that rows have in other columns, with these rows."""
    if not len(rows):
        return
    head = tuple(c[int(rows[0])].as_py() for c in others)
    if all(pc.all(pc.equal(c, c[int(rows[0])])).as_py() for c in others):
        yield head, rows
        return
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row, key in zip(
        rows.tolist(), zip(*(c.take(pa.array(rows)).to_pylist() for c in others), strict=True), strict=True
    ):
        groups.setdefault(key, []).append(row)
    for key, found in groups.items():
        yield key, np.array(found, np.int64)


@dataclass(frozen=True, slots=True)
class _Failures:
    """Tells the rows that fail by their arguments."""

    function: PatternFunction

    def begin(self) -> None:
        """Nothing is kept."""

    def of(self, columns: Sequence[pa.Array], types: Sequence[SqlType]) -> pa.Array:
        return self.function.failed(columns)

    def all_declined(self) -> bool:
        return True


class PatternCalls(TypedDict):
    """The entry of a pattern function in the catalogue: its reference by types, and how DuckDB calls it over columns."""

    by_types: Callable[[Resolution], Reference]
    prepare: Prepare
    duckdb: Lowering
    declines: Lowering


_KNOWN: dict[str, PatternFunction] = {}


def pattern_calls(
    name: str, prepare: Callable[..., Prepared], result: SqlType, *forms: Sequence[SqlType], subject: int = 0
) -> PatternCalls:
    """forms: types of the arguments of each overload, which differ in their number. prepare: as of PatternFunction; it is asked once for equal arguments."""
    cached = lru_cache(maxsize=PREPARED_MAX)(prepare)
    functions = {len(f): PatternFunction(name, tuple(f), result, subject, cached) for f in forms}
    for count, function in functions.items():
        key = _called(name, count)
        _KNOWN[key] = function
        over = ArrowCall(function.args, result, function.column, _Failures(function))
        register_columns(key, over)
        register_columns(f"{key}{CHEAP_ROWS}", over)

    def duckdb(args: Sequence[str], _r: Resolution) -> str:
        cheap = ""
        if (constants := _constants(args, subject)) is not None:
            try:
                cheap = CHEAP_ROWS if cached(*constants).row_chars_max >= 0 else ""
            except ValueError:
                return ""
        return f'"{_called(name, len(args))}{cheap}"({", ".join(args)})'

    def declines(args: Sequence[str], _r: Resolution) -> str:
        constants = _constants(args, subject)
        if constants is None:
            return f'"{_called(name, len(args))}{FAILED}"({", ".join(args)})'
        return f"(strlen({args[subject]}) > {cached(*constants).bytes_max})"

    return {
        "by_types": lambda r: functions[len(r.args)].value,
        "prepare": lambda r, constants: functions[len(r.args)].prepared(constants),
        "duckdb": duckdb,
        "declines": declines,
    }


def pattern_function(
    register: Callable[..., None],
    written: str,
    prepare: Callable[..., Prepared],
    *params: SqlType,
    gives: SqlType,
    needs: int | None = None,
    subject: int = 0,
) -> None:
    """Registers a function of patterns. register: `scalar` or `standard`. needs: parameters after so many may be left out."""
    forms = [params[:n] for n in range(needs or len(params), len(params) + 1)]
    name = f"sql_{written.lower()}" if register is standard else written
    calls = pattern_calls(name, prepare, gives, *forms, subject=subject)
    register(written, takes(*params, gives=gives, needs=needs), **calls)


def function_over_columns(name: str, count: int) -> PatternFunction | None:
    """The function of patterns of that name in the catalogue with so many arguments."""
    return _KNOWN.get(_called(name, count))


def _called(name: str, count: int) -> str:
    return f"{name.upper()}@{count}"


def _constants(args: Sequence[str], subject: int) -> list[Any] | None:
    """The values of all arguments but the string, if they are constants."""
    made: list[Any] = []
    for i, sql in enumerate(args):
        if i == subject:
            continue
        whole = _WHOLE.fullmatch(sql)
        value = int(whole[1]) if whole else constant_text(sql)
        if value is None:
            return None
        made.append(value)
    return made


def found_in(regex: re.Pattern[str]) -> Callable[[str], bool]:
    search = regex.search
    return lambda s: search(s) is not None


def group_of_first(group: int) -> Callable[[re.Pattern[str]], Callable[[str], Any]]:
    """A group of the first match, or None. group: 0 is the match."""

    def make(regex: re.Pattern[str]) -> Callable[[str], Any]:
        search, at = regex.search, 0 if not group else regex.groupindex[f"g{group}"]
        return lambda s: None if (m := search(s)) is None else m[at]

    return make


def replacing(pieces: Sequence[str | int], count: int = 0) -> Callable[[re.Pattern[str]], Callable[[str], Any]]:
    """Matches replaced by pieces of `joined`. count: how many, 0 for all."""
    template = "".join(p.replace("\\", r"\\") if isinstance(p, str) else rf"\g<{f'g{p}' if p else 0}>" for p in pieces)
    return lambda regex: lambda s: regex.sub(template, s, count)


def lists(rows: npt.NDArray[np.int64], values: pa.Array, count: int) -> pa.Array:
    """A list of the values of each of `count` rows. rows: of the values, in order."""
    offsets = np.searchsorted(rows, np.arange(count + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def between(strings: pa.Array, found: Spans, to_end: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """The parts of strings between matches, and their rows. to_end: strings whose rest behind the last match is a part. Raises ValueTooLarge."""
    begins, ends = found.groups[WHOLE]
    last = np.flatnonzero(to_end)
    rows = np.concatenate((found.rows, last))
    check_elements(int(np.bincount(rows, minlength=1).max()))
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    stops = np.concatenate((begins, spans.lengths(strings)[last]))[order]
    starts = np.zeros(len(rows), np.int64)
    starts[1:] = np.where(rows[1:] == rows[:-1], np.concatenate((ends, last))[order][:-1], 0)
    return rows, spans.texts(strings, rows, starts, stops)


def places_before(found: Spans) -> npt.NDArray[np.int64]:
    """Where the match before each match of the same string ends; 0 for the first one."""
    rows, (_, ends) = found.rows, found.groups[WHOLE]
    made = np.zeros(len(rows), np.int64)
    made[1:] = np.where(rows[1:] == rows[:-1], ends[:-1], 0)
    return made


def scattered(rows: npt.NDArray[np.int64], values: pa.Array, count: int) -> pa.Array:
    """The values of some of `count` rows; NULL of the others."""
    if len(rows) == count:
        return values
    place = np.full(count, -1, np.int64)
    place[rows] = np.arange(len(rows))
    return values.take(pa.array(place, mask=place < 0))
