"""Where plans are cut, what keeps state, and that names stay."""

from dataclasses import dataclass, replace

import pytest

from flowql.compiler.analyze.options import QueryOptions
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.logical import SchemaRef
from flowql.compiler.plan.topology import ExchangeSink, ExchangeSource
from tests.compiler.sql import ALL, ORDERS, compiled, query


@dataclass
class Numbered:
    """A registry with these schemas."""

    ids: dict[int, SchemaRef]

    def latest(self, subject: str) -> SchemaRef | None:
        return next((r for r in self.ids.values() if r.subject == subject), None)

    def by_id(self, schema_id: int) -> SchemaRef | None:
        return self.ids.get(schema_id)


def cuts(plan):
    return list(plan.repartitions)


def stores(plan):
    return {s.name: s.kind for t in plan.subtopologies for o in t.operators for s in o.stores}


def test_grouping_by_the_key_is_no_cut_whatever_its_new_name():
    plan = query("CREATE TABLE t AS SELECT id AS k, COUNT(*) AS n FROM orders GROUP BY id;")
    assert cuts(plan) == []
    assert len(plan.subtopologies) == 1


def test_grouping_by_another_column_is_a_cut():
    plan = query("CREATE TABLE t AS SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer;")
    assert cuts(plan) == ["CTAS_T-aggregate-1-repartition"]
    first, second = plan.subtopologies
    assert isinstance(first.operators[-1].spec, ExchangeSink)
    assert isinstance(second.operators[0].spec, ExchangeSource)
    assert second.topics == ("CTAS_T-aggregate-1-repartition",)
    assert stores(plan) == {"CTAS_T-aggregate-1": "table", "T": "table"}, "the sink's store has the table's own name"


def test_partition_by_alone_is_no_cut_but_state_above_it_is():
    assert cuts(query("CREATE STREAM o AS SELECT * FROM orders PARTITION BY customer;")) == []


def test_only_the_side_that_moves_is_repartitioned():
    plan = query("CREATE STREAM o AS SELECT customer, city FROM orders JOIN customers ON customer = name;")
    assert cuts(plan) == ["CSAS_O-join-1-left-repartition"]
    assert plan.subtopologies[1].topics == ("CSAS_O-join-1-left-repartition", "customers")
    assert stores(plan) == {"CSAS_O-join-1-right": "table"}


def test_keys_written_differently_do_not_meet():
    other = "CREATE TABLE other (k INT PRIMARY KEY, v INT) WITH (kafka_topic='other', format='JSON');"
    plan = query("CREATE STREAM o AS SELECT id, v FROM orders JOIN other ON id = k;", prelude=ALL + other)
    assert cuts(plan) == ["CSAS_O-join-1-left-repartition"]
    sink = next(o.spec for t in plan.subtopologies for o in t.operators if isinstance(o.spec, ExchangeSink))
    assert sink.key_format.name == "JSON", "the stream comes to the table"


def test_keys_with_one_schema_lie_together_and_others_move():
    """The id of a schema is part of a key's bytes; equal texts have one id."""
    text = """CREATE STREAM l (k {} KEY, v INT) WITH (kafka_topic='l', format='AVRO');
        CREATE STREAM r (k {} KEY, w INT) WITH (kafka_topic='r', format='AVRO');
        CREATE STREAM o AS SELECT l.k, v, w FROM l JOIN r WITHIN 1 HOUR ON l.k = r.k;"""
    assert cuts(query(text.format("INT", "INT"), prelude="")) == []
    ids = {1: SchemaRef("AVRO", '"int"', 1, "l-key"), 2: SchemaRef("AVRO", '["null","int"]', 2, "r-key")}
    inferred = text.replace("k {} KEY, ", "").replace("l.k,", "l.rowkey,").replace("l.k = r.k", "l.rowkey = r.rowkey")
    made = compile_project([SourceText("q.sql", inferred)], registry=Numbered(ids))
    assert len(cuts(made.plan.queries[-1])) == 1


@pytest.mark.parametrize(
    ("sql", "kinds"),
    [
        ("SELECT o.id, page FROM orders o JOIN clicks c WITHIN 1 HOUR ON o.id = c.id", ["join", "join"]),
        (
            "SELECT o.id, page FROM orders o LEFT JOIN clicks c WITHIN 1 HOUR GRACE PERIOD 1 HOUR ON o.id = c.id",
            ["join", "join", "table"],
        ),
    ],
)
def test_stores_of_stream_joins(sql, kinds):
    assert list(stores(query(f"CREATE STREAM s AS {sql};")).values()) == kinds


@pytest.mark.parametrize(
    ("window", "kind", "retention"),
    [
        ("TUMBLING (SIZE 1 HOUR, GRACE PERIOD 10 MINUTES)", "window", 4_200_000),
        ("TUMBLING (SIZE 1 HOUR)", "window", 86_400_000),
        ("SESSION (1 HOUR, GRACE PERIOD 0 SECONDS)", "session", 3_600_000),
        (
            "HOPPING (SIZE 1 HOUR, ADVANCE BY 10 MINUTES, RETENTION 3 HOURS, GRACE PERIOD 0 SECONDS)",
            "window",
            10_800_000,
        ),
    ],
)
def test_windows_are_kept_for_size_and_grace(window, kind, retention):
    plan = query(f"CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM orders WINDOW {window} GROUP BY id;")
    store, _shown = [s for t in plan.subtopologies for o in t.operators for s in o.stores]
    assert (store.kind, store.retention_ms) == (kind, retention)
    assert store.key.names == ("ID", "WINDOWSTART", "WINDOWEND")
    assert store.value.names == ("N",)


FOREIGN = "CREATE TABLE t AS SELECT c.name, country FROM customers c JOIN cities t ON c.city = t.name;"


def test_foreign_key_joins_are_gathered_unless_one_partition_is_known():
    assert cuts(query(FOREIGN)) == ["CTAS_T-join-1-left-repartition", "CTAS_T-join-1-right-repartition"]
    single = compile_project([SourceText("a", ALL + FOREIGN)], topic_partitions={"customers": 1, "cities": 1})
    assert cuts(single.plan.queries[0]) == []


def test_joined_sources_with_different_partitions_are_refused():
    text = ALL + "CREATE STREAM s AS SELECT o.id, page FROM orders o JOIN clicks c WITHIN 1 HOUR ON o.id = c.id;"
    (found,) = compile_project([SourceText("a", text)], topic_partitions={"orders": 2, "clicks": 3}).diagnostics
    assert found.code == "FQ2060"
    assert "ORDERS has 2, CLICKS has 3" in found.title
    assert compile_project([SourceText("a", text)], topic_partitions={"orders": 2, "clicks": 2}).ok
    assert compile_project([SourceText("a", text)], topic_partitions={"orders": 2}).ok, "else the runtime checks"


def test_another_name_of_a_topic_gets_its_new_number_of_partitions():
    def text(partitions: int) -> str:
        made = f"CREATE STREAM a WITH (PARTITIONS={partitions}) AS SELECT id, amount FROM orders;"
        named = "CREATE STREAM b (id INT KEY, amount DOUBLE) WITH (KAFKA_TOPIC='A', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');"
        joined = "CREATE STREAM c AS SELECT a.id, b.amount FROM a JOIN b WITHIN 1 HOUR ON a.id = b.id;"
        return "\n".join([ALL, made, named, joined])

    before = compile_project([SourceText("a", text(3))]).plan
    after = compile_project([SourceText("a", text(2))], previous=before, topic_partitions={"A": 3})
    assert after.ok, after.diagnostics


GROUPED = "CREATE TABLE t AS SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer;"


def test_names_of_an_unchanged_query_stay_as_they_were_given():
    before = compiled(GROUPED).plan
    (old,) = before.queries
    sub = old.subtopologies[0]
    older = replace(sub.operators[0], id="older-name-1")
    second = replace(sub.operators[1], inputs=("older-name-1",))
    renamed = replace(sub, operators=(older, second, *sub.operators[2:]))
    pinned = replace(before, queries=(replace(old, subtopologies=(renamed, *old.subtopologies[1:])),))
    kept = compile_project([SourceText("a", ALL + GROUPED)], previous=pinned).plan.queries[0]
    assert kept.subtopologies == pinned.queries[0].subtopologies
    changed = compile_project([SourceText("a", ALL + GROUPED.replace("COUNT(*)", "SUM(amount)"))], previous=pinned)
    assert changed.plan.queries[0].subtopologies[0].operators[0].id == "scan-1"


def test_priority_is_no_part_of_the_definition():
    one = query(GROUPED)
    two = query(GROUPED.replace("AS SELECT", "WITH (priority='high', latency_target='500 ms') AS SELECT"))
    assert one.definition == two.definition
    assert (two.priority, two.weight, two.latency_target_ms) == ("high", 16, 500)
    other = query(GROUPED.replace("COUNT(*)", "SUM(amount)"))
    assert one.definition != other.definition


def test_overrides_beat_the_statement():
    text = ORDERS + "CREATE STREAM o WITH (priority='high', weight=7) AS SELECT * FROM orders;"
    (plan,) = compile_project([SourceText("a", text)]).plan.queries
    assert (plan.priority, plan.weight) == ("high", 7)
    overrides = {"CSAS_O": QueryOptions(priority="batch")}
    (plan,) = compile_project([SourceText("a", text)], overrides=overrides).plan.queries
    assert (plan.priority, plan.weight) == ("batch", 1)
