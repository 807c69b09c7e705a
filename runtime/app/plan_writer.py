"""The exclusive right to write the plan topic, where several processes may want to: the owner of the producer with this transactional id.

A new producer fences the previous owner and aborts its open transaction. Only then is the newest record read, so each record follows
from the one before it and the topic is one history, although any member of a group may write the next record. A single instance uses the
producer for the transactions of a swap; it records deployments in commits of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pyarrow as pa

from flowql.compiler.plan.deployed import Deployed, Entry
from flowql.compiler.plan.topology import Plan
from flowql.runtime import formats
from flowql.runtime.app.hosts import PlanHost
from flowql.runtime.app.plan_topic import read_deployed, write_deployed
from flowql.runtime.errors import Fenced, StaleMember
from flowql.runtime.log.base import Log, TopicPartition

Records = Iterable[tuple[TopicPartition, pa.RecordBatch]]


def writer_id(application_id: str) -> str:
    """The transactional id."""
    return f"{application_id}-plan"


class PlanWriter:
    """Owned by one thread. After an error of any call it is of no more use, and what was written last is to be found out.

    written: the format in which records of a kind are written.
    """

    def __init__(self, log: Log, application_id: str, written: Callable[[str], int] = formats.newest) -> None:
        self._log, self._id, self._written = log, application_id, written
        with _another_writes():
            self._producer = log.producer(writer_id(application_id))
        self.deployed = read_deployed(log, application_id) or Deployed()

    def write(self, deployed: Deployed, now_ms: int, entry: Entry | None = None, records: Records = ()) -> None:
        """The next record, in one transaction with other records."""
        number = self._written("plan")
        wanted = None if deployed.wanted is None else _in_format(deployed.wanted, number)
        deployed = replace(deployed, serving=_in_format(deployed.serving, number), wanted=wanted)
        entry = None if entry is None else replace(entry, plan=_in_format(entry.plan, number))
        plan = write_deployed(deployed, self._log.admin(), self._id, now_ms, entry)
        self.transact([*records, plan])
        self.deployed = deployed

    def transact(self, records: Records) -> None:
        """Records that are only right as long as no other member has become the writer."""
        with _another_writes():
            self._producer.begin()
            for tp, batch in records:
                self._producer.send(tp, batch)
            self._producer.commit()

    def close(self) -> None:
        self._producer.close()


def writer_of(host: PlanHost) -> PlanWriter:
    """Makes an instance the writer of its plan topic."""
    return PlanWriter(host.log, host.config.application_id, host.placement.written)


def write_after(
    host: PlanHost,
    before: Deployed,
    after: Deployed,
    entry: Entry | None = None,
    records: Records = (),
    prepare: Callable[[], None] = lambda: None,
) -> bool:
    """Writes a record that was decided on `before`; False if that is no longer the newest one. prepare: called just before the record is written."""
    with closing(writer_of(host)) as writer:
        if writer.deployed != before:
            return False
        prepare()
        writer.write(after, host.clock.wall_ms(), entry, records)
        return True


def _in_format(plan: Plan, number: int) -> Plan:
    return plan if plan.format == number else replace(plan, format=number)


@contextmanager
def _another_writes() -> Iterator[None]:
    """Fenced leaves this block as StaleMember: to be tried again, from the newest record."""
    try:
        yield
    except Fenced as error:
        raise StaleMember("another member has come to write the plan") from error
