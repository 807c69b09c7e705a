"""A stream or table that the project declares and the instance does not have yet is not called unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.server.host import Host
from tests.flowql.cli.conftest import SQL
from tests.flowql.cli.program import Program

MORE = """
CREATE TABLE
  LATER (K STRING PRIMARY KEY, V INT) WITH (KAFKA_TOPIC = 'later', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
"""


@pytest.mark.parametrize(
    "words",
    [
        ["query", "SELECT * FROM later"],
        ["state", "get", "later", "a"],
        ["subscribe", "later"],
        ["shell", "-c", "SELECT * FROM later"],
        ["shell", "-c", "DESCRIBE later"],
    ],
)
def test_what_is_declared_and_not_deployed_is_named_with_its_place(
    flowql: Program, host: Host, folder: Path, words: list[str]
) -> None:
    file = folder / "demo.sql"
    file.write_text(SQL + MORE)
    refused = flowql(*words, "-p", str(folder))
    assert refused.code == 1
    line = SQL.count("\n") + 2
    assert f"error[FQ5103]: later is declared in {file}:{line} and not deployed yet" in refused.err
    assert "help: flowql deploy" in refused.err
    file.write_text("CREATE")  # a project that cannot be read says nothing of it
    assert "error[FQ5103]: there is no" in flowql(*words, "-p", str(folder)).err
