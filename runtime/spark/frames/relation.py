"""What a node of the plan is as a frame: rows of a stream, or a table in one of three forms."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.schema import Field, Schema
from flowql.runtime.spark.outline import functions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_AS_IT_IS = re.compile(r"(`(?:[^`]|``)*`)(?: AS \1)?")
_UNTIMED = -(2**61)  # row times below are of tables that have none
Form = Literal["rows", "versions", "state", "images"]
# Columns beside those of the relation.
KEY, LIVE, SEQUENCE, ORDER, CURRENT = "__key", "__live", "__sequence", "__order", "__current"
_BESIDE: dict[Form, tuple[str, ...]] = {
    "rows": (ROWTIME,),
    "versions": (ROWTIME, KEY, LIVE, SEQUENCE, ORDER),
    "state": (ROWTIME,),
    "images": (ROWTIME, CURRENT),
}


@dataclass(frozen=True, slots=True)
class TableRows:
    """How the rows of a table's frame follow each other.

    sequence_by: columns of the frame by which the last row of a key is known; the event time, if none are named.
    delete_when: rows that remove their key instead of setting it: a condition on the frame, as Spark SQL or as a column.
    """

    sequence_by: tuple[str, ...] = ()
    delete_when: str | Column | None = None


DEFAULT_ROWS = TableRows()


@dataclass(frozen=True, slots=True)
class Relation:
    """frame: the columns of a schema by name, and those of the form; others that a file or a frame has may be left in it.

    rows: a stream. versions: every row a table ever had, by its `KEY` (a struct, as the optimiser takes unused key columns away):
    `LIVE` is FALSE for a removal, a row of a higher `ORDER` takes the place of another of its key, and of equal `SEQUENCE` only the
    highest ever was. state: the rows of a table at the end. images: the versions that were, to be grouped by other columns; `CURRENT` for those of the end.

    timed: the row time is what the runtime would say. grows: no key of a state was ever removed or left out.
    carried: further columns, which rows of a topic keep through stateless nodes.
    """

    frame: DataFrame
    form: Form
    timed: bool = True
    grows: bool = False
    carried: tuple[str, ...] = ()

    @property
    def beside(self) -> list[str]:
        """Spark SQL of the columns of the form."""
        return [quoted(n) for n in (*_BESIDE[self.form], *self.carried)]

    def select(self, texts: Iterable[str]) -> Relation:
        """Other columns, the same form. Where that only leaves columns out, they are left in: a step less for Spark to analyse."""
        found = list(texts)
        if all(map(_AS_IT_IS.fullmatch, found)):
            return self
        return replace(self, frame=self.frame.selectExpr(*found, *self.beside))


def key_of(schema: Schema) -> tuple[Field, ...]:
    """The columns of the key, the bounds of a windowed one among them."""
    window = tuple(f for f in schema if f.role == "window") if schema.window is not None else ()
    return schema.key + window


def names(schema: Schema) -> list[str]:
    """Spark SQL of the columns of a schema."""
    return [quoted(f.name) for f in schema]


def any_present(fields: Iterable[Field]) -> str:
    """Spark SQL: the record had a key, some part of it is not NULL. "" for no fields."""
    return " OR ".join(f"{quoted(f.name)} IS NOT NULL" for f in fields)


def shown_time() -> str:
    """Spark SQL of the row time as people see it: 0 of a table that has none and counts from the beginning."""
    return f"CASE WHEN {quoted(ROWTIME)} < {_UNTIMED}L THEN 0L ELSE {quoted(ROWTIME)} END AS {quoted(ROWTIME)}"


def state_of(relation: Relation, schema: Schema) -> Relation:
    """The rows of a table at the end, one per key."""
    if relation.form == "state":
        return relation
    assert relation.form == "versions", f"{relation.form} are not a table"
    whole = f"struct({', '.join([*names(schema), quoted(ROWTIME), LIVE])})"
    rows = relation.frame.selectExpr(KEY, f"{whole} AS __row", ORDER)
    last = rows.groupBy(KEY).agg(functions(rows).expr(f"max_by(__row, {ORDER})").alias("__row")).where(f"__row.{LIVE}")
    columns = [f"__row.{n} AS {n}" for n in [*names(schema), quoted(ROWTIME)]]
    return Relation(last.selectExpr(*columns), "state", timed=relation.timed)


def images_of(relation: Relation, schema: Schema) -> Relation:
    """The versions of a table that ever were, and which of them are the last of their key."""
    assert relation.form == "versions", f"{relation.form} have no history"
    over = f"OVER (PARTITION BY {KEY} ORDER BY {ORDER} DESC)"
    ranked = relation.frame.selectExpr("*", f"row_number() {over} AS __rank", f"lag({SEQUENCE}) {over} AS __next")
    were = ranked.where(f"{LIVE} AND NOT ({SEQUENCE} <=> __next)")
    made = were.selectExpr(*names(schema), quoted(ROWTIME), f"__rank = 1 AS {CURRENT}")
    return Relation(made, "images", timed=False)
