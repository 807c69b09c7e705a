"""`vars` of a target: they hold for the chosen target alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.config.load import read_project

FILE = """
name: shop
vars: {PREFIX: "all_", OTHER: "${PREFIX}x"}
sql: [shop.sql]
default_target: ada
targets:
  plain: {data_dir: "d_${PREFIX}"}
  ada: {vars: {PREFIX: ada_, SIZE: 3}, data_dir: "d_${PREFIX}", threads: "${SIZE}"}
"""


@pytest.mark.parametrize(
    ("target", "given", "topic", "folder"),
    [
        ("plain", {}, "all_", "d_all_"),
        ("ada", {}, "ada_", "d_ada_"),
        (None, {}, "ada_", "d_ada_"),
        ("ada", {"PREFIX": "bob_"}, "bob_", "d_bob_"),
    ],
)
def test_the_chosen_target_decides(
    tmp_path: Path, target: str | None, given: dict[str, str], topic: str, folder: str
) -> None:
    (tmp_path / "flowql.yaml").write_text(FILE)
    (tmp_path / "shop.sql").write_text("CREATE STREAM s (k INT) WITH (kafka_topic = '${PREFIX}s');")
    found = read_project(tmp_path, target=target, variables=given, environment={"PREFIX": "env_"})
    assert not found.diagnostics
    assert (found.variables["PREFIX"], found.target.data_dir.name) == (topic, folder)
    assert found.target.threads == (2 if target == "plain" else 3)
