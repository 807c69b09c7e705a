"""What commands load: what they do not need would cost more than all they do."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("duckdb", "google.protobuf", "fastavro", "pandas", "sqlglot", "confluent_kafka", "starlette", "pyspark")


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("flowql.cli.app", HEAVY),
        ("flowql.server.at_rest", (*HEAVY, "flowql.compiler.functions.registry", "flowql.runtime.app.instance")),
        ("flowql.config.compile", ("duckdb", "pandas", "rocksdict", "confluent_kafka", "starlette", "pyspark")),
    ],
)
def test_a_command_loads_what_it_needs(module: str, unwanted: tuple[str, ...]) -> None:
    code = f"import {module}, sys; print(*[m for m in {unwanted!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
