"""Kills of a driver and of a Python worker, from files into Delta (`python -m tests.crash.lake`: more of both in a round)."""

import random

import pytest

from tests.spark_here import skip_without_spark

pytest.importorskip("pyspark")

from tests.crash.lake import killed
from tests.delta_jars import delta_jars


@pytest.mark.turns("files")
@pytest.mark.crash
@pytest.mark.spark
def test_streams_into_delta_lose_and_double_nothing_when_processes_are_killed(tmp_path):
    skip_without_spark()
    delta_jars()
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    assert killed(tmp_path / "lake", random.Random(seed), kills=("worker", "driver")) == [], f"seed {seed}"
