"""`flowql exec` on a real log: beside a live instance, at rest, and from several processes at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.server.host import Host
from tests.flowql.cli.program import CommandResult, Program

pytestmark = pytest.mark.turns("queries")

FILE = """
CREATE TABLE users (id INT PRIMARY KEY, name TEXT NOT NULL, visits INT DEFAULT 0);
CREATE TABLE notes (line TEXT, n INT);
CREATE STREAM clicks (k INT KEY, page TEXT) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1, VALUE_FORMAT='JSON');
INSERT INTO users (id, name) VALUES (1, 'ann'), (2, 'bob');
"""
PROCESSES, TRIES = 3, 4


class Shell:
    def __init__(self, flowql: Program, folder: Path) -> None:
        self._flowql, self._folder = flowql, folder

    def __call__(self, *arguments: str) -> CommandResult:
        return self._flowql(*arguments, "-p", str(self._folder))

    def rows(self, sql: str) -> list[list[object]]:
        found = self("query", sql, "-o", "json")
        assert found.code == 0, found.err
        return [[*row.values()] for row in json.loads(found.out)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "flowql.yaml").write_text("name: demo\ndialect: standard\nsql: [demo.sql]\n")
    (tmp_path / "demo.sql").write_text(FILE)
    return tmp_path


@pytest.fixture
def shell(flowql: Program, project: Path) -> Shell:
    made = Shell(flowql, project)
    assert made("run", "--until-caught-up").code == 0
    return made


@pytest.mark.parametrize(
    ("statement", "reads"),
    [
        ("UPDATE users SET name = 'x' WHERE id = 1 AND visits > 2", "UPDATE users: looks up 1 key"),
        ("DELETE FROM users WHERE id IN (1, 2)", "DELETE users: looks up 2 keys"),
        ("DELETE FROM users WHERE name = 'x'", "DELETE users: reads all rows"),
        ("DELETE FROM notes WHERE n = 1", "DELETE notes: reads all rows"),
        ("INSERT INTO users (id, name) VALUES (1, 'a'), (2, 'b')", "INSERT users: looks up 2 keys"),
        ("INSERT INTO notes VALUES ('a', 1)", "INSERT notes: reads no rows"),
        ("UPDATE users SET visits = (SELECT max(n) FROM notes)", "looks up the keys that its query chooses"),
        ("DELETE FROM notes USING users WHERE n = id", "reads all rows, for those that its query chooses"),
    ],
)
def test_explain_tells_the_rows_that_a_statement_reads(
    flowql: Program, project: Path, statement: str, reads: str
) -> None:
    assert reads in flowql("explain", statement, "-p", str(project)).out


def test_a_statement_that_is_too_large_is_refused_with_its_place(flowql: Program, project: Path) -> None:
    """A schema of 4,000 fields, and a sum of 6,000 numbers."""
    fields = ", ".join(f"f{i} INT" for i in range(4_000))
    large = f"CREATE TABLE wide (id INT PRIMARY KEY, {fields});\nCREATE VIEW sums AS SELECT {'1+' * 6_000}1 AS x FROM notes;\n"
    (project / "demo.sql").write_text(FILE + large)
    checked = flowql("validate", "-p", str(project))
    assert checked.code == 1
    assert checked.err.count("error[FQ2065]") == 2
    assert all(f"demo.sql:{line}:1" in checked.err for line in (6, 7))


def test_statements_are_carried_out_in_order_and_told(shell: Shell) -> None:
    done = shell("exec", "UPDATE users SET visits = visits + 1 WHERE id = 1; DELETE FROM users WHERE id = 2")
    assert (done.code, done.err.splitlines()) == (0, ["UPDATE 1 row of users", "DELETE 1 row of users"])
    inserted = shell("exec", "-o", "json", "INSERT INTO notes SELECT name, visits FROM users")
    (document,) = json.loads(inserted.out)
    assert document.pop("tick").startswith("notes/0:")
    assert document == {"statement": "insert", "table": "notes", "rows": 1}
    assert shell.rows("SELECT * FROM users") == [[1, "ann", 1]]
    assert shell.rows("SELECT * FROM notes") == [["ann", 1]]


def test_returning_gives_the_rows_in_every_format(shell: Shell, tmp_path: Path) -> None:
    table = shell(
        "exec", "INSERT INTO users (id, name) VALUES (3, 'eve') RETURNING id, visits; DELETE FROM notes RETURNING *"
    )
    assert table.err.splitlines() == ["INSERT 1 row of users", "(none)", "DELETE 0 rows of notes"]
    assert [line.split() for line in table.out.splitlines()] == [["id", "visits"], ["3", "0"], ["line", "n"]]
    update = "UPDATE users SET visits = visits + 1 WHERE id = 3 RETURNING name, visits"
    document = json.loads(shell("exec", "-o", "json", update + "; DELETE FROM notes").out)
    assert all(d.pop("tick") for d in document)
    assert document[0] == {
        "statement": "update",
        "table": "users",
        "rows": 1,
        "returning": [{"name": "eve", "visits": 1}],
    }
    assert document[1] == {"statement": "delete", "table": "notes", "rows": 0}
    assert shell("exec", "-o", "csv", update).out == "name,visits\neve,2\n"
    file = tmp_path / "rows.parquet"
    assert shell("exec", "-o", str(file), update).err.splitlines() == ["UPDATE 1 row of users"]
    assert parquet.read_table(file).to_pylist() == [{"name": "eve", "visits": 3}]
    for sql, says in ((f"{update}; {update}", "2 of the statements have RETURNING"), ("DELETE FROM users", "none of")):
        refused = shell("exec", "-o", "csv", sql)
        assert (refused.code, "error[FQ5102]" in refused.err, says in refused.err) == (1, True, True), refused.err
    assert shell("shell", "-o", "json", "-c", update).out == '[\n {"name": "eve", "visits": 4}\n]\n'


def test_rows_of_a_file_are_inserted_once(shell: Shell, project: Path) -> None:
    shell("exec", "DELETE FROM users")
    assert "statements of the project" not in shell("run", "--until-caught-up").err
    assert shell.rows("SELECT * FROM users") == []
    (project / "demo.sql").write_text(FILE + "INSERT INTO users VALUES (3, 'eve', 5);\nUPDATE users SET visits = 6;")
    assert "statements of the project changed 2 rows of users\n" in shell("run", "--until-caught-up").err
    assert shell.rows("SELECT * FROM users") == [[3, "eve", 6]]


def test_a_statement_of_a_file_that_fails_is_tried_again_by_the_next_deployment(shell: Shell, project: Path) -> None:
    (project / "demo.sql").write_text(
        FILE + "INSERT INTO notes VALUES ('a', 1);\nINSERT INTO users VALUES (2, 'again', 0);"
    )
    assert "error[FQ4062]" in shell("run", "--until-caught-up").err
    shell("exec", "DELETE FROM users WHERE id = 2")
    assert shell("run", "--until-caught-up").code == 0
    assert shell.rows("SELECT * FROM notes") == [["a", 1]]
    assert shell.rows("SELECT id, name FROM users ORDER BY id") == [[1, "ann"], [2, "again"]]


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("INSERT INTO users VALUES (1, 'eve')", "FQ4062"),
        ("UPDATE users SET visits = 1 / visits", "FQ4062"),
        ("UPDATE users SET name = NULL", "FQ2040"),
        ("DELETE FROM clicks", "FQ2041"),
        ("DROP TABLE users", "FQ2018"),
        ("SELECT 1", "FQ2018"),
        ("DELETE users", "FQ1001"),
        ("INSERT INTO users SELECT * FROM nope", "FQ5103"),
        ("INSERT INTO users SELECT 5", "FQ5102"),
    ],
)
def test_what_is_refused_changes_nothing(shell: Shell, sql: str, code: str) -> None:
    refused = shell("exec", sql)
    assert (refused.code, f"error[{code}]" in refused.err) == (1, True), refused.err
    assert shell.rows("SELECT * FROM users ORDER BY id") == [[1, "ann", 0], [2, "bob", 0]]


def test_mistakes_in_any_statement_are_found_before_the_first_is_carried_out(shell: Shell) -> None:
    assert shell("exec", "DELETE FROM users; DELETE FROM clicks").code == 1
    assert len(shell.rows("SELECT * FROM users")) == 2


def test_rows_of_a_stream_are_appended(shell: Shell) -> None:
    assert shell("exec", "INSERT INTO clicks VALUES (1, 'a'), (2, 'b')").err == "INSERT 2 rows of clicks\n"
    assert len(shell.rows("SELECT * FROM clicks")) == 2


def test_a_row_of_a_stream_without_a_usable_time_is_refused(flowql: Program, project: Path) -> None:
    """`flowql exec` said that it inserted a row, and wrote none: the encoder leaves out rows whose TIMESTAMP column has no time."""
    with (project / "demo.sql").open("a") as file:
        file.write(
            "CREATE STREAM timed (k INT KEY, at BIGINT) WITH (KAFKA_TOPIC='timed', VALUE_FORMAT='JSON', PARTITIONS=1, TIMESTAMP='at');"
        )
    shell = Shell(flowql, project)
    assert shell("run", "--until-caught-up").code == 0
    for at, named in (("NULL", "NULL"), ("9223372036854775807", "9223372036854775807")):
        refused = shell("exec", f"INSERT INTO timed VALUES (1, 1767258000000), (2, {at})")
        assert (refused.code, f"{named} cannot be the time of a record" in refused.err) == (1, True), refused.err
    assert shell.rows("SELECT * FROM timed") == []


def test_records_are_not_written_past_the_rules_of_a_table(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("line,n\nx,1\n")
    for arguments in (("produce", "users", '3:{"name": null}'), ("import", "notes", str(tmp_path / "rows.csv"))):
        refused = shell("topic", *arguments)
        assert (refused.code, "error[FQ5017]" in refused.err) == (1, True), refused.err


def test_people_see_the_declared_columns_alone(shell: Shell) -> None:
    assert [r[0] for r in shell.rows("DESCRIBE notes")] == ["line", "n"]
    described = shell("shell", "-c", "DESCRIBE notes")
    assert ("__row" in described.out, "line" in described.out) == (False, True)
    assert "__row" not in shell("explain").out


def test_beside_a_live_instance_and_in_the_shell(flowql: Program, project: Path) -> None:
    made = Host(settings_of(load_project(project)))
    made.start()
    try:
        shell = Shell(flowql, project)
        assert shell("deploy").code == 0
        assert shell("exec", "UPDATE users SET name = name || '!' WHERE id = 1").code == 0
        assert shell("shell", "-c", "DELETE FROM users WHERE id = 2").err == "DELETE 1 row of users\n"
        assert shell.rows("SELECT * FROM users") == [[1, "ann!", 0]]
    finally:
        made.close()


@pytest.mark.turns("load")
def test_of_processes_that_change_a_table_at_once_none_is_lost_and_none_counts_twice(
    shell: Shell, project: Path
) -> None:
    """Each statement is carried out, or fails with FQ4063 and leaves no trace."""
    call = [sys.executable, "-c", "from flowql.cli import main; main()", "exec", "-p", str(project)]
    call.append("UPDATE users SET visits = visits + 1 WHERE id = 1")
    done = 0
    for _ in range(TRIES):
        running = [subprocess.Popen(call, stderr=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
        for process in running:
            error = process.communicate(timeout=60)[1]
            assert process.returncode == 0 or "FQ4063" in error, error
            done += process.returncode == 0
    assert done >= TRIES, "of those that run at once one succeeds at least"
    assert shell.rows("SELECT visits FROM users WHERE id = 1") == [[done]]


def test_a_deployment_that_rows_do_not_fit_is_refused(shell: Shell, project: Path) -> None:
    (project / "demo.sql").write_text(FILE.replace("visits INT DEFAULT 0", "visits TEXT"))
    refused = shell("run", "--until-caught-up")
    assert (refused.code, "error[FQ4064]" in refused.err) == (1, True), refused.err
    (project / "demo.sql").write_text(FILE.replace("visits INT DEFAULT 0", "visits INT DEFAULT 0, city TEXT"))
    assert shell("run", "--until-caught-up").code == 0
    assert shell("exec", "UPDATE users SET city = 'Oslo' WHERE id = 2").code == 0
    assert shell.rows("SELECT * FROM users ORDER BY id") == [[1, "ann", 0, None], [2, "bob", 0, "Oslo"]]


CHECKED = """
CREATE TABLE lines (id INT PRIMARY KEY, n INT CHECK (twice(n) < 100), double BIGINT GENERATED ALWAYS AS (twice(n)) STORED);
CREATE VIEW sums AS SELECT SUM(double) AS s FROM lines;
"""
TWICE = "from flowql import udf\n\n\n@udf\ndef twice(x: int) -> int:\n    return x * 2\n"


def test_functions_of_the_project_are_called_in_checks_and_generated_columns(flowql: Program, project: Path) -> None:
    """Each statement was an internal error: only the process of an instance had them."""
    (project / "flowql.yaml").write_text("name: demo\ndialect: standard\nsql: [demo.sql]\nfunctions: [fn]\n")
    (project / "demo.sql").write_text(CHECKED)
    (project / "fn.py").write_text(TWICE)
    shell = Shell(flowql, project)
    assert shell("run", "--until-caught-up").code == 0

    def execute(sql: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "flowql", "exec", sql, "-p", str(project)]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    assert execute("INSERT INTO lines (id, n) VALUES (1, 4)").returncode == 0
    assert "error[FQ4062]" in execute("INSERT INTO lines (id, n) VALUES (2, 50)").stderr
    (project / "fn.py").write_text(TWICE.replace("x * 2", "x * 3"))
    refused = execute("INSERT INTO lines (id, n) VALUES (3, 5)").stderr
    assert (
        "error[FQ3012]: the function TWICE was deployed in a version that the module fn does not have here" in refused
    )
    assert shell.rows("SELECT * FROM lines") == [[1, 4, 8]], "no other row is there, and none of another function"
