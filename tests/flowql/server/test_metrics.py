"""What Prometheus reads of a real instance, against its status; and that the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from flowql.config.sections import MetricsSettings, StateSettings
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.server.client import Client
from flowql.server.dashboard import PANELS, dashboard
from flowql.server.host import Host
from flowql.server.prometheus import METRICS, exposition
from flowql.server.running import connect
from tests.flowql.cli.program import Program
from tests.flowql.query.harness import plan_of

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A WITH (PRIORITY = 'high') AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
CREATE TABLE B AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;
INSERT INTO S (K, V) VALUES ('a', 1);
INSERT INTO S (K, V) VALUES ('b', 1);
"""
FUNCTIONS = (
    "flowql_function_",
    "flowql_query_held_rows",
    "flowql_query_waiting_rows",
    "flowql_query_parked_rows",
    "flowql_query_calls_in_flight",
)
UNITS = {"short", "percentunit", "cps", "s", "bytes"}  # ids of Grafana, as its editor lists them
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    state = StateSettings((tmp_path / "store").as_uri())
    made = Host(Settings(tmp_path, "demo", 1, 64 << 20, metrics=MetricsSettings(free_port()), state=state))
    made.start()
    yield made
    made.close()


@pytest.fixture
def client(host: Host, tmp_path: Path) -> Iterator[Client]:
    found = connect(tmp_path)
    assert found is not None
    found.deploy(plan_of(SQL))
    while found.query("SELECT sum(n) AS n FROM b").to_pylist() != [{"n": 2}]:
        assert host.engine.fatal is None
    yield found
    found.close()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def samples(text: str) -> Samples:
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_every_metric_is_there_with_its_kind_and_labels(client: Client) -> None:
    families = {f.name: f for f in text_string_to_metric_families(client.metrics())}
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name]
        assert family.type == metric.kind
        assert family.documentation == metric.help
        if metric.name not in (
            "flowql_query_share_ratio",
            "flowql_query_entitled_ratio",
            "flowql_query_state_bytes",
            "flowql_trouble_seconds",
            "flowql_remote_behind_seconds",
        ) and not metric.name.startswith((*FUNCTIONS, "flowql_gateway_")):
            # no query worked just now; no store was counted yet; no function is called; no row waits; every partition can be read;
            # nothing is uploaded yet; neither `api` nor `pg` is served
            assert family.samples, metric.name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels), sample


def test_the_values_are_those_of_the_status(client: Client) -> None:
    status, found = client.status(detail=True), samples(client.metrics())
    for q in status["queries"]:
        label = ("query", q["id"])
        assert found["flowql_query_records_in_total", (label,)] == q["records_in"] == 2
        assert found["flowql_query_weight", (label,)] == q["weight"]
        assert found["flowql_query_state", (label, ("state", "running"))] == 1
        assert found["flowql_query_latency_seconds_count", (label,)] == 2, "each record once"
        assert found["flowql_query_latency_seconds_sum", (label,)] == q["latency"]["sum_ms"] / 1000
        for p in q["partitions"]:
            key = (("partition", str(p["partition"])), label, ("topic", "s"))
            assert found["flowql_partition_position", key] == p["position"]
    assert found["flowql_topic_records_fetched_total", (("topic", "s"),)] == 2
    assert found["flowql_commits_blocked", ()] == 0


def test_histograms_rise_and_end_with_all(client: Client) -> None:
    found = samples(client.metrics())
    buckets = {
        float(dict(labels)["le"]): n
        for (name, labels), n in found.items()
        if name == "flowql_query_latency_seconds_bucket" and ("query", "CTAS_A") in labels
    }
    values = [buckets[le] for le in sorted(buckets)]
    assert values == sorted(values)
    assert values[-1] == 2
    assert len(values) < 25


def test_prometheus_needs_no_token_at_its_own_port_and_finds_nothing_else_there(host: Host, client: Client) -> None:
    assert host._settings.metrics is not None
    base = f"http://127.0.0.1:{host._settings.metrics.port}"
    answer = httpx.get(f"{base}/metrics", trust_env=False)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "flowql_query_records_in_total" in answer.text
    for method, path in (("GET", "/v1/status"), ("GET", "/v1/plan"), ("POST", "/v1/query"), ("POST", "/stop")):
        headers = {"Authorization": f"Bearer {client.address.token}"}
        assert httpx.request(method, base + path, headers=headers, trust_env=False).status_code == 404
    without = httpx.get(f"http://127.0.0.1:{client.address.port}/metrics", trust_env=False)
    assert without.status_code == 401


def test_a_port_that_is_taken_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = Settings(tmp_path, "demo", 1, 64 << 20, metrics=MetricsSettings(taken.getsockname()[1]))
        with pytest.raises(CommandError, match=f"cannot listen on 127.0.0.1:{settings.metrics.port}"):  # type: ignore[union-attr]
            Host(settings).start()
    host = Host(settings)  # nothing of the first try is left
    host.start()
    host.close()


def test_what_an_engine_does_not_know_is_left_out() -> None:
    instance = {"pid": 1, "engine": "spark", "log": "embedded", "uptime_s": 1.0, "cpu_s": 2.0, "memory_bytes": 3}
    query: dict[str, Any] = {"id": "Q", "state": "running", "weight": 4, "lag": 0, "records_in": 5, "records_out": 5}
    query |= {"dead_letters": 0, "late_records": 0, "errors": 0, "share": None, "state_bytes": None, "waits": None}
    found = samples(exposition({"instance": instance, "queries": [query]}).decode())
    assert found["flowql_query_records_in_total", (("query", "Q"),)] == 5
    assert not [name for name, _ in found if "share" in name or "latency" in name or "waiting" in name]


def test_every_name_on_the_dashboard_exists(client: Client) -> None:
    known = {name for name, _ in samples(client.metrics())} | {m.name for m in METRICS}
    for panel in PANELS:
        for expression, legend in panel.lines.items():
            (used,) = set(re.findall(r"flowql_\w+", expression))
            assert used in known, expression
            assert used.endswith("_total") == ("rate(" in expression or "increase(" in expression) or "bucket" in used
            labels = set(next(m for m in METRICS if used.removesuffix("_bucket") == m.name).labels)
            assert set(re.findall(r'(\w+)(?:=~|!=|=)"', expression)) <= labels, expression
            summed = re.findall(r"by \(([^)]*)\)", expression)
            left = labels if not summed else set(summed[0].split(", ")) - {"le"}
            assert left <= labels
            assert left == set(re.findall(r"{{(\w+)}}", legend)), f"{legend}: lines of a diagram can be told apart"
        assert panel.unit in UNITS
    shown = {m.name for m in METRICS if any(m.name in e for p in PANELS for e in p.lines)}
    assert {m.name for m in METRICS} - shown <= {
        *("flowql_instance_info", "flowql_uptime_seconds", "flowql_commits_total", "flowql_query_waiting"),
        *(
            "flowql_query_weight",
            "flowql_query_rows_by_row_total",
            "flowql_partition_position",
            "flowql_trouble_seconds",
        ),
    }


def test_the_dashboard_asks_which_queries_there_are(client: Client) -> None:
    variables = {v["name"]: v for v in dashboard()["templating"]["list"]}
    asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables["query"]["query"]["query"])
    assert asked is not None
    found = {dict(labels)[asked[2]] for name, labels in samples(client.metrics()) if name == asked[1]}
    assert found == {"CTAS_A", "CTAS_B"}
    written = set(re.findall(r"\$\{?(?!__)(\w+)", json.dumps(dashboard())))
    assert written == set(variables)


def test_panels_do_not_lie_on_each_other() -> None:
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in dashboard()["panels"]]
    assert len(set(places)) == len(places) == len(PANELS)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in dashboard()["panels"])
    assert len({p["id"] for p in dashboard()["panels"]}) == len(PANELS)


def test_the_verb_writes_what_it_says(flowql: Program) -> None:
    assert json.loads(flowql("metrics", "dashboard").out) == dashboard()
    names = json.loads(flowql("metrics", "names", "-o", "json").out)
    assert [n["metric"] for n in names] == [m.name for m in METRICS]


@pytest.fixture
def flowql(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)
