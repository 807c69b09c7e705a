"""The Kafka settings of a target. No client here: projects are read without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Set by FlowQL itself: another value would break a promise of the log.
RESERVED = {
    "bootstrap.servers", "metadata.broker.list", "client.id", "group.id", "transactional.id", "enable.idempotence",
    "isolation.level", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof", "auto.offset.reset",
    "delivery.report.only.error", "acks", "request.required.acks",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """options: of librdkafka, by its own names (`security.protocol`, `sasl.username`, `ssl.ca.location`, ...), for all clients.

    bootstrap: host:port, several separated by commas. replication: of topics that are made; None leaves it to the brokers.
    shared: several instances may run the application at the same time and share its partitions. standbys: how many others keep a copy of each
    task's state then. rack: where this instance runs: its consumers read from replicas there (KIP-392), and its copies are kept elsewhere.
    """

    bootstrap: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold passwords
    replication: int | None = None
    shared: bool = False
    standbys: int = 0
    rack: str = ""
