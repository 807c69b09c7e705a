"""Topologies of processors in projects: what is deployed, edited, asked, and refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flowql
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.errors import CompileError
from flowql.runtime.operators.processors.values import checked_headers
from tests.flowql.projects_with_modules import made, resumed, running, state_of, until

pytestmark = pytest.mark.turns("functions")
YAML = "name: shop\nfunctions: [totals]\nsql: [shop.sql]\n"
SQL = """
CREATE STREAM ORDERS (ID BIGINT KEY, AMOUNT BIGINT)
  WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE TOTALS (ID BIGINT PRIMARY KEY, TOTAL BIGINT)
  WITH (KAFKA_TOPIC = 'totals', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE LARGE AS SELECT ID, TOTAL FROM TOTALS WHERE TOTAL > 10;
"""
TOTALS = """
from flowql import KeyValueStore, Processor, Topology

class Total(Processor):
    def init(self, context):
        self.context, self.sums = context, context.store("sums")

    def process(self, key, value):
        total = self.sums.get(key, 0) + value["AMOUNT"]
        self.sums.put(key, total)
        self.context.forward(key, {"TOTAL": total})

totals = (
    Topology("TOTALLING")
    .add_source("orders", "orders")
    .add_processor("total", Total, "orders")
    .add_state_store(KeyValueStore("sums", key=int, value=int), "total")
    .add_sink("results", "TOTALS", "total")
)
"""
ORDERS = [{"id": 1, "amount": 6}, {"id": 2, "amount": 3}, {"id": 1, "amount": 7}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path, YAML, SQL, totals=TOTALS)


def rows(instance: flowql.Connection, table: str) -> list[tuple[int, int]]:
    return [(r["ID"], r["TOTAL"]) for r in instance.sql(f"SELECT * FROM {table} ORDER BY ID")]


def test_sql_reads_what_processors_write_and_interactive_queries_are_answered(folder: Path) -> None:
    with running(folder) as instance:
        instance.produce("ORDERS", ORDERS)
        until(lambda: rows(instance, "TOTALS"), [(1, 13), (2, 3)])
        until(lambda: rows(instance, "LARGE"), [(1, 13)])
        assert state_of(instance, "TOTALLING")["state"] == "running"
    with resumed(folder) as instance:
        instance.produce("ORDERS", ORDERS)
        until(lambda: rows(instance, "LARGE"), [(1, 26)])


def test_an_edit_rebuilds_the_table_and_what_is_made_of_it(folder: Path) -> None:
    with running(folder) as instance:
        instance.produce("ORDERS", ORDERS)
        until(lambda: rows(instance, "LARGE"), [(1, 13)])
        (folder / "totals.py").write_text(TOTALS.replace('value["AMOUNT"]', '2 * value["AMOUNT"]'))
        done = instance.deploy()
        assert {c["query"]: c["class"] for c in done["changes"]} == {
            "TOTALLING": "rebuilt",
            "CTAS_LARGE": "rebuilt",
        }
        until(lambda: rows(instance, "TOTALS"), [(1, 26), (2, 6)])
        until(lambda: rows(instance, "LARGE"), [(1, 26)])


def test_a_version_that_is_gone_fails_the_topology_alone(folder: Path) -> None:
    with running(folder) as instance:
        instance.produce("ORDERS", ORDERS)
        until(lambda: rows(instance, "LARGE"), [(1, 13)])
    (folder / "totals.py").write_text(TOTALS + "\n# edited\n")
    with resumed(folder) as instance:
        instance.produce("ORDERS", ORDERS[:1])
        until(lambda: state_of(instance, "TOTALLING")["state"], "failed")
        assert "was deployed in a version that the module totals does not have here" in str(
            state_of(instance, "TOTALLING")
        )
        assert rows(instance, "TOTALS") == [(1, 13), (2, 3)]


T = "from flowql import *\n\nclass P(Processor):\n    def process(self, key, value): ...\n\n"
FULL = 'add_source("s", "ORDERS").add_processor("p", P, "s").add_sink("t", "TOTALS", "p")'
MISTAKES = {
    "name": ('Topology("my topology")', "'my topology' is not a valid name of a topology"),
    "priority": ('Topology("A", priority="urgent")', "there is no priority 'urgent'"),
    "on_change": ('Topology("A", on_change="ask")', "on_change='ask' is not known"),
    "nothing_read": ('Topology("A").add_source("s")', "source s of A reads nothing"),
    "object": ('Topology("A").add_source("s", "X").add_processor("p", P(), "s")', "processor p of A is an object of P"),
    "no_process": (
        'Topology("A").add_source("s", "X").add_processor("p", Processor, "s")',
        "p of A has no method process",
    ),
    "asynchronous": (
        'class Q(P):\n    async def process(self, key, value): ...\n\nTopology("A").add_source("s", "X").add_processor("q", Q, "s")',
        "process of processor q of A is asynchronous",
    ),
    "generator": (
        'class Q(P):\n    def process(self, key, value): yield\n\nTopology("A").add_source("s", "X").add_processor("q", Q, "s")',
        "process of processor q of A yields, and it forwards records",
    ),
    "parameters": (
        'class Q(P):\n    def process(self, value): ...\n\nTopology("A").add_source("s", "X").add_processor("q", Q, "s")',
        "process of processor q of A cannot be called: too many positional arguments",
    ),
    "store": ('Topology("A").add_state_store("k", "p")', "A is given str as a store"),
    "no_parents": ('Topology("A").add_source("s", "X").add_processor("p", P)', "p of A gets no records"),
    "parent": ('Topology("A").add_source("s", "X").add_processor("p", P, "q")', "has the parent q, which is not there"),
    "sink_as_parent": (
        'Topology("A").add_source("s", "X").add_sink("t", "Y", "s").add_processor("p", P, "t")',
        "has the parent t, which is not there",
    ),
    "twice": ('Topology("A").add_source("s", "X").add_source("s", "Y")', "A has two nodes s"),
    "store_of": (
        'Topology("A").add_state_store(KeyValueStore("k", key=int, value=int), "p")',
        "to p, which is not a processor",
    ),
    "store_type": (
        'KeyValueStore("k", key=int, value=object)',
        "store k has the annotation object, which has no SQL type",
    ),
    "store_name": ('KeyValueStore("my store", key=int, value=int)', "'my store' is not a valid name of a store"),
    "retention": ('WindowStore("k", key=int, value=int, retention=0)', "store k: 0 is not a duration"),
    "no_sink": ('t = Topology("A").add_source("s", "X").add_processor("p", P, "s")', "A has no sink"),
    "idle": (f't = Topology("A").add_source("u", "X").{FULL}', "no processor or sink gets the records of u"),
    "same_name": (f't = Topology("A").{FULL}\nu = Topology("A").{FULL}', "A is there twice"),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_mistakes_in_topologies_are_named(tmp_path: Path, name: str) -> None:
    source, title = MISTAKES[name]
    made(tmp_path, "name: x\nfunctions: m\n", "", m=T + source + "\n")
    (found,) = (d for d in compile_sources(load_project(tmp_path)).diagnostics if d.code == "FQ3012")
    assert title in found.title
    assert found.help


MISFITS = {
    "source": (
        ('"orders", "orders")', '"orders", "oders")'),
        "source orders reads oders, which does not exist",
        "did you mean ORDERS?",
    ),
    "sink": (
        ('"TOTALS", "total"', '"TOTAL", "total"'),
        "sink results writes TOTAL, which does not exist",
        "did you mean TOTALS?",
    ),
    "written": (
        ('"TOTALS", "total"', '"LARGE", "total"'),
        "LARGE, a table that CTAS_LARGE writes",
        "a separate table",
    ),
    "two": (
        ('.add_sink("results"', '.add_sink("o", "ORDERS", "total").add_sink("results"'),
        "writes the table TOTALS and ORDERS",
        "with a separate topology",
    ),
}


@pytest.mark.parametrize("name", list(MISFITS))
def test_what_does_not_fit_the_sql_is_refused_when_it_is_compiled(tmp_path: Path, name: str) -> None:
    edit, title, help_ = MISFITS[name]
    folder = made(tmp_path, YAML, SQL, totals=TOTALS.replace(*edit))
    with pytest.raises(CompileError) as caught:
        flowql.connect(folder).deploy()
    (found,) = (d for d in caught.value.diagnostics if d.severity == "error")
    assert title in found.title
    assert help_ in found.help


def test_a_test_of_a_project_ends_when_a_query_fails_and_says_so(tmp_path: Path) -> None:
    folder = made(tmp_path, YAML, SQL, totals=TOTALS.replace("total = self", "totl = self"))
    (folder / "tests").mkdir()
    case = "name: a mistake\ngiven: {ORDERS: [{ID: 1, AMOUNT: 6}]}\nexpect: {TOTALS: []}\n"
    (folder / "tests" / "t.yaml").write_text(case)
    command = [sys.executable, "-m", "flowql", "test", "-p", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "TOTALLING failed before the last row" in done.stdout
    assert "name 'total' is not defined" in done.stdout


@pytest.mark.parametrize("headers", [{"a": b"1"}, ("ab",), [("a", 1)], [(1, b"")]])
def test_headers_of_another_form_are_named(headers: Any) -> None:
    with pytest.raises(TypeError, match="header"):
        checked_headers(headers)
    assert checked_headers([["a", b"1"], ("b", None)]) == (("a", b"1"), ("b", None))
