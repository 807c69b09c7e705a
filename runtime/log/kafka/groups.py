"""The removal of consumer groups. For commands; an instance moves positions through its own clients."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from flowql.runtime.log.kafka import errors
from flowql.runtime.log.kafka.admin import TIMEOUT_S
from flowql.runtime.log.kafka.connection import LOGGER, Connection
from flowql.runtime.log.kafka.settings import KafkaSettings

_GONE = KafkaError.GROUP_ID_NOT_FOUND


class GroupAdmin:
    """Calls block up to TIMEOUT_S. LogDenied, LogUnavailable."""

    def __init__(self, settings: KafkaSettings, application_id: str) -> None:
        self._client = AdminClient(Connection.to(settings).admin(f"{application_id}-groups"), logger=LOGGER)

    def delete(self, groups: Sequence[str]) -> None:
        """Deletes groups without members, with their positions. Groups that do not exist are left out."""
        asked = self._client.delete_consumer_groups(list(groups), request_timeout=TIMEOUT_S) if groups else {}
        for group, future in asked.items():
            with errors.naming(f"group {group} cannot be deleted"):
                try:
                    future.result(TIMEOUT_S)
                except KafkaException as error:
                    if errors.of(error).code() != _GONE:
                        raise
