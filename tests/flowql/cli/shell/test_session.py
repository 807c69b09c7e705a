"""Statements without a terminal, at a live instance in this process."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from flowql.server.host import Host
from tests.flowql.cli.program import CommandResult, Program

pytestmark = pytest.mark.turns("long")

COUNTED = "SELECT K, N FROM A ORDER BY K"
WAIT_S = 60.0


@pytest.fixture
def counted(flowql: Program, host: Host, folder: Path) -> None:
    """The rows of S are in A."""
    limit = time.monotonic() + WAIT_S
    while host.service.query("SELECT sum(N) AS n FROM a").table().to_pylist() != [{"n": 3}]:
        assert time.monotonic() < limit


class Shell:
    def __init__(self, flowql: Program, folder: Path) -> None:
        self._flowql, self._folder = flowql, folder

    def __call__(self, *statements: str, form: str = "table") -> CommandResult:
        asked = [word for s in statements for word in ("-c", s)]
        return self._flowql("shell", *asked, "-o", form, "-p", str(self._folder))


@pytest.fixture
def shell(flowql: Program, counted: None, folder: Path) -> Shell:
    return Shell(flowql, folder)


def test_rows_that_are_there_and_rows_that_come(shell: Shell) -> None:
    assert shell(COUNTED).out == "K  N\na  2\nb  1\n"
    assert json.loads(shell(COUNTED, form="json").out) == [{"K": "a", "N": 2}, {"K": "b", "N": 1}]
    assert shell("\\x", COUNTED).out == "-[ 1 ]\nK | a\nN | 2\n-[ 2 ]\nK | b\nN | 1\n"
    come = shell("SET 'auto.offset.reset' = 'earliest'; SELECT V FROM S EMIT CHANGES LIMIT 2", COUNTED)
    assert come.out == " V\n 1\n22\nK  N\na  2\nb  1\n"
    come = shell("SET 'auto.offset.reset'='earliest'", "SELECT K FROM S EMIT CHANGES LIMIT 1", form="json")
    assert json.loads(come.out)["row"] == {"K": "a"}


def test_the_catalogue(shell: Shell) -> None:
    streams = "name  kind    topic  made by\nS     stream  s\n"
    assert shell("\\ds").out == shell("SHOW STREAMS;").out == shell("list streams extended").out == streams
    assert shell("\\dt").out == shell("SHOW TABLES").out == "name  kind   topic  made by\nA     table  A      CTAS_A\n"
    known = [["S", "stream"], ["A", "table"], ["CTAS_A-aggregate-1", "store"]]
    assert [r.split()[:2] for r in shell("\\d").out.splitlines()[1:]] == known
    assert shell("\\d CTAS_A-aggregate-1").out.startswith("store CTAS_A-aggregate-1 of CTAS_A")
    assert shell("SHOW TOPICS").out == "topic  partitions  sources\nA               1  A\ns               1  S\n"
    assert "__" not in shell("SHOW TOPICS").out
    assert len(shell("SHOW ALL TOPICS").out.splitlines()) > 3
    rows = json.loads(shell("SHOW QUERIES", form="json").out)
    assert [(r["query"], r["result"], r["state"]) for r in rows] == [("CTAS_A", "A", "running")]
    described = shell("DESCRIBE a").out
    assert described == shell("\\d A").out
    assert described.startswith(
        "table A (topic A, key KAFKA, value JSON)\ncolumn  type\nK       STRING  key\nN       BIGINT\n"
    )
    assert "read by CTAS_A" in shell("DESCRIBE S EXTENDED").out
    assert "aggregate" in shell("EXPLAIN CTAS_A").out
    assert "push query" in shell("EXPLAIN SELECT V FROM S EMIT CHANGES").out
    assert "PYTHON_ARROW_SCAN" in shell("EXPLAIN SELECT V FROM S").out
    assert "SUBSTRING" in shell("DESCRIBE FUNCTION substring").out
    assert {line.split()[0] for line in shell("\\df count").out.splitlines()[1:]} >= {"COUNT", "COUNT_DISTINCT"}
    assert "earliest" in shell("SET 'auto.offset.reset'='earliest'", "SHOW PROPERTIES").out


def test_everything_that_ksqldb_lists(shell: Shell, folder: Path) -> None:
    (folder / "types.sql").write_text("CREATE TYPE place AS STRUCT<city STRING>;")
    (folder / "flowql.yaml").write_text("name: demo\nsql: [demo.sql, types.sql]\nvars: {day: today}\n")
    assert shell("SHOW TYPES").out == "type   meaning\nPLACE  STRUCT<CITY STRING>\n"
    assert shell("DEFINE x = 'it''s'", "LIST VARIABLES", "UNDEFINE X").out.splitlines()[1:] == [
        "DAY       today",
        "x         it's",
    ]
    assert shell("DEFINE t = 'A'", "SELECT K FROM ${T} ORDER BY K").out == "K\na\nb\n"
    for what in ("CONNECTORS", "SOURCE CONNECTORS", "CONNECTOR PLUGINS"):
        assert "runs no connectors" in shell(f"SHOW {what}").out
    assert shell("DESCRIBE TABLES EXTENDED").out == shell("DESCRIBE A").out
    assert shell("DESCRIBE STREAMS").out == shell("DESCRIBE S").out
    for statement in (
        "CREATE STREAM x AS SELECT K, V FROM S WHERE V > 1",
        "INSERT INTO y SELECT K, V FROM S WHERE V > 1;",
    ):
        assert "Filter" in shell(f"EXPLAIN {statement}").out
    assert "auto.offset.reset" in shell("SHOW PROPERTIES").out


def test_records_of_a_topic(shell: Shell) -> None:
    lines = [json.loads(line) for line in shell("PRINT s FROM BEGINNING LIMIT 2").out.splitlines()]
    assert [(r["offset"], r["key"]) for r in lines] == [(0, "a"), (1, "b")]
    (last,) = [json.loads(line) for line in shell("PRINT 's' FROM BEGINNING INTERVAL 3 LIMIT 1").out.splitlines()]
    assert last["offset"] == 0
    assert "did you mean" in shell("PRINT ss").err


def test_queries_are_held_and_let_go(shell: Shell) -> None:
    assert shell("PAUSE ctas_a", "SHOW QUERIES").out.split().count("paused") == 1
    assert "running" in shell("RESUME ALL", "SHOW QUERIES").out
    assert "deploy --prune" in shell("TERMINATE CTAS_A").err


def test_assertions_and_scripts(shell: Shell, folder: Path) -> None:
    assert shell("ASSERT TOPIC s WITH (PARTITIONS=1)").err == "it holds\n"
    wrong = shell("ASSERT NOT EXISTS TOPIC s TIMEOUT 0 SECONDS")
    assert (wrong.code, "error[FQ5206]: topic s exists" in wrong.err) == (1, True)
    file = folder / "more.sql"
    file.write_text(f"-- two\nDEFINE t = 'A';\nSELECT COUNT(*) AS n FROM ${{t}};\n{COUNTED}")
    assert shell(f"RUN SCRIPT '{file}'").out == "n\n2\nK  N\na  2\nb  1\n"
    file.write_text(f"RUN SCRIPT '{file}';")
    assert "in a cycle" in shell(f"RUN SCRIPT '{file}'").err
    assert "cannot be read" in shell("RUN SCRIPT 'none.sql'").err


@pytest.mark.parametrize(
    ("statement", "code", "marked"),
    [
        ("SELECT nope FROM A", "FQ5102", " 1 | SELECT nope FROM A\n   |        ^^^^\n"),
        ("SELECT 1\nFROM nope", "FQ5103", " 2 | FROM nope\n   |      ^^^^\n"),
        ("SELECT count( FROM A", "FQ5102", "   |               ^^^^\n"),
        ("SELECT X FROM S EMIT CHANGES", "FQ2002", " 1 | SELECT X FROM S EMIT CHANGES\n   |        ^ unknown column\n"),
        ("DESCRIBE NOPE", "FQ5103", ""),
        ("EXPLAIN NOPE", "FQ5103", ""),
        ("DESCRIBE FUNCTION NOPE", "FQ5103", ""),
        ("\\nope", "FQ5102", ""),
        ("CREATE STREAM X AS SELECT * FROM S", "FQ5101", ""),
        ("DELETE FROM A", "FQ1001", ""),
        ("INSERT INTO S SELECT * FROM S", "FQ2018", "flowql deploy"),
        ("INSERT INTO S VALUES ('a', 1, 2)", "FQ2040", ""),
        ("SET 'other' = 'x'", "FQ5102", ""),
        ("SET 'auto.offset.reset' = 'middle'", "FQ5102", ""),
    ],
)
def test_mistakes_end_a_script_with_their_place(shell: Shell, statement: str, code: str, marked: str) -> None:
    said = shell(statement, COUNTED)
    assert (said.code, said.out) == (1, "")
    assert code in said.err
    assert marked in said.err


def test_statements_of_a_pipe(flowql: Program, counted: None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"-- what there is\n{COUNTED};\n\\timing\n{COUNTED}"))
    said = flowql("shell", "-o", "csv", "-p", str(folder))
    assert (said.code, said.out) == (0, "K,N\na,2\nb,1\n" * 2)
    assert said.err.startswith("timing is on\n")
    assert said.err.endswith(" ms\n")


def test_quit_ends_a_script(shell: Shell) -> None:
    assert (shell("\\q", "SELECT nope").code, shell("\\?").code) == (0, 0)


def test_of_a_stopped_instance(shell: Shell, host: Host) -> None:
    host.close()
    assert shell(COUNTED).out == "K  N\na  2\nb  1\n"
    assert json.loads(shell("SHOW QUERIES", form="json").out)[0]["state"] == "stopped"
    assert "FQ5106" in shell("SELECT V FROM S EMIT CHANGES").err
