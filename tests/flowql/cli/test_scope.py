"""Options that all verbs share: before the verb, before a subcommand, or behind it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowql.server.host import Host
from tests.flowql.cli.program import Program


@pytest.mark.turns("cases")
@pytest.mark.parametrize(
    "line", ["-p {0} -o json {1}", "{1} -p {0} -o json", "-p {0} -o csv {1} -o json", "-p elsewhere {1} -p {0} -o json"]
)
@pytest.mark.parametrize("verb", ["status", "deployments", "priority", "topic ls", "state ls"])
def test_the_last_option_counts_wherever_it_stands(
    verb: str, line: str, folder: Path, host: Host, flowql: Program
) -> None:
    done = flowql(*line.format(folder, verb).split())
    assert done.code == 0, done.err
    json.loads(done.out)


def test_options_before_a_subcommand_hold_for_it(folder: Path, host: Host, flowql: Program) -> None:
    shown = flowql("deployments", "-p", str(folder), "-o", "json", "show", "1")
    assert json.loads(shown.out)["id"] == 1


def test_a_format_that_is_not_possible_is_refused_before_anything_is_done(
    folder: Path, host: Host, flowql: Program
) -> None:
    refused = flowql("pause", "A", "-p", str(folder), "-o", "csv")
    assert refused.code == 2
    assert "-o csv is not possible here (choose from table, json)" in refused.err
    assert {q["state"] for q in host.engine.status()["queries"]} != {"paused"}


@pytest.mark.parametrize("command", [["explain"], ["lineage"]])
@pytest.mark.parametrize(("asked", "warned"), [([], ["A", "B"]), (["A"], ["A"]), (["-s", "CTAS_B"], ["B"])])
def test_warnings_are_those_of_the_queries_asked_for(
    command: list[str], asked: list[str], warned: list[str], folder: Path, flowql: Program
) -> None:
    query = "CREATE TABLE {0} AS SELECT K, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS) GROUP BY K EMIT FINAL;\n"
    (folder / "demo.sql").write_text(
        "CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);\n"
        + query.format("A")
        + query.format("B")
    )
    shown = flowql(*command, *asked, "-p", str(folder), "-o", "json")
    assert shown.code == 0, shown.err
    assert [name for name in ("A", "B") if f"CTAS_{name} loses" in shown.err] == warned
