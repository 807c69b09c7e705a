"""User-defined functions and streams in Python on Spark: results are those of the runtime, wherever the project's files are."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import flowql
from flowql.cli import main
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.deploy.functions import functions_of
from flowql.runtime.functions.shipping import shipped
from flowql.runtime.spark.choose import choose
from flowql.runtime.spark.errors import SparkUnsupported
from flowql.spark import run
from tests.flowql.projects_with_modules import made
from tests.registries import forget_projects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.turns("sessions")]
YAML = """
name: shop
sql: [shop.sql]
functions: [scoring, words]
targets:
  default: {engine: runtime}
  timed: {engine: runtime}
  spark: {engine: spark, spark: {master: 'local[2]'}}
"""
ORDERS = """
CREATE STREAM ORDERS (ID BIGINT KEY, AMOUNT DOUBLE, COUNTRY STRING, NOTE STRING)
  WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
"""
STATELESS = """
CREATE STREAM SCORED AS SELECT ID, SCORE(AMOUNT, COUNTRY) AS S, TWICE(AMOUNT) AS T, ADDED(AMOUNT, AMOUNT) AS A
  FROM ORDERS WHERE SCORE(AMOUNT, COUNTRY) > 1;
CREATE STREAM WORDS AS SELECT ID, SPLITTED(NOTE) AS WORD FROM ORDERS;
CREATE STREAM PLACES AS SELECT ID, NORTH(STRUCT(NAME := NOTE, LAT := AMOUNT)) AS P, CITY(STRUCT(LAT := AMOUNT))->LAT AS L, SAME(MAP('a' := AMOUNT)) AS M
  FROM ORDERS;
"""
AGGREGATES = """
CREATE TABLE RANGES AS SELECT COUNTRY, SPREAD(AMOUNT) AS R, COUNT(*) AS N FROM ORDERS GROUP BY COUNTRY;
CREATE TABLE HOURLY AS SELECT COUNTRY, SPREAD(AMOUNT) AS R FROM ORDERS WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY COUNTRY;
CREATE TABLE OF_TABLE AS SELECT N, SPREAD(R) AS R FROM RANGES GROUP BY N;
"""
SCORING = '''
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc

from flowql import udaf, udf, udtf
from rates import RATES

@udf
def score(amount: float, country: str | None) -> float:
    if amount == 13.0:
        raise ValueError("thirteen is not scored")
    if amount == 14.0:
        os._exit(1)
    return amount * RATES.get(country, 1.0)

@udf(isolation="inline")
def twice(amount: float) -> float:
    return 2 * amount

@udf(vectorized=True)
def added(a: pa.DoubleArray, b: pa.DoubleArray) -> pa.DoubleArray:
    return pc.add(a, b)

@dataclass
class Place:
    lat: float

@udf(vectorized=True)
def north(p: Annotated[pa.StructArray, Place]) -> Annotated[pa.StructArray, Place]:
    return pa.StructArray.from_arrays([pc.add(p.field("lat"), 1.0)], names=["lat"])

@udf(vectorized=True)
def same(m: Annotated[pa.MapArray, dict[str, float]]) -> Annotated[pa.MapArray, dict[str, float]]:
    return m

@udf
def city(p: Place) -> Place:
    return Place(p.lat + 2.0)

@udtf
def splitted(note: str) -> Iterator[str]:
    yield from note.split()

@udaf
class Spread:
    """Greatest less least."""

    def init(self) -> list[float]:
        return []

    def add(self, acc: list[float], value: float) -> list[float]:
        return sorted([*acc, value])

    def undo(self, acc: list[float], value: float) -> list[float]:
        acc.remove(value)
        return acc

    def result(self, acc: list[float]) -> float | None:
        return acc[-1] - acc[0] if acc else None
'''
WORDS = """
from dataclasses import dataclass

from flowql import StreamsBuilder, col, fn

@dataclass
class Order:
    amount: float
    country: str | None
    note: str

@dataclass
class Letter:
    amount: float

def letters(id: int, order: Order):
    for letter in sorted(set(order.note)):
        yield letter, Letter(order.amount)

streams = StreamsBuilder("LETTERS")
orders = streams.stream("ORDERS", value=Order)
made = orders.flat_map(letters, key={"letter": str}, value=Letter)
made.to("LETTERS")
made.group_by_key().reduce(lambda a, b: a if a.amount >= b.amount else b).to("MOST")
orders.filter(col("amount") > 3).map_values("country", twice=fn.TWICE(col("amount"))).to("GROSS")
"""
RATES = 'RATES = {"DE": 2.0}\n'


def rows() -> list[dict[str, Any]]:
    """For 13.0 `SCORE` raises; for 14.0 it ends its process, and the next one takes its time: two are enough."""
    r = random.Random(3)
    amounts = [n for n in range(1, 30) if n != 14]
    return [
        {
            "ID": i,
            "AMOUNT": 14.0 if i in (40, 140) else float(r.choice(amounts)),
            "COUNTRY": r.choice(["DE", "FR", None]),
            "NOTE": r.choice(["a b c", "x", "p q"]),
        }
        for i in range(200)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path, YAML, ORDERS + STATELESS + AGGREGATES, scoring=SCORING, words=WORDS, rates=RATES)


@pytest.fixture
def call(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A verb, with 200 orders in the log of the target `default`; its stdout and stderr."""
    monkeypatch.chdir(folder)

    def called(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = capsys.readouterr()
        assert ended.value.code == code, out + err
        return out + err

    (folder / "orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    called("topic", "import", "orders", "orders.jsonl")
    return called


@pytest.mark.turns("spark")
def test_both_engines_call_them_alike(spark: SparkSession, call: Callable[..., str]) -> None:
    """Of each kind, in each place, with a value that raises and one that ends its process."""
    said = call("verify", "--targets", "default,spark")
    assert "default and spark are equal: 9 results" in said
    dead = sum(row["AMOUNT"] in (13.0, 14.0) for row in rows())
    assert f"spark: CSAS_SCORED: {dead} dead letters" in said
    assert dead > 5


@pytest.mark.turns("spark")
def test_an_edited_function_is_a_change_of_the_queries_that_call_it(
    spark: SparkSession, call: Callable[..., str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept of these queries is refused before Spark is started."""
    call("topic", "import", "orders", "orders.jsonl", "-t", "spark")
    call("run", "-t", "spark", "--until-caught-up", "-s", "SCORED")
    (folder / "rates.py").write_text('RATES = {"DE": 20.0}\n')
    run = ("run", "-t", "spark", "--until-caught-up", "-s", "SCORED")
    with monkeypatch.context() as patched:
        patched.setattr("flowql.server.on_spark.open_spark", lambda *_: pytest.fail("Spark was started"))
        assert "error[FQ4112]: CSAS_SCORED has changed" in call(*run, code=1)
    call("run", "-t", "spark", "--until-caught-up", "-s", "SCORED", "--rebuild")
    (found,) = json.loads(call("query", "-t", "spark", "-o", "json", "SELECT SUM(S) AS S FROM SCORED"))
    scored = [r["AMOUNT"] * (20.0 if r["COUNTRY"] == "DE" else 1.0) for r in rows() if r["AMOUNT"] not in (13.0, 14.0)]
    assert found["S"] == sum(s for s in scored if s > 1)
    counted = {
        f["function"]: f for f in json.loads(call("status", "-t", "spark", "-o", "json"))["instance"]["functions"]
    }
    assert counted.keys() == {"SCORE", "TWICE", "ADDED"}, "those of queries that have run"
    assert counted["SCORE"]["lost_processes"] >= sum(r["AMOUNT"] == 14.0 for r in rows())
    assert counted["SCORE"]["calls"] >= len(rows()) + len(scored), "for the condition, and for what it keeps"
    assert counted["TWICE"]["failures"] == 0 < counted["TWICE"]["seconds"]


@pytest.mark.turns("spark")
def test_calls_of_sparks_own_operators_are_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no notes of tasks: an accumulator brings the counts, and each commit takes those of its query."""
    yaml = "name: shop\nsql: [shop.sql]\nfunctions: [m]\ntargets: {default: {engine: spark, spark: {master: 'local[2]', files: {orders: "
    yaml += f"{{path: '{tmp_path / 'in'}', format: parquet}}}}}}}}}}\n"
    sql = ORDERS + "CREATE STREAM A AS SELECT ID, F(AMOUNT) AS X FROM ORDERS;\n"
    sql += "CREATE STREAM B AS SELECT ID, F(AMOUNT) AS X, G(AMOUNT) AS Y FROM ORDERS;\n"
    m = "from flowql import udf\n@udf\ndef f(a: float) -> float:\n    return 1 / (a - 13)\n"
    m += "@udf(isolation='inline')\ndef g(a: float) -> float:\n    return a\n@udf\ndef idle(a: float) -> float:\n    return a\n"
    folder = made(tmp_path / "shop", yaml, sql, m=m)
    pq.write_table(pa.Table.from_pylist([{**row, "ROWTIME": row["ID"]} for row in rows()]), tmp_path / "in")
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit):
        main(["run", "--bounded"])
    status = flowql.connect(folder).status()
    assert {q["how"] for q in status["queries"]} == {"native"}
    counted = {f["function"]: f for f in status["instance"]["functions"]}
    assert counted.keys() == {"F", "G"}
    assert counted["F"]["calls"] >= 400
    assert counted["G"]["calls"] >= 200


def test_a_batch_over_frames_calls_them(spark: SparkSession, tmp_path: Path) -> None:
    """Over complete history, on Spark's own operators; the workers do not see the project's files."""
    yaml = YAML.replace("functions: [scoring, words]", "functions: [scoring]")
    folder = made(tmp_path / "shop", yaml, ORDERS + STATELESS, scoring=SCORING, rates=RATES)
    named = [{**row, "ROWTIME": 1_700_000_000_000 + row["ID"]} for row in rows()]
    frame = spark.createDataFrame(named, "ID LONG, AMOUNT DOUBLE, COUNTRY STRING, NOTE STRING, ROWTIME LONG")
    done = run(folder, spark, {"ORDERS": frame}, target="spark")
    shutil.rmtree(folder)
    try:
        found = sorted((r.ID, r.S, r.T, r.A) for r in done.results["SCORED"].collect())
        places = sorted((r.ID, r.P.LAT, r.L, r.M["a"]) for r in done.results["PLACES"].collect())
        words = sorted((r.ID, r.WORD) for r in done.results["WORDS"].collect())
    finally:
        done.close()
    scored = [(r, r["AMOUNT"] * (2.0 if r["COUNTRY"] == "DE" else 1.0)) for r in rows()]
    kept = [(r, s) for r, s in scored if s > 1 and r["AMOUNT"] not in (13.0, 14.0)]
    assert found == [(r["ID"], s, 2 * r["AMOUNT"], 2 * r["AMOUNT"]) for r, s in kept]
    assert places == [(r["ID"], r["AMOUNT"] + 1, r["AMOUNT"] + 2, r["AMOUNT"]) for r in rows()]
    assert words == [(r["ID"], word) for r in rows() for word in r["NOTE"].split()]


def test_another_process_makes_them_of_what_is_shipped(folder: Path) -> None:
    """Of texts alone: it has neither the folder nor the modules."""
    (folder / "lib").mkdir()  # a package without a file of its own
    (folder / "lib" / "more.py").write_text(RATES)
    (folder / "scoring.py").write_text(SCORING.replace("from rates", "from lib.more"))
    plan = compile_sources(load_project(folder)).plan
    names = sorted(functions_of(plan))
    data = json.dumps(shipped(names))
    assert {module for module, *_ in json.loads(data)} == {"scoring", "words"}
    shutil.rmtree(folder)
    program = (
        "import json, sys\n"
        "from flowql.compiler.functions.registry import lookup\n"
        "from flowql.compiler.plan.types import DOUBLE, STRING\n"
        "from flowql.runtime.functions.shipping import register_shipped\n"
        "register_shipped(json.loads(sys.argv[1]))\n"
        "assert not {'scoring', 'lib', 'lib.more', 'words'} & sys.modules.keys()\n"
        "score = lookup(sys.argv[2])\n"
        "print(score.reference(score.resolve((DOUBLE, STRING)))(4.0, 'DE'))\n"
    )
    name = next(n for n in names if n.startswith("SCORE@"))
    done = subprocess.run([sys.executable, "-c", program, data, name], capture_output=True, text=True, timeout=60)
    assert done.stdout == "8.0\n", done.stderr


def test_a_version_that_is_nowhere_found_is_not_shipped() -> None:
    forget_projects()
    assert shipped(["GONE@nowhere:000000000000", "UCASE"]) == []


ASYNCHRONOUS = """
import asyncio

import flowql
from flowql import udf

failed = {}

@udf(asynchronous=True, max_in_flight=20, retry=flowql.fixed(0.01, attempts=3))
async def looked_up(id: int) -> int:
    await asyncio.sleep(0.005 * (id % 4))
    if id % 10 == 3 and failed.setdefault(id, 0) < 2:
        failed[id] += 1
        raise ValueError("not yet")
    if id % 50 == 7:
        raise ValueError("never")
    return 2 * id

@udf(asynchronous=True, isolation="inline")
def next_one(id: int) -> int:
    return id + 1
"""
LOOKED_UP = """
CREATE STREAM FOUND AS SELECT ID, LOOKED_UP(ID) AS N, NEXT_ONE(ID) AS M FROM ORDERS WHERE AMOUNT > 2;
CREATE TABLE SUMS AS SELECT COUNTRY, COUNT(*) AS N, SUM(LOOKED_UP(ID)) AS S FROM ORDERS GROUP BY COUNTRY;
CREATE TABLE OF_TABLE AS SELECT COUNTRY, LOOKED_UP(N * 1000) AS S FROM SUMS;
"""


@pytest.mark.turns("spark")
def test_asynchronous_functions_are_waited_for_within_a_batch(
    spark: SparkSession, call: Callable[..., str], folder: Path
) -> None:
    """As batches over all rows, and as streams in two goes; calls that fail are made again, or dead letters."""
    yaml = YAML.replace("functions: [scoring, words]", "functions: [scoring]")
    made(folder, yaml, ORDERS + LOOKED_UP, scoring=ASYNCHRONOUS)
    said = call("verify", "--targets", "default,spark")
    assert "default and spark are equal: 3 results" in said
    assert "spark: CTAS_SUMS: 4 dead letters" in said
    lines = (folder / "orders.jsonl").read_text().splitlines(True)
    for name, part in (("a.jsonl", lines[:120]), ("b.jsonl", lines[120:])):
        (folder / name).write_text("".join(part))
        call("topic", "import", "orders", name, "-t", "spark")
        call("run", "-t", "spark", "--until-caught-up")
    sql = "SELECT N, SUM(M) AS M, COUNT(*) AS C FROM FOUND GROUP BY N ORDER BY N"
    call("run", "--until-caught-up")
    assert json.loads(call("query", "-t", "spark", "-o", "json", sql)) == json.loads(call("query", "-o", "json", sql))


PROCESSORS = """
import asyncio
from datetime import timedelta

from flowql import AsyncProcessor, KeyValueStore, Processor, Topology

class Split(Processor):
    def process(self, key, value):
        if value["AMOUNT"] == 13.0:
            raise ValueError("thirteen")
        for word in value["NOTE"].split():
            self.context.forward(word, {"AMOUNT": value["AMOUNT"]})

class Most(Processor):
    def init(self, context):
        super().init(context)
        self.most = context.store("most")
        context.schedule(timedelta(minutes=1), self.tell, clock=CLOCK)

    def process(self, key, value):
        self.most.put(key, max(self.most.get(key) or 0.0, value["AMOUNT"]))

    def tell(self, timestamp):
        for word, amount in list(self.most.all()):
            self.context.forward(word, {"AMOUNT": amount})

class Look(AsyncProcessor):
    max_in_flight = 20

    async def call(self, key, value):
        await asyncio.sleep(0.005)
        return key % 7

    def process(self, key, value, result):
        self.context.forward(key, {"N": result})

class Total(Processor):
    def init(self, context):
        super().init(context)
        self.sums = context.store("sums")

    def process(self, key, value):
        total = (self.sums.get(key) or 0.0) + value["AMOUNT"]
        self.sums.put(key, total)
        self.context.forward(key, {"TOTAL": total})

total = (
    Topology("TOTALLING").add_source("words", "WORDS").add_processor("total", Total, "words")
    .add_state_store(KeyValueStore("sums", key=str, value=float), "total").add_sink("totals", "TOTALS", "total")
)
split = Topology("SPLIT").add_source("orders", "ORDERS").add_processor("split", Split, "orders").add_sink("words", "WORDS", "split")
most = (
    Topology("MOST").add_source("words", "WORDS").add_processor("most", Most, "words")
    .add_state_store(KeyValueStore("most", key=str, value=float), "most").add_sink("told", "TOLD", "most")
)
look = Topology("LOOK").add_source("orders", "ORDERS").add_processor("look", Look, "orders").add_sink("looked", "LOOKED", "look")
"""
WRITTEN = """
CREATE STREAM WORDS (WORD STRING KEY, AMOUNT DOUBLE) WITH (KAFKA_TOPIC = 'words', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE STREAM TOLD (WORD STRING KEY, AMOUNT DOUBLE) WITH (KAFKA_TOPIC = 'told', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE TABLE TOTALS (WORD STRING PRIMARY KEY, TOTAL DOUBLE) WITH (KAFKA_TOPIC = 'totals', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE TABLE LARGE AS SELECT WORD, TOTAL FROM TOTALS WHERE TOTAL > 900;
CREATE STREAM LOOKED (ID BIGINT KEY, N BIGINT) WITH (KAFKA_TOPIC = 'looked', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
"""


@pytest.mark.turns("spark")
def test_processors_run_inside_spark(spark: SparkSession, call: Callable[..., str], folder: Path) -> None:
    """With stores, punctuation by stream time and asynchronous calls; as streams in two goes, from a checkpoint."""
    yaml = YAML.replace("functions: [scoring, words]", "functions: [scoring]")
    # From one partition: stream time, and so what is told when, goes by the order of arrival.
    timed = ORDERS.replace("NOTE STRING", "NOTE STRING, AT BIGINT").replace(
        "PARTITIONS = 2", "PARTITIONS = 1, TIMESTAMP = 'AT'"
    )
    made(folder, yaml, timed + WRITTEN, scoring=PROCESSORS.replace("CLOCK", "'stream'"))
    lines = [json.dumps({**row, "AT": 1_700_000_000_000 + 20_000 * row["ID"]}) + "\n" for row in rows()]
    for name, part in (("a.jsonl", lines[:120]), ("b.jsonl", lines[120:])):
        (folder / name).write_text("".join(part))
        call("topic", "import", "orders", name, "-t", "spark")
        call("run", "-t", "spark", "--until-caught-up")
        call("topic", "import", "orders", name, "-t", "timed")
        call("run", "-t", "timed", "--until-caught-up")
    sums = {
        name: f"SELECT COUNT(*) AS N, SUM({column}) AS S FROM {name}"
        for name, column in (
            ("WORDS", "AMOUNT"),
            ("TOLD", "AMOUNT"),
            ("LOOKED", "N"),
            ("TOTALS", "TOTAL"),
            ("LARGE", "TOTAL"),
        )
    }
    for sql in sums.values():
        (found,) = json.loads(call("query", "-t", "spark", "-o", "json", sql))
        assert [found] == json.loads(call("query", "-t", "timed", "-o", "json", sql))
        assert found["N"] > 2
    made(folder, yaml, timed + WRITTEN, scoring=PROCESSORS.replace("CLOCK", "'wall'"))
    said = call("run", "-t", "spark", "--until-caught-up", "--rebuild", code=1)
    assert "schedules by the wall clock" in said


@pytest.mark.parametrize(
    ("sql", "module", "said"),
    [
        (AGGREGATES, SCORING, "SPREAD has no equal in Spark"),
        ("CREATE STREAM L AS SELECT ID, LOOKED_UP(ID) AS N FROM ORDERS;", ASYNCHRONOUS, "asynchronous"),
    ],
)
def test_what_a_batch_over_complete_history_cannot_call_is_said_by_its_name(
    tmp_path: Path, sql: str, module: str, said: str
) -> None:
    yaml = YAML.replace("functions: [scoring, words]", "functions: [scoring]")
    yaml = yaml.replace("'local[2]'", "'local[2]', files: {orders: {format: json, path: in}}")
    project = load_project(made(tmp_path, yaml, ORDERS + sql, scoring=module, rates=RATES), target="spark")
    plan = compile_sources(project).plan
    with pytest.raises(SparkUnsupported, match=rf"{said}[\s\S]*history: arrival") as refused:
        choose(plan, plan.queries[0], project.target.spark, "bounded")
    assert "@" not in str(refused.value)
