"""Help: every command shows an example, and every example can be typed."""

import inspect
import re
import shlex
import subprocess
import sys

import pytest

from flowql.cli.app import VERBS, commands_of, contents, program
from tests.flowql.cli.conftest import flowql

__all__ = ["flowql"]

PROGRAM = program()
COMMANDS = dict(commands_of(PROGRAM))
IN_TEXT = {"query", "subscribe", "shell", "test"}  # theirs stand within sentences; their own tests type them
TYPED = re.compile(r"flowql (?:\S.*?)(?=   |  #|$)", re.MULTILINE)


def examples():
    """What helps say to type, with what it is, if anything, after three blanks."""
    for name, command in COMMANDS.items():
        text = re.sub(r"\s*\n\s*", " ", command.help) if "\b" not in command.help else command.help
        for line in TYPED.findall(inspect.cleandoc(text)):
            if line.startswith(f"flowql {name}") and "`" not in line:
                yield name, line.partition(" | ")[0].partition(" > ")[0].strip()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_what_to_type(name, flowql):
    shown = flowql(*name.split(), "--help")
    assert shown.code == 0
    assert f"flowql {name}" in re.sub(r"\s+", " ", shown.out.partition("\n")[2]), "an example"
    assert max(map(len, shown.out.splitlines())) <= 100, "examples are not longer than a terminal is wide"


@pytest.mark.parametrize(("name", "line"), [e for e in examples() if e[0] not in IN_TEXT])
def test_an_example_can_be_typed(name, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("orders.parquet", "orders.csv"):
        (tmp_path / file).touch()
    words = shlex.split(line)[1 + len(name.split()) :]
    if "--help" not in words:
        COMMANDS[name].make_context(name, words)


def test_most_examples_are_looked_at():
    assert len({name for name, _ in examples()}) > len(COMMANDS) * 0.8


def test_the_contents_are_those_of_the_program():
    """`flowql --help` loads no verb; what it says of them is what they say."""
    assert contents().get_help(contents().make_context("flowql", ["deploy"])) == PROGRAM.get_help(
        PROGRAM.make_context("flowql", ["deploy"])
    )
    for verb, summary in VERBS.items():
        command = PROGRAM.commands[verb]
        assert inspect.cleandoc(command.help).split("\n\n")[0].replace("\n", " ") == summary


def test_help_loads_no_verb():
    """It took two seconds, most of them to import what no help needs."""
    program = "import sys; from flowql.cli.app import main\ntry: main(['--help'])\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "Commands:" in done.stdout
    assert not {"duckdb", "rocksdict", "sqlglot", "confluent_kafka", "uvicorn", "flowql.cli.deploy"} & loaded
    assert not {"pyarrow", "numpy", "asyncio"} & loaded


def test_a_project_is_validated_without_loading_arrow(flowql, tmp_path):
    """Arrow and NumPy take 0.1 s, and a project without functions of its own needs neither."""
    assert flowql("init", str(tmp_path / "shop")).code == 0
    program = "import sys; from flowql.cli.app import main\ntry: main(['validate'])\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path / "shop", check=True
    )
    assert not {"pyarrow", "numpy", "duckdb", "asyncio"} & set(done.stderr.split())


@pytest.mark.parametrize("group", ["", *sorted({n.rpartition(" ")[0] for n in COMMANDS} - {""})])
def test_no_summary_is_cut_at_80_columns(group):
    command = PROGRAM
    for word in group.split():
        command = command.commands[word]
    shown = command.get_help(command.make_context("flowql", ["x"], terminal_width=80, resilient_parsing=True))
    assert [line for line in shown.splitlines() if line.endswith("...") and "ARGS" not in line] == []
