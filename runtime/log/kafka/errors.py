"""Kafka's errors as the engine's, and what they mean for a transaction.

Three branches (librdkafka's own): *fatal* - the producer is of no more use; *abort* - the transaction is, the producer is not;
*retry* - the same call may succeed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from flowql.runtime.errors import (
    Fenced,
    LogDenied,
    LogError,
    LogUnavailable,
    OffsetOutOfRange,
    RecordAhead,
    RecordRefused,
    StaleMember,
    TopicMissing,
)

_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_MISSING |= {KafkaError.UNKNOWN_TOPIC_ID}
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
}
_REFUSED = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_MSG,
}
_STALE = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
}
OUT_OF_RANGE = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}
# Over in a moment, by itself: a leader or coordinator is changing, a transaction is being finished.
_SETTLING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError._NOENT,  # no leaders are known
    KafkaError._DESTROY_BROKER,  # the client has just given up one of its connections
}
_UNAVAILABLE = _SETTLING | {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._QUEUE_FULL,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}


def failure(error: KafkaError, what: str) -> LogError:
    """The engine's error for one of Kafka's. what: what was tried, and on what."""
    code = error.code()
    kind = LogError
    for codes, named in (
        (_FENCED, Fenced),
        (_MISSING, TopicMissing),
        (_DENIED, LogDenied),
        (_REFUSED, RecordRefused),
        ({KafkaError.INVALID_TIMESTAMP}, RecordAhead),
        (_STALE, StaleMember),
        (OUT_OF_RANGE, OffsetOutOfRange),
        (_UNAVAILABLE, LogUnavailable),
    ):
        if code in codes:
            kind = named
            break
    return kind(f"{what}: {error.str()} ({error.name()})")


def settling(error: KafkaError) -> bool:
    """Whether the same call will do in a moment."""
    return error.code() in _SETTLING


def of(error: KafkaException) -> KafkaError:
    """The error inside the exception."""
    inner: KafkaError = error.args[0]
    return inner


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Kafka's exceptions leave this block as the engine's."""
    try:
        yield
    except KafkaException as error:
        raise failure(of(error), what) from error
