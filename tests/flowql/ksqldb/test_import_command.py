"""`flowql import ksql` from the files to a project that other commands take."""

import json

import pytest

from tests.flowql.cli.conftest import flowql

__all__ = ["flowql"]

FIRST = """-- orders as they come
DEFINE topic = 'orders';
CREATE STREAM orders (id INT KEY, who STRING, amount INT) WITH (kafka_topic='${topic}', value_format='JSON', partitions=2);
CREATE STREAM big AS SELECT * FROM orders WHERE amount > 100 EMIT CHANGES;
"""
SECOND = """CREATE OR REPLACE STREAM big AS SELECT * FROM orders WHERE amount > 500 EMIT CHANGES;
CREATE TABLE per_who AS SELECT who, COUNT(*) AS n FROM big GROUP BY who EMIT CHANGES;
"""
THIRD = "INSERT INTO orders (id, who, amount) VALUES (1, 'ann', 700);\nSHOW TABLES;\n"


@pytest.fixture
def migrations(tmp_path):
    folder = tmp_path / "ksql-migrations"
    (folder / "migrations").mkdir(parents=True)
    (folder / "ksql-migrations.properties").write_text("ksql.server.url=http://localhost:8088\n")
    for name, text in (("V000002__more.sql", SECOND), ("V000010__rows.sql", THIRD), ("V000001__first.sql", FIRST)):
        (folder / "migrations" / name).write_text(text)
    return folder


def test_migrations_apply_by_version_and_the_project_works(flowql, tmp_path, migrations):
    into = tmp_path / "shop"
    done = flowql("import", "ksql", str(migrations), "--into", str(into), "--priority", "PER_WHO=critical")
    assert done.code == 0, done.err
    assert "1 source, 2 queries in " in done.out
    assert "SHOW asks and defines nothing" in done.out
    assert "amount > 500" in (into / "queries" / "big.sql").read_text()
    report = (into / "IMPORT.md").read_text()
    assert "V000002__more.sql:1` BIG is replaced here" in report
    assert "| `BIG` | query |" in report
    assert flowql("validate", "-p", str(into)).out == "shop: 1 source, 2 queries, no mistakes\n"
    plan = flowql("explain", "-p", str(into))
    assert "CSAS_BIG" in plan.out
    (into / "tests").mkdir()
    (into / "tests" / "big.sql").write_text(
        "--@test: large orders are counted behind the row of the migration\n"
        "INSERT INTO ORDERS (ID, WHO, AMOUNT) VALUES (2, 'bob', 501), (3, 'bob', 500), (4, 'bob', 900);\n"
        "ASSERT VALUES PER_WHO (WHO, N) VALUES ('ann', 1), ('bob', 1), ('bob', 2);\n"
    )
    tested = flowql("test", "-p", str(into))
    assert tested.code == 0, tested.out


def test_what_a_program_reads(flowql, tmp_path, migrations):
    done = flowql("import", "ksql", str(migrations), "--into", str(tmp_path / "shop"), "-o", "json")
    data = json.loads(done.out)
    assert [(d["name"], d["role"], d["file"]) for d in data["definitions"]] == [
        ("ORDERS", "source", "sources.sql"),
        ("BIG", "query", "queries/big.sql"),
        ("PER_WHO", "query", "queries/per_who.sql"),
        ("ORDERS", "rows", "rows.sql"),
    ]
    assert {n["kind"] for n in data["notes"]} == {"left out", "changed", "differs", "check"}


def test_a_server_gives_the_target(flowql, tmp_path):
    (tmp_path / "all.sql").write_text(FIRST)
    (tmp_path / "ksql-server.properties").write_text(
        "# ours\nbootstrap.servers = b1.example.com:9092,\\\n  b2.example.com:9092\nksql.service.id=shop_\n"
        "ksql.streams.num.stream.threads: 4\nksql.streams.auto.offset.reset=earliest\nsecurity.protocol=SASL_SSL\n"
        "ksql.persistence.default.format.value=JSON\nksql.logging.processing.topic.auto.create=true\n"
    )
    into = tmp_path / "shop"
    done = flowql(
        "import", "ksql", str(tmp_path / "all.sql"), str(tmp_path / "ksql-server.properties"), "--into", str(into)
    )
    assert done.code == 0, done.err
    text = (into / "flowql.yaml").read_text()
    assert (
        'bootstrap: "b1.example.com:9092,b2.example.com:9092"\n      app_id: shop_\n      options:\n        security.protocol: SASL_SSL'
        in text
    )
    assert "threads: 4" in text
    assert "default_target: kafka" in text
    assert "properties:\n  ksql.persistence.default.format.value: JSON" in text
    assert "ksql.logging.processing.topic.auto.create has no meaning here" in done.out
    assert "auto.offset.reset" not in done.out


def test_what_java_says_about_tls_is_told_and_not_left_out_silently(flowql, tmp_path):
    """A store of Java's was something that has no meaning here: what was imported could not connect, and nobody had said so."""
    (tmp_path / "all.sql").write_text(FIRST)
    (tmp_path / "ksql-server.properties").write_text(
        "bootstrap.servers=b1:9093\nksql.streams.ssl.truststore.location=/etc/ca.jks\nssl.truststore.password=secret\n"
        "security.protocol=SSL\nssl.endpoint.identification.algorithm=\n"
    )
    into = tmp_path / "shop"
    done = flowql(
        "import", "ksql", str(tmp_path / "all.sql"), str(tmp_path / "ksql-server.properties"), "--into", str(into)
    )
    assert done.code == 0, done.err
    assert done.out.count("the client here takes certificates and keys as PEM") == 2
    assert "secret" not in done.out
    assert "Add ssl.ca.location" in (into / "IMPORT.md").read_text()
    assert "ssl.endpoint.identification.algorithm: none" in (into / "flowql.yaml").read_text()


def test_mistakes_are_shown_with_carets_and_nothing_is_written(flowql, tmp_path):
    (tmp_path / "all.sql").write_text(FIRST + "CREATE STREAM x AS SELECT nothing FROM big;\nDROP TABEL y;\n")
    into = tmp_path / "shop"
    done = flowql("import", "ksql", str(tmp_path / "all.sql"), str(tmp_path / "none.sql"), "--into", str(into))
    assert done.code == 1
    assert done.err.count("\nmore: ") + done.err.count("more: flowql explain") >= 3
    assert "SELECT nothing FROM big" in done.err
    assert "^^^^^^^" in done.err
    assert "3 errors" in done.err
    assert not into.exists()
    left = flowql("import", "ksql", str(tmp_path / "all.sql"), "--into", str(into), "--leave-out")
    assert left.code == 0, left.err
    assert "CREATE STREAM x AS SELECT nothing" in (into / "left_out.sql").read_text()


def test_nothing_is_overwritten(flowql, tmp_path):
    (tmp_path / "all.sql").write_text(FIRST)
    done = flowql("import", "ksql", str(tmp_path / "all.sql"), "--into", str(tmp_path))
    assert done.code == 1
    assert "FQ5004" in done.err


def test_two_migrations_of_one_version_and_a_name_that_is_none(flowql, tmp_path, migrations):
    (migrations / "migrations" / "V000001__again.sql").write_text("")
    (migrations / "migrations" / "notes.sql").write_text("")
    done = flowql("import", "ksql", str(migrations), "--into", str(tmp_path / "shop"))
    assert done.code == 1
    assert "two migrations have the version 1: V000001__again.sql and V000001__first.sql" in done.err


def test_scripts_run_scripts(flowql, tmp_path):
    (tmp_path / "main.sql").write_text("DEFINE topic='t';\nRUN SCRIPT 'parts/one.sql';\nRUN SCRIPT 'parts/none.sql';\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "one.sql").write_text(FIRST.replace("DEFINE topic = 'orders';", ""))
    done = flowql("import", "ksql", str(tmp_path / "main.sql"), "--into", str(tmp_path / "shop"))
    assert "none.sql does not exist" in done.err
    assert "main.sql:3:1" in done.err
    (tmp_path / "parts" / "none.sql").write_text("RUN SCRIPT 'none.sql';")
    again = flowql("import", "ksql", str(tmp_path / "main.sql"), "--into", str(tmp_path / "shop"))
    assert "scripts run each other in a cycle" in again.err


def test_a_priority_must_name_a_query(flowql, tmp_path):
    (tmp_path / "all.sql").write_text(FIRST)
    file, into = str(tmp_path / "all.sql"), str(tmp_path / "shop")
    assert "did you mean `BIG`" in flowql("import", "ksql", file, "--into", into, "--priority", "BGI=high").err
    assert flowql("import", "ksql", file, "--into", into, "--priority", "BIG=hgih").code == 2
