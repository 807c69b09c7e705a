"""One kill of a real Spark driver (`python -m tests.crash.spark`: all kinds of queries, two kills a round)."""

import random
from functools import partial

import pytest

from tests.spark_here import skip_without_spark

pytest.importorskip("pyspark")

from tests.crash.contents import differences
from tests.crash.spark import broker, expected_of, killed, outage, portions_of

QUERIES = ["ITEMS"]


@pytest.mark.turns("spark")
@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.parametrize("gone_s", [0.0, 8.0])
def test_a_stream_whose_driver_is_killed_gives_what_the_runtime_gives(kafka, tmp_path, gone_s):
    """On Kafka: the engine is the same on the embedded log, where less can go wrong. gone_s: how long the broker is away before the kill."""
    skip_without_spark()
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    portions = portions_of(600, seed)
    expected = expected_of(tmp_path / "runtime", QUERIES, portions)
    assert expected.upserted.keys() == {"items"}
    with broker(tmp_path / "broker") as bootstrap:  # `kafka` has told whether there can be one
        gone = partial(outage, tmp_path / "broker", gone_s) if gone_s else lambda: None
        rng = random.Random(seed)
        seen = killed(tmp_path / "spark", QUERIES, portions, rng, kills=1, bootstrap=bootstrap, outage=gone)
    assert not differences(expected, seen), f"seed {seed}"
