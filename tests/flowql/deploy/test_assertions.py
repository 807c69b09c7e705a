"""ASSERT TOPIC and ASSERT SCHEMA: what is read, what holds, and what a deployment does about it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from flowql.compiler.analyze.assertions import SchemaAssertion, TopicAssertion
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.logical import SchemaRef
from flowql.deploy.assertions import failing
from flowql.runtime.log.base import TopicInfo
from flowql.runtime.serde.registry import PlanRegistry
from tests.compiler.sql import compiled, refused
from tests.flowql.cli.conftest import flowql
from tests.flowql.cli.program import Program

__all__ = ["flowql"]

TOPICS = {"orders": TopicInfo("orders", 3), "copied": TopicInfo("copied", 1, {}, 2)}
REGISTRY = PlanRegistry()
REGISTRY.remember([SchemaRef("AVRO", "{}", 7, "orders-value")])


@pytest.mark.parametrize(
    ("statement", "want"),
    [
        ("ASSERT TOPIC orders;", TopicAssertion("orders", True)),
        ("ASSERT NOT EXISTS TOPIC 'a b' TIMEOUT 5 SECONDS;", TopicAssertion("a b", False, timeout_ms=5_000)),
        ("assert topic `Web.clicks-2` with (partitions=3, replicas='2')", TopicAssertion("Web.clicks-2", True, 3, 2)),
        ("ASSERT TOPIC web.clicks-2 TIMEOUT 0 SECONDS", TopicAssertion("web.clicks-2", True, timeout_ms=0)),
        ("ASSERT SCHEMA SUBJECT orders-value ID 7;", SchemaAssertion("orders-value", 7, True)),
        ("ASSERT NOT EXISTS SCHEMA ID 9 TIMEOUT 1 MINUTE;", SchemaAssertion("", 9, False, 60_000)),
    ],
)
def test_what_is_read(statement: str, want: object) -> None:
    (found,) = compiled(statement).assertions
    assert str(found).partition(", span=")[0] == str(want).partition(", span=")[0]


@pytest.mark.parametrize(
    ("statement", "code", "said"),
    [
        ("ASSERT TOPIC orders WITH (PARTITONS=3);", "FQ2010", "PARTITIONS"),
        ("ASSERT TOPIC orders WITH (PARTITIONS='many');", "FQ2011", "many"),
        ("ASSERT SCHEMA TIMEOUT 1 SECOND;", "FQ1001", "SUBJECT"),
        ("ASSERT TOPIC;", "FQ1001", "name of a topic"),
        ("ASSERT TOPIC orders TIMEOUT soon;", "FQ1001", "TIMEOUT"),
    ],
)
def test_mistakes(statement: str, code: str, said: str) -> None:
    refused(statement, code, said)


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        ("ASSERT TOPIC orders WITH (PARTITIONS=3, REPLICAS=1)", ""),
        ("ASSERT TOPIC orders WITH (PARTITIONS=2)", "topic orders has 3 partitions, not 2"),
        ("ASSERT TOPIC copied WITH (REPLICAS=3)", "topic copied has 2 replicas, not 3"),
        ("ASSERT TOPIC oders", "topic oders does not exist"),
        ("ASSERT NOT EXISTS TOPIC oders", ""),
        ("ASSERT NOT EXISTS TOPIC orders", "topic orders exists"),
        ("ASSERT SCHEMA SUBJECT orders-value", ""),
        ("ASSERT SCHEMA SUBJECT orders-value ID 7", ""),
        ("ASSERT SCHEMA SUBJECT orders-value ID 8", "a schema of subject orders-value and id 8 does not exist"),
        ("ASSERT SCHEMA ID 8", "a schema of id 8 does not exist"),
        ("ASSERT NOT EXISTS SCHEMA ID 7", "a schema of id 7 exists"),
        ("ASSERT NOT EXISTS SCHEMA SUBJECT other ID 7", ""),
    ],
)
def test_what_holds(statement: str, wrong: str) -> None:
    assertions = compile_project([SourceText("", f"{statement} TIMEOUT 0 SECONDS;")]).assertions
    assert [title for _, title, _ in failing(assertions, lambda: TOPICS, REGISTRY)] == ([wrong] if wrong else [])


def test_it_is_waited_for_as_long_as_timeout_says() -> None:
    topics: dict[str, TopicInfo] = {}
    asked = threading.Event()

    def look() -> dict[str, TopicInfo]:
        asked.set()
        return dict(topics)

    def later() -> None:
        asked.wait(60)
        time.sleep(0.1)
        topics["late"] = TopicInfo("late", 1)

    made = threading.Thread(target=later)
    made.start()
    assertions = compiled("ASSERT TOPIC late TIMEOUT 60 SECONDS;").assertions
    assert failing(assertions, look, REGISTRY) == []
    made.join()


def test_nothing_is_deployed_while_an_assertion_does_not_hold(flowql: Program, tmp_path: Path) -> None:
    (tmp_path / "flowql.yaml").write_text("name: shop\nsql: all.sql\n")
    (tmp_path / "all.sql").write_text(
        "ASSERT TOPIC orders WITH (PARTITIONS=2) TIMEOUT 0 SECONDS;\n"
        "CREATE STREAM orders (id INT KEY, v INT) WITH (kafka_topic='orders', value_format='JSON');\n"
        "CREATE STREAM large AS SELECT * FROM orders WHERE v > 1;\n"
        "ASSERT NOT EXISTS SCHEMA ID 7 TIMEOUT 0 SECONDS;\n"
    )
    asked = ("run", "--until-caught-up", "-p", str(tmp_path))
    assert flowql("validate", "-p", str(tmp_path)).code == 0
    refused_ = flowql(*asked)
    assert refused_.code == 1
    assert "error[FQ5206]: topic orders does not exist" in refused_.err
    assert " 1 | ASSERT TOPIC orders WITH" in refused_.err
    assert flowql("topic", "create", "orders", "--partitions", "2", "-p", str(tmp_path)).code == 0
    done = flowql(*asked)
    assert done.code == 0, done.err
