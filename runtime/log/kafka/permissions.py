"""Compares the permissions of an application's user on the brokers with those that it needs: docs/guide/kafka-topics.md, Permissions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.kafka import errors
from flowql.runtime.log.kafka.connection import LOGGER, Connection
from flowql.runtime.log.kafka.settings import KafkaSettings

TIMEOUT_S = 10.0
_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)  # fmt: skip
# Errors while brokers make a coordinator for the first group, and while one moves.
_LOADING = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR)
_TRIES, _WAIT_S = 20, 0.5
# Names of operations as `kafka-acls.sh` takes them.
READ, WRITE, CREATE, DESCRIBE, CONFIGS, ALL = "Read", "Write", "Create", "Describe", "DescribeConfigs", "All"
_OF_BROKERS = {
    AclOperation.READ: READ, AclOperation.WRITE: WRITE, AclOperation.CREATE: CREATE, AclOperation.DESCRIBE: DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS: CONFIGS, AclOperation.DELETE: "Delete", AclOperation.ALTER: "Alter", AclOperation.ALTER_CONFIGS: "AlterConfigs",
}  # fmt: skip
_SOURCE, _RESULT = (READ, CONFIGS), (CREATE, READ, WRITE, CONFIGS)
_OWN = (*_RESULT, "Delete", "AlterConfigs")  # of topics of the application, all of which one rule covers


@dataclass(frozen=True, slots=True)
class MissingPermission:
    """kind: `topic`, `group` or `transactional-id`. prefixed: of all names that start with `name`."""

    kind: str
    name: str
    operations: tuple[str, ...]
    prefixed: bool = False

    def command(self, bootstrap: str, user: str) -> str:
        """The command that grants it. user: of the target; a word in its place where the target names none."""
        prefixed = " --resource-pattern-type prefixed" if self.prefixed else ""
        operations = "".join(f" --operation {o}" for o in self.operations)
        principal = f"--bootstrap-server {bootstrap} --add --allow-principal User:{user}"
        return f"kafka-acls.sh {principal} --{self.kind} {self.name}{prefixed}{operations}"


def missing_permissions(
    settings: KafkaSettings, application_id: str, sources: Collection[str], results: Collection[str]
) -> list[MissingPermission]:
    """The permissions that the user of these settings lacks. sources, results: topics of others that the application reads, and that it writes.

    Nothing is made, but that the brokers note a transactional id. It blocks. LogError if brokers do not answer.
    """
    own = f"{application_id}-plan"
    connection = Connection.to(settings)
    admin = AdminClient(connection.admin(f"{application_id}-doctor"), logger=LOGGER)
    needed: Mapping[str, tuple[str, ...]] = (
        dict.fromkeys(sources, _SOURCE) | dict.fromkeys(results, _RESULT) | {own: _OWN}
    )
    with errors.naming("permissions cannot be asked for"):
        lacking = dict(_topics(admin, needed))
        found = [MissingPermission("topic", name, lacks) for name, lacks in lacking.items() if name != own]
        if own in lacking:
            found.append(MissingPermission("topic", application_id, (ALL,), prefixed=True))
        if operations := _group(admin, application_id):
            found.append(MissingPermission("group", application_id, operations, prefixed=True))
        if _is_denied_transactions(connection, f"{application_id}-doctor"):
            found.append(MissingPermission("transactional-id", application_id, (WRITE, DESCRIBE), prefixed=True))
    return found


def _topics(admin: AdminClient, needed: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Topics with the operations that are missing. Of one that does not exist it is asked whether it could be made."""
    asked = admin.describe_topics(
        TopicCollection(sorted(needed)), include_authorized_operations=True, request_timeout=TIMEOUT_S
    )
    for name, future in asked.items():
        wanted = needed[name]
        try:
            lacks = _lacking(wanted, _result(future).authorized_operations)
        except KafkaException as error:
            code = errors.of(error).code()
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                lacks = wanted if CREATE in wanted and not _may_create(admin, name) else ()
            elif code in _DENIED:
                lacks = wanted
            else:
                raise
        if lacks:
            yield name, lacks


def _may_create(admin: AdminClient, name: str) -> bool:
    wanted = NewTopic(name, 1)
    return not _is_denied(admin.create_topics([wanted], validate_only=True, request_timeout=TIMEOUT_S)[name])


def _group(admin: AdminClient, group: str) -> tuple[str, ...]:
    """The operations that are missing. Whether a group that does not exist yet could be read is not told."""
    for _ in range(_TRIES):
        asked = admin.describe_consumer_groups([group], include_authorized_operations=True, request_timeout=TIMEOUT_S)
        try:
            return _lacking((READ, DESCRIBE), _result(asked[group]).authorized_operations)
        except KafkaException as error:
            code = errors.of(error).code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                return ()
            if code in _DENIED:
                return READ, DESCRIBE
            if code not in _LOADING:
                raise
            admin.poll(_WAIT_S)
    raise LogUnavailable(f"the coordinator of group {group} does not answer")


def _is_denied_transactions(connection: Connection, transactional_id: str) -> bool:
    producer = Producer(connection.producer(transactional_id), logger=LOGGER)
    try:
        producer.init_transactions(TIMEOUT_S)
    except KafkaException as error:
        if errors.of(error).code() not in _DENIED:
            raise
        return True
    return False


def _is_denied(future: Future[Any]) -> bool:
    """Any other answer, such as that a topic exists by now, is none about permissions."""
    try:
        _result(future)
    except KafkaException as error:
        return errors.of(error).code() in _DENIED
    return False


def _result(future: Future[Any]) -> Any:
    return future.result(TIMEOUT_S)


def _lacking(wanted: Iterable[str], rights: Iterable[AclOperation] | None) -> tuple[str, ...]:
    """Brokers without an authorizer report no rights, and refuse nothing."""
    have = {_OF_BROKERS.get(r, "") for r in rights or ()}
    return tuple(w for w in wanted if w not in have) if rights and AclOperation.ALL not in set(rights) else ()
