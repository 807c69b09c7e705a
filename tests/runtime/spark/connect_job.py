"""A client of Spark Connect: `python -m tests.runtime.spark.connect_job` prints, as JSON, what Nexmark's and the quickstart's queries give.

The last of it is a query of the exact way, whose tasks run in Spark's Python processes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flowql.compiler.plan.topology import Plan
from flowql.compiler.plan.types import Kind, SqlType, spark_type
from flowql.runtime.spark.frames.lower import lower
from flowql.runtime.spark.stage.exact import exact_bounded
from flowql.runtime.spark.stage.layout import layout_of
from tests.packed_records import begun_of
from tests.runtime.spark.stage_world import Reference, comparable, events, packed_table, sink_of
from tests.runtime.spark.test_native_share import PROJECTS, outside, plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 40
IN_PYTHON = "WEATHER_IMPACT"  # MIN of DOUBLE has no exact form, and `frames` refuses it
EXACT = "table"
VALUES = {
    Kind.BOOLEAN: "id % 2 = 0",
    Kind.INT: "CAST(id % 7 AS INT)",
    Kind.BIGINT: "id % 5",
    Kind.DOUBLE: "id / 2.0D",
    Kind.STRING: "concat('s', id % 3)",
    Kind.TIMESTAMP: "timestamp_millis(id * 60000)",
    Kind.DATE: "date_from_unix_date(CAST(id AS INT))",
}


def results(session: SparkSession, lake: str | None = None, form: str = "parquet") -> dict[str, list[str]]:
    """The rows of each query as texts, in an order of their own. lake: where `write_inputs` has written what they read."""
    found: dict[str, list[str]] = {}
    for project in PROJECTS:
        plan = plan_of(project)
        asked = tuple(q for q in plan.queries if q.sink != IN_PYTHON)
        given = {s.name: _frame(session, {f.name: f.type for f in s.schema}) for s in outside(plan)}
        if lake is not None:
            given = {name: session.read.format(form).load(f"{lake}/{project}/{name}") for name in given}
        for name, frame in lower(Plan(sources=plan.sources, queries=asked), given).items():
            found[name] = sorted(repr(tuple(row)) for row in frame.collect())
    return found


def write_inputs(session: SparkSession, lake: str, form: str = "parquet") -> None:
    """What the queries read, in files."""
    for project in PROJECTS:
        for s in outside(plan_of(project)):
            frame = _frame(session, {f.name: f.type for f in s.schema})
            frame.write.format(form).save(f"{lake}/{project}/{s.name}")


def exact(session: SparkSession, reference: Reference) -> dict[int, list[Any]]:
    """The records that a query of the exact way gives of the input of `reference`, by partition."""
    sources = session.createDataFrame(packed_table(reference.packed()))
    layout = layout_of(reference.plan, reference.query, reference.partitions(), coalesce=False)
    return comparable(EXACT, sink_of(exact_bounded(layout, begun_of(sources, layout)).collect()))


def reference(width: int = 3, keys: int = 5) -> Reference:
    made = Reference(EXACT, width=width)
    made.send(events(300, 1, keys))
    return made


def _frame(session: SparkSession, columns: dict[str, SqlType]) -> DataFrame:
    def text(t: SqlType) -> str:
        return f"CAST({VALUES.get(t.kind, 'NULL')} AS {spark_type(t)})"

    time = [] if "ROWTIME" in columns else ["id * 60000 AS ROWTIME"]
    return session.range(ROWS).selectExpr(*(f"{text(t)} AS `{name}`" for name, t in columns.items()), *time)


def main() -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote("local[2]").getOrCreate()
    made = reference()
    same = exact(session, made) == comparable(EXACT, made.sink())
    print(json.dumps({"frames": results(session), "exact is the runtime's": same}))
    session.stop()


if __name__ == "__main__":
    main()
