"""What commands load: what they do not need would cost more than all they do."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("duckdb", "google.protobuf", "fastavro", "pandas", "sqlglot", "confluent_kafka", "starlette", "pyspark")
# What a command does without that asks a running instance: the plan's data types, columns, and what reads SQL.
OF_THE_ENGINE = (
    "pyarrow",
    "numpy",
    "rocksdict",
    "msgspec",
    "flowql.compiler.plan.topology",
    "flowql.compiler.dialect.ast",
)
OF_READERS = tuple(m for m in HEAVY if m != "duckdb")


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("flowql.cli.app", (*HEAVY, *OF_THE_ENGINE)),
        ("flowql.cli.status, flowql.server.client", (*HEAVY, *OF_THE_ENGINE)),
        ("flowql.cli.query, flowql.query.session, flowql.query.readable", OF_READERS),
        (
            "flowql.server.at_rest",
            (
                *HEAVY,
                "flowql.compiler.dialect.ast",
                "flowql.compiler.functions.registry",
                "flowql.runtime.app.instance",
            ),
        ),
        (
            "flowql.server.daemon, flowql.server.on_runtime",  # until the queries of an instance run
            (*(m for m in HEAVY if m != "duckdb"), "uvicorn", "flowql.compiler.driver", "flowql.query.session"),
        ),
        ("flowql.config.compile", ("duckdb", "pandas", "rocksdict", "confluent_kafka", "starlette", "pyspark")),
    ],
)
def test_a_command_loads_what_it_needs(module: str, unwanted: tuple[str, ...]) -> None:
    code = f"import {module}, sys; print(*[m for m in {unwanted!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
