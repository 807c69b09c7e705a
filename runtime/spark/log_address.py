"""Where a log is, for Spark's Python workers, which open it themselves: a folder, or a Kafka cluster. No pyspark."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from flowql.runtime.errors import LogError
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.embedded.journal import find_generations
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.files import DiskFiles
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.secret import revealed

if TYPE_CHECKING:
    from flowql.runtime.log.kafka.at_least_once import PlainWriter

# Spark leaves out of plans and messages what has such a name (spark.redaction.regex).
_SECRET = "kafka_secret"

_open_logs: dict[tuple[object, ...], Log] = {}
_writers: dict[tuple[object, ...], PlainWriter] = {}


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """A log on Kafka, and whose it is."""

    settings: KafkaSettings
    application_id: str


Address = str | os.PathLike[str] | KafkaAddress  # a path is the folder of an embedded log


def absolute(address: Address) -> Address:
    """The same for processes with other working directories."""
    return address if isinstance(address, KafkaAddress) else os.path.abspath(address)


def texts_of(address: Address) -> dict[str, str]:
    """The address as options of a Spark data source."""
    if not isinstance(address, KafkaAddress):
        return {"path": os.fspath(address)}
    s = address.settings
    said = {"bootstrap": s.bootstrap, "replication": s.replication, "application_id": address.application_id}
    return {
        "kafka": json.dumps(said),
        _SECRET: json.dumps({name: revealed(value) for name, value in s.options.items()}),
    }


def address_of_texts(options: Mapping[str, str]) -> Address | None:
    """The inverse; None if there is none among the options."""
    if "kafka" not in options:
        return options.get("path") or None
    said = json.loads(options["kafka"])
    secret = json.loads(options.get(_SECRET) or "{}")
    return KafkaAddress(KafkaSettings(said["bootstrap"], secret, said["replication"]), said["application_id"])


def open_log(address: Address) -> Log:
    """Opens a separate log for the caller. Creates a missing embedded one."""
    if not isinstance(address, KafkaAddress):
        return EmbeddedLog(address)
    from flowql.runtime.log.kafka.connection import Connection
    from flowql.runtime.log.kafka.log import KafkaLog  # loads a client that others do without

    return KafkaLog(Connection.to(address.settings), address.application_id)


def write_plainly(address: Address, tp: TopicPartition, records: pa.RecordBatch) -> None:
    """Records (PRODUCE_SCHEMA) outside of transactions, written when it returns; a repeated write is there twice. For Spark's Python workers."""
    from flowql.runtime.log.kafka.at_least_once import PlainWriter
    from flowql.runtime.log.kafka.connection import Connection

    assert isinstance(address, KafkaAddress), "a log that machines share"
    identity = (*_identity(address), os.getpid())
    if identity not in _writers:
        _writers[identity] = PlainWriter(Connection.to(address.settings), f"{address.application_id}-spark")
    _writers[identity].write(tp, records)


def brokers_answer(address: KafkaAddress, timeout_s: float) -> bool:
    from flowql.runtime.log.kafka.connection import answers

    return answers(address.settings.bootstrap, address.settings.options, timeout_s)


def shared_log(address: Address) -> Log:
    """The log of an address, opened once per process. For Spark's Python workers, which live long.

    An embedded one must exist, and a folder that was replaced by another one is opened anew. Clients of Kafka do not survive a fork.
    """
    identity = (*_identity(address), os.getpid())
    log = _open_logs.get(identity)
    if log is None:
        log = _open_logs[identity] = open_log(address)
    return log


def _identity(address: Address) -> tuple[object, ...]:
    if isinstance(address, KafkaAddress):
        return tuple(texts_of(address).values())
    directory = os.path.abspath(address)
    if not find_generations(DiskFiles(), directory):
        raise LogError(f"there is no log in {directory}")
    status = os.stat(directory)
    return directory, status.st_dev, status.st_ino
