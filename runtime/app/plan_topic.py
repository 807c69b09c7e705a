"""Plans are distributed by the log: a one-partition topic to which deploy appends (rule R11)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from dataclasses import replace

import pyarrow as pa

from flowql.compiler.plan import codec
from flowql.compiler.plan.deployed import Deployed, Entry
from flowql.compiler.plan.partitions import as_wanted
from flowql.compiler.plan.topology import Plan
from flowql.runtime.errors import LogDenied, NewerVersion
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Admin, Log, RawBatch, TopicPartition
from flowql.runtime.serde.registry import KNOWN

KEY = b"plan"
ENTRIES_KEPT = 50  # deployments in the history
_ENTRY = re.compile(rb"deployment-(\d+)(-done)?")


def entry_key(number: int) -> bytes:
    """Key of a deployment in the history."""
    return b"deployment-%012d" % max(0, number)


def done_key(number: int) -> bytes:
    """Key of the time at which all queries of a deployment served."""
    return entry_key(number) + b"-done"


def topic_name(application_id: str) -> str:
    return f"{application_id}-plan"


def other_applications(application_id: str, topics: Collection[str]) -> list[str]:
    """Applications that something was deployed for on a log with these topics, besides this one."""
    end = topic_name("")
    return sorted(t.removesuffix(end) for t in topics if t.endswith(end) and t != topic_name(application_id))


def read_others(log: Log, application_id: str) -> dict[str, Deployed]:
    """The deployments of the other applications on a log, by application, as far as they may be read.

    A topic whose name merely looks like theirs is left out: a topic of plans has one partition and is compacted.
    """
    found, topics = dict[str, Deployed](), log.admin().topics()
    for other in other_applications(application_id, topics):
        info = topics[topic_name(other)]
        if info.partitions != 1 or "compact" not in info.config.get("cleanup.policy", "compact"):
            continue
        with suppress(LogDenied, NewerVersion):  # or of another program
            deployed = _newest(log, other)
            if deployed is not None:
                found[other] = deployed
    return found


def write_deployed(
    deployed: Deployed, admin: Admin, application_id: str, now_ms: int, entry: Entry | None = None
) -> tuple[TopicPartition, pa.RecordBatch]:
    """The records that make `deployed` the newest version, and remember the deployment: `entry` at its begin, and when it is done."""
    admin.create_topic(topic_name(application_id), 1, {"cleanup.policy": "compact"})
    return deployed_records(deployed, application_id, now_ms, entry)


def deployed_records(
    deployed: Deployed, application_id: str, now_ms: int, entry: Entry | None = None
) -> tuple[TopicPartition, pa.RecordBatch]:
    """The records of `write_deployed`, for a topic that exists."""
    found: dict[bytes, bytes | None] = {}
    if entry is not None:
        found[entry_key(entry.id)] = codec.line(entry).encode()
        found[entry_key(entry.id - ENTRIES_KEPT)] = found[done_key(entry.id - ENTRIES_KEPT)] = None
    if deployed.wanted is None and deployed.id:
        found[done_key(deployed.id)] = str(now_ms).encode()
    found[KEY] = codec.line(deployed).encode()
    # From arrays: `from_pylist` would import pandas where it is installed, for a second under the epoch lock.
    columns = [[now_ms] * len(found), list(found.keys()), list(found.values()), [None] * len(found)]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
    return TopicPartition(topic_name(application_id), 0), pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA)


class PlanReader:
    """Records of deployments, in order (rule R11)."""

    def __init__(self, log: Log, application_id: str) -> None:
        self._tp = TopicPartition(topic_name(application_id), 0)
        log.admin().create_topic(self._tp.topic, 1, {"cleanup.policy": "compact"})
        self._reader, self._app = log.reader(self._tp, EARLIEST), application_id
        self._newest: bytes | None = None  # read, and not handed out
        self.at_start: Deployed | None = None

    @property
    def seen(self) -> int:
        """The offset up to which records were handed out; 0 while a record waits for that."""
        return self._reader.position if self._newest is None else 0

    def read_first(self) -> Deployed | None:
        """The newest record before the first call of `newer`, which hands it out all the same. It stays in `at_start`. NewerVersion."""
        self._read(self._reader.read)
        self.at_start = None if self._newest is None else _decoded(self._newest, self._app)
        if self.at_start is not None:
            KNOWN.remember(self.at_start.plan.schemas)
        return self.at_start

    def newer(self, *, arrived: bool = False) -> Deployed | None:
        """The newest record since the last call: those between are of no more interest. After a LogError nothing is lost: NewerVersion is raised again
        until another record follows.

        arrived: the log is not asked whether there are more than have arrived by themselves.
        """
        self._read(self._reader.take if arrived else self._reader.read)
        found = None if self._newest is None else _decoded(self._newest, self._app)
        self._newest = None
        return found

    def _read(self, read: Callable[[int, int], RawBatch | None]) -> None:
        while (batch := read(10_000, 1 << 26)) is not None:
            self._newest = _last_plan(batch) or self._newest


def read_plan(log: Log, application_id: str) -> Plan | None:
    """The plan that serves, or None. The schemas of its records are known from now on."""
    deployed = read_deployed(log, application_id)
    return None if deployed is None else deployed.serving


def read_deployed(log: Log, application_id: str) -> Deployed | None:
    """The newest record of a deployment, or None. The schemas that its plan's records name are known from now on."""
    deployed = _newest(log, application_id) if topic_name(application_id) in log.admin().topics() else None
    if deployed is not None:
        KNOWN.remember(deployed.plan.schemas)
    return deployed


class RecordedPlan:
    """The deployment on record in a log, which is read again when its topic has grown. One thread."""

    def __init__(self, log: Log, application_id: str) -> None:
        self._log, self._app = log, application_id
        self._tp = TopicPartition(topic_name(application_id), 0)
        self._read: tuple[int, Deployed] = -1, Deployed()  # and the end of the topic before that

    @property
    def is_newest(self) -> bool:
        """Whether nothing was recorded since `read`."""
        return self._read[0] == self._end()

    def read(self) -> Deployed:
        """The newest record; an empty one before the first deployment. Raises NewerVersion."""
        if (end := self._end()) != self._read[0]:
            self._read = end, read_deployed(self._log, self._app) or Deployed()
        return self._read[1]

    def partitions(self) -> Mapping[str, int]:
        """The partitions of topics, as the record wants them."""
        return as_wanted(self.read(), {name: info.partitions for name, info in self._log.admin().topics().items()})

    def _end(self) -> int:
        return self._log.admin().end_offsets([self._tp]).get(self._tp, 0)


def _newest(log: Log, application_id: str) -> Deployed | None:
    """The newest record of a topic of plans that exists."""
    newest: bytes | None = None
    with closing(log.reader(TopicPartition(topic_name(application_id), 0), EARLIEST)) as reader:
        while (batch := reader.read(10_000, 1 << 26)) is not None:
            newest = _last_plan(batch) or newest
    return None if newest is None else _decoded(newest, application_id)


def _decoded(record: bytes, application_id: str) -> Deployed:
    """Raises NewerVersion."""
    try:
        return codec.loads_deployed(record.decode())
    except (ValueError, LookupError, TypeError) as error:
        raise NewerVersion(
            f"the plan of {application_id} cannot be read: {error}; run the version of FlowQL that deployed it, or a later one"
        ) from error


def read_entries(log: Log, application_id: str) -> list[Entry]:
    """The last deployments, the newest last."""
    if topic_name(application_id) not in log.admin().topics():
        return []
    entries, done = dict[int, bytes | None](), dict[int, bytes | None]()
    with closing(log.reader(TopicPartition(topic_name(application_id), 0), EARLIEST)) as reader:
        while (batch := reader.read(10_000, 1 << 26)) is not None:
            keys, values = batch.records.column("key"), batch.records.column("value")
            for key, value in zip(keys, values, strict=True):
                if match := _ENTRY.fullmatch(key.as_py() or b""):
                    (done if match[2] else entries)[int(match[1])] = value.as_py()
    found = [codec.loads_entry(line.decode()) for _, line in sorted(entries.items()) if line is not None]
    return [replace(e, done_ms=int(ms) if (ms := done.get(e.id)) is not None else None) for e in found]


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
