"""The log of a target, opened."""

from __future__ import annotations

from pathlib import Path

from flowql.config.project import Project, check_here
from flowql.errors import CommandError
from flowql.runtime.log.base import Log
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.files import DiskFiles
from flowql.runtime.log.kafka.settings import KafkaSettings

NOWHERE, OTHER_ENGINE = "FQ5505", "FQ5508"


def open_log(project: Project, *, damaged: bool = False) -> Log:
    """The log of the project's target; the embedded one is made if missing.

    damaged: open it also where committed bytes of its files are missing, to say which and to leave them out.
    """
    target = project.target
    check_here(target)
    if target.kafka is None:
        DiskFiles().makedirs(str(target.log_dir.absolute()))
        return EmbeddedLog(target.log_dir, damaged=damaged)
    return log_at(target.log_dir, target.kafka, target.application_id(project.name))


def log_at(log_dir: Path, kafka: KafkaSettings | None, application_id: str, *, at_least_once: str | None = None) -> Log:
    """The log on Kafka if there are settings for it, else the embedded one in the folder, which is always exactly once.

    at_least_once: the topic that an instance writes last in commits without transactions. Raises CommandError if the address of
    Kafka is not known.
    """
    if kafka is None:
        return EmbeddedLog(log_dir)
    if not kafka.bootstrap:
        title = "the target does not say where Kafka is, and no broker has been started here"
        raise CommandError(title, code=NOWHERE, help="flowql kafka up   # or write  kafka: {bootstrap: host:9092}")
    from flowql.runtime.log.kafka.connection import Connection
    from flowql.runtime.log.kafka.log import KafkaLog  # loads a client that other targets do without

    return KafkaLog(Connection.to(kafka), application_id, at_least_once=at_least_once)


def check_engine(log: Log, application_id: str, topic: str, other: str) -> None:
    """CommandError if an application on Kafka belongs to another engine, which has made `topic`: both would write all results."""
    if topic in log.admin().partition_counts([topic]):
        title = f"on this Kafka the application {application_id} belongs to {other}"
        raise CommandError(
            title, code=OTHER_ENGINE, help="give the target its own app_id, and its queries other topics"
        )
