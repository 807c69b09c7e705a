"""The time of a table's records that have none of their own: the beginning, so that the table is there before every event.

A join looks a row up as of the time of the event. Reference data with the time of its import would not be found by any event that
happened before.
"""

from __future__ import annotations

from flowql.compiler.plan.topology import SourceDef
from flowql.errors import CommandError
from flowql.runtime.log.base import Log
from flowql.runtime.log.policy import TopicPolicy
from flowql.topics.import_job import Job
from flowql.topics.keeping import retention_text

BEGINNING_MS = 0
FOR_EVER = {"retention.ms": "-1"}
TOO_OLD = "FQ5015"


def from_the_beginning(source: SourceDef | None, timestamp: str | None) -> bool:
    """Whether records count from the beginning: those of a declared table for which no column says a time."""
    return source is not None and source.kind == "table" and timestamp is None and source.timestamp is None


def make_topic(log: Log, job: Job) -> None:
    """Make the topic if it is missing. CommandError if it would drop records for their age at once."""
    admin = log.admin()
    known = admin.topics().get(job.topic)
    timeless = job.time_ms == BEGINNING_MS and job.timestamp is None
    if known is not None and timeless:
        policy = TopicPolicy.of(known.config)
        if policy.retention_ms >= 0 and policy.deletes:
            title = (
                f"records of table {job.source.name if job.source else job.topic} without a time count from 1970, and topic {job.topic} "
                f"would drop them at once: {retention_text(known.config)}"
            )
            help_ = f"name the column that is the time (--timestamp COLUMN), or  flowql topic retention {job.topic} forever --compact"
            raise CommandError(title, code=TOO_OLD, help=help_)
    new_config = FOR_EVER if timeless and known is None and not log.supports_redo else None  # brokers drop after a week
    admin.create_topic(job.topic, job.partitions, new_config)
