"""Where the brokers are and how to talk to them; the settings each kind of client is made with."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from flowql.runtime.log.kafka.settings import RESERVED, KafkaSettings
from flowql.runtime.secret import revealed

# Messages of the client library go here. They are shown only if logging is configured: relevant errors reach callers anyway.
LOGGER = logging.getLogger("flowql.kafka")
LOGGER.addHandler(logging.NullHandler())
LOGGER.propagate = False

TRANSACTION_TIMEOUT_MS = 60_000
# The open transaction of a killed member delays those that take over its partitions; a slow member repeats an aborted transaction.
MEMBER_TRANSACTION_TIMEOUT_MS = 15_000
_CONSUMER_ONLY_PREFIXES = ("fetch.", "queued.", "check.crcs", "max.partition.", "max.poll.", "session.", "group.")
_PRODUCER_ONLY_PREFIXES = (
    "compression.", "linger.", "batch.", "queue.buffering.", "message.max.", "message.timeout.", "transaction.", "acks",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Connection(KafkaSettings):
    """Settings as the client library wants them."""

    @classmethod
    def to(cls, settings: KafkaSettings) -> Connection:
        return cls(settings.bootstrap, settings.options, settings.replication, settings.shared, rack=settings.rack)

    def admin(self, client_id: str) -> dict[str, Any]:
        return self._settings(client_id, _CONSUMER_ONLY_PREFIXES + _PRODUCER_ONLY_PREFIXES)

    def consumer(self, client_id: str, group: str, wait_ms: int) -> dict[str, Any]:
        """wait_ms: how long a broker may hold back a fetch when there is nothing.

        Small queues: what is prefetched of a partition is thrown away when it is paused (measured on librdkafka 2.16).
        """
        return {
            "queued.min.messages": 20_000,
            "queued.max.messages.kbytes": 16 << 10,
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": wait_ms,
            "fetch.error.backoff.ms": 50,
            **self._settings(client_id, _PRODUCER_ONLY_PREFIXES),
            **({"client.rack": self.rack} if self.rack else {}),
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }

    def producer(self, transactional_id: str) -> dict[str, Any]:
        return {
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 256 << 10,
            "linger.ms": 5,
            "transaction.timeout.ms": MEMBER_TRANSACTION_TIMEOUT_MS if self.shared else TRANSACTION_TIMEOUT_MS,
            **self._settings(transactional_id, _CONSUMER_ONLY_PREFIXES),
            "transactional.id": transactional_id,
            "delivery.report.only.error": True,
        }

    def plain_producer(self, client_id: str) -> dict[str, Any]:
        """Without transactions; in order and without duplicates of the client's own making."""
        settings = self.producer(client_id)
        for name in [n for n in settings if n.startswith("transaction")]:
            del settings[name]
        return {**settings, "enable.idempotence": True}

    def _settings(self, client_id: str, without: tuple[str, ...]) -> dict[str, Any]:
        given = {k: revealed(v) for k, v in self.options.items() if k not in RESERVED and not k.startswith(without)}
        return {
            "reconnect.backoff.max.ms": 1_000,
            "socket.nagle.disable": True,
            "topic.metadata.refresh.interval.ms": 30_000,
            **given,
            "bootstrap.servers": self.bootstrap,
            "client.id": client_id,
        }


def answers(bootstrap: str, options: Mapping[str, str] | None = None, timeout_s: float = 2.0) -> bool:
    """Whether a broker is there and knows its cluster."""
    admin = AdminClient(Connection(bootstrap, options or {}).admin("flowql-asks"), logger=LOGGER)
    try:
        return bool(admin.list_topics(timeout=timeout_s).brokers)
    except KafkaException:  # the question is whether, not why
        return False
