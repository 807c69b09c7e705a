"""Group keys that Spark's hash partitioning spreads evenly. Imports no pyspark.

A streaming group's place is murmur3(key) mod shuffle partitions. Keys chosen so that group g of n hashes to g modulo n put each
group alone into one of n shuffle partitions, and evenly into any divisor of n. They depend on n alone: a restart with other
settings finds its state again.
"""

from __future__ import annotations

from functools import lru_cache

_MASK = 0xFFFFFFFF
_SEED = 42  # `org.apache.spark.sql.catalyst.expressions.Murmur3Hash`


@lru_cache(maxsize=256)
def slots(groups: int) -> tuple[int, ...]:
    """The key of each of `groups` groups.

    >>> [hash_int(s) % 3 for s in slots(3)]
    [0, 1, 2]
    """
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < groups:
        found.setdefault(hash_int(candidate) % groups, candidate)
        candidate += 1
    return tuple(found[g] for g in range(groups))


def hash_int(value: int) -> int:
    """Spark's `hash(value)` of an int column, as a signed number.

    >>> hash_int(1)
    -559580957
    """
    k = value * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    k = k * 0x1B873593 & _MASK
    h = _SEED ^ k
    h = (h << 13 | h >> 19) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK
    h ^= 4  # the length in bytes
    h ^= h >> 16
    h = h * 0x85EBCA6B & _MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
