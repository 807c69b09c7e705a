"""Plans are distributed by the log: a one-partition topic to which deploy appends (rule R11)."""

from __future__ import annotations

import pyarrow as pa

from compiler.plan import codec
from compiler.plan.deployed import Deployed
from compiler.plan.topology import Plan
from runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Admin, Log, RawBatch, TopicPartition
from runtime.serde.registry import KNOWN

KEY = b"plan"


def topic_name(application_id: str) -> str:
    return f"{application_id}-plan"


def write_deployed(
    deployed: Deployed, admin: Admin, application_id: str, now_ms: int
) -> tuple[TopicPartition, pa.RecordBatch]:
    """The record that makes `deployed` the newest version."""
    admin.create_topic(topic_name(application_id), 1, {"cleanup.policy": "compact"})
    # From arrays: `from_pylist` would import pandas where it is installed, for a second under the epoch lock.
    columns = [[now_ms], [KEY], [codec.deployed_line(deployed).encode()], [None]]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
    return TopicPartition(topic_name(application_id), 0), pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA)


class PlanReader:
    """Records of deployments, in order (rule R11)."""

    def __init__(self, log: Log, application_id: str) -> None:
        self._tp = TopicPartition(topic_name(application_id), 0)
        log.admin().create_topic(self._tp.topic, 1, {"cleanup.policy": "compact"})
        self._reader = log.reader(self._tp, EARLIEST)
        self._newest: bytes | None = None  # read, and not handed out

    @property
    def seen(self) -> int:
        """The offset up to which records were handed out."""
        return self._reader.position

    def newer(self) -> Deployed | None:
        """The newest record since the last call: those between are of no more interest. After a LogError nothing is lost."""
        while (batch := self._reader.read(10_000, 1 << 26)) is not None:
            self._newest = _last_plan(batch) or self._newest
        newest, self._newest = self._newest, None
        return None if newest is None else codec.loads_deployed(newest.decode())


def read_plan(log: Log, application_id: str) -> Plan | None:
    """The plan that serves, or None. The schemas of its records are known from now on."""
    deployed = read_deployed(log, application_id)
    return None if deployed is None else deployed.serving


def read_deployed(log: Log, application_id: str) -> Deployed | None:
    """The newest record of a deployment, or None. The schemas that its plan's records name are known from now on."""
    if topic_name(application_id) not in log.admin().topics():
        return None
    reader = log.reader(TopicPartition(topic_name(application_id), 0), EARLIEST)
    newest: bytes | None = None
    while (batch := reader.read(10_000, 1 << 26)) is not None:
        newest = _last_plan(batch) or newest
    if newest is None:
        return None
    deployed = codec.loads_deployed(newest.decode())
    KNOWN.remember(deployed.plan.schemas)
    return deployed


def _last_plan(batch: RawBatch) -> bytes | None:
    """The last value under the plan's key; a topic may hold other keys."""
    keys, values = batch.records.column("key").to_pylist(), batch.records.column("value").to_pylist()
    return next((v for k, v in zip(reversed(keys), reversed(values), strict=True) if k == KEY), None)


def deployed_ms(log: Log, application_id: str) -> int | None:
    """When the newest plan was deployed (ms since the epoch), or None."""
    tp = TopicPartition(topic_name(application_id), 0)
    if tp.topic not in log.admin().topics() or not (end := log.admin().end_offset(tp)):
        return None
    batch = log.reader(tp, end - 1).read(1, 1 << 26)
    return None if batch is None else int(batch.records.column("timestamp")[batch.records.num_rows - 1].as_py())
