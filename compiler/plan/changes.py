"""Operators over changes: relations whose rows are inserted, updated and deleted, and views over them.

Inputs and outputs of these operators have change kind `retract`. The key columns of a schema are the *row identity*: which row a
change is about, whatever its other columns are. Filter and Project (of any dialect) carry it on; so these specs need none for them.
An expression that one of these operators reads is a column of its input: a Project below computes it.

appends: an input whose rows only ever come (`flowql.compiler.optimize.mark_appends`): nothing is kept of it for a row that might leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from flowql.compiler.plan.expr import Expr
from flowql.compiler.plan.types import SqlType
from flowql.compiler.plan.watermarks import Closing

EquiJoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
TemporalJoinKind = Literal["inner", "left"]
RankFunction = Literal["row_number", "rank", "dense_rank"]
FrameUnit = Literal["rows", "range", "groups", "session"]
Exclude = Literal["", "current row", "group", "ties"]
Offset = int | float | Decimal


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to order by. Texts are ordered by code point, NaN is the largest number."""

    column: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class GroupCall:
    """One aggregate of a `GroupAggregate`.

    function: name in `flowql.compiler.functions.change_aggregates`. args: columns of the input. type: of the result.
    distinct: equal arguments count once. filter: a BOOLEAN column; rows where it is not true are left out. order: of the
    arguments, for functions that depend on it (what is equal there is ordered by the arguments). init: constant arguments.
    """

    name: str
    function: str
    args: tuple[str, ...]
    type: SqlType
    distinct: bool = False
    filter: str = ""
    order: tuple[SortKey, ...] = ()
    init: tuple[bool | int | float | str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Sessions:
    """Rows of which each is at most `gap` behind the one before, in its reference value, by the column `time`."""

    time: str
    gap: int


@dataclass(frozen=True, slots=True)
class GroupAggregate:
    """Group by `keys` (columns of the input, NULLs are equal); a group without rows has no result.

    Without keys there is one group, and it always has a result, also of no rows. Key columns of the output: the values of
    `keys`, in order. Its other columns: those of the calls, by name. closing: keys that follow a watermark; a group that is closed
    is forgotten, and its result stays. sessions: the last two keys are no columns of the input, but the first and the last time of
    each session of the rows that are equal in the other ones; rows only come, and no call keeps all values. final: a group has a
    result when it is closed, and never one that changes.
    """

    keys: tuple[str, ...]
    calls: tuple[GroupCall, ...]
    closing: tuple[Closing, ...] = ()
    appends: bool = False
    sessions: Sessions | None = None
    final: bool = False

    @property
    def partition(self) -> tuple[str, ...]:
        """The columns of the input that state is kept by."""
        return self.keys if self.sessions is None else self.keys[:-2]


@dataclass(frozen=True, slots=True)
class EquiJoin:
    """Pairs of rows of two inputs whose keys are equal and for which `residual` is true.

    left_keys, right_keys: columns of the same types, in pairs; none: every pair (a cross join). null_safe: NULL keys equal each
    other (IS NOT DISTINCT FROM). kind: semi gives the left rows that are in a pair, anti those that are in none.
    Names of columns are unique over both inputs. Key columns of the output: those of the left, then those of the right (NULL
    where there is no row); of semi and anti: those of the left. A full join has one INT more, last, which side is missing (0 none,
    1 the left, 2 the right): a row whose own identity is NULL is not a missing one. Its other columns are found by name.
    closing: columns of the left and of the right; a row that one of them closes meets no other row any more, and is forgotten.
    """

    kind: EquiJoinKind
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    residual: Expr | None = None
    null_safe: bool = False
    closing: tuple[tuple[Closing, ...], tuple[Closing, ...]] = ((), ())
    appends: bool = False


@dataclass(frozen=True, slots=True)
class TemporalJoin:
    """Joins each left row with the version of the right relation at its arrival (FOR SYSTEM_TIME AS OF PROCTIME()).

    Later changes of the right side change nothing; removing a left row removes what it has given. The order of a run over both inputs
    is that of row times, the right side first among equal ones, as far as both come through repartitions.
    Keys, residual, names and key columns are those of an `EquiJoin`. kind: left also gives a row without any match, once.
    """

    kind: TemporalJoinKind
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    residual: Expr | None = None
    appends: bool = False  # the left rows


@dataclass(frozen=True, slots=True)
class VersionJoin:
    """Joins each left row with the newest version of the right input at the row's own time (FOR SYSTEM_TIME AS OF left.time).

    Right rows are only added. Those with equal keys are versions of one thing: of those whose time is not after the left row's the one
    with the greatest time counts, of equal ones the one with the greatest identity. A left row waits until left_time + after <= watermark,
    the lowest of both inputs: then no row of its time, and no version up to it, can come. Versions that no later row can
    meet are forgotten. A row without a time is never given. Keys, names and key columns are those of an `EquiJoin`.
    """

    kind: TemporalJoinKind
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    left_time: str
    right_time: str
    after: int


@dataclass(frozen=True, slots=True)
class SetOperation:
    """Rows by the values of all columns but the key, found by position; NULLs are equal.

    kind: `distinct` of one input (UNION is that of UNION ALL), `intersect` and `except` of two. all: a row is there as often as
    the counts of both sides say: the lesser one, or their difference. Key columns of the output: the values of all columns, and
    for `all` one INT more, the number of the copy from 0. Then the columns.
    """

    kind: Literal["distinct", "intersect", "except"]
    all: bool = False


@dataclass(frozen=True, slots=True)
class TopN:
    """The rows of each partition whose rank is above `offset` and at most offset + limit.

    keys: the columns to partition by; none: all rows are one partition. What `order` leaves equal is ordered by row identity.
    limit: None for all. rank: name of the output column (BIGINT) that holds the rank; empty: none does.
    `ROW_NUMBER() ... = 1` is deduplication; rank with `function="rank"` is LIMIT ... WITH TIES. closing: of `keys`; a partition
    that is closed is forgotten.
    """

    keys: tuple[str, ...]
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int = 0
    function: RankFunction = "row_number"
    rank: str = ""
    closing: tuple[Closing, ...] = ()
    appends: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows of the partition that a window call sees from its row: from `start` to `end`, both included.

    start, end: distances from the current row, negative for PRECEDING, positive for FOLLOWING; 0 is CURRENT ROW (with unit `range`
    or `groups` all its peers); None is UNBOUNDED. Distances are rows, groups of peers, or for `range` differences of the only
    column of the order, in its reference values (`flowql.compiler.plan.types`: days of a DATE, ms of a TIME or TIMESTAMP). A row that has
    NULL there is at a distance from no row but its peers.

    The unit `session` stands for all rows around the current one in which each is nearer than `end` to the one before it; `start`
    is None. exclude: the rows that EXCLUDE leaves out, by its words.
    """

    unit: FrameUnit = "range"
    start: Offset | None = None
    end: Offset | None = 0
    exclude: Exclude = ""


@dataclass(frozen=True, slots=True)
class WindowCall:
    """One window function of an `Over`: ROW_NUMBER, RANK, DENSE_RANK, PERCENT_RANK, CUME_DIST, NTILE, LAG, LEAD, FIRST_VALUE,
    LAST_VALUE, NTH_VALUE, or an aggregate in `flowql.compiler.functions.change_aggregates` but the percentiles.

    args: columns of the input; of LAG and LEAD the value, then the default if there is one. type: of the result. filter: a BOOLEAN
    column; an aggregate leaves out rows where it is not true. init: constant arguments: the offset of LAG and LEAD (1 if there is
    none), the number of NTILE and NTH_VALUE, the separator of STRING_AGG; where such a number is NULL the result is. ignore_nulls:
    LAG, LEAD and the three VALUE functions pass over rows whose value is NULL. Ranks, NTILE, LAG and LEAD have no frame.
    """

    name: str
    function: str
    args: tuple[str, ...]
    type: SqlType
    frame: Frame = Frame()
    filter: str = ""
    init: tuple[bool | int | float | str | None, ...] = ()
    ignore_nulls: bool = False


@dataclass(frozen=True, slots=True)
class Over:
    """Every row of the input with the results of window functions, as PostgreSQL computes them.

    keys: the columns to partition by, NULLs are equal; none: all rows are one partition. What `order` leaves equal are peers, and
    are ordered by row identity where the order of single rows counts. The output: the columns of the input, its row identity
    among them, then one column per call. closing: of `keys`; a partition that is closed is forgotten.
    """

    keys: tuple[str, ...]
    order: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]
    closing: tuple[Closing, ...] = ()


@dataclass(frozen=True, slots=True)
class Consolidate:
    """One row per row identity, the newest that was not removed.

    Old and new row of an update may come by different partitions, in any order: until both are here an identity may have two
    rows. Needed in front of a sink and of everything else that keeps one row per key.
    """

    appends: bool = False
