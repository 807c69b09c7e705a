"""The magic `%%flowql` in a shell of IPython."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from traitlets.config import Config

import flowql
from flowql.api.notebook import run_cell

SQL = """
CREATE TABLE users (id INT PRIMARY KEY, name TEXT);
CREATE VIEW names AS SELECT COUNT(DISTINCT name) AS n FROM users;
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a project that runs."""
    made = tmp_path_factory.mktemp("own")
    (made / "flowql.yaml").write_text("name: own\nsql: [own.sql]\ndialect: standard\n")
    (made / "own.sql").write_text(SQL)
    with flowql.Instance(made):
        yield made


@pytest.fixture
def shell(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """In the folder of the project, without colours, and with the magic loaded."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(folder)
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    shell = InteractiveShell(config=config)
    try:
        assert shell.run_cell("%load_ext flowql").success
        yield shell
    finally:
        shell.restore_sys_module_state()


def ran(shell: InteractiveShell, cell: str) -> Any:
    done = shell.run_cell(cell)
    done.raise_error()
    return done.result


def failed(shell: InteractiveShell, cell: str) -> ExecutionResult:
    done = shell.run_cell(cell)
    assert not done.success
    return done


def test_statements_and_interactive_queries(shell: InteractiveShell) -> None:
    assert ran(shell, "%%flowql\nINSERT INTO users VALUES (7, 'ada'), (8, '<b>bob</b>')") == "2 rows changed"
    assert ran(shell, "%%flowql\n-- Not /* yet\n/* a\nname */ delete FROM users WHERE id = 7;") == "1 row changed"
    assert (
        ran(shell, "%%flowql\nWITH q AS (SELECT 9 AS id) UPDATE users SET id = 9 WHERE id IN (SELECT id FROM q)")
        == "0 rows changed"
    )
    found = ran(shell, "%%flowql\nSELECT name, id, NULL AS none FROM users WHERE id > 6;")
    assert list(found) == [{"name": "<b>bob</b>", "id": 8, "none": None}]
    shown, _ = shell.display_formatter.format(found)
    assert shown == {
        "text/plain": "<flowql.Result: 1 row of name, id, none>",
        "text/html": "<table><thead><tr><th>name</th><th>id</th><th>none</th></tr></thead>"
        "<tbody><tr><td>&lt;b&gt;bob&lt;/b&gt;</td><td>8</td><td>NULL</td></tr></tbody></table>",
    }


def test_a_result_is_kept_under_a_name(shell: InteractiveShell, folder: Path) -> None:
    assert ran(shell, "%%flowql >> one\nSELECT 1 AS one") is None
    assert ran(shell, "one.one()") == 1
    assert ran(shell, f"where = {str(folder)!r}") is None
    assert ran(shell, "%%flowql $where >> two\nSELECT 2 AS two") is None
    assert ran(shell, "two.df()['two'].sum()") == 2


@pytest.mark.parametrize("kept", ["", "1x", "for", "a.b"])
def test_a_name_that_no_variable_has_is_refused(folder: Path, kept: str) -> None:
    with pytest.raises(flowql.CommandError, match=f"`{kept}` is not a valid name for a variable"):
        run_cell({}, f"{folder} >> {kept}", "SELECT n FROM names")


def test_many_rows_are_shown_in_part(shell: InteractiveShell) -> None:
    shown, _ = shell.display_formatter.format(ran(shell, "%%flowql\nSELECT * FROM generate_series(1, 1234)"))
    assert shown["text/html"].count("<tr>") == 1 + 20
    assert shown["text/html"].endswith("<p>20 of 1,234 rows</p>")


def test_a_mistake_is_shown_at_its_place_and_without_frames(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    done = failed(shell, "%%flowql\nSELECT id,\n  nam FROM users")
    assert isinstance(done.error_in_exec, flowql.CommandError)
    message = capsys.readouterr().out
    assert message.startswith("error[FQ2002]: SELECT column 'nam' cannot be resolved")
    assert message.splitlines()[1:] == [
        "  --> <text>:2:3",
        " 2 |   nam FROM users",
        "   |   ^^^",
        "help: did you mean name?        more: flowql explain FQ2002",
    ]
    ran(shell, "%tb")
    assert "Traceback" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cell", "error", "says"),
    [
        ("%%flowql\nINSERT INTO usres VALUES (1, 'x')", flowql.CompileError, "error[FQ2001]: "),
        ("%%flowql\nINSERT INTO users VALUES (1, 'eve')", flowql.RuntimeFailure, "error[FQ4062]: users has a row"),
        ("%%flowql nowhere\nSELECT 1", flowql.ProjectError, "error[FQ3002]: nowhere does not exist\nhelp: "),
    ],
)
def test_mistakes_of_every_kind_are_shown_so(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], cell: str, error: type[Exception], says: str
) -> None:
    ran(shell, "%%flowql\nINSERT INTO users SELECT 1, 'ada' ON CONFLICT DO NOTHING")
    capsys.readouterr()
    assert isinstance(failed(shell, cell).error_in_exec, error)
    message = capsys.readouterr().out
    assert message.startswith(says)
    assert "Traceback" not in message


def test_an_error_in_a_program_of_the_notebook_has_its_frames(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    failed(shell, "import flowql\nflowql.connect().sql('SELECT nam FROM users')")
    message = capsys.readouterr().out
    assert "Traceback" in message
    assert "----> 2 flowql.connect().sql('SELECT nam FROM users')" in message


def test_a_message_has_the_colours_of_the_shell(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.colors = "linux"
    failed(shell, "%%flowql\nSELECT nam FROM users")
    assert "\x1b[1;31m^^^\x1b[0m" in capsys.readouterr().out


def test_a_cell_sees_the_project_as_it_is(shell: InteractiveShell, folder: Path, tmp_path: Path) -> None:
    """Its files, and the current folder, may have changed since the last one."""
    failed(shell, "%%flowql\nINSERT INTO more VALUES (1)")
    (folder / "own.sql").write_text(f"{SQL}CREATE TABLE more (id INT PRIMARY KEY);")
    ran(shell, "import flowql\nflowql.connect().deploy()")
    assert ran(shell, "%%flowql\nINSERT INTO more VALUES (1)") == "1 row changed"
    ran(shell, f"import os\nos.chdir({str(tmp_path)!r})")
    assert "no flowql.yaml" in str(failed(shell, "%%flowql\nSELECT 1").error_in_exec)
