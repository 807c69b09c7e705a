"""The frame of a node of the plan: rows of a stream, or a table in one of three forms."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from flowql.compiler.functions.spark_sql import SparkSql, lower
from flowql.compiler.functions.spark_text import quoted, text
from flowql.compiler.functions.user import plain_name
from flowql.compiler.plan.event_times import EventTimes
from flowql.compiler.plan.expr import ROWTIME, Call, Expr, columns_of, walk
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import SqlType
from flowql.runtime.operators.decode import BAD_TIME
from flowql.runtime.spark.native.keys import groups
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


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a row cannot be used, in Spark's SQL: a predicate, a message and a code of dead letters."""

    condition: str
    message: str
    code: str


def without(faults: Iterable[Fault]) -> str:
    """Spark SQL of the rows that have none of these faults; "" for all rows.

    Spark asks the statistics of Parquet's pages about the parts of an AND, which costs a tenth of a short job and saves nothing where hardly
    a row has a fault. This is one condition, about which it asks nothing.
    """
    good = " AND ".join(f"NOT ({f.condition})" for f in faults)
    return f"coalesce({good}, FALSE)" if good else ""


def outside(times: EventTimes, rowtime: str, lead: str, *, of_column: bool = True) -> list[Fault]:
    """The error about unusable times. rowtime: Spark SQL of a number of ms; lead: how messages begin."""
    number, code = f"CAST({rowtime} AS STRING)", text(BAD_TIME)
    some = times.why_not(times.latest_ms, 0, of_column=of_column).removeprefix(str(times.latest_ms))
    beyond = f"({rowtime} < {times.first_ms(of_column=of_column)} OR {rowtime} >= {times.latest_ms})"
    found = [Fault(beyond, f"concat({text(lead)}, {number}, {text(some)})", code)]
    if times.ahead_ms is not None:
        ahead = f"({rowtime} > unix_millis(current_timestamp()) + {times.ahead_ms})"
        told = f" is ahead of the clock (MAX_AHEAD is {times.ahead_ms // 1000} s)"
        found.append(Fault(ahead, f"concat({text(lead)}, {number}, {text(told)})", code))
    return found


ELSEWHERE = "run it on the runtime, or with `flowql run -t spark` on a target with `history: arrival`"


class Refused(Exception):
    """A node that has no form over frames. `lower` makes a `SparkUnsupported` of it that names node and query."""

    def __init__(self, reason: str, way_round: str = ELSEWHERE) -> None:
        super().__init__(reason)
        self.reason, self.way_round = reason, way_round


def check_keys(fields: Iterable[Field], way_round: str = ELSEWHERE) -> None:
    """Raises Refused for keys that Spark neither groups nor joins as the reference does."""
    for f in fields:
        if not groups(f.type):
            reason = f"the key {f.name} is {f.type}: Spark tells 0.0 from -0.0, and compares maps, in its own way"
            raise Refused(reason, way_round)


def sql_of(expr: Expr, relation: Relation, lowering: object = lower) -> str:
    """The expression as Spark SQL over a relation. Values that fail are NULL."""
    assert callable(lowering)
    check_time(expr, relation)
    found: SparkSql | None = lowering(expr)
    if found is None:
        raise Refused(f"{_culprits(expr)} has no exact form in Spark SQL")
    return found.sql


def check_time(expr: Expr, relation: Relation) -> None:
    if not relation.timed and ROWTIME in columns_of(expr):
        raise Refused("it reads ROWTIME, and rows of this table have no time of their own over complete history")


def _culprits(expr: Expr) -> str:
    """The innermost calls that cannot be lowered."""
    calls = [e for e in walk(expr) if isinstance(e, Call) and lower(e) is None]
    inner = [e for e in calls if not any(lower(a) is None for a in e.args if isinstance(a, Call))]
    named = sorted({f"CAST to {e.type}" if e.name == "cast" else plain_name(e.name) for e in inner})
    return ", ".join(named) or "an expression of this size"


def check_names(schema: Schema) -> None:
    """Whether names that differ by case alone are one is a setting of the session."""
    for names in (schema.names, *(n for f in schema for n in _field_names(f.type))):
        folded = [n.lower() for n in names]
        for i, name in enumerate(names):
            if folded.index(folded[i]) < i:
                other = names[folded.index(folded[i])]
                raise Refused(f"the columns {other} and {name} differ only in case", "rename one of them")


def _field_names(t: SqlType) -> list[tuple[str, ...]]:
    own = [tuple(n for n, _ in t.fields)] if t.fields else []
    return own + [n for inner in (*t.args, *(f for _, f in t.fields)) for n in _field_names(inner)]
