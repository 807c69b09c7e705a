"""Nodes of the logical plan as operations on frames. Whether a node may be one is for `runtime.spark.choose` to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from compiler.functions.spark_sql import lower
from compiler.functions.spark_text import quoted
from compiler.plan.expr import ROWTIME, Call, Literal
from compiler.plan.expr import Column as PlanColumn
from compiler.plan.logical import (
    Aggregate,
    Explode,
    Filter,
    Join,
    NamedExpr,
    Node,
    Project,
    Rekey,
    Scan,
    Sink,
    Union,
)
from compiler.plan.schema import WINDOW_END
from runtime.spark.native.aggregates import aggregate_columns
from runtime.spark.native.expressions import column, compute
from runtime.spark.native.frames import LETTERS, OFFSET, PARTITION
from runtime.spark.native.joins import stream_stream
from runtime.spark.native.windows import window_end, with_starts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(slots=True)
class Lowering:
    """One query being lowered. tables: source name -> frame. letters: frames of LETTERS_DDL, of rows that failed on the way.

    placed: places of rows stay true behind a Rekey, as nothing is repartitioned. Rows that are dead letters of decoding (they have
    LETTERS) go all the way through, as groups of their own, so that records are decoded once.
    """

    tables: Mapping[str, DataFrame]
    placed: bool = False
    letters: list[DataFrame] = field(default_factory=list)

    def frame(self, node: Node) -> DataFrame:
        """The rows a node gives: its columns by name and the row time. Others may stand beside them, which nobody asks for."""
        spec = node.spec
        match spec:
            case Scan():
                return self.tables[spec.source]
            case Sink():
                return self.frame(node.inputs[0])
            case Project(columns):
                return self._project(node, columns)
            case Filter(predicate):
                frame, (passes,) = self._compute(node, (NamedExpr("WHERE", predicate),), predicate=True)
                return frame.where(_or_letter(frame, F.expr(passes)))
            case Rekey():
                return self._rekey(node, spec)
            case Explode(functions):
                return self._explode(node, functions)
            case Aggregate():
                return self._aggregate(node, spec)
            case Join():
                left, right = node.inputs
                return stream_stream(spec, self.frame(left), left.schema, self.frame(right), right.schema, node.schema)
            case Union():
                return reduce(lambda a, b: a.unionAll(b), (self._named(i, node) for i in node.inputs))
        raise AssertionError(f"{type(spec).__name__} is not native")

    def _carried(self, frame: DataFrame, node: Node) -> list[Column]:
        """All columns of a node, its row time, and the place of rows where it is known."""
        return [column(n) for n in (*node.schema.names, ROWTIME)] + _beside(frame)

    def _named(self, source: Node, node: Node) -> DataFrame:
        names = zip(source.schema.names, node.schema.names, strict=True)
        return self.frame(source).select(*(column(a).alias(b) for a, b in names), column(ROWTIME))

    def _compute(
        self, node: Node, exprs: tuple[NamedExpr, ...], *, predicate: bool = False
    ) -> tuple[DataFrame, tuple[str, ...]]:
        made = compute(self.frame(node.inputs[0]), node.inputs[0].schema, exprs, predicate=predicate)
        if made.letters is not None:
            self.letters.append(made.letters)
        return made.frame, made.columns

    def _project(self, node: Node, columns: tuple[NamedExpr, ...]) -> DataFrame:
        frame, made = self._compute(node, columns)
        return frame.selectExpr(*_named(made, node), quoted(ROWTIME), *_names_beside(frame))

    def _rekey(self, node: Node, spec: Rekey) -> DataFrame:
        """Key columns first. Rows of several source partitions meet behind it: their places mean nothing any more."""
        source = node.inputs[0].schema
        types = {f.name: f.type for f in source}
        carried = [NamedExpr(n, PlanColumn(types[n], n)) for n in node.schema.names[len(spec.keys) :]]
        frame, made = self._compute(node, (*spec.keys, *carried))
        rows = frame.selectExpr(*_named(made, node), quoted(ROWTIME), *_names_beside(frame, places=self.placed))
        known = _constants(node)
        keys = " AND ".join(f"{quoted(k.name)} IS NOT NULL" for k in spec.keys if k.name not in known)
        return rows.where(_or_letter(rows, F.expr(keys))) if spec.drop_null and keys else rows

    def _explode(self, node: Node, functions: tuple[NamedExpr, ...]) -> DataFrame:
        """One row per element of the longest list; shorter ones are padded with NULL."""
        lists = tuple(NamedExpr(f.name, f.expr.args[0]) for f in functions if isinstance(f.expr, Call))
        frame, texts = self._compute(node, lists)
        made = [F.expr(text) for text in texts]
        source = node.inputs[0]
        if len(made) == 1:
            rows = frame.select(*self._carried(frame, source), F.explode(made[0]).alias(functions[0].name))
        else:
            whole = [
                F.coalesce(m, F.array().cast(_array_type(f))).alias(f.name) for m, f in zip(made, lists, strict=True)
            ]
            held = frame.select(*self._carried(frame, source), *whole)
            zipped = F.explode(F.arrays_zip(*(column(f.name) for f in lists))).alias("__element")
            held = held.select(*self._carried(held, source), zipped)
            parts = [F.col("__element").getField(f.name).alias(f.name) for f in lists]
            rows = held.select(*self._carried(held, source), *parts)
        return rows.select(*self._carried(rows, node))

    def _aggregate(self, node: Node, spec: Aggregate) -> DataFrame:
        source = node.inputs[0]
        frame = self.frame(source)
        keys = [f.name for f in source.schema.key]
        if source.schema.window is not None:
            keys += [f.name for f in source.schema if f.role == "window"]
        known = isinstance(source.spec, Rekey) and source.spec.drop_null
        if (
            keys and not known and not spec.null_groups
        ):  # a record without a key; a relation without key columns has one group for all
            present = reduce(lambda a, b: a | b, (column(k).isNotNull() for k in keys))
            frame = frame.where(_or_letter(frame, present))
        args = tuple(NamedExpr(c.name, a) for c in spec.aggregates for a in c.args if not isinstance(a, PlanColumn))
        if args:
            letters = compute(frame, source.schema, args).letters
            if letters is not None:
                self.letters.append(letters)
        groups, beside = list(map(column, keys)), _beside(frame, places=False)
        added: dict[str, str] = {}  # columns that a group's key tells: Spark need neither hash nor sort by them
        if spec.window is not None:
            frame, start = with_starts(frame, spec.window)
            added = _constants(source)
            groups = [*(column(k) for k in keys if k not in added), start]
            added[WINDOW_END] = window_end(spec.window)
        groups += beside
        time = F.max(column(ROWTIME)).alias(ROWTIME)
        folded = frame.groupBy(*groups).agg(*aggregate_columns(spec.aggregates), time)
        if not groups:
            folded = folded.where(column(ROWTIME).isNotNull())  # Spark gives a row for nothing at all
        return folded.selectExpr("*", *(f"{text} AS {quoted(n)}" for n, text in added.items())) if added else folded


def _constants(node: Node) -> dict[str, str]:
    """Spark SQL of the key columns that are the same in all rows, and not NULL."""
    if not isinstance(node.spec, Rekey):
        return {}
    projected = node.inputs[0].spec
    before = {c.name: c.expr for c in projected.columns} if isinstance(projected, Project) else {}
    found: dict[str, str] = {}
    for key in node.spec.keys:
        expr = before.get(key.expr.name, key.expr) if isinstance(key.expr, PlanColumn) else key.expr
        lowered = lower(expr) if isinstance(expr, Literal) and expr.value is not None else None
        if lowered is not None:
            found[key.name] = lowered.sql
    return found


def _named(texts: Sequence[str], node: Node) -> list[str]:
    """Spark SQL that gives the columns of a node their names."""
    return [f"{text} AS {quoted(name)}" for text, name in zip(texts, node.schema.names, strict=True)]


def _names_beside(frame: DataFrame, *, places: bool = True) -> list[str]:
    """The columns of a frame that are not the relation's: where rows come from, and dead letters."""
    known = (PARTITION, OFFSET, LETTERS) if places else (LETTERS,)
    present = frame.columns
    return [quoted(n) for n in known if n in present]


def _beside(frame: DataFrame, *, places: bool = True) -> list[Column]:
    return [F.col(n) for n in _names_beside(frame, places=places)]


def _or_letter(frame: DataFrame, condition: Column) -> Column:
    return condition | column(LETTERS).isNotNull() if LETTERS in frame.columns else condition


def _array_type(f: NamedExpr) -> str:
    from compiler.plan.types import spark_type

    return spark_type(f.expr.type)
