"""What is in force after a script, and what the project says of it."""

import os
import random
import tempfile
from pathlib import Path

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session
from tests.conformance.__main__ import load
from tests.conformance.functions import registered
from tests.conformance.registry import CaseRegistry
from tests.conformance.test_corpus import corpus
from tests.flowql.ksqldb.imports import compiled, imported, mistakes, replayed, texts

ORDERS = "CREATE STREAM orders (id INT KEY, who STRING, amount INT) WITH (kafka_topic='orders', value_format='JSON', partitions=1);\n"
BIG = "CREATE STREAM big AS SELECT * FROM orders WHERE amount > 100 EMIT CHANGES;\n"
SAMPLE, SEED = 120, int(os.environ.get("FLOWQL_SEED", "7"))


def test_statements_become_files_with_their_comments(tmp_path):
    made = imported(
        f"-- about the file\n\n-- what people buy\n{ORDERS}-- the large ones\n/* above a\n   hundred */\n{BIG}"
    )
    assert list(made.files) == ["flowql.yaml", "sources.sql", "queries/big.sql", ".gitignore"]
    assert made.files["sources.sql"] == "-- about the file\n-- what people buy\n" + ORDERS
    assert made.files["queries/big.sql"] == "-- the large ones\n/* above a\n   hundred */\n" + BIG
    plan = compiled(made, tmp_path).plan
    assert [q.id for q in plan.queries] == ["CSAS_BIG"]


def test_the_last_of_several_definitions_counts(tmp_path):
    made = imported(ORDERS + BIG + BIG.replace("CREATE", "CREATE OR REPLACE").replace("100", "500"))
    assert made.files["queries/big.sql"] == BIG.replace("100", "500")
    assert any(t.startswith("changed 3 BIG is replaced here") and "1.sql:2" in t for t in texts(made))
    compiled(made, tmp_path)


def test_what_is_dropped_is_gone_and_the_name_is_free(tmp_path):
    into = "INSERT INTO big SELECT * FROM orders;"
    made = imported(f"{ORDERS}{BIG}{into}DROP STREAM big;CREATE STREAM big AS SELECT id, who FROM orders;")
    assert made.files["queries/big.sql"] == "CREATE STREAM big AS SELECT id, who FROM orders;\n"
    assert sum(t.startswith("left out 3 ") and "dropped here" in t for t in texts(made)) == 2
    compiled(made, tmp_path)


def test_added_columns_are_in_the_definition(tmp_path):
    alter = "ALTER STREAM orders ADD COLUMN place where_, ADD COLUMN paid DECIMAL(8, 2);"
    made = imported(f"CREATE TYPE where_ AS STRUCT<city STRING>; {ORDERS}{alter} DROP TYPE where_; {BIG}")
    plan = compiled(made, tmp_path).plan
    assert [f"{f.name} {f.type}" for f in plan.source("ORDERS").schema][3:] == [
        "PLACE STRUCT<CITY STRING>",
        "PAID DECIMAL(8, 2)",
    ]
    assert "TYPE" not in made.files["sources.sql"]


def test_a_dropped_type_is_written_out_where_it_was_used(tmp_path):
    script = f"""CREATE TYPE place AS STRUCT<city STRING, at ARRAY<DOUBLE>>;
        CREATE STREAM s (id INT KEY, a place, b MAP<STRING, place>) WITH (kafka_topic='s', value_format='JSON');
        DROP TYPE place;
        CREATE TYPE place AS STRUCT<other INT>;
        CREATE STREAM t (id INT KEY, a place) WITH (kafka_topic='t', value_format='JSON');
        {ORDERS}"""
    made = imported(script)
    plan = compiled(made, tmp_path).plan
    assert str(plan.source("S").schema.get("B").type) == "MAP<STRING, STRUCT<CITY STRING, AT ARRAY<DOUBLE>>>"
    assert str(plan.source("T").schema.get("A").type) == "STRUCT<OTHER INT>"


def test_what_a_terminated_query_made_is_a_source(tmp_path):
    made = imported(f"{ORDERS}{BIG}TERMINATE CSAS_BIG_12; CREATE STREAM bigger AS SELECT * FROM big;")
    plan = compiled(made, tmp_path).plan
    assert [q.id for q in plan.queries] == ["CSAS_BIGGER"]
    assert "CREATE STREAM BIG (" in made.files["sources.sql"]
    assert "changed 3 CSAS_BIG is ended here: BIG is only a stream over its topic" in texts(made)


def test_a_paused_query_begins_paused(tmp_path):
    made = imported(f"{ORDERS}{BIG}PAUSE CSAS_BIG_0; {BIG.replace('big', 'other')}")
    assert compiled(made, tmp_path).plan.paused == ("CSAS_BIG",)


def test_a_variable_with_one_value_stays_a_variable(tmp_path):
    made = imported(
        "DEFINE topic = 'o'; DEFINE parts = '3';\n"
        "CREATE STREAM s (v INT) WITH (kafka_topic='${topic}', partitions=${parts}, value_format='JSON');\n"
    )
    assert 'vars:\n  topic: o\n  parts: "3"\n' in made.files["flowql.yaml"]
    assert "'${topic}', partitions=${parts}" in made.files["sources.sql"]
    source = compiled(made, tmp_path).plan.source("S")
    assert (source.topic, source.partitions) == ("o", 3)


def test_a_variable_with_several_values_is_written_out(tmp_path):
    one = "CREATE STREAM ${name} (v INT) WITH (kafka_topic='${topic}', value_format='JSON');"
    made = imported(f"DEFINE topic='t'; DEFINE name='a'; {one} DEFINE name='b'; {one}")
    assert "CREATE STREAM a (v INT) WITH (kafka_topic='${topic}'" in made.files["sources.sql"]
    assert {s.name for s in compiled(made, tmp_path).plan.sources} == {"A", "B"}
    assert any("variable name has several values" in t for t in texts(made))


def test_each_script_is_a_session_of_its_own(tmp_path):
    first = "SET 'ksql.output.topic.name.prefix'='x-'; DEFINE t='orders';" + ORDERS.replace("'orders'", "'${t}'") + BIG
    made = imported(first, BIG.replace("big", "small"))
    topics = {s.name: s.topic for s in compiled(made, tmp_path).plan.sources}
    assert topics == {"ORDERS": "orders", "BIG": "x-BIG", "SMALL": "SMALL"}
    (undefined,) = mistakes(first, "CREATE STREAM z AS SELECT * FROM ${t};")
    assert (undefined.code, undefined.span.path, undefined.span.line) == ("FQ1006", "2.sql", 1)


def test_properties_hold_where_they_held(tmp_path):
    setting = "SET 'ksql.functions.collect_list.limit'='2';"
    query = "CREATE TABLE {} AS SELECT who, COLLECT_LIST(amount) AS l FROM orders GROUP BY who;"
    script = f"{ORDERS}{setting}{query.format('a')}UNSET 'ksql.functions.collect_list.limit';{query.format('b')}"
    plan = compiled(imported(script), tmp_path).plan
    want = Session()
    want.execute(SourceText("", script))
    assert {q.id: q.definition for q in plan.queries} == {q.id: q.definition for q in want.plan.queries}
    assert len({q.definition for q in plan.queries}) == 2


def test_rows_are_written_by_the_project(tmp_path):
    made = imported(
        ORDERS + "INSERT INTO orders VALUES (1, 'it''s; me', 5), (2, 'b', 6);\nINSERT INTO orders (id) VALUES (3);"
    )
    assert made.files["rows.sql"].count("INSERT") == 2
    assert len(compiled(made, tmp_path).plan.inserts) == 3


def test_connectors_are_kept_for_kafka_connect():
    create = (
        "CREATE SOURCE CONNECTOR IF NOT EXISTS `pg-in` WITH ('connector.class'='io.example.Pg', \"tasks.max\"='2');"
    )
    made = imported(f"{create}CREATE SINK CONNECTOR gone WITH ('topics'='x'); DROP CONNECTOR gone;{ORDERS}")
    (file,) = [f for f in made.files if f.startswith("connectors/")]
    assert file == "connectors/pg_in.json"
    assert '"connector.class": "io.example.Pg",\n    "tasks.max": "2"' in made.files[file]


def test_interactive_queries_are_left_out_with_a_note():
    made = imported(
        f"{ORDERS}SHOW STREAMS;\nPRINT 'orders' LIMIT 3;\nSELECT * FROM orders EMIT CHANGES;\nDESCRIBE orders;"
    )
    assert [n.span.line for n in made.notes if n.kind == "left out"] == [2, 3, 4, 5]
    assert "-- 1.sql:3: PRINT asks and defines nothing\n-- PRINT 'orders' LIMIT 3;" in made.files["left_out.sql"]


def test_what_needs_something_left_out_is_left_out_too():
    made = imported(
        ORDERS + "CREATE STREAM log AS SELECT * FROM KSQL_PROCESSING_LOG; CREATE STREAM l2 AS SELECT * FROM log;" + BIG
    )
    assert [d.name for d, _ in made.made] == ["ORDERS", "BIG"]
    assert "left out 2 it needs LOG, which is left out" in texts(made)


def test_all_mistakes_are_told_at_once_and_each_cause_only_once():
    found = mistakes(
        ORDERS
        + "CREATE STREAM a AS SELECT nme FROM orders;\nCREATE STREAM b AS SELECT * FROM a;\nDROP TABEL x;\nSELECT 'it"
    )
    assert [(d.code, d.span.line) for d in found] == [("FQ2002", 2), ("FQ1001", 4), ("FQ1002", 5)]
    assert found[0].span.line_text.strip().startswith("CREATE STREAM a AS SELECT nme")


def test_a_caret_stands_under_its_word_also_behind_another_statement():
    (found,) = mistakes(ORDERS.strip() + " CREATE STREAM a AS SELECT id, nme FROM orders;")
    line = ORDERS.strip() + " CREATE STREAM a AS SELECT id, nme FROM orders;"
    assert line[found.span.column - 1 :].startswith("nme")


def test_mistakes_can_be_left_out():
    replay = replayed(ORDERS + "CREATE STREAM a AS SELECT MY_UDF(id) AS x FROM orders;\n" + BIG, lenient=True)
    assert not replay.mistakes
    assert [s.piece.span.line for s in replay.left_out] == [2]
    assert set(replay.definitions) == {"source ORDERS", "source BIG"}


def test_mistakes_that_were_none_in_the_cluster_say_what_to_do():
    found = mistakes(
        ORDERS
        + "CREATE STREAM a AS SELECT id, MY_RISK_SCORE(who) AS r FROM orders;\nCREATE STREAM b AS SELECT id, UCAES(who) AS u FROM orders;\n"
        "CREATE STREAM c WITH (kafka_topic='c', value_format='AVRO');"
    )
    java, misspelt, registry = (d.help for d in found)
    assert java.endswith("--leave-out")
    assert "UCASE" in misspelt
    assert registry.endswith("--registry http://localhost:8081")


def test_replicas_are_the_targets(tmp_path):
    three = ORDERS.replace("partitions=1", "partitions=1, replicas=3")
    made = imported(three + BIG)
    assert "replication: 3" in made.files["flowql.yaml"]
    compiled(made, tmp_path)
    several = imported(three + BIG.replace("big AS", "big WITH (replicas=2) AS"))
    assert "replication" not in several.files["flowql.yaml"]
    assert any(t.startswith("check 2 REPLICAS is 2, 3") for t in texts(several))


def test_assertions_are_kept(tmp_path):
    made = imported(f"-- before\nASSERT TOPIC orders TIMEOUT 5 SECONDS;\n{ORDERS}{BIG}ASSERT NOT EXISTS SCHEMA ID 3;")
    assert made.files["assertions.sql"].startswith("-- before\nASSERT TOPIC orders TIMEOUT 5 SECONDS;\n")
    assert len(compiled(made, tmp_path).assertions) == 2


def test_priorities_follow_commit_intervals_and_reach_what_feeds_a_query():
    made = imported(
        f"{ORDERS}{BIG}SET 'ksql.streams.commit.interval.ms'='50';\n"
        "CREATE TABLE alerts AS SELECT who, COUNT(*) AS n FROM big GROUP BY who;\n"
        "SET 'commit.interval.ms'='60000'; CREATE TABLE report AS SELECT who, SUM(amount) AS s FROM orders GROUP BY who;"
    )
    wanted = {q: (w.priority, w.latency_target_ms, w.why) for q, w in made.priorities.items()}
    assert wanted == {
        "CTAS_ALERTS": ("high", 50, "commit.interval.ms is 50"),
        "CSAS_BIG": ("high", None, "feeds CTAS_ALERTS"),
        "CTAS_REPORT": ("batch", None, "commit.interval.ms is 60000"),
    }


def test_imported_queries_are_those_of_the_script():
    """Cases of the conformance corpus: the project's plan is that of the script, statement by statement."""
    folder = corpus()
    cases = [c for c in load(folder, "all") if "error" not in c]
    print(f"{SAMPLE} cases of {len(cases)}, FLOWQL_SEED={SEED}")
    for case in random.Random(SEED).sample(cases, SAMPLE):
        head = "".join(f"SET '{n}'='{v}';\n" for n, v in case.get("properties", {}).items())
        text = head + "\n".join(s.rstrip().rstrip(";") + ";" for s in case["statements"])
        with registered(case.get("needs_test_functions", [])), tempfile.TemporaryDirectory() as place:
            registry = CaseRegistry(case)
            session = Session(registry=registry)
            session.execute(SourceText("", text))
            plan = compiled(imported(text, registry=registry), Path(place), registry).plan
        want = session.plan
        assert sorted((q.sink, q.definition) for q in plan.queries) == sorted(
            (q.sink, q.definition) for q in want.queries
        ), case["id"]
        assert {s.name: s.schema for s in plan.sources} == {s.name: s.schema for s in want.sources}, case["id"]
        assert sorted(map(repr, plan.inserts)) == sorted(map(repr, want.inserts)), case["id"]
