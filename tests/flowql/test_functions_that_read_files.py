"""Functions whose module reads a file of the project: what is in it decides results as the source does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import flowql
from flowql.config.compile import compile_sources
from flowql.config.functions import load_functions, load_query_functions
from flowql.config.load import load_project
from flowql.deploy.functions import functions_of
from flowql.runtime.functions.workers import end_idle_workers
from tests.flowql.projects_with_modules import made, resumed, running, state_of, until

pytestmark = pytest.mark.turns("functions")
YAML = "name: shop\nfunctions: [scoring]\nsql: [shop.sql]\n"
SQL = """
CREATE STREAM ORDERS (ID BIGINT KEY, AMOUNT DOUBLE) WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM SCORED AS SELECT ID, score(AMOUNT) AS SCORE FROM ORDERS;
CREATE STREAM PLAIN AS SELECT ID, AMOUNT FROM ORDERS;
"""
SCORING = """
from pathlib import Path
from flowql import udf
import table

@udf
def score(amount: float) -> float:
    return amount * table.RATE
"""
TABLE = """
from pathlib import Path
RATE = float((Path(__file__).parent / "data" / "rate.csv").read_text())
"""
ORDER = {"id": 1, "amount": 10.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made(tmp_path, YAML, SQL, scoring=SCORING, table=TABLE)
    (tmp_path / "data").mkdir()
    rate(tmp_path, 2)
    return tmp_path


def rate(folder: Path, value: int) -> None:
    (folder / "data" / "rate.csv").write_text(str(value))


def scores(instance: flowql.Connection) -> list[Any]:
    return [row["SCORE"] for row in instance.sql("SELECT SCORE FROM SCORED ORDER BY ID").arrow().to_pylist()]


def called(folder: Path) -> frozenset[str]:
    return functions_of(compile_sources(load_project(folder)).plan)


def test_an_edited_file_is_a_change_of_the_queries_that_call_it(folder: Path) -> None:
    """The deployment said `unchanged`, and results of before and after were mixed."""
    with running(folder) as instance:
        instance.produce("ORDERS", [ORDER])
        until(lambda: scores(instance), [20.0])
        rate(folder, 3)
        assert "SCORED" in str(instance.deploy())
        until(lambda: scores(instance), [30.0])
        assert state_of(instance, "CSAS_PLAIN")["generation"] == 1
        assert state_of(instance, "CSAS_SCORED")["generation"] == 2


def test_a_process_of_a_function_does_not_go_on_with_another_file(folder: Path) -> None:
    """A process ends when it is idle, and the next one read the file as it was by then."""
    with running(folder) as instance:
        instance.produce("ORDERS", [ORDER])
        until(lambda: scores(instance), [20.0])
        rate(folder, 3)
        end_idle_workers()
        instance.produce("ORDERS", [{"id": 2, "amount": 10.0}])
        said = "rate.csv, which it reads while it is imported, is not as it was when its functions were deployed"
        until(lambda: said in str(state_of(instance, "CSAS_SCORED")["last_error"]), True)
        until(lambda: instance.sql("SELECT COUNT(*) FROM PLAIN").one(), 2)
        assert scores(instance) == [20.0]
        instance.deploy()
        until(lambda: scores(instance), [30.0, 30.0])


def test_an_instance_that_restarts_does_not_go_on_with_another_file(folder: Path) -> None:
    with running(folder) as instance:
        instance.produce("ORDERS", [ORDER])
        until(lambda: scores(instance), [20.0])
    rate(folder, 3)
    with resumed(folder) as instance:
        instance.produce("ORDERS", [{"id": 2, "amount": 10.0}])
        until(lambda: instance.sql("SELECT COUNT(*) FROM PLAIN").one(), 2)
        said = "was deployed in a version that the module scoring does not have"
        until(lambda: said in str(state_of(instance, "CSAS_SCORED")["last_error"]), True)
        assert scores(instance) == [20.0]


def test_interactive_queries_call_it_with_the_file_as_it_is(folder: Path) -> None:
    before = load_query_functions(folder, ["scoring"])
    assert load_query_functions(folder, ["scoring"]) is before, "nothing has changed"
    rate(folder, 3)
    assert load_query_functions(folder, ["scoring"]) is not before


def test_a_file_that_comes_is_a_change(folder: Path) -> None:
    (folder / "table.py").write_text(
        "try:\n    RATE = float(open('%s').read())\nexcept OSError:\n    RATE = 1.0" % (folder / "x")
    )
    before = called(folder)
    (folder / "x").write_text("5")
    assert called(folder) != before


def test_a_version_stands_for_the_files_too(folder: Path) -> None:
    (folder / "scoring.py").write_text(SCORING.replace("@udf", '@udf(version="7")'))
    before = called(folder)
    rate(folder, 3)
    assert called(folder) == before == {"SCORE@scoring:7"}
    with running(folder) as instance:
        rate(folder, 4)
        instance.produce("ORDERS", [ORDER])
        until(lambda: scores(instance), [40.0])


@pytest.mark.parametrize(
    "reads",
    [
        "open('{}/.flowql/log', 'r')",
        "open('/proc/self/stat')",
        "open('{}/written', 'a')",
        "__import__('os').listdir('{}')",
        "open('{}/table.py')",
    ],
    ids=["a hidden folder", "outside", "written", "a folder", "a module"],
)
def test_other_files_are_none_of_its_data(folder: Path, reads: str) -> None:
    (folder / ".flowql").mkdir()
    (folder / ".flowql" / "log").touch()
    plain = SCORING.replace("import table", "RATE = 1.0").replace("table.RATE", "RATE")
    (folder / "scoring.py").write_text(f"_ = {reads.format(folder)}\n{plain}")
    (found,) = load_functions(folder, ["scoring"]).values()
    before = found.name
    for name in (".flowql/log", "written"):
        (folder / name).write_text("other")
    os.utime(folder)
    (found,) = load_functions(folder, ["scoring"]).values()
    assert found.name == before
