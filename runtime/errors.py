"""Errors of the engine. Their base classes say what failed: the log (`LogError`), the state (`StateError`), or one record (`BadRecord`).

Each carries a stable FQ4xxx code; `retriable` tells whether the same call may succeed later.
"""

from __future__ import annotations

from collections.abc import Sequence


class RuntimeFailure(Exception):
    """Base class of the engine's errors."""

    code = "FQ4000"
    retriable = False

    # A class names its code and whether it is retriable, or has those of its base.
    def __init_subclass__(cls, *, code: str | None = None, retriable: bool | None = None) -> None:
        cls.code = cls.code if code is None else code
        cls.retriable = cls.retriable if retriable is None else retriable


class LogError(RuntimeFailure, code="FQ4001"):
    """The log cannot do what was asked. partition: topic and number, where a consumer could not read one. is_outcome_unknown: the transaction may have
    been committed.
    """

    partition: tuple[str, int] | None = None
    is_outcome_unknown = False


class TopicMissing(LogError, code="FQ4002"):
    """A topic that a query reads does not exist."""


class LogCorrupt(LogError, code="FQ4003"):
    """Recovery found what no crash explains."""


class LogHeld(LogError, code="FQ5140", retriable=True):
    """A process holds the append lock and does not release it: it is suspended, or waits for a disk. pid: None if unknown."""

    def __init__(self, path: str, pid: int | None, within_s: float) -> None:
        self.path, self.pid = path, pid
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"{holder} holds {path} and has not released it for {within_s:.0f} s")


class BatchDamaged(LogCorrupt, code="FQ4051"):
    """Bytes of stored records are not what was written. path, start: where they lie."""

    def __init__(self, path: str, start: int, problem: str, whose: str = "") -> None:
        self.path, self.start, self.problem = path, start, problem
        self.whose = whose  # topic, partition and offsets, where they are known
        super().__init__(
            f"{path}: the batch at byte {start}{f' ({whose})' if whose else ''} is damaged: {problem}; restore a backup "
            "(flowql restore), or leave these records out:  flowql log verify --skip-damaged"
        )

    def __reduce__(self) -> tuple[type[BatchDamaged], tuple[str, int, str, str]]:
        return type(self), (self.path, self.start, self.problem, self.whose)


class GenerationDamaged(LogCorrupt, code="FQ4051"):
    """Records of a generation that is being built are left out because they were damaged, or are gone: it cannot take over."""

    def __init__(self, problem: str, queries: Sequence[str]) -> None:
        refresh = " ".join(f"--full-refresh {query}" for query in queries)
        super().__init__(
            f"{problem}, which {', '.join(queries)} computed for the generation that is being "
            f"built: it does not take over; to compute it from the beginning:  flowql deploy {refresh}"
        )


_FULL = {
    "No space left": "make room on that disk",
    "Disk quota exceeded": "make room, or have the quota of this user raised",
    "File too large": "the system limits the size of files: raise the limit (ulimit -f), and start FlowQL again",
}


def remedy_when_full(problem: str) -> str:
    """The remedy for a system error for lack of space; empty for others.

    >>> remedy_when_full("[Errno 28] No space left on device")
    'make room on that disk'
    """
    return next((remedy for said, remedy in _FULL.items() if said in problem), "")


class LogFull(LogError, code="FQ4004", retriable=True):
    """No space left; the transaction left no trace."""


class LogIOError(LogError, code="FQ4001", retriable=True):
    """A file of the log cannot be read or written just now, as the operating system says; what was written is as it was."""


class InstanceRunning(LogError, code="FQ4005"):
    """Another runtime holds the data directory."""


class Fenced(LogError, code="FQ4006"):
    """A newer producer with the same transactional id exists."""


class OffsetOutOfRange(LogError, code="FQ4007"):
    """A position below the start of the log; names the gap."""


class OffsetAboveEnd(OffsetOutOfRange):
    """A position above the end of the log, which does not get there: the topic was created again, or brokers have lost records."""


class TopicReplaced(OffsetOutOfRange):
    """The topic was deleted, and another one of the same name was made: positions in the first mean nothing in it.

    topic_id: of the one that is in the log.
    """

    def __init__(self, message: str, topic_id: str) -> None:
        super().__init__(message)
        self.topic_id = topic_id


class PartitionGone(OffsetOutOfRange, code="FQ4001"):
    """The topic has no partition of that number (any more)."""


class DeletionsMissed(LogError, code="FQ4067"):
    """A table was not read for longer than its topic keeps deletions, and compaction has removed records since."""


class LogUnavailable(LogError, code="FQ4041", retriable=True):
    """Brokers do not answer (in time)."""


class LogDenied(LogError, code="FQ4042"):
    """Brokers do not let this client in, or not do this."""


class HangingTransaction(LogError, code="FQ4090"):
    """A transaction that does not end hides the records of a partition behind its first one. offset: where it begins; end: of what is written."""

    def __init__(self, tp: tuple[str, int], offset: int, end: int) -> None:
        topic, partition = self.partition = tp
        tool = "kafka-transactions.sh --bootstrap-server BROKER"
        super().__init__(
            f"{topic}-{partition}: a transaction that has not ended hides all records from offset {offset} on (they are written up to {end}); "
            f"the id of its producer:  {tool} describe-producers --topic {topic} --partition {partition}   whether brokers have lost track of it:  "
            f"{tool} find-hanging --topic {topic} --partition {partition}   to abort it:  {tool} abort --topic {topic} --partition {partition} "
            f"--start-offset {offset}"
        )


class CommitTorn(LogError, code="FQ4086"):
    """A commit that brokers have answered is not there whole. lost: else its records are written, and hidden, and may become visible."""

    def __init__(self, tp: tuple[str, int], why: str, *, lost: bool = True) -> None:
        self.partition, self.lost = tp, lost
        super().__init__(f"{tp[0]}-{tp[1]}: {why}")

    @classmethod
    def short(cls, tp: tuple[str, int], end: int, now: int) -> CommitTorn:
        """The partition ends before the records of the commit do."""
        return cls(
            tp,
            f"the partition ends at offset {now}, and a commit has written it up to {end}: brokers have lost its last records, or the topic was deleted "
            "and created again",
        )

    @classmethod
    def aborted(cls, tp: tuple[str, int], end: int) -> CommitTorn:
        """The records are in the partition, and readers of committed records do not get them."""
        return cls(
            tp,
            f"records of a commit before offset {end} are in the partition and were aborted: brokers have lost the marker of the transaction there, as "
            "Kafka 4.3 does if a broker dies during a commit (KAFKA-20734)",
        )

    @classmethod
    def hidden(cls, tp: tuple[str, int], end: int) -> CommitTorn:
        """Not visible for a minute."""
        return cls(
            tp,
            f"records of a commit before offset {end} have not been visible for a minute: another producer's transaction is open, or brokers have lost "
            "the marker of the commit (KAFKA-20734). The next commit to the partition shows them, unless it is aborted",
            lost=False,
        )


class RecordRefused(LogError, code="FQ4043"):
    """A record the log will never take, such as one that is too large; its transaction left no trace.

    bytes_max: of key and value together, where it is known that it was too large; else None. time_max_ms: the last time that the topic takes just now,
    where it is known that one was later; else None.
    """

    bytes_max: int | None = None
    time_max_ms: int | None = None


class RecordAhead(RecordRefused, code="FQ4087"):
    """A record whose time is further ahead of the brokers' clock than its topic takes (KIP-937)."""


class TimesReplaced(LogError, code="FQ4088"):
    """Brokers replace the times of records in a topic of results (LogAppendTime): event times would be lost."""


class OutcomeUnknown(LogError, code="FQ4094"):
    """The log did not answer a commit of rows, and does not tell afterwards whether it was made."""

    is_outcome_unknown = True


class TransactionAborted(LogError, code="FQ4044", retriable=True):
    """The transaction was aborted, and its producer cannot be used any longer."""


class StaleMember(LogError, code="FQ4045", retriable=True):
    """The other members have given this one up, or another process has come to write; nothing was committed."""


class EndMoved(LogError, code="FQ4047"):
    """Another writer has appended to a topic while a commit was replacing its records; the transaction was aborted."""


class OutsideRecords(LogError, code="FQ4048"):
    """A result is to be rebuilt, and its topic holds records that others have written: they would be lost."""


class TableUnsupported(LogError, code="FQ4064"):
    """A local table has rows, and would be declared in a way that they do not fit; nothing was changed."""


class RebuildUnsupported(LogError, code="FQ4049"):
    """A deployment would replace records that brokers do not delete."""


class ForwardUnsupported(LogError, code="FQ4060"):
    """A query was to change without a rebuild: many instances run it, or it does not come to rest; not supported."""


class PartitionsDiffer(LogError, code="FQ4050"):
    """A project declares another number of partitions than a topic has; not supported."""


class PartitionsUneven(LogError):
    """Topics that are read by one task have different numbers of partitions."""


class PartitionsChanged(LogError, code="FQ4065"):
    """A topic has another number of partitions than when a query began: keys may be in other partitions than the state of their tasks.

    partitions: how many it has now.
    """

    def __init__(self, message: str, partitions: int = 0) -> None:
        super().__init__(message)
        self.partitions = partitions


class KeysMisplaced(RuntimeFailure, code="FQ4066"):
    """Records of one key are in different partitions of a topic, or of topics that are joined: the tasks of a query cannot bring them together."""


class CommitsBlocked(RuntimeFailure, code="FQ4061", retriable=True):
    """Commits do not get through (no space, brokers away), so nothing can be deployed now."""


class Superseded(RuntimeFailure, retriable=True):
    """A deployment was decided on a record that is not the newest any more; it is decided again."""


class OtherMode(LogError, code="FQ4046"):
    """An application that ran alone is to be shared, or the other way round."""


class NewerVersion(LogError, code="FQ4053"):
    """A newer version of FlowQL wrote a record that this one cannot read."""


class StatementFailed(RuntimeFailure, code="FQ4062"):
    """An INSERT, UPDATE or DELETE: a key that exists, NULL where it must not be, a value that fails. Nothing was changed."""


class RowFailed(StatementFailed):
    """A row among many that an INSERT was given. row: its number among them, from 0."""

    def __init__(self, title: str, *, row: int) -> None:
        super().__init__(title)
        self.row = row

    def behind(self, rows: int) -> RowFailed:
        """The same error, if `rows` more rows come before."""
        return RowFailed(str(self), row=self.row + rows)


class TableBusy(RuntimeFailure, code="FQ4063", retriable=True):
    """Another statement, or a producer, wrote to the same table while this one ran. Nothing was changed."""


class StateError(RuntimeFailure, code="FQ4010"):
    """State and log do not fit together."""


class StateFull(StateError, code="FQ4004"):
    """There is no space for the state."""


class StateLost(StateError):
    """The state lacks commits whose redo the log no longer has: it has to be made anew from inputs."""


class StateDamaged(StateError):
    """Files of the state are damaged; the next start does not use them."""

    def __init__(self, path: str, found: str) -> None:
        self.path, self.found = path, found
        super().__init__(
            f"the state in {path} is damaged; the next start (flowql stop, then flowql deploy or flowql run) sets it aside "
            f"and recomputes it from its inputs: {found}"
        )

    def __reduce__(self) -> tuple[type[StateDamaged], tuple[str, str]]:
        return type(self), (self.path, self.found)


class HandoverUnfit(RuntimeFailure, code="FQ4052"):
    """A history that another engine has computed is incomplete, or is not that of the query or the topics it was made for; nothing was changed."""


class PlanUnsupported(RuntimeFailure, code="FQ4024"):
    """The plan holds what this runtime does not make; the compiler of the same version refuses it first."""


class RegistryUnavailable(RuntimeFailure, code="FQ4028", retriable=True):
    """The schema registry does not answer, or does not take a schema."""


class BadRecord(RuntimeFailure, code="FQ4020"):
    """One record cannot be read; it goes to the dead letters."""


class FatalRecord(RuntimeFailure, code="FQ4021"):
    """One record that must stop its query."""
