"""`flowql import FILE... --table T`, COPY and queries over files: a transaction per file, beside an instance and without one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.errors import CommandError
from flowql.server.host import Host
from flowql.server.running import connect
from tests.flowql.cli.program import Program
from tests.flowql.cli.test_exec import Shell

pytestmark = pytest.mark.turns("queries")
FILE = """
CREATE TABLE users (id INT PRIMARY KEY, name TEXT NOT NULL, visits INT DEFAULT 0);
CREATE TABLE notes (line TEXT, n INT);
CREATE VIEW total AS SELECT count(*) AS n FROM notes;
"""
FILES, ROWS = 5, 15_000


@pytest.fixture
def shell(flowql: Program, tmp_path: Path) -> Shell:
    (tmp_path / "flowql.yaml").write_text("name: demo\ndialect: standard\nsql: [demo.sql]\n")
    (tmp_path / "demo.sql").write_text(FILE)
    made = Shell(flowql, tmp_path)
    assert made("run", "--until-caught-up").code == 0
    return made


def test_each_file_is_a_transaction(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,name\n1,ann\n2,"b, c"\n')
    (tmp_path / "b.csv").write_text("id,name\n3,dan\n4,\n")
    done = shell("import", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--table", "Users")
    assert (done.code, done.err.splitlines()[0]) == (1, f"2 rows of {tmp_path}/a.csv in users")
    assert "b.csv:3: column name of users is NOT NULL" in done.err
    assert shell.rows("SELECT * FROM users ORDER BY id") == [[1, "ann", 0], [2, "b, c", 0]]
    found = shell("import", str(tmp_path / "a.csv"), "--table", "users")
    assert "a.csv:2: users has a row with the key id = 1 already" in found.err
    (tmp_path / "c.txt").write_text("5;eve;NIL\n")
    listed = ("--no-header", "--format", "text", "--delimiter", ";", "--null", "NIL", "--columns", "id, name, visits")
    done = shell("import", str(tmp_path / "c.txt"), "--table", "users", *listed, "-o", "json")
    assert json.loads(done.out) == [{"file": f"{tmp_path}/c.txt", "table": "users", "rows": 1}]
    assert shell.rows("SELECT * FROM users WHERE id = 5") == [[5, "eve", None]]


def test_files_are_read_beside_an_instance(shell: Shell, tmp_path: Path) -> None:
    settings = settings_of(load_project(tmp_path))
    (tmp_path / "n.jsonl").write_text('{"line": "a", "n": 1}\n{"line": "b"}\n')
    host = Host(settings)
    host.start()
    try:
        done = shell("exec", f"COPY notes FROM '{tmp_path}/n.jsonl'; UPDATE notes SET n = 7 WHERE n = 1")
        assert (done.code, done.err) == (0, "COPY 2 rows of notes\nUPDATE 1 row of notes\n")
        done = shell(
            "exec", f"INSERT INTO notes SELECT upper(line), n + 1 FROM read_json('{tmp_path}/n.jsonl') WHERE n = 1"
        )
        assert (done.code, done.err) == (0, "INSERT 1 row of notes\n")
        assert shell("import", "no.csv", "--table", "notes").code == 1
        refused = shell("query", f"SELECT * FROM read_csv('{tmp_path}/n.jsonl')")
        assert "flowql import FILE --table t" in refused.err
        assert shell("exec", "UPDATE notes SET n = 0 WHERE line = 'A'").code == 0
        client = connect(settings.data_dir)
        assert client is not None
        with closing(client):
            for sql in (
                "COPY notes FROM '/etc/passwd' CSV",
                "INSERT INTO notes SELECT *, 1 FROM read_csv('/etc/passwd')",
            ):
                with pytest.raises(CommandError, match="files are read where a command runs") as refused:
                    client.statements(sql, {})
                assert refused.value.code == "FQ5101"
    finally:
        host.close()
    assert shell("run", "--until-caught-up").code == 0
    assert shell.rows("SELECT line, n FROM notes ORDER BY line") == [["A", 0], ["a", 7], ["b", None]]
    assert shell.rows("SELECT n FROM total") == [[3]]


def test_a_kill_leaves_whole_files(shell: Shell, tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.csv" for i in range(FILES)]
    for i, file in enumerate(files):
        file.write_text("line,n\n" + "".join(f"row {n},{i}\n" for n in range(ROWS)))
    command = [sys.executable, "-m", "flowql", "import", *map(str, files), "--table", "notes", "-p", str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert f"{ROWS:,} rows of {files[0]}" in process.stderr.readline()
    time.sleep(0.05)  # in the midst of another file
    process.send_signal(signal.SIGKILL)
    process.communicate()
    counts = shell.rows("SELECT n, count(*) FROM notes GROUP BY n ORDER BY n")
    assert counts == [[n, ROWS] for n in range(len(counts))]
    assert 1 <= len(counts) <= FILES
