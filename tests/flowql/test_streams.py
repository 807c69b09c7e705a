"""Streams in Python in projects: what is deployed, edited, asked, and how mistakes are shown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import flowql
from flowql.compiler.diagnostics.render import render
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.runtime.spark.choose import choose
from flowql.runtime.spark.settings import SparkSettings
from tests.flowql.projects_with_modules import made, resumed, running, state_of, until

pytestmark = pytest.mark.turns("functions")

YAML = "name: shop\nfunctions: [enrich]\nsql: [shop.sql]\n"
SQL = """
CREATE STREAM ORDERS (ID BIGINT KEY, CUSTOMER BIGINT, PRICE DOUBLE, STATE STRING)
  WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE STREAM SHIPMENTS (ID BIGINT KEY, ORDER_ID BIGINT) WITH (KAFKA_TOPIC = 'shipments', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE STREAM CLICKS (URL STRING) WITH (KAFKA_TOPIC = 'clicks', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE TABLE CUSTOMERS (ID BIGINT PRIMARY KEY, NAME STRING) WITH (KAFKA_TOPIC = 'customers', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
"""
ENRICH = """
from dataclasses import dataclass

from flowql import StreamsBuilder, col, fn

@dataclass
class Priced:
    price: float
    customer: int

streams = StreamsBuilder("ENRICH")
orders = streams.stream("orders")
dear = orders.filter(col("price") > 10).map_values(lambda value: Priced(value["PRICE"] * 2, value["CUSTOMER"]), value=Priced)
dear.to("DEAR")
dear.group_by("customer").aggregate(total=fn.SUM(col("price"))).to("SPENT")
orders.map_values("price").to("PRICES")
"""
TOP = "CREATE TABLE TOP AS SELECT CUSTOMER, TOTAL FROM SPENT WHERE TOTAL > 50;\n"
ORDERS = [
    {"id": 1, "customer": 7, "price": 20.0},
    {"id": 2, "customer": 7, "price": 15.0},
    {"id": 3, "customer": 8, "price": 11.0},
    {"id": 4, "customer": 8, "price": 9.0},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path, YAML, SQL + TOP, enrich=ENRICH)


def rows(instance: flowql.Connection, table: str) -> list[tuple[int, float]]:
    return [(r["CUSTOMER"], r["TOTAL"]) for r in instance.sql(f"SELECT * FROM {table} ORDER BY CUSTOMER")]


def test_sql_reads_what_streams_write_also_after_a_restart(folder: Path) -> None:
    with running(folder) as instance:
        instance.produce("ORDERS", ORDERS)
        until(lambda: rows(instance, "SPENT"), [(7, 70.0), (8, 22.0)])
        until(lambda: rows(instance, "TOP"), [(7, 70.0)])
        assert state_of(instance, "CSAS_DEAR")["state"] == "running"
    with resumed(folder) as instance:
        instance.produce("ORDERS", ORDERS)
        until(lambda: rows(instance, "SPENT"), [(7, 140.0), (8, 44.0)])


def test_an_edited_function_rebuilds_what_calls_it_and_what_reads_that(folder: Path) -> None:
    with running(folder) as instance:
        instance.produce("ORDERS", ORDERS)
        until(lambda: rows(instance, "TOP"), [(7, 70.0)])
        (folder / "enrich.py").write_text(ENRICH.replace("* 2, value", "* 3, value"))
        done = instance.deploy()
        assert {c["query"]: c["class"] for c in done["changes"] if c["class"] != "unchanged"} == {
            "CSAS_DEAR": "rebuilt",
            "CTAS_SPENT": "rebuilt",
            "CTAS_TOP": "rebuilt",
        }
        until(lambda: rows(instance, "TOP"), [(7, 105.0)])


def test_a_version_that_is_gone_fails_the_queries_that_call_it_alone(folder: Path) -> None:
    with running(folder) as instance:
        instance.produce("ORDERS", ORDERS)
        until(lambda: rows(instance, "SPENT"), [(7, 70.0), (8, 22.0)])
    (folder / "enrich.py").write_text(ENRICH + "\n# edited\n")
    with resumed(folder) as instance:
        instance.produce("ORDERS", ORDERS[:1])
        until(lambda: state_of(instance, "CTAS_SPENT")["state"], "failed")
        assert state_of(instance, "CSAS_PRICES")["state"] == "running"


def test_spark_runs_expressions_and_functions_of_python(folder: Path) -> None:
    plan = compile_sources(load_project(folder)).plan
    by_id = {q.id: q for q in plan.queries}
    for query in ("CSAS_PRICES", "CSAS_DEAR"):
        assert {c.how for c in choose(plan, by_id[query], SparkSettings(), "bounded")} == {"stateless python"}


HEAD = """from dataclasses import dataclass
from datetime import timedelta
from flowql import *

@dataclass
class Order:
    price: float
    weight: float

s = StreamsBuilder("S")
orders, shipments, clicks = s.stream("ORDERS"), s.stream("SHIPMENTS"), s.stream("CLICKS")
customers = s.table("CUSTOMERS")
"""
MISTAKES = {
    "stream": ('s.stream("ODERS").to("A")', "ODERS is not a stream or table"),
    "kind": ('s.stream("CUSTOMERS").to("A")', "CUSTOMERS is read as a stream, and is a table"),
    "column": ('orders.filter(col("prize") > 10).to("A")', "filter column 'PRIZE' cannot be resolved"),
    "gone": ('orders.map_values("state").filter(col("price") > 1).to("A")', "filter column 'PRICE' cannot be resolved"),
    "type": ('orders.filter((col("price") > 1) & (col("state") > 5)).to("A")', "STATE"),
    "condition": ('orders.filter(col("price") * 2).to("A")', "WHERE"),
    "no_condition": ('orders.filter("price > 10").to("A")', "'price > 10' is not a condition"),
    "function": ('orders.map_values(x=fn.SQUARE(col("price"))).to("A")', "SQUARE"),
    "cast": ('orders.map_values(x=col("price").cast("NUMBR")).to("A")', "NUMBR"),
    "text": ('orders.map_values(x="price").to("A")', "x='price' may be a column or a string"),
    "unnamed": ('orders.map_values(col("price") * 2).to("A")', "(PRICE * 2) has no name"),
    "nothing": ('orders.map_values().to("A")', "has no columns"),
    "key": ('orders.map_values(id=col("customer")).to("A")', "ID is the key"),
    "key_again": ('orders.group_by("customer").aggregate(customer=fn.COUNT()).to("A")', "two columns of the result are called CUSTOMER"),
    "key_of_a_row": ('orders.map_values(lambda v: v, value={"id": int}).to("A")', "two columns of the result are called ID"),
    "no_key": ('clicks.group_by_key().count().to("A")', "group_by_key: the stream has no key"),
    "lambda": ('orders.map_values(lambda value: {"x": 1}).to("A")', "does not say the columns of what its function returns"),
    "lambda_key": ('orders.map(lambda k, v: (k, v), value=Order).to("A")', "does not say the type of its key"),
    "lambda_type": ('orders.map_values(lambda v: v, value={"x": object}).to("A")', "which has no SQL type"),
    "arity": ('orders.filter(lambda a, b, c: True).to("A")', "the function takes 3 arguments"),
    "row": ('s.stream("ORDERS", value=Order).filter(lambda o: o.price > 1).to("A")', "weight"),
    "aggregate": ('orders.filter(fn.SUM(col("price")) > 5).to("A")', "SUM"),
    "outside": ('orders.group_by("customer").aggregate(x=col("price"), n=fn.COUNT()).to("A")', "PRICE"),
    "initial": ('orders.group_by("customer").aggregate(lambda a, v: a, value={"x": int}).to("A")', "what it begins with"),
    "undo": ('customers.group_by("name").reduce(lambda a, b: a).to("A")', "reduce: a function over a table has no undo"),
    "merge_of_sessions": (
        'totals = orders.group_by_key().window(SessionWindow(timedelta(minutes=1)))\ntotals.aggregate(lambda a, v: a, initial=dict, value={"x": int}).to("A")',
        "aggregate: a function in sessions has no merge",
    ),
    "window": ('orders.window(TumblingWindow(timedelta(hours=1)))', "TumblingWindow is a window of an aggregation"),
    "table_window": ('customers.group_by("name").window(TumblingWindow(timedelta(hours=1)))', "rows of tables cannot"),
    "size": ('orders.group_by_key().window(TumblingWindow(timedelta()))', "is not a duration"),
    "suppress": ('orders.group_by_key().count().suppress()', "only rows of windows are final"),
    "within": ('orders.join(shipments).to("A")', "joins two streams and does not say within which time"),
    "table_within": ('orders.join(customers, within=timedelta(hours=1)).to("A")', "the rows of a table have no time"),
    "other_builder": ('orders.join(StreamsBuilder("T").table("CUSTOMERS")).to("A")', "is not a stream or table of this builder"),
    "join_key": ('orders.join(customers, on="state").to("A")', "types don't match"),
    "join_no_key": ('clicks.join(customers).to("A")', "CLICKS has no key columns"),
    "clash": ('orders.join(shipments, within=timedelta(hours=1), suffix="").join(s.stream("ORDERS"), within=timedelta(hours=1), suffix="").to("A")', "both sides have the column"),
    "table_stream": ('customers.join(orders)', "a table cannot be joined with a stream"),
    "to_table": ('orders.to("CUSTOMERS")', "rows of a stream are written to CUSTOMERS, which is a table"),
    "table_to_table": ('customers.filter(col("name") != "x").to("CUSTOMERS")', "rows of a table are written to CUSTOMERS, which exists"),
    "misfit": ('orders.to("SHIPMENTS")', "incompatible schema"),
    "sink_name": ('orders.to("")', "'' is not a valid name of a stream"),
    "twice": ('a = s.stream("A", topic="a", value={"x": int})\nb = s.stream("A", topic="b", value={"x": int})\na.to("B")', "A is defined twice"),
    "same_name": ('orders.to("A")\nt = StreamsBuilder("S")', "S is there twice"),
    "idle": ('', "S writes nothing"),
    "priority": ('orders.to("A", priority="urgent")', "there is no priority 'urgent'"),
    "declared": ('s.stream("A", key={"x": int})', "stream A has columns and no topic"),
    "merge": ('orders.merge(shipments).to("A")', "incompatible schema"),
    "cycle": ('s.stream("B").to("A")\ns.stream("A").to("B")', "definitions form a cycle"),
    "builder": ('StreamsBuilder("my streams")', "'my streams' is not a valid name of a builder"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(MISTAKES))
def test_mistakes_are_named(tmp_path: Path, name: str) -> None:
    source, title = MISTAKES[name]
    made(tmp_path, "name: x\nfunctions: m\nsql: [shop.sql]\n", SQL, m=f"{HEAD}{source}\n")
    found = [d for d in compile_sources(load_project(tmp_path)).diagnostics if d.severity == "error"]
    assert title in found[0].title, [(d.code, d.title) for d in found]


def test_every_mistake_is_shown_with_its_place(
    tmp_path: Path, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []
    for name, (source, _) in MISTAKES.items():
        yaml = "name: x\nfunctions: m\nsql: [shop.sql]\n"
        folder = made(tmp_path / name, yaml, SQL, m=f"{HEAD}{source}\n")
        monkeypatch.chdir(folder)
        found = [d for d in compile_sources(load_project(folder)).diagnostics if d.severity == "error"]
        shown.append(f"-- {name}\n{render(found)}".rstrip())
    golden("functions/stream_mistakes.txt", "\n\n".join(shown) + "\n")


SCORED = """
from flowql import StreamsBuilder, col, fn, udf

@udf
def taxed(price: float) -> float:
    return price * 2

streams = StreamsBuilder("SCORED")
streams.stream("ORDERS").map_values(taxed=fn(taxed, col("price"))).group_by_key().aggregate(total=fn.SUM(col("taxed"))).to("TAXED")
"""


def test_a_module_may_have_functions_in_processes_of_their_own_and_streams_that_call_them(tmp_path: Path) -> None:
    folder = made(tmp_path, YAML.replace("enrich", "scored"), SQL, scored=SCORED)
    with running(folder) as instance:
        instance.produce("ORDERS", ORDERS[:2])
        until(lambda: [r["TOTAL"] for r in instance.sql("SELECT TOTAL FROM TAXED ORDER BY ID")], [40.0, 30.0])


def test_tests_of_a_project_run_its_streams(folder: Path) -> None:
    (folder / "tests").mkdir()
    case = "name: totals\ngiven: {ORDERS: [{ID: 1, CUSTOMER: 7, PRICE: 30.0}]}\nexpect: {SPENT: [{CUSTOMER: 7, TOTAL: 60.0}]}\n"
    (folder / "tests" / "t.yaml").write_text(case)
    command = [sys.executable, "-m", "flowql", "test", "-p", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


COUNTED = """
from flowql import KeyValueStore, Processor, StreamsBuilder, col

class Nth(Processor):
    def init(self, context):
        self.context, self.seen = context, context.store("seen")

    def process(self, key, value):
        self.seen.put(key, self.seen.get(key, 0) + 1)
        self.context.forward(key, {"nth": self.seen.get(key)})

streams = StreamsBuilder("COUNTED", priority="high")
orders = streams.stream("ORDERS").select_key("customer")
nth = orders.process(Nth, value={"`nth`": int}, stores=[KeyValueStore("seen", key=int, value=int)], name="NTH")
nth.select_key("`nth`").group_by_key().count("N").to("TIMES")
"""


def test_a_processor_between_streams_goes_on_after_a_restart(tmp_path: Path) -> None:
    folder = made(tmp_path, YAML.replace("enrich", "counted"), SQL, counted=COUNTED)

    def times(instance: flowql.Connection) -> list[tuple[int, int]]:
        return [(r["nth"], r["N"]) for r in instance.sql("SELECT * FROM TIMES ORDER BY 1")]

    with running(folder) as instance:
        instance.produce("ORDERS", ORDERS)
        until(lambda: times(instance), [(1, 2), (2, 2)])
        assert {q["priority"] for q in instance.status()["queries"]} == {"high"}
    with resumed(folder) as instance:
        instance.produce("ORDERS", ORDERS[:1])
        until(lambda: times(instance), [(1, 2), (2, 2), (3, 1)])
