"""Chains of Project and Filter, as one row kernel and one DuckDB statement.

A chain maps each row to its *image*: the projected row, or nothing when a filter drops it, or a projection that drops rows for
which an expression fails. What images mean depends on the
change kind: a stream's null value (op DELETE) passes projections with null values and no filter; of a table without
before-images a row that a filter drops becomes the removal of its key; of pairs, before and after are judged each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowql.compiler.functions.bounds import code_of
from flowql.compiler.functions.duckdb_sql import lower
from flowql.compiler.functions.evaluate import compile_predicate, compile_row
from flowql.compiler.functions.user import is_users
from flowql.compiler.plan.expr import ROWTIME, Call, Column, Expr, Lambda, Literal, columns_of, conjuncts, walk
from flowql.compiler.plan.logical import ChangeKind, Filter, Project
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BOOLEAN, SqlType
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, Ints, Ops, Row, concat, from_rows
from flowql.runtime.functions.failures import described, frames_of, text_of
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.kernels import DUCKDB_ROWS, INPUT, VectorFailed, calls_arrow, compute, rows_cost_little
from flowql.runtime.operators.sizes import (
    BATCH_BYTES_MAX,
    MadeBytes,
    batch_too_large,
    large_inputs,
    made_places,
    too_large,
    without,
)

EXPRESSION_FAILED = "FQ4030"
VECTOR_ROWS = 32  # when columns are only passed on
ARROW_ROWS = 16  # when functions over columns are called, which cost 20 us for a row alone
CHEAP_ROWS_MIN = 2_000  # when these cost about 1 us for a row alone, and 1 ms for a statement
Bools = npt.NDArray[np.bool_]
Image = Callable[[Row, int], Row | None]  # (row, rowtime) -> the projected row, or None when it is dropped
NODES_MAX = 2_000  # of expressions in one statement; rewriting over the source could grow without bound


@dataclass(slots=True)
class _Reporter:
    """Where failures of expressions go: the row that is being computed. One per operator, used by one thread at a time.

    failed: an expression of a projection that drops such rows has failed for the row. quiet: it is an old row, which failed when it came.
    """

    run: MicroBatchContext | None = None
    seq: int = 0
    failed: bool = False
    quiet: bool = False

    def of(self, names: Sequence[str], *, drops: bool = False) -> Callable[[int, Exception], None]:
        def report(index: int, error: Exception) -> None:
            self.failed = self.failed or (drops and index >= 0)
            if self.run is not None and not self.quiet:
                name = names[index if index >= 0 else ~index]
                reason = (text_of(error) or type(error).__name__) + frames_of(error)
                self.run.fail_row(self.seq, code_of(error, EXPRESSION_FAILED), f"{name}: {reason}")

        return report


def _row_steps(
    operators: Sequence[Operator], source: Schema, reporter: _Reporter, kind: ChangeKind
) -> tuple[Image, Image]:
    """The image of a row, and of a row whose value is null (its key columns only)."""
    steps: list[Image] = []
    null_steps: list[Image] = []
    names = source.names
    for operator in operators:
        columns = (*names, ROWTIME)
        if isinstance(operator.spec, Filter):
            steps.append(_test(compile_predicate(operator.spec.predicate, columns, on_error=reporter.of(["WHERE"]))))
            if kind == "append":
                null_steps.append(lambda row, rowtime: None)
            continue
        assert isinstance(operator.spec, Project)
        exprs, outputs = [c.expr for c in operator.spec.columns], [c.name for c in operator.spec.columns]
        drops = operator.spec.drop_failed
        step = _project(compile_row(exprs, columns, on_error=reporter.of(outputs, drops=drops)))
        steps.append(_unless_failed(step, reporter) if drops else step)
        keys = [e if f.role in ("key", "window") else None for e, f in zip(exprs, operator.schema.fields, strict=True)]
        null_steps.append(_project_keys(keys, columns))
        names = operator.schema.names
    return _sequence(steps), _sequence(null_steps)


def _test(predicate: Callable[[Sequence[Any]], bool]) -> Image:
    return lambda row, rowtime: row if predicate((*row, rowtime)) else None


def _project(compute_row: Callable[[Sequence[Any]], Row]) -> Image:
    return lambda row, rowtime: compute_row((*row, rowtime))


def _unless_failed(step: Image, reporter: _Reporter) -> Image:
    def image(row: Row, rowtime: int) -> Row | None:
        reporter.failed = False
        made = step(row, rowtime)
        return None if reporter.failed else made

    return image


def _project_keys(keys: Sequence[Expr | None], columns: Sequence[str]) -> Image:
    """Key columns of a row without a value; a key that would need the value is null, as are all values."""
    present = [(i, e) for i, e in enumerate(keys) if e is not None]
    compute_keys = compile_row([e for _, e in present], columns)
    width, places = len(keys), [i for i, _ in present]

    def image(row: Row, rowtime: int) -> Row:
        out: list[Any] = [None] * width
        for i, v in zip(places, compute_keys((*row, rowtime)), strict=True):
            out[i] = v
        return tuple(out)

    return image


def _sequence(steps: Sequence[Image]) -> Image:
    if len(steps) == 1:
        return steps[0]

    def image(row: Row, rowtime: int) -> Row | None:
        found: Row | None = row
        for step in steps:
            if found is None:
                return None
            found = step(found, rowtime)
        return found

    return image


def substitute(e: Expr, meaning: dict[str, Expr]) -> Expr:
    """`e` with every column replaced by the expression it stands for (columns not in `meaning` stay)."""
    if isinstance(e, Column):
        return meaning.get(e.name, e)
    if isinstance(e, Call):
        return replace(e, args=tuple(substitute(a, meaning) for a in e.args))
    if isinstance(e, Lambda):
        return replace(e, body=substitute(e.body, meaning))
    return e


@dataclass(frozen=True, slots=True)
class VectorPlan:
    """A chain as columns: which outputs are inputs passed on, and the statement that computes the others.

    passed[i]: the input column that output i is, or None when it is `computed`. sql: None when nothing is computed.
    The statement gives the computed columns in order, then (if `filters`) whether the row passes, then (if `declines`)
    whether its row must go through the row kernel. rows_min: of batches for which it pays.
    """

    needs: tuple[str, ...]
    passed: tuple[int | None, ...]
    sql: str | None
    types: tuple[SqlType, ...]
    filters: bool
    declines: bool
    rows_min: int = DUCKDB_ROWS


def plan_vector(operators: Sequence[Operator], source: Schema) -> VectorPlan | None:
    """None when an expression has no DuckDB text. Expressions of later operators are rewritten over the source's columns."""
    meaning: dict[str, Expr] = {f.name: Column(f.type, f.name) for f in source.fields}
    conditions: list[str] = []  # of the filters so far
    guards: dict[str, tuple[str, ...]] = {}  # of columns that call functions of users: the filters before
    read_from = INPUT
    refused: list[str] = []  # rows the statement must not compute
    used: set[str] = set()
    size = 0
    for operator in operators:
        project = isinstance(operator.spec, Project)
        exprs = (
            [c.expr for c in operator.spec.columns] if isinstance(operator.spec, Project) else [_predicate(operator)]
        )
        over_source = [substitute(e, meaning) for e in exprs]
        size += sum(len(walk(e)) for e in over_source)
        if size > NODES_MAX:
            return None
        lowered = [lower(e) for e in over_source]
        here = [d.decline() for e, d in zip(over_source, lowered, strict=True) if d is not None and d.declines]
        if any(d is None for d in lowered):
            return None
        refused += [" AND ".join([*conditions, f"({d})"]) for d in here]
        used |= columns_of(*(e for e in over_source if not isinstance(e, Column) or not project))
        if project:
            found = {f.name: _guard(e, guards, conditions) for f, e in zip(operator.schema.fields, exprs, strict=True)}
            guards = {name: guard for name, guard in found.items() if guard is not None}
            meaning = {f.name: e for f, e in zip(operator.schema.fields, over_source, strict=True)}
        elif _guard(exprs[0], guards, conditions) is None:
            conditions += [f"coalesce({d.sql}, FALSE)" for d in lowered if d is not None]
        else:
            passes, read_from = _calling_filter(exprs[0], meaning, guards, conditions, read_from)
            conditions += passes
    return _statement(operators[-1].schema, meaning, guards, conditions, refused, source, used, read_from)


def _calling_filter(
    predicate: Expr,
    meaning: dict[str, Expr],
    guards: Mapping[str, tuple[str, ...]],
    conditions: Sequence[str],
    read_from: str,
) -> tuple[list[str], str]:
    """The conditions of a filter that calls functions of users, and what to read: each is called once per row, left to right, until one is FALSE."""
    passes: list[str] = []
    not_false: list[str] = []
    for i, part in enumerate(conjuncts(predicate)):
        lowered = lower(substitute(part, meaning))
        assert lowered is not None
        text, guard = lowered.sql, _guard(part, guards, [*conditions, *not_false])
        if guard is not None:
            name = f'"!passes{len(conditions)}_{i}"'
            read_from = f"(SELECT *, {_where(guard, text, 'FALSE')} AS {name} FROM {read_from})"
            text = name
        passes.append(f"coalesce({text}, FALSE)")
        not_false.append(f"({text}) IS DISTINCT FROM FALSE")
    return passes, read_from


def _guard(e: Expr, guards: Mapping[str, tuple[str, ...]], conditions: Sequence[str]) -> tuple[str, ...] | None:
    """The filters that rows have passed for which the functions of users in an expression are called; None: it calls none.

    The first calls decide, as these have their dead letters also for rows that later filters drop.
    """
    if isinstance(e, Column):
        return guards.get(e.name)
    parts = walk(e)
    earlier = [guards[part.name] for part in parts if isinstance(part, Column) and part.name in guards]
    if earlier:
        return min(earlier, key=len)
    calls = any(isinstance(part, Call) and is_users(part.name) for part in parts)
    return tuple(conditions) if calls else None


def _where(guard: Sequence[str] | None, text: str, otherwise: str) -> str:
    return f"CASE WHEN {' AND '.join(guard)} THEN {text} ELSE {otherwise} END" if guard else text


def _predicate(operator: Operator) -> Expr:
    assert isinstance(operator.spec, Filter)
    return operator.spec.predicate


def _statement(
    outputs: Schema,
    meaning: dict[str, Expr],
    guards: Mapping[str, tuple[str, ...]],
    conditions: Sequence[str],
    refused: Sequence[str],
    source: Schema,
    used: set[str],
    read_from: str,
) -> VectorPlan | None:
    places = {n: i for i, n in enumerate(source.names)}
    passed: list[int | None] = []
    selected: list[str] = []
    types: list[SqlType] = []
    for f in outputs.fields:
        e = meaning[f.name]
        place = places.get(e.name) if isinstance(e, Column) else None
        passed.append(place)
        if place is None:
            found = lower(e)
            assert found is not None
            selected.append(_where(guards.get(f.name), found.sql, "NULL"))
            types.append(f.type)
            used |= columns_of(e)
    if conditions:
        selected.append(" AND ".join(conditions))
        types.append(BOOLEAN)
    if refused:
        selected.append(" OR ".join(f"({r})" for r in refused))
        types.append(BOOLEAN)
    names = tuple(n for n in (*source.names, ROWTIME) if n in used)
    columns = ", ".join(f"{text} AS c{i}" for i, text in enumerate(selected))
    sql = f"SELECT {columns} FROM {read_from}" if selected else None
    return VectorPlan(names, tuple(passed), sql, tuple(types), bool(conditions), bool(refused), _rows_min(sql))


def _rows_min(sql: str | None) -> int:
    if sql is None:
        return VECTOR_ROWS
    if not calls_arrow(sql):
        return DUCKDB_ROWS
    return CHEAP_ROWS_MIN if rows_cost_little(sql) else ARROW_ROWS


@dataclass(frozen=True, slots=True)
class Images:
    """The result of a vector chain: columns of all rows, which rows pass, and for which rows that holds."""

    columns: list[pa.Array]
    passed: Bools
    known: Bools


def run_vector(plan: VectorPlan, columns: Sequence[pa.Array], rowtime: Ints, names: Sequence[str]) -> Images:
    """The images of n rows given as columns of the source schema. Raises VectorFailed."""
    n = len(rowtime)
    everything = np.ones(n, bool)
    if plan.sql is None:
        return Images([columns[i] for i in plan.passed if i is not None], everything, everything)
    apart: Bools | None = None  # rows for the row kernel
    if plan.needs:
        arrays = [pa.array(rowtime) if c == ROWTIME else columns[names.index(c)] for c in plan.needs]
        apart = None if calls_arrow(plan.sql) else large_inputs(arrays)
        if apart is not None:
            arrays = [without(a, apart) for a in arrays]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(plan.needs))
    else:  # constants alone: one value per row all the same
        batch = pa.RecordBatch.from_arrays([pa.array(rowtime)], names=[ROWTIME])
    found = compute(plan.sql, batch, plan.types)
    declined = _mask(found.pop()) if plan.declines else ~everything
    passed = _mask(found.pop()) if plan.filters else everything
    computed = iter(found)
    if (count := sum(c.nbytes for c in found)) > BATCH_BYTES_MAX and n > 1:
        raise batch_too_large(count)
    for rows in (apart, too_large(found)):
        declined = declined if rows is None else declined | rows
    return Images([columns[i] if i is not None else next(computed) for i in plan.passed], passed & ~declined, ~declined)


def _mask(column: pa.Array) -> Bools:
    filled = column.fill_null(False) if column.null_count else column
    mask: Bools = filled.to_numpy(zero_copy_only=False)
    return mask


def _drops(operator: Operator) -> bool:
    return isinstance(operator.spec, Project) and operator.spec.drop_failed


class ProjectionChain:
    """Runs neighbouring Project and Filter operators over batches. A RuntimeOperator; one per task.

    operators: in order; the last one names the chain. source: the schema of the input; kind: its change kind.
    """

    def __init__(self, operators: Sequence[Operator], source: Schema, kind: ChangeKind) -> None:
        self.plan = operators[-1]
        self.schema = operators[-1].schema
        self._source, self._kind = source, kind
        self._reporter = _Reporter()
        self._image, self._null_image = _row_steps(operators, source, self._reporter, kind)
        self.vector = plan_vector(operators, source)
        self._made = MadeBytes(made_places(operators))
        self._filters = any(isinstance(s.spec, Filter) or _drops(s) for s in operators)

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch = inputs[0]
        if batch is None or not len(batch):
            return None
        images, passed = self._images(batch, run)
        if self._kind == "append" or not self._filters:
            return images if len(images) else None
        return self._changes(batch, images, passed)

    def _images(self, batch: Batch, run: MicroBatchContext) -> tuple[Batch, Ints]:
        """The images of the rows that have one, and these rows' places. `op` is that of the row."""
        vector = run.vector
        if vector is None:
            rows_min = DUCKDB_ROWS if self.vector is None else self.vector.rows_min
            vector = len(batch) >= rows_min and (batch.is_columns or len(batch) >= 4 * rows_min)
        if vector and self.vector is not None:
            try:
                return self._by_columns(batch, self.vector, run)
            except VectorFailed:
                pass  # the row kernel below gives the meaning
        return self._by_rows(batch, np.arange(len(batch)), run)

    def _by_rows(self, batch: Batch, only: Ints, run: MicroBatchContext) -> tuple[Batch, Ints]:
        rows: list[Row] = []
        kept: list[int] = []
        source = batch.rows() if len(only) == len(batch) else batch.take(only).rows()
        rowtime, op, seq = batch.rowtime[only].tolist(), batch.op[only].tolist(), batch.seq[only].tolist()
        report, retracts, made = self._reporter, self._kind == "retract", self._made
        report.run = run
        made.begin()
        try:
            for i, row in enumerate(source):
                report.seq, report.quiet = seq[i], retracts and op[i] in (UPDATE_BEFORE, DELETE)
                null = op[i] == DELETE and self._kind != "retract"
                image = (self._null_image if null else self._image)(row, rowtime[i])
                if image is not None:
                    rows.append(image)
                    kept.append(i)
                    if made:
                        made.add(image)
        finally:
            report.run = None
        at = only[kept] if len(kept) < len(only) else only
        headers = None if batch.headers is None else [batch.headers[i] for i in at]
        return from_rows(self.schema, rows, batch.rowtime[at], batch.op[at], batch.seq[at], headers), at

    def _by_columns(self, batch: Batch, plan: VectorPlan, run: MicroBatchContext) -> tuple[Batch, Ints]:
        images = run_vector(plan, batch.arrow().columns, batch.rowtime, self._source.names)
        known, passed = images.known, images.passed
        if self._kind != "retract" and (null := batch.op == DELETE).any():
            known, passed = known & ~null, passed & ~null  # null values are the row kernel's
        computed = batch.with_columns(self.schema, images.columns)
        at = np.flatnonzero(passed)
        if len(at) < len(batch):
            computed = computed.take(at)
        rest = np.flatnonzero(~known)
        if not len(rest):
            return computed, at
        slow, slow_at = self._by_rows(batch, rest, run)
        return merge(self.schema, [(at, computed), (slow_at, slow)])

    def _changes(self, batch: Batch, images: Batch, at: Ints) -> Batch | None:
        """A table's rows after its filters."""
        passed = np.zeros(len(batch), bool)
        passed[at] = True
        if self._kind == "retract":
            keep, op = pair_changes(batch.op, passed)
            kept = np.flatnonzero(keep[at])
            out = images.take(kept) if len(kept) < len(at) else images
            return _with_op(out, op[at[kept]]) if len(out) else None
        gone = np.flatnonzero(~passed)
        if not len(gone):
            return images
        removed = batch.take(gone)
        rows = [self._null_image(r, t) for r, t in zip(removed.rows(), removed.rowtime.tolist(), strict=True)]
        values = {i for i, f in enumerate(self.schema.fields) if f.role == "value"}
        blank = [tuple(None if i in values else v for i, v in enumerate(r)) for r in rows if r is not None]
        deletes = from_rows(
            self.schema, blank, removed.rowtime, np.full(len(gone), DELETE), removed.seq, removed.headers
        )
        return merge(self.schema, [(at, images), (gone, deletes)])[0]


def pair_changes(op: Ops, passed: Bools) -> tuple[Bools, Ops]:
    """Rows of a retract table that stay after a filter, and what they become.

    A pair of which only the old row passes is a DELETE of it; of which only the new one passes, an INSERT.
    """
    before, after = op == UPDATE_BEFORE, op == UPDATE_AFTER
    new_op = op.copy()
    mate = np.zeros(len(op), bool)  # the other row of the pair passes
    mate[:-1] |= before[:-1] & after[1:] & passed[1:]
    mate[1:] |= after[1:] & before[:-1] & passed[:-1]
    paired = np.zeros(len(op), bool)
    paired[:-1] |= before[:-1] & after[1:]
    paired[1:] |= after[1:] & before[:-1]
    new_op[before & ~mate] = DELETE
    new_op[after & paired & ~mate] = INSERT
    return passed, new_op


def merge(schema: Schema, parts: Sequence[tuple[Ints, Batch]]) -> tuple[Batch, Ints]:
    """Batches put together in the order of the places of their rows."""
    live = [(at, b) for at, b in parts if len(b)]
    if len(live) <= 1:
        return (live[0][1], live[0][0]) if live else (parts[0][1], parts[0][0])
    at = np.concatenate([a for a, _ in live])
    order = np.argsort(at, kind="stable")
    return concat(schema, [b for _, b in live]).take(order), at[order]


def _with_op(batch: Batch, op: Ops) -> Batch:
    parts: dict[str, Any] = {"rowtime": batch.rowtime, "op": op, "seq": batch.seq, "headers": batch.headers}
    if batch.is_columns:
        return Batch(batch.schema, arrow=batch.arrow(), **parts)
    return Batch(batch.schema, rows=batch.rows(), **parts)


# (row, rowtime, seq, run) -> value. An error of a function gives null and a dead letter under `seq`.
RowExpr = Callable[[Row, int, int, MicroBatchContext], Any]


def compile_expr(e: Expr, schema: Schema) -> RowExpr:
    """The reference meaning of `e` over rows of `schema`; columns and literals cost one call."""
    if isinstance(e, Literal):
        value = e.value
        return lambda row, rowtime, seq, run: value
    if isinstance(e, Column) and e.name in schema.names:
        i = schema.names.index(e.name)
        return lambda row, rowtime, seq, run: row[i]
    if isinstance(e, Column) and e.name == ROWTIME:
        return lambda row, rowtime, seq, run: rowtime
    errors: list[Exception] = []
    evaluate = compile_row([e], (*schema.names, ROWTIME), on_error=lambda _, error: errors.append(error))

    def call(row: Row, rowtime: int, seq: int, run: MicroBatchContext) -> Any:
        value = evaluate((*row, rowtime))[0]
        if errors:
            error = errors.pop()
            errors.clear()
            run.fail_row(seq, code_of(error, EXPRESSION_FAILED), described(error))
        return value

    return call
