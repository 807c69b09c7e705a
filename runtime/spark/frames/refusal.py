"""What has no form over frames."""

from __future__ import annotations

from collections.abc import Iterable

from flowql.compiler.functions.spark_sql import SparkSql, lower
from flowql.compiler.functions.user import plain_name
from flowql.compiler.plan.expr import ROWTIME, Call, Expr, columns_of, walk
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import SqlType
from flowql.runtime.spark.frames.relation import Relation
from flowql.runtime.spark.native.keys import groups

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
