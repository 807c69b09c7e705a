"""`flowql subscribe` at a live instance in this process, and at one that has stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowql.server.host import Host
from tests.flowql.cli.program import Program


def test_rows_and_changes(flowql: Program, host: Host, folder: Path) -> None:
    said = flowql("subscribe", "S", "--from", "earliest", "--limit", "3", "-p", str(folder))
    assert (said.code, said.out) == (0, "K     V\na     1\nb    22\na  NULL\n")
    assert said.err.endswith("3 rows\n")
    said = flowql("subscribe", "a", "--from", "earliest", "--limit", "2", "-o", "json", "-p", str(folder))
    changes = [json.loads(line) for line in said.out.splitlines()]
    assert [(c["op"], sorted(c["row"])) for c in changes] == [("put", ["K", "N"])] * 2
    text = "SELECT V, COUNT(*) AS N FROM S WHERE V > 5 GROUP BY V EMIT CHANGES LIMIT 1"
    said = flowql("subscribe", text, "--from", "earliest", "-p", str(folder))
    assert said.out == "change   V  N\nput     22  1\n"


def test_of_a_stopped_instance_what_there_is(flowql: Program, host: Host, folder: Path) -> None:
    flowql("subscribe", "A", "--from", "earliest", "--limit", "2", "-p", str(folder))  # it has been computed
    host.close()
    said = flowql("subscribe", "SELECT V FROM S EMIT CHANGES", "--from", "earliest", "-p", str(folder))
    assert (said.code, said.out, said.err) == (0, "   V\n   1\n  22\nNULL\n", "no instance is running; 3 rows\n")
    said = flowql("subscribe", "S", "-p", str(folder))
    assert (said.code, "FQ5106" in said.err) == (1, True)


@pytest.mark.parametrize(
    ("what", "error"),
    [("Z", "FQ5103"), ("SELECT X FROM S EMIT CHANGES", " 1 | SELECT X FROM S EMIT CHANGES\n   |        ^")],
)
def test_mistakes(flowql: Program, host: Host, folder: Path, what: str, error: str) -> None:
    said = flowql("subscribe", what, "-p", str(folder))
    assert (said.code, said.out) == (1, "")
    assert error in said.err


def test_where_nothing_was_deployed(flowql: Program, folder: Path) -> None:
    assert "FQ5105" in flowql("subscribe", "S", "-p", str(folder)).err
