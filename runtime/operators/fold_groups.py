"""Folding rows of a stream into their groups, where one change per group is shown.

Results are made once per group. Aggregates whose calls have a price (`AggregateFunction.add_many`) get all rows of all groups in one call. A row
that one aggregate of a group refuses is in none of them, so a group with such a row is folded again without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowql.runtime.batch import Row
from flowql.runtime.functions.failures import described
from flowql.runtime.functions.workers import FunctionFailed
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.fold import NOT_FOR_VALUES, Accs, Fold, Many
from flowql.runtime.operators.rows import KNOWN, Changes
from flowql.runtime.state.rows import Key, Value


@dataclass(frozen=True, slots=True)
class Rows:
    """Those of a run, and which are folded into which group. work: (place of the row, key of its group), in order."""

    rows: Sequence[Row]
    times: Sequence[int]
    seqs: Sequence[int]
    work: Sequence[tuple[int, Key]]


Folded = tuple[
    Accs, int, int
]  # a group after its rows: accumulators, time, and the place of the last row that is in it


def fold_groups(
    fold: Fold, given: Rows, groups: Mapping[Key, Value | None], run: MicroBatchContext
) -> dict[Key, Folded]:
    """The groups that took rows, in the order of their last rows. groups: of all keys in `given.work`, as they were."""
    many = fold.many
    if many is not None:
        try:
            return _in_one_call(fold, many, given, groups, run)
        except FunctionFailed:
            pass  # a process ended: row by row it is known for which
    return _row_by_row(fold, given, groups, run)


def _row_by_row(
    fold: Fold, given: Rows, groups: Mapping[Key, Value | None], run: MicroBatchContext
) -> dict[Key, Folded]:
    folded: dict[Key, Folded] = {}
    size, add, rows, times, seqs = len(fold.bound), fold.add, given.rows, given.times, given.seqs
    for i, key in given.work:
        now, at = folded.get(key), times[i]
        if now is not None:
            accs, time, _ = now
        elif (group := groups[key]) is not None:
            accs, time = group[:size], group[-1]
        else:
            accs, time = fold.initial, at
        try:
            made = add(accs, rows[i], at, seqs[i], run)
        except NOT_FOR_VALUES:
            raise
        except Exception as error:
            fold.failed(described(error), seqs[i], run)
            continue
        if now is not None:
            del folded[key]  # to the end: groups are in the order of their last rows
        folded[key] = made, time if time > at else at, i
    return folded


def _in_one_call(
    fold: Fold, many: Many, given: Rows, groups: Mapping[Key, Value | None], run: MicroBatchContext
) -> dict[Key, Folded]:
    """Raises FunctionFailed, without a dead letter."""
    members: dict[Key, list[int]] = {}
    order: dict[tuple[Key, int], int] = {}
    for n, (i, key) in enumerate(given.work):
        members.setdefault(key, []).append(i)
        order[key, i] = n
    letters: list[tuple[int, str]] = []
    folded: dict[Key, Folded] = {}
    arguments = _Arguments(many, given, run)
    while members:
        started = {
            key: _started(fold, many, given, groups[key], places, letters, run) for key, places in members.items()
        }
        members = {}
        added = [
            add([(accs[at], [arguments.of(n, i) for i in places]) for accs, places in started.values()])
            for n, (at, add) in enumerate(zip(many.at, many.add, strict=True))
        ]
        for (key, (accs, places)), *made in zip(started.items(), *added, strict=True):
            refused = {places[n]: failure for _, failed in made for n, failure in failed}
            if refused:
                letters += refused.items()
                members[key] = [i for i in places if i not in refused]
            elif places:
                for at, (acc, _) in zip(many.at, made, strict=True):
                    accs[at] = acc
                group = groups[key]
                first = given.times[places[0]] if group is None else group[-1]
                folded[key] = tuple(accs), max(first, *(given.times[i] for i in places)), places[-1]
    for i, failure in letters:
        fold.failed(failure, given.seqs[i], run)
    return dict(sorted(folded.items(), key=lambda item: order[item[0], item[1][2]]))


def _started(
    fold: Fold,
    many: Many,
    given: Rows,
    group: Value | None,
    places: Sequence[int],
    letters: list[tuple[int, str]],
    run: MicroBatchContext,
) -> tuple[list[Any], list[int]]:
    """The accumulators of a group, those that need no call with the rows that they take, and which rows these are."""
    accs = list(fold.initial if group is None else group[: len(fold.bound)])
    rest: Accs = tuple(accs[at] for at in many.rest)
    taken = []
    for i in places:
        try:
            rest = many.add_rest(rest, given.rows[i], given.times[i], given.seqs[i], run)
            taken.append(i)
        except NOT_FOR_VALUES:
            raise
        except Exception as error:
            letters.append((i, described(error)))
    for at, acc in zip(many.rest, rest, strict=True):
        accs[at] = acc
    return accs, taken


class _Arguments:
    """Arguments of aggregates for all rows; each is computed once."""

    def __init__(self, many: Many, given: Rows, run: MicroBatchContext) -> None:
        self._many, self._given, self._run = many, given, run
        self._known: list[dict[int, Row]] = [{} for _ in many.args]

    def of(self, n: int, i: int) -> Row:
        """To aggregate `n` of `Many`, of the row at place `i`."""
        found = self._known[n].get(i)
        if found is None:
            given = self._given
            found = self._many.args[n](given.rows[i], given.times[i], given.seqs[i], self._run)
            self._known[n][i] = found
        return found


Shown = Callable[[Key], tuple[Row, Row]]  # of the key of a group what is shown of it, and the bounds of its window


def _shown(key: Key) -> tuple[Row, Row]:
    return key, ()


def add_changes(
    changes: Changes,
    fold: Fold,
    groups: Mapping[Key, Value | None],
    folded: Mapping[Key, Folded],
    given: Rows,
    headers: Sequence[Any] | None,
    run: MicroBatchContext,
    shown: Shown = _shown,
) -> None:
    """One change of each group. groups: as they were before. given, headers: of the rows that were folded."""
    seqs, size = given.seqs, len(fold.bound)
    if fold.many is None:
        for key, (accs, time, last) in folded.items():
            (part, window), group, row_before = shown(key), groups[key], None
            if group is not None:
                row_before = fold.row(part, group[:size], window) if changes.retract else KNOWN
            head = headers[last] if headers is not None else None
            row = fold.row(part, accs, window, run=run, seq=seqs[last])
            changes.add(key, row_before, row, time, seqs[last], head)
        return
    after = result_rows(fold, [(*shown(key), accs, seqs[last]) for key, (accs, _, last) in folded.items()], run)
    before: dict[Key, Row] = {key: KNOWN for key in folded if groups[key] is not None}
    if changes.retract:
        wanted = [(*shown(key), value[:size], 0) for key in before if (value := groups[key]) is not None]
        before = dict(zip(before, result_rows(fold, wanted, None), strict=True))
    for (key, (_, time, last)), row in zip(folded.items(), after, strict=True):
        head = headers[last] if headers is not None else None
        changes.add(key, before.get(key), row, time, seqs[last], head)


Wanted = tuple[Row, Row, Accs, int]  # key, window, accumulators, and where dead letters of results go


def result_rows(fold: Fold, wanted: Sequence[Wanted], run: MicroBatchContext | None) -> list[Row]:
    """`Fold.row` of each. run: None for rows whose results failed before."""
    many = fold.many
    if many is not None and wanted:
        try:
            return _results_in_one_call(fold, many, wanted, run)
        except FunctionFailed:
            pass  # a process ended: one by one it is known for which
    return [fold.row(key, accs, window, run=run, seq=seq) for key, window, accs, seq in wanted]


def _results_in_one_call(fold: Fold, many: Many, wanted: Sequence[Wanted], run: MicroBatchContext | None) -> list[Row]:
    """Raises FunctionFailed, without a dead letter."""
    found = {at: result([w[2][at] for w in wanted]) for at, result in zip(many.at, many.result, strict=True)}
    rows = []
    for n, (key, window, accs, seq) in enumerate(wanted):
        values = []
        for at, b in enumerate(fold.shown):
            if at not in found:
                values.append(fold.result(b, accs[at], run, seq))
                continue
            value, failure = found[at][n]
            values.append(fold.failed_result(b, failure, run, seq) if failure else value)
        rows.append(fold.arranged(key, tuple(values), window))
    return rows
