"""The logs that tests of what every log promises run on, and the partitions they use."""

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.memory import MemoryLog
from tests.simulated_disk import SimulatedDisk

A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)
PATIENCE_S = 30.0
IMPLEMENTATIONS = ["memory", "embedded", "embedded on a simulated disk"]


def make(implementation, path):
    if implementation == "memory":
        return MemoryLog()
    return EmbeddedLog(path, None if implementation == "embedded" else SimulatedDisk())


def is_ours(log):
    """Whether no broker is in between."""
    return isinstance(log, (MemoryLog, EmbeddedLog))
