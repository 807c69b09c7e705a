"""A prefix per target: developers share a Kafka cluster, and neither sees the other's rows, groups and positions."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.config.load import load_project
from flowql.config.storage import open_log
from flowql.deploy.settings import settings_of
from flowql.errors import CommandError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.spark.engine.deployed import FILE, Deployed, dumps
from flowql.server.host import Host
from tests.flowql.cli.program import Program

SQL = """
CREATE STREAM SHARED (K STRING KEY, V INT) WITH (KAFKA_TOPIC = '{topic}', VALUE_FORMAT = 'JSON');
CREATE STREAM OWN (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 'own', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE STREAM BIG AS SELECT K, V FROM SHARED WHERE V > ${{LEAST}};
CREATE TABLE COUNTS WITH (KAFKA_TOPIC = 'counts') AS SELECT K, COUNT(*) AS N FROM OWN GROUP BY K;
INSERT INTO OWN (K, V) VALUES ('${{WHO}}', 1);
"""


@pytest.mark.turns("kafka")
@pytest.mark.kafka
def test_two_developers_share_a_cluster(flowql: Program, kafka: str, tmp_path: Path) -> None:
    shared = f"shared-{tmp_path.name}"
    targets = {
        who: f"  {who}: {{log: kafka, prefix: dev_{who}_, vars: {{WHO: {who}, LEAST: {least}}}, kafka: {{bootstrap: '{kafka}'}}}}\n"
        for who, least in (("anna", 5), ("bob", 0))
    }
    (tmp_path / "flowql.yaml").write_text("name: shop\nsql: shop.sql\ntargets:\n" + "".join(targets.values()))
    (tmp_path / "shop.sql").write_text(SQL.format(topic=shared))

    def typed(*command: str, target: str) -> str:
        done = flowql(*command, "-p", str(tmp_path), "-t", target)
        assert done.code == 0, done.err
        return done.out

    with closing(open_log(load_project(tmp_path, target="anna"))) as log:
        before, groups = set(log.admin().topics()), set(log.admin().groups(""))
        typed("topic", "create", shared, "--partitions", "1", target="anna")
        typed("topic", "produce", shared, '{"K": "x", "V": 3}', '{"K": "y", "V": 9}', target="anna")
        rows = {}
        for who in targets:
            typed("run", "--until-caught-up", target=who)
        for who in targets:
            for name in ("BIG", "COUNTS"):
                lines = typed("topic", "consume", name, "-o", "json", target=who).splitlines()
                rows[who, name] = [(r["key"], *r["value"].values()) for r in map(json.loads, lines)]
        made = set(log.admin().topics()) - before
        positions = {g: log.admin().committed(g) for g in set(log.admin().groups("")) - groups}

    assert rows == {
        ("anna", "BIG"): [("y", 9)],
        ("bob", "BIG"): [("x", 3), ("y", 9)],
        ("anna", "COUNTS"): [("anna", 1)],
        ("bob", "COUNTS"): [("bob", 1)],
    }
    by = {who: {t for t in made if t.startswith(f"dev_{who}_")} for who in targets}
    assert made == {shared} | by["anna"] | by["bob"]
    assert by["anna"] >= {f"dev_anna_{t}" for t in ("own", "BIG", "counts", "shop-plan", "shop-metadata")}
    assert {t.removeprefix("dev_anna_") for t in by["anna"]} == {t.removeprefix("dev_bob_") for t in by["bob"]}
    assert all(g.startswith(("dev_anna_", "dev_bob_")) for g in positions)
    for who in targets:
        assert TopicPartition(shared, 0) in positions[f"dev_{who}_shop"]
        assert TopicPartition(f"dev_{who}_own", 0) in positions[f"dev_{who}_shop"]


@pytest.fixture
def prefixed(folder: Path) -> Path:
    _write(folder, "dev_anna_")
    return folder


def _write(folder: Path, prefix: str) -> None:
    setting = f"prefix: {prefix}" if prefix else "threads: 2"
    (folder / "flowql.yaml").write_text(f"name: demo\nsql: [demo.sql]\ntargets: {{default: {{{setting}}}}}\n")


@pytest.mark.parametrize("other", ["dev_bob_", ""])
def test_a_changed_prefix_of_what_is_deployed_is_refused(flowql: Program, prefixed: Path, other: str) -> None:
    assert flowql("run", "--until-caught-up", "-p", str(prefixed)).code == 0
    _write(prefixed, other)
    refused = flowql("run", "--until-caught-up", "-p", str(prefixed))
    assert refused.code == 1
    assert f"belongs to the application dev_anna_demo, not to {other}demo" in refused.err
    _write(prefixed, "dev_anna_")
    assert flowql("run", "--until-caught-up", "-p", str(prefixed)).code == 0
    assert flowql("query", "SELECT * FROM A", "-p", str(prefixed), "-o", "csv").out.splitlines()[1:] == ["a,2", "b,1"]


def test_an_instance_takes_plans_of_its_own_prefix_alone(prefixed: Path) -> None:
    """The files of another machine may have another prefix than the target of the instance."""
    host = Host(settings_of(load_project(prefixed)))
    host.start()
    try:
        text = SourceText("demo.sql", (prefixed / "demo.sql").read_text())
        for prefix, shown in (("dev_bob_", "`dev_bob_`"), ("", "none")):
            with pytest.raises(CommandError, match=f"is {shown}, and that of the instance is `dev_anna_`") as refused:
                host.service.planned(compile_project([text], prefix=prefix).plan)
            assert refused.value.code == "FQ5224"
        host.service.deploy(compile_project([text], prefix="dev_anna_").plan)
    finally:
        host.close()


def test_a_changed_prefix_is_refused_on_spark(flowql: Program, folder: Path) -> None:
    """Before Spark starts."""
    text = SourceText("demo.sql", (folder / "demo.sql").read_text())
    kept = folder / ".flowql" / "spark" / "state" / FILE
    kept.parent.mkdir(parents=True)
    kept.write_text(dumps(Deployed(compile_project([text], prefix="dev_anna_").plan)))
    for prefix, shown in (("prefix: dev_bob_, ", "`dev_bob_`"), ("", "none")):
        (folder / "flowql.yaml").write_text(
            f"name: demo\nsql: [demo.sql]\ntargets: {{spark: {{{prefix}engine: spark}}}}\n"
        )
        refused = flowql("run", "--until-caught-up", "-p", str(folder))
        assert (refused.code, "error[FQ5224]" in refused.err) == (1, True), refused
        assert f"of the target is {shown}, and that of the deployed plan is `dev_anna_`" in refused.err


@pytest.mark.parametrize("prefix", ["dev", "'dev anna_'", "'a/b_'"])
def test_a_prefix_ends_in_a_separator(flowql: Program, folder: Path, prefix: str) -> None:
    (folder / "flowql.yaml").write_text(f"name: demo\nsql: [demo.sql]\ntargets: {{default: {{prefix: {prefix}}}}}\n")
    refused = flowql("validate", "-p", str(folder))
    assert (refused.code, "error[FQ3004]: `prefix` cannot be" in refused.err) == (1, True)
