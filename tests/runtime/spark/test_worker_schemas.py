"""Workers know what records may name: also schemas of sources as they were, or are, declared for other queries. No Spark."""

from __future__ import annotations

import json

from flowql.compiler.plan.codec import to_data
from flowql.compiler.plan.topology import scan_of
from flowql.runtime.serde.registry import KNOWN
from flowql.runtime.spark.native.topics import _decoder
from flowql.runtime.spark.stage.layout import layout_of, loads
from flowql.runtime.spark.stage.program import layout_from
from tests.runtime.app.harness import plan_of

SOURCE = "CREATE STREAM S (K BIGINT KEY, {}) WITH (KAFKA_TOPIC='workers', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='AVRO');\n"
QUERY = "CREATE TABLE N WITH (VALUE_FORMAT='JSON') AS SELECT K, SUM(ON_WORKERS) AS V FROM S GROUP BY K;"


def test_workers_know_the_schema_of_a_source_before_and_after_it_got_a_column() -> None:
    before = plan_of(SOURCE.format("ON_WORKERS INT") + QUERY)
    plan = plan_of(SOURCE.format("ON_WORKERS INT, MORE INT") + QUERY, before)
    query = plan.queries[0]
    assert query.subtopologies == before.queries[0].subtopologies, "planned with the schema of before"
    assert len(plan.schemas) == 2
    source = plan.source("S")
    assert source is not None
    text = layout_of(plan, query, {"workers": 1, "N": 1}).dumps()
    assert loads(text).schemas == plan.schemas
    ends = [
        lambda: layout_from(text),
        lambda: _decoder(json.dumps([to_data(x) for x in (scan_of(source), source.schema, "Q", plan.schemas)])),
    ]
    for worker in ends:
        for ref in plan.schemas:  # as another process would begin
            KNOWN._by_id.pop(ref.id, None)
        worker()
        assert [KNOWN.by_id(ref.id) for ref in plan.schemas] == list(plan.schemas)
