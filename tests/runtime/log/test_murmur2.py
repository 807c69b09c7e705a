import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.runtime.log.murmur2 import murmur2, partition_for, partitions

# From Kafka's own UtilsTest.testMurmur2.
KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KAFKA)
def test_hash_is_kafkas(key):
    assert murmur2(key) == KAFKA[key]
    assert partition_for(key, 1000) == (KAFKA[key] & 0x7FFFFFFF) % 1000


def check(keys, n, *, skip=0):
    array = pa.array(keys, pa.binary())[skip:]
    expected = [0 if k is None else partition_for(k, n) for k in keys[skip:]]
    assert partitions(array, n).tolist() == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=40), max_size=60), st.integers(1, 50), st.integers(0, 3))
def test_vector_equals_scalar(keys, n, skip):
    check(keys, n, skip=min(skip, len(keys)))


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 8, 16])
def test_keys_of_one_length(length):
    rng = np.random.default_rng(length)
    check([rng.bytes(length) for _ in range(1000)], 7, skip=5)


def test_many_rows_and_very_long_keys():
    rng = np.random.default_rng(0)
    keys = [rng.bytes(int(rng.integers(0, 20))) for _ in range(20_000)]
    keys[3] = keys[19_000] = rng.bytes(1000)
    check(keys, 12)
    check([rng.bytes(300)] * 3, 12)


def test_null_keys_go_where_the_caller_says():
    array = pa.array([None, b"a", None], pa.binary())
    assert partitions(array, 4, np.array([3, 3, 2])).tolist() == [3, partition_for(b"a", 4), 2]
