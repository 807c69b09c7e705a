"""In which partitions the keys of topics are: a task reads the same partition of each of its topics, so that rows of one key meet.

They do where the writers of all these topics place keys alike. Java clients and FlowQL take murmur2 of the key, librdkafka (the clients of
Python, C#, Go and Node) CRC32 unless `partitioner=murmur2_random` is set. Two topics that are placed differently have the same number
of partitions, and a join of them misses most rows without an error. So keys are looked at as they are read, the first thousand of each topic
and a few of each batch behind them. A key that two topics have in different partitions says so at once; which partitioner placed a topic
is certain after some twenty keys. Empty keys count: librdkafka places them at random, Java clients by murmur2.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import log2

import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.partitioners import CRC32, CUSTOM, MURMUR2
from flowql.runtime.errors import KeysMisplaced
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.state.locks import NamedLock

PARTITIONERS = "partitioners"  # in the metadata of a task: topic -> the partitioner that its keys are known to follow
# Name -> (the partition of a key among n, who uses it). librdkafka: `rd_kafka_msg_partitioner_consistent`.
KNOWN: Mapping[str, tuple[Callable[[bytes, int], int], str]] = {
    MURMUR2: (partition_for, "murmur2, as Java clients and FlowQL take it"),
    CRC32: (lambda key, n: zlib.crc32(key) % n, "CRC32, the default of librdkafka"),
}
ADVICE = "use a copy (CREATE STREAM ... AS SELECT * FROM ...), which is placed by murmur2; more: flowql explain FQ4066"
# A partitioner that explains the places of so many bits of keys does so by chance once in 16 million topics.
SURE_BITS = 24.0
ROWS = 16  # looked at in a batch
SEEN_MAX = 1_024  # keys whose partition is remembered


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A key that is not where a partitioner puts it."""

    key: bytes
    partition: int
    belongs: int


class KeyPlaces:
    """Infers the partitioners of one topic from the keys that a reader has seen. Any thread."""

    def __init__(self) -> None:
        self._lock = NamedLock("key places", guards="what is known of the keys of a topic")
        self._bits = dict.fromkeys(KNOWN, 0.0)
        self._misplaced: dict[str, Misplaced] = {}
        self._seen: dict[bytes, int] = {}
        self._unchecked: list[bytes] = []  # keys that were not compared with other topics yet
        self.split: tuple[bytes, int, int] | None = None  # a key, and two partitions that have it
        self.declared = ""  # the partitioner that the source names

    def declare(self, partitioner: str) -> None:
        """Sets the declared partitioner; keys in other partitions contradict it."""
        self.declared = partitioner
        if partitioner in KNOWN:
            self.trust(partitioner)

    def trust(self, partitioner: str) -> None:
        """Sets the partitioner that an instance found before."""
        with self._lock:
            self._bits[partitioner] = SURE_BITS

    def look(self, keys: pa.BinaryArray, partition: int, partitions: int) -> None:
        """Looks at keys of a batch from this partition, of so many. Topics of one partition say nothing."""
        if partitions < 2:
            return
        self.take(sample_of(keys, SEEN_MAX - len(self._seen)), partition, partitions)

    def take(self, sample: Iterable[bytes], partition: int, partitions: int) -> None:
        """The same of keys that another reader has looked at."""
        with self._lock:
            for key in sample:
                self._take(key, partition, partitions)

    def partition_of(self, key: bytes) -> int | None:
        """Where the key was seen."""
        return self._seen.get(key)

    def unchecked(self) -> list[bytes]:
        """Keys that were seen since the last call."""
        with self._lock:
            found, self._unchecked = self._unchecked, []
            return found

    @property
    def is_certain(self) -> bool:
        """Whether it is known which partitioner placed the topic, or that none of those that are known did."""
        return any(map(self.follows, KNOWN)) or len(self._misplaced) == len(KNOWN)

    def follows(self, partitioner: str) -> bool:
        """Whether it certainly explains where the keys are."""
        return self._bits[partitioner] >= SURE_BITS and partitioner not in self._misplaced

    def against(self, partitioner: str) -> Misplaced | None:
        """A key that is elsewhere than it puts it."""
        return self._misplaced.get(partitioner)

    def _take(self, key: bytes, partition: int, partitions: int) -> None:
        before = self._seen.get(key)
        if before is not None:
            if before != partition and self.split is None:
                self.split = (key, before, partition)
            return
        if len(self._seen) < SEEN_MAX:
            self._seen[key] = partition
        self._unchecked.append(key)
        for name, (place, _) in KNOWN.items():
            if name in self._misplaced:
                continue
            if (belongs := place(key, partitions)) == partition:
                self._bits[name] += log2(partitions)
            else:
                self._misplaced[name] = Misplaced(key, partition, belongs)


def sample_of(keys: pa.BinaryArray, room: int = 0) -> list[bytes]:
    """Keys of a batch, each once: the first `room` of them, or if that is less than `ROWS`, so many from all of it; and the empty key."""
    if room >= ROWS:
        found = pc.unique(keys)[:room].to_pylist()
    else:
        step = -(-len(keys) // ROWS)
        found = [keys[i].as_py() for i in range(0, len(keys), max(1, step))]
    if pc.any(pc.equal(pc.binary_length(keys), 0)).as_py():
        found.append(b"")
    return [k for k in dict.fromkeys(found) if k is not None]


def check_alike(query: str, topics: Mapping[str, KeyPlaces], *, repartitions: bool) -> None:
    """KeysMisplaced if rows of one key cannot meet in a task that reads these topics, or one key of a topic is in two partitions.

    repartitions: the task reads a repartition topic as well, which follows murmur2.
    """
    for topic, places in topics.items():
        if places.split is not None:
            key, first, second = places.split
            raise KeysMisplaced(
                f"{query} reads {topic}, in which records of the key {_shown(key)} are in partition {first} and in partition {second}: "
                f"each is processed by another task, and neither has all of them: {ADVICE}"
            )
        if (wrong := places.against(places.declared)) is not None:
            raise KeysMisplaced(
                f"{query} reads {topic}, which is declared with PARTITIONER = '{places.declared}'. The key {_shown(wrong.key)} is in partition "
                f"{wrong.partition} and not in {wrong.belongs}: leave PARTITIONER out, or name the one of its producers; more: flowql explain FQ4066"
            )
    own_rule = all(places.declared == CUSTOM for places in topics.values())
    for name, (_, said) in KNOWN.items() if not own_rule else ():
        follow = [t for t, places in topics.items() if places.follows(name)]
        if not follow and not (repartitions and name == MURMUR2):
            continue
        for topic, places in topics.items():
            wrong = places.against(name)
            if wrong is not None:
                others = follow[0] if follow else "a repartition"
                raise KeysMisplaced(
                    f"{query} reads {topic} beside {others}, whose keys are in the partitions of {said}. Those of {topic} are not: "
                    f"{_shown(wrong.key)} is in partition {wrong.partition} and not in {wrong.belongs}, so that rows of one key do not meet: {ADVICE}"
                )
    _check_common_keys(query, topics)


def _check_common_keys(query: str, topics: Mapping[str, KeyPlaces]) -> None:
    """Each key that was seen since the last check is in the same partition of all topics that have it."""
    for topic, places in topics.items():
        for key in places.unchecked():
            partition = places.partition_of(key)
            for other, others in topics.items():
                elsewhere = others.partition_of(key)
                if partition is not None and elsewhere not in (None, partition):
                    raise KeysMisplaced(
                        f"{query} reads {topic} beside {other}: records of the key {_shown(key)} are in partition {partition} of {topic} and in "
                        f"partition {elsewhere} of {other}, so that rows of one key do not meet: {ADVICE}"
                    )


def known_partitioners(topics: Mapping[str, KeyPlaces]) -> dict[str, str]:
    """The partitioners that topics certainly follow."""
    return {topic: name for topic, places in topics.items() for name in KNOWN if places.follows(name)}


def _shown(key: bytes) -> str:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return f"'{text}'" if text.isprintable() else f"0x{key.hex()}"
