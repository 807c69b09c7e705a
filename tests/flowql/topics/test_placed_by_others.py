"""Commands and programs do not write to a topic whose producers place keys by another partitioner."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.topics.producing import RowWriter, source_named
from tests.flowql.cli.conftest import Program, flowql

__all__ = ["flowql"]
SQL = """CREATE STREAM orders (k STRING KEY, v INT)
  WITH (KAFKA_TOPIC='orders', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=2, PARTITIONER='crc32');"""


def test_no_command_writes_there(tmp_path: Path, flowql: Program) -> None:
    """A key would be in two partitions."""
    (tmp_path / "flowql.yaml").write_text("name: shop\nsql: [shop.sql]\n")
    (tmp_path / "shop.sql").write_text(SQL)
    (tmp_path / "orders.csv").write_text("K,V\na,1\n")
    for words in (["produce", "orders", '{"K": "a", "V": 1}'], ["import", "orders", str(tmp_path / "orders.csv")]):
        refused = flowql("topic", *words, "-p", str(tmp_path))
        assert (refused.code, "error[FQ4089]" in refused.err) == (1, True), refused.err


def test_no_program_writes_there() -> None:
    compiled = compile_project([SourceText("shop.sql", SQL)])
    with pytest.raises(Exception, match="records of orders are placed by crc32"):
        RowWriter(source_named("orders", compiled.plan))
