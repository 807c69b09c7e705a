"""One kill of a real Spark driver (`python -m tests.crash.spark`: all kinds of queries, two kills a round)."""

import random

import pytest

from tests.spark_here import skip_without_spark

pytest.importorskip("pyspark")

from tests.crash.contents import differences
from tests.crash.spark import broker, expected_of, killed, portions_of

QUERIES = ["ITEMS"]


@pytest.mark.turns("spark")
@pytest.mark.turns("spark")
@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.kafka
def test_a_stream_whose_driver_is_killed_gives_what_the_runtime_gives(kafka, tmp_path):
    """On Kafka: the engine is the same on the embedded log, where less can go wrong."""
    skip_without_spark()
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    portions = portions_of(600, seed)
    expected = expected_of(tmp_path / "runtime", QUERIES, portions)
    assert expected.upserted.keys() == {"items"}
    with broker(tmp_path / "broker") as bootstrap:  # `kafka` has told whether there can be one
        seen = killed(tmp_path / "spark", QUERIES, portions, random.Random(seed), kills=1, bootstrap=bootstrap)
    assert not differences(expected, seen), f"seed {seed}"
