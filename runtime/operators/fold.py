"""The aggregates of one grouped aggregation as functions on accumulators.

State of a group is one tuple: an accumulator per aggregate, where the plan asks for it the number of rows, then the group's row time (the
highest of its rows); over a table with the rows that are `Unapplied` before the row time, if there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from flowql.compiler.functions.bounds import PART_BYTES, VALUE_BYTES_MAX, utf8_bytes
from flowql.compiler.functions.distinct_values import DistinctValues
from flowql.compiler.functions.generated import compiled
from flowql.compiler.functions.registry import FAILURES, AddMany, AggregateFunction, ResultMany
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.user import aggregate_in_plan, plain_name
from flowql.compiler.plan.expr import Column, Expr, Literal
from flowql.compiler.plan.logical import Aggregate, AggregateCall
from flowql.compiler.plan.schema import WINDOW_END, WINDOW_START, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT
from flowql.runtime.batch import Row
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.functions.failures import described
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.keys import RowKey, picker
from flowql.runtime.operators.projections import compile_expr
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.values import decode_value, encode_value

# A group is read, encoded and written as one value, in single calls that keep the lock of the interpreter (rule R18).
GROUP_BYTES_MAX = VALUE_BYTES_MAX
_KEY_SHOWN = 200  # characters
_FEW = 8  # parts of an accumulator of fixed size: sums, counts, moments
_PARTS = (tuple, list, dict, DistinctValues)


class GroupTooLarge(RuntimeFailure, code="FQ4074"):
    """An aggregate keeps more of one group than the limit: its query fails, others go on."""


def check_group(operator: str, key: Key, names: Sequence[str], accumulators: Sequence[Any]) -> None:
    """Raises GroupTooLarge. names: of the aggregates, in the order of their accumulators."""
    for name, acc in zip(names, accumulators, strict=False):
        if isinstance(acc, _PARTS) and len(acc) > _FEW:
            check_kept(operator, key, name, kept_bytes(acc))


def check_kept(operator: str, key: Key, name: str, count: int) -> None:
    """Raises GroupTooLarge for an aggregate that keeps so many bytes."""
    if count <= GROUP_BYTES_MAX:
        return
    shown = repr(key if len(key) != 1 else key[0])
    shown = shown if len(shown) <= _KEY_SHOWN else f"{shown[:_KEY_SHOWN]}..."
    raise GroupTooLarge(
        f"{operator}: {name} keeps {count:,} bytes of the group {shown}, and at most {GROUP_BYTES_MAX:,} "
        f"({GROUP_BYTES_MAX >> 20} MiB) are allowed"
    )


def kept_bytes(value: Any) -> int:
    """The bytes of a value in the state, counted as `flowql.compiler.functions.bounds` counts them."""
    if isinstance(value, DistinctValues):
        return value.kept_bytes(_part)
    if isinstance(value, str):
        return utf8_bytes(value)
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, dict):
        return _parts(value.keys()) + _parts(value.values())
    return _parts(value) if isinstance(value, tuple | list) else 0


def _parts(values: Iterable[Any]) -> int:
    return sum(map(_part, values))


def _part(value: Any) -> int:
    return PART_BYTES + kept_bytes(value)


NO_RESULT = b"?"  # entry of a group that has given no result yet
# First byte of an entry: the row could not be added, or could not be retracted although the table no longer has it.
NOT_ADDED, NOT_RETRACTED = b"-", b"+"


class Unapplied(NamedTuple):
    """The rows that a group keeps beside its accumulators. Rows are compared as they are encoded, so that a NaN equals itself."""

    entries: tuple[bytes, ...] = ()

    @property
    def has_no_result(self) -> bool:
        return NO_RESULT in self.entries

    @property
    def not_retracted(self) -> list[Row]:
        return [decode_value(e[1:]) for e in self.entries if e[:1] == NOT_RETRACTED]

    def with_result(self) -> Unapplied:
        return Unapplied(tuple(e for e in self.entries if e != NO_RESULT)) if self.has_no_result else self

    def with_row(self, kind: bytes, row: Row) -> Unapplied:
        return Unapplied((*self.entries, kind + encode_value(row)))

    def without_row(self, kind: bytes, row: Row) -> Unapplied | None:
        """Without one entry of this row; None if there is none."""
        entry = kind + encode_value(row) if self.entries else b""
        if entry not in self.entries:
            return None
        at = self.entries.index(entry)
        return Unapplied((*self.entries[:at], *self.entries[at + 1 :]))


ALL_APPLIED = Unapplied()


Accs = tuple[Any, ...]
Step = Callable[[Accs, Row, int, int, MicroBatchContext], Accs]
AGGREGATE_FAILED = "FQ4026"
NOT_FOR_VALUES = (*FAILURES, RuntimeFailure)  # what a step raises that is no matter of values
_ROWS = AggregateCall("__rows", "COUNT", (), BIGINT)


class AggregateUnsupported(RuntimeFailure, code="FQ4027"):
    """An aggregate lacks what this use of it needs (undo over a table, merge over sessions)."""


class BoundAggregate:
    """One aggregate call with its function resolved for the argument types."""

    __slots__ = ("args", "call", "function", "init", "initial", "resolution", "result")

    def __init__(self, call: AggregateCall) -> None:
        function = aggregate_in_plan(call.function)
        if function is None:
            raise AggregateUnsupported(f"aggregate {call.function} is not registered")
        self.call, self.function, self.args, self.init = call, function, call.args, call.init
        self.resolution: Resolution = function.resolve(tuple(a.type for a in call.args), call.init)
        self.initial = function.initial(self.resolution, call.init)
        self.result = function.result(self.resolution, call.init)

    def bind(self, part: str, use: str) -> Callable[..., Any]:
        """The function's `undo` or `merge` for these types."""
        factory = getattr(self.function, part)
        if factory is None:
            raise AggregateUnsupported(f"{self.call.function} cannot be used {use}: it has no {part}")
        bound: Callable[..., Any] = factory(self.resolution, self.init)
        return bound


class Many:
    """The aggregates of a Fold that are called for many groups at once (`AggregateFunction.add_many`), apart from the others.

    at: their places among the accumulators; args: of a row, to each; add, result: of all groups at once. rest: the places of the others, which `add_rest` adds to.
    """

    __slots__ = ("add", "add_rest", "args", "at", "rest", "result")

    def __init__(self, bound: Sequence[BoundAggregate], source: Schema) -> None:
        self.at = [i for i, b in enumerate(bound) if b.function.add_many is not None]
        self.rest = [i for i, b in enumerate(bound) if b.function.add_many is None]
        self.args = [_arguments(bound[i], source) for i in self.at]
        self.add: list[AddMany] = [f for i in self.at if (f := bound[i].function.add_many) is not None]
        self.result: list[ResultMany] = [g for i in self.at if (g := bound[i].function.result_many) is not None]
        others = [bound[i] for i in self.rest]
        self.add_rest = _step([b.function.add(b.resolution, b.init) for b in others], others, source)


class Fold:
    """All aggregates of one operator: add, undo and merge on tuples of accumulators, and rows of results.

    undo, merge: None unless asked for. many: the aggregates that are called for many groups at once; None if there are none. bound: the
    aggregates of the plan, and last the number of rows where they are counted. shown: those of the plan.
    """

    def __init__(self, plan: Operator, source: Schema, *, undo: bool = False, merge: bool = False) -> None:
        assert isinstance(plan.spec, Aggregate)
        self.shown = [BoundAggregate(c) for c in plan.spec.aggregates]
        self.bound = [*self.shown, BoundAggregate(_ROWS)] if plan.spec.counted else self.shown
        self._counted, self.null_groups = plan.spec.counted, plan.spec.null_groups
        self.key = RowKey(source)
        self._operator, self._names = plan.id, [plain_name(b.call.function) for b in self.bound]
        self.initial: Accs = tuple(b.initial for b in self.bound)
        self.add = _step([b.function.add(b.resolution, b.init) for b in self.bound], self.bound, source)
        self.many = Many(self.bound, source) if any(b.function.add_many for b in self.bound) else None
        self.undo: Step | None = None
        if undo:
            self.undo = _step([b.bind("undo", "over a table") for b in self.bound], self.bound, source)
        self.merge: Callable[[Accs, Accs], Accs] | None = None
        if merge:
            self.merge = _pairwise([b.bind("merge", "over session windows") for b in self.bound])
        self.results: Callable[[Accs], Row] = _each([b.result for b in self.shown])
        made = [f.name for f in self.key.fields]
        if plan.spec.window is not None:
            made += [WINDOW_START, WINDOW_END]
        made += [b.call.name for b in self.shown]
        self._arrange = None if tuple(made) == plan.schema.names else picker([made.index(n) for n in plan.schema.names])

    def row(self, key: Row, accs: Accs, window: Row = (), *, run: MicroBatchContext | None = None, seq: int = 0) -> Row:
        """An output row: key columns, window bounds, results. A result that fails is NULL; run, seq: where its dead letter goes."""
        try:
            results = self.results(accs)
        except FAILURES:
            raise
        except Exception:
            results = tuple(self.result(b, a, run, seq) for b, a in zip(self.shown, accs, strict=False))
        return self.arranged(key, results, window)

    def arranged(self, key: Row, results: Row, window: Row = ()) -> Row:
        """An output row of its parts."""
        row = self.key.parts(key) + window + results
        return row if self._arrange is None else self._arrange(row)

    @staticmethod
    def result(aggregate: BoundAggregate, acc: Any, run: MicroBatchContext | None, seq: int) -> Any:
        """The result of one aggregate, as in `row`."""
        try:
            return aggregate.result(acc)
        except FAILURES:
            raise
        except Exception as error:
            return Fold.failed_result(aggregate, described(error), run, seq)

    @staticmethod
    def failed_result(aggregate: BoundAggregate, failure: str, run: MicroBatchContext | None, seq: int) -> None:
        """NULL, with its dead letter where there is a run."""
        if run is not None:
            name = plain_name(aggregate.call.function)
            run.fail_row(seq, AGGREGATE_FAILED, f"the result of {name} failed: {failure}")

    def kept(self, key: Key, accs: Accs) -> Accs:
        """Accumulators that are to be stored. Raises GroupTooLarge."""
        check_group(self._operator, key, self._names, accs)
        return accs

    def left_out(self, key: Key) -> bool:
        """Whether rows of this key are in no group: those without a key, unless NULL is a group."""
        return not self.null_groups and self.key.missing(key)

    def lives(self, accs: Accs) -> bool:
        """Whether a group has rows, as far as they are counted."""
        return not self._counted or accs[-1] > 0

    def parted(self, group: Value) -> tuple[Accs, Unapplied]:
        """The accumulators of a group, and the rows that they could not take."""
        n = len(self.bound)
        return group[:n], ALL_APPLIED if len(group) == n + 1 else Unapplied(group[n])

    def try_step(
        self, step: Step, accs: Accs, row: Row, rowtime: int, seq: int, run: MicroBatchContext, *, again: bool = False
    ) -> Accs | None:
        """One step; None if the function failed for these values, which leaves a dead letter and the group as it was.

        again: one that has failed before, and has its dead letter.
        """
        try:
            return step(accs, row, rowtime, seq, run)
        except NOT_FOR_VALUES:
            raise
        except Exception as error:
            if not again:
                self.failed(described(error), seq, run)
            return None

    @staticmethod
    def failed(failure: str, seq: int, run: MicroBatchContext) -> None:
        """The dead letter of a step."""
        run.fail_row(seq, AGGREGATE_FAILED, f"aggregate failed: {failure}")


def mergeable(function: AggregateFunction) -> bool:
    """The function can be folded from partial results made by a vector kernel."""
    return bool(function.arrow) and function.from_partial is not None and function.merge is not None


def _step(functions: Sequence[Callable[..., Any]], bound: Sequence[BoundAggregate], source: Schema) -> Step:
    """One generated function for all aggregates of a row: plain columns are read in place."""
    scope: dict[str, Any] = {}
    parts: list[str] = []
    for i, (f, b) in enumerate(zip(functions, bound, strict=True)):
        scope[f"f{i}"] = f
        args = [f"a[{i}]", *(_argument(e, source, f"x{i}_{j}", scope) for j, e in enumerate(b.args))]
        parts.append(f"f{i}({', '.join(args)}),")
    return _lambda("a, r, t, s, c", parts, scope)


def _arguments(b: BoundAggregate, source: Schema) -> Callable[[Row, int, int, MicroBatchContext], Row]:
    scope: dict[str, Any] = {}
    parts = [f"{_argument(e, source, f'x{j}', scope)}," for j, e in enumerate(b.args)]
    return _lambda("r, t, s, c", parts, scope)


def _argument(e: Expr, source: Schema, name: str, scope: dict[str, Any]) -> str:
    if isinstance(e, Column) and e.name in source.names:
        return f"r[{source.names.index(e.name)}]"
    if isinstance(e, Literal):
        scope[name] = e.value
        return name
    scope[name] = compile_expr(e, source)
    return f"{name}(r, t, s, c)"


def _pairwise(functions: Sequence[Callable[..., Any]]) -> Callable[[Accs, Accs], Accs]:
    scope = {f"f{i}": f for i, f in enumerate(functions)}
    return _lambda("a, b", [f"f{i}(a[{i}], b[{i}])," for i in range(len(functions))], scope)


def _each(functions: Sequence[Callable[..., Any]]) -> Callable[[Accs], Row]:
    scope = {f"f{i}": f for i, f in enumerate(functions)}
    return _lambda("a", [f"f{i}(a[{i}])," for i in range(len(functions))], scope)


def _lambda(parameters: str, parts: Sequence[str], scope: dict[str, Any]) -> Callable[..., Any]:
    """A tuple-making function; only positions and generated names enter the source."""
    made: Callable[..., Any] = eval(compiled(f"lambda {parameters}: ({''.join(parts)})", "eval"), scope)
    return made
