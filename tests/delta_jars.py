"""Delta's jars for tests: fetched once into FlowQL's cache, and the properties of a Spark that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.errors import CommandError
from flowql.kafka.jars import Artifact, jars_of

DELTA = Artifact("Delta", "io.delta", "delta-spark_4.2_2.13", "4.4.0")
PLUGGED = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def delta_jars() -> list[Path]:
    """Those that Spark does not have itself. Skips the test where they cannot be fetched."""
    try:
        folder = jars_of(DELTA)
    except CommandError as error:
        pytest.skip(f"Delta's jars cannot be fetched: {error.title}")
    return sorted(folder.glob("delta-s*.jar"))


def delta_properties() -> dict[str, str]:
    return {"spark.jars": ",".join(map(str, delta_jars())), **PLUGGED}
