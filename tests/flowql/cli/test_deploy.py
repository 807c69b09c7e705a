"""`flowql deploy` at an instance in this process: what it shows, what it refuses, and what it leaves alone."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowql.deploy import extents
from flowql.runtime.log.base import TopicPartition
from flowql.server.host import Host
from flowql.server.on_runtime import RuntimeEngine
from tests.flowql.cli.program import CommandResult, Program
from tests.runtime.log.records import produce

pytestmark = pytest.mark.turns("long")

SOURCE = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
INSERT INTO S (K, V) VALUES ('a', 1);
INSERT INTO S (K, V) VALUES ('b', 22);
INSERT INTO S (K, V) VALUES ('a', NULL);
"""
A = "CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;\n"
BIG = "CREATE STREAM BIG AS SELECT K, V FROM S WHERE V > 0;\n"
PER_V = "CREATE TABLE PER_V AS SELECT V, COUNT(*) AS N FROM BIG GROUP BY V;\n"
TWICE = "CREATE TABLE TWICE AS SELECT V, N * 2 AS M FROM PER_V;\n"
OLD = "CREATE STREAM OLD AS SELECT K, V FROM S;\n"
CHANGED = BIG.replace("V > 0", "V > 1")


class Site:
    """A project with its live instance."""

    def __init__(self, flowql: Program, folder: Path, host: Host) -> None:
        self._flowql, self.folder, self.host = flowql, folder, host

    def write(self, *queries: str) -> None:
        (self.folder / "demo.sql").write_text(SOURCE + "".join(queries))

    def __call__(self, *arguments: str) -> CommandResult:
        return self._flowql(*arguments, "-p", str(self.folder))

    def deploy(self, *arguments: str) -> dict[str, Any]:
        done = self("deploy", "-o", "json", *arguments)
        assert done.code == 0, done
        document: dict[str, Any] = json.loads(done.out)
        return document

    def plan(self, *arguments: str) -> dict[str, Any]:
        done = self("plan", "-o", "json", *arguments)
        document: dict[str, Any] = json.loads(done.out)
        assert done.code == (2 if document["changed"] else 0), done
        return document

    def settle(self) -> None:
        """Until everything there is now is processed, and nothing is rebuilt."""
        done, limit = self.host.engine.catch_up(), time.monotonic() + 60
        while not done():
            assert time.monotonic() < limit, self.host.engine.status()
            time.sleep(0.01)

    def rows(self, table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.host.service.query(f"SELECT * FROM {table} ORDER BY 1").table().to_pylist()
        return found

    @property
    def instance(self) -> Any:
        assert isinstance(self.host.engine, RuntimeEngine)
        return self.host.engine.instance


@pytest.fixture
def site(flowql: Program, host: Host, folder: Path) -> Site:
    return Site(flowql, folder, host)


def test_a_plan_shows_what_is_rebuilt_and_why(site: Site, golden: Callable[[str, str], None]) -> None:
    site.write(A, BIG, PER_V, TWICE, OLD)
    site.deploy("--no-wait")
    site.settle()
    new = "CREATE TABLE NEW AS SELECT K, MAX(V) AS M FROM BIG GROUP BY K;\n"
    site.write(A.replace("TABLE A", "TABLE A WITH (PRIORITY = 'high')"), CHANGED, PER_V, TWICE, new)
    for form in ("tree", "json", "markdown"):
        shown = str(site("plan", "--format", form))
        golden(f"cli/plan_{form}.txt", re.sub(r"(?<=about )\d+ B|(?<=disk_bytes\": )\d+", "#", shown))


def test_a_plan_refuses_what_a_deployment_refuses(site: Site) -> None:
    """It showed what would be rebuilt, and the deployment was refused: rows of the table lay in a topic with other records."""
    site.write(A, BIG, PER_V)
    site.deploy()
    site.settle()
    produce(site.instance.log, "by-hand", (TopicPartition("BIG", 0), [(7, b"c", b'{"V": 50}')]))
    site.write(A, CHANGED, PER_V)
    for verb in ("plan", "deploy"):
        refused = site(verb)
        assert refused.code == 1
        assert "error[FQ4048]: BIG holds records that by-hand has written" in refused.err


def test_a_plan_says_what_is_done(site: Site) -> None:
    site.write(A, BIG, PER_V, OLD)
    site.deploy()
    site.settle()
    site.write(A, CHANGED, PER_V, TWICE)
    planned, done = site.plan("--prune"), site.deploy("--prune")
    assert planned["changes"] == done["changes"]
    assert [(c["query"], c["class"], c["because"]) for c in done["changes"]] == [
        ("CTAS_A", "unchanged", None),
        ("CSAS_BIG", "rebuilt", None),
        ("CTAS_PER_V", "rebuilt", "CSAS_BIG"),
        ("CTAS_TWICE", "added", "CTAS_PER_V"),
        ("CSAS_OLD", "removed", None),
    ]
    assert site.rows("PER_V") == [{"V": 22, "N": 1}]


def test_columns_that_a_query_does_not_use_are_compatible(site: Site) -> None:
    site.write(A)
    site.deploy()
    (site.folder / "demo.sql").write_text(SOURCE.replace("V INT", "V INT, W INT") + A)
    (change,) = site.plan()["changes"]
    assert (change["class"], change["state"]) == ("compatible", "kept")
    assert change["why"] == "S has changed only in columns that it does not use"


def test_a_changed_declaration_is_the_reason_of_a_rebuild(site: Site) -> None:
    """It said that the text of the query had changed."""
    site.write(A)
    site.deploy()
    assert "KAFKA_TOPIC" in SOURCE
    (site.folder / "demo.sql").write_text(SOURCE.replace("KAFKA_TOPIC", "MAX_AHEAD = '1 DAY', KAFKA_TOPIC") + A)
    (change,) = site.plan()["changes"]
    assert (change["class"], change["why"]) == ("rebuilt", "the declaration of S has changed")


def test_select_and_prune_leave_the_others_alone(site: Site) -> None:
    """`deploy -s A --prune` removed all others, with their results."""
    rows = "INSERT INTO BIG (K, V) VALUES ('z', 9);\n"
    site.write(A, BIG, PER_V, OLD, rows)
    site.deploy()
    site.settle()
    before = {name: site.instance.queries[name] for name in ("CSAS_BIG", "CTAS_PER_V", "CSAS_OLD")}
    site.write(A.replace("COUNT(*)", "COUNT(V)"))
    done = site.deploy("-s", "A", "--prune")
    assert [c["query"] for c in done["changes"] if c["action"] != "none"] == ["CTAS_A"]
    assert {name: site.instance.queries[name] for name in before} == before, "untouched"
    site.write(A.replace("COUNT(*)", "COUNT(V)"), BIG, PER_V)
    done = site.deploy("-s", "OLD", "--prune")
    assert [c["query"] for c in done["changes"] if c["action"] != "none"] == ["CSAS_OLD"]
    site.settle()
    assert site.rows("PER_V") == [{"V": 1, "N": 1}, {"V": 9, "N": 1}, {"V": 22, "N": 1}], "the row is there"


def test_history_that_is_gone_is_not_left_out_silently(site: Site) -> None:
    site.write(A)
    site.deploy()
    site.settle()
    site.instance.admin.drop_before(TopicPartition("s", 0), 2)
    site.write(A.replace("COUNT(*)", "COUNT(*) + 10"))
    assert "s-0 begins at offset 2" in site.plan()["lost_history"][0]
    refused = site("deploy")
    assert (refused.code, "FQ5208" in refused.err) == (1, True)
    site.settle()
    assert site.rows("A") == [{"K": "a", "N": 2}, {"K": "b", "N": 1}], "nothing was changed"
    site.deploy("--accept-history")
    assert site.rows("A") == [{"K": "a", "N": 11}]
    site.write(A.replace("COUNT(*)", "COUNT(*) + 10"), BIG)
    assert site.deploy()["changes"][1]["class"] == "added", "what is new begins where the log begins"


def test_two_generations_need_room(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.write(A)
    site.deploy()
    site.settle()
    site.write(A.replace("COUNT(*)", "COUNT(V)"))
    usage = shutil.disk_usage(site.folder)
    monkeypatch.setattr(extents.shutil, "disk_usage", lambda _: usage._replace(free=10))
    assert site.plan()["disk_bytes"] > 10
    refused = site("deploy")
    assert (refused.code, "FQ5209" in refused.err) == (1, True)


# -- ways back


def test_the_history_and_the_way_back(site: Site) -> None:
    site.write(A, BIG)
    site.deploy()
    site.settle()
    first = site.rows("A")
    site.write(A.replace("COUNT(*)", "COUNT(*) + 10"), BIG, PER_V)
    site.deploy()
    assert site.rows("A") == [{"K": "a", "N": 12}, {"K": "b", "N": 11}]
    done = site.deploy("--rollback")
    assert {c["query"]: c["class"] for c in done["changes"]} == {
        "CTAS_A": "rebuilt",
        "CSAS_BIG": "unchanged",
        "CTAS_PER_V": "removed",
    }
    assert site.rows("A") == first
    entries = json.loads(site("deployments", "-o", "json").out)
    assert [(e["id"], e["how"], e["result"]) for e in entries] == [
        (1, "deploy", "done"),  # of the fixture
        (2, "deploy", "done"),
        (3, "deploy", "done"),
        (4, "rollback to 2", "serves"),
    ]
    assert list(entries[1]["files"]) == ["demo.sql"]
    assert all(e["seconds"] >= 0 for e in entries)
    assert "CTAS_PER_V, generation 1" in site("deployments", "show", "3").out
    site.deploy("--rollback", "3")
    assert site.rows("A") == [{"K": "a", "N": 12}, {"K": "b", "N": 11}]
    assert [q.id for q in site.instance.plan.queries] == ["CTAS_A", "CSAS_BIG", "CTAS_PER_V"]
    unknown = site("deploy", "--rollback", "77")
    assert (unknown.code, "FQ5210" in unknown.err) == (1, True)
    assert site("deploy", "2").code == 2


@pytest.mark.parametrize(("verb", "code"), [("deploy", 2), ("plan", 1)])
def test_the_name_of_a_query_is_for_select(site: Site, verb: str, code: int) -> None:
    refused = site(verb, "big")
    assert (refused.code, "--select big" in refused.err) == (code, True)


def test_a_full_refresh_rebuilds_what_has_not_changed(site: Site) -> None:
    site.write(A, BIG, PER_V)
    site.deploy()
    site.settle()
    done = site.deploy("--full-refresh", "big")
    assert [(c["query"], c["class"], c["generation"]) for c in done["changes"]] == [
        ("CTAS_A", "unchanged", 1),
        ("CSAS_BIG", "rebuilt", 2),
        ("CTAS_PER_V", "rebuilt", 2),
    ]
    assert site.rows("PER_V") == [{"V": 1, "N": 1}, {"V": 22, "N": 1}]
    assert [q["id"] for q in json.loads(site("status", "-o", "json").out)["queries"]] == [
        "CTAS_A",
        "CSAS_BIG",
        "CTAS_PER_V",
    ], "the ids that people use"


def test_what_is_being_built_stands_under_the_id_that_people_use(site: Site) -> None:
    """A rebuild that does not come to its end: what it reads is paused with it."""
    site.write(A)
    site.deploy()
    site.settle()
    site("pause", "A")
    site.write(A.replace("COUNT(*)", "COUNT(V)"))
    site.deploy("--no-wait")
    (query,) = json.loads(site("status", "-o", "json").out)["queries"]
    assert (query["id"], query["generation"], query["building"]["generation"]) == ("CTAS_A", 1, 2)
    assert "CTAS_A: generation 2 is being built" in site("status").err
    done = site("priority", "set", "A", "high", "-o", "json")
    assert json.loads(done.out)["id"] == "CTAS_A"
    assert site.instance.deployed.wanted is not None, "the rebuild goes on"
    site("resume", "A")
    site.settle()
    (query,) = json.loads(site("status", "-o", "json").out)["queries"]
    assert (query["id"], query["generation"], query["building"], query["weight"]) == ("CTAS_A", 2, None, 16)
    assert [(e["id"], e["how"], e["result"]) for e in json.loads(site("deployments", "-o", "json").out)] == [
        (1, "deploy", "done"),
        (2, "pause", "done"),
        (3, "deploy", "went on in 4"),
        (4, "priority", "went on in 5"),
        (5, "resume", "serves"),
    ]


def test_a_changed_text_goes_forward_where_that_is_asked_for(site: Site) -> None:
    site.write(A, BIG, PER_V)
    site.deploy()
    site.settle()
    site.write(A, CHANGED, PER_V)
    planned = site.plan("--forward")
    done = site.deploy("--forward")
    assert planned["changes"] == done["changes"]
    assert [(c["query"], c["class"], c["state"], c["generation"], c["reads"]) for c in done["changes"]] == [
        ("CTAS_A", "unchanged", "kept", 1, None),
        ("CSAS_BIG", "forward", "kept", 1, None),
        ("CTAS_PER_V", "unchanged", "kept", 1, None),
    ]
    site.settle()
    assert site.rows("PER_V") == [{"V": 1, "N": 1}, {"V": 22, "N": 1}], "what is there stays"
    entry = json.loads(site("deployments", "-o", "json").out)[-1]
    assert (entry["how"], entry["changes"][0]["action"]) == ("deploy --forward", "forward")
    (begun,) = entry["forward"]
    assert begun["reads"] == [{"topic": "s", "partition": 0, "offset": 3}]
    shown = site("deployments", "show", str(entry["id"]))
    assert "CSAS_BIG: its new text has read s-0 from offset 3; its results are BIG-0 from offset 2" in shown.err
    site.write(A, BIG.replace("V > 0", "V > 2"), PER_V)
    (big,) = [c for c in site.plan()["changes"] if c["query"] == "CSAS_BIG"]
    assert (big["class"], big["why"]) == (
        "rebuilt",
        "its text has changed; all history with the newest text, deployed with --forward in deployment 3",
    )


def test_what_cannot_go_forward_is_refused_with_the_way_out(site: Site) -> None:
    site.write(A)
    site.deploy()
    site.settle()
    site.write(A.replace("COUNT(*)", "COUNT(V)"))
    for verb in ("plan", "deploy"):
        refused = site(verb, "--forward")
        assert (refused.code, "error[FQ5220]" in refused.err) == (1, True), refused
        assert "CTAS_A cannot continue with its new SQL: the store CTAS_A-aggregate-1" in refused.err
        assert "flowql deploy --full-refresh CTAS_A" in refused.err
    assert len(json.loads(site("deployments", "-o", "json").out)) == 1
    assert [c["class"] for c in site.deploy("--forward", "--full-refresh", "A")["changes"]] == ["rebuilt"]


def test_forward_is_limited_by_what_is_selected(site: Site) -> None:
    site.write(A, BIG, OLD)
    site.deploy()
    site.settle()
    site.write(A, CHANGED, OLD.replace("FROM S", "FROM S WHERE V > 5"))
    done = site.deploy("--forward", "--select", "BIG")
    assert [c["class"] for c in done["changes"]] == ["unchanged", "forward", "unchanged"]


def test_a_query_says_itself_that_it_goes_forward(site: Site) -> None:
    site.write(A, BIG)
    site.deploy()
    site.settle()
    site.write(A, BIG.replace("BIG AS", "BIG WITH (ON_CHANGE = 'forward') AS"))
    _, change = site.deploy()["changes"]
    assert (change["class"], change["why"]) == ("metadata", "ON_CHANGE is forward, was rebuild")
    site.write(A, CHANGED.replace("BIG AS", "BIG WITH (ON_CHANGE = 'forward') AS"))
    _, change = site.deploy()["changes"]
    assert (change["class"], change["why"]) == (
        "forward",
        "its new text applies to new records (ON_CHANGE = 'forward')",
    )


def test_a_plan_says_what_will_not_be_the_same_again(site: Site) -> None:
    site.write(A, BIG.replace("K, V", "K, V, RANDOM() AS R, UUID() AS U"))
    site.deploy()
    site.settle()
    site.write(A, CHANGED.replace("K, V", "K, V, RANDOM() AS R, UUID() AS U"))
    _, change = site.plan()["changes"]
    assert change["why"] == "its text has changed; RANDOM, UUID will give other values"


def test_a_function_of_the_clock_over_an_argument_is_the_same_again(site: Site) -> None:
    at = "K, V, UNIX_TIMESTAMP(FROM_UNIXTIME(V)) AS T"
    site.write(A, BIG.replace("K, V", at))
    site.deploy()
    site.settle()
    site.write(A, CHANGED.replace("K, V", at))
    _, change = site.plan()["changes"]
    assert change["why"] == "its text has changed"


def test_a_target_that_changed_since_the_start_is_named(site: Site) -> None:
    """`flowql deploy` said `no changes` where a port was added, and nothing listened there."""
    note = "the target has changed since the instance started"
    assert note not in site("deploy", "--log-level", "debug").err
    project = site.folder / "flowql.yaml"
    project.write_text(project.read_text() + "targets: {default: {threads: 1, metrics: 9464}}\n")
    assert note in site("deploy").err
