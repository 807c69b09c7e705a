"""Errors of the engine. Their base classes say what failed: the log (`LogError`), the state (`StateError`), or one record (`BadRecord`).

Each carries a stable FQ4xxx code; `retriable` tells whether the same call may succeed later.
"""

from __future__ import annotations

from collections.abc import Sequence


class RuntimeFailure(Exception):
    """Base class of the engine's errors."""

    code = "FQ4000"
    retriable = False


class LogError(RuntimeFailure):
    """The log cannot do what was asked. partition: topic and number, where a consumer could not read one."""

    code = "FQ4001"
    partition: tuple[str, int] | None = None


class TopicMissing(LogError):
    """A topic that a query reads does not exist."""

    code = "FQ4002"


class LogCorrupt(LogError):
    """Recovery found what no crash explains."""

    code = "FQ4003"


class LogHeld(LogError):
    """A process holds the append lock and does not release it: it is suspended, or waits for a disk. pid: None if unknown."""

    code = "FQ5140"
    retriable = True

    def __init__(self, path: str, pid: int | None, within_s: float) -> None:
        self.path, self.pid = path, pid
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"{holder} holds {path} and has not released it for {within_s:.0f} s")


class BatchDamaged(LogCorrupt):
    """Bytes of stored records are not what was written. path, start: where they lie."""

    code = "FQ4051"

    def __init__(self, path: str, start: int, problem: str, whose: str = "") -> None:
        self.path, self.start, self.problem = path, start, problem
        self.whose = whose  # topic, partition and offsets, where they are known
        super().__init__(
            f"{path}: the batch at byte {start}{f' ({whose})' if whose else ''} is damaged: {problem}; restore a backup "
            "(flowql restore), or leave these records out:  flowql log verify --skip-damaged"
        )

    def __reduce__(self) -> tuple[type[BatchDamaged], tuple[str, int, str, str]]:
        return type(self), (self.path, self.start, self.problem, self.whose)


class GenerationDamaged(LogCorrupt):
    """Records of a generation that is being built are left out because they were damaged, or are gone: it cannot take over."""

    code = "FQ4051"

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
    """What to do about an error of the system for lack of space; empty for others.

    >>> remedy_when_full("[Errno 28] No space left on device")
    'make room on that disk'
    """
    return next((remedy for said, remedy in _FULL.items() if said in problem), "")


class LogFull(LogError):
    """No space left; the transaction left no trace."""

    code = "FQ4004"
    retriable = True


class LogIOError(LogError):
    """A file of the log cannot be read or written just now, as the operating system says; what was written is as it was."""

    code = "FQ4001"
    retriable = True


class InstanceRunning(LogError):
    """Another runtime holds the data directory."""

    code = "FQ4005"


class Fenced(LogError):
    """A newer producer with the same transactional id exists."""

    code = "FQ4006"


class OffsetOutOfRange(LogError):
    """A position below the start of the log; names the gap."""

    code = "FQ4007"


class OffsetAboveEnd(OffsetOutOfRange):
    """A position above the end of the log, which does not get there: the topic was created again, or brokers have lost records."""


class TopicReplaced(OffsetOutOfRange):
    """The topic was deleted, and another one of the same name was made: positions in the first mean nothing in it.

    topic_id: of the one that is in the log.
    """

    def __init__(self, message: str, topic_id: str) -> None:
        super().__init__(message)
        self.topic_id = topic_id


class PartitionGone(OffsetOutOfRange):
    """The topic has no partition of that number (any more)."""

    code = "FQ4001"


class DeletionsMissed(LogError):
    """A table was not read for longer than its topic keeps deletions, and compaction has removed records since."""

    code = "FQ4067"


class LogUnavailable(LogError):
    """Brokers do not answer (in time)."""

    code = "FQ4041"
    retriable = True


class LogDenied(LogError):
    """Brokers do not let this client in, or not do this."""

    code = "FQ4042"


class HangingTransaction(LogError):
    """A transaction that does not end hides the records of a partition behind its first one. offset: where it begins; end: of what is written."""

    code = "FQ4090"

    def __init__(self, tp: tuple[str, int], offset: int, end: int) -> None:
        topic, partition = self.partition = tp
        tool = "kafka-transactions.sh --bootstrap-server BROKER"
        super().__init__(
            f"{topic}-{partition}: a transaction that has not ended hides all records from offset {offset} on (they are written up to {end}); "
            f"the id of its producer:  {tool} describe-producers --topic {topic} --partition {partition}   whether brokers have lost track of it:  "
            f"{tool} find-hanging --topic {topic} --partition {partition}   to abort it:  {tool} abort --topic {topic} --partition {partition} "
            f"--start-offset {offset}"
        )


class CommitTorn(LogError):
    """A commit that brokers have answered is not there whole. lost: else its records are written, and hidden, and may become visible."""

    code = "FQ4086"

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


class RecordRefused(LogError):
    """A record the log will never take, such as one that is too large; its transaction left no trace.

    bytes_max: of key and value together, where it is known that it was too large; else None. time_max_ms: the last time that the topic takes just now,
    where it is known that one was later; else None.
    """

    code = "FQ4043"
    bytes_max: int | None = None
    time_max_ms: int | None = None


class RecordAhead(RecordRefused):
    """A record whose time is further ahead of the brokers' clock than its topic takes (KIP-937)."""

    code = "FQ4087"


class TimesReplaced(LogError):
    """Brokers replace the times of records in a topic of results (LogAppendTime): event times would be lost."""

    code = "FQ4088"


class TransactionAborted(LogError):
    """The transaction was aborted, and its producer cannot be used any longer."""

    code = "FQ4044"
    retriable = True


class StaleMember(LogError):
    """The other members have given this one up, or another process has come to write; nothing was committed."""

    code = "FQ4045"
    retriable = True


class EndMoved(LogError):
    """Another writer has appended to a topic while a commit was replacing its records; the transaction was aborted."""

    code = "FQ4047"


class OutsideRecords(LogError):
    """A result is to be rebuilt, and its topic holds records that others have written: they would be lost."""

    code = "FQ4048"


class TableUnsupported(LogError):
    """A table of one's own has rows, and would be declared in a way that they do not fit; nothing was changed."""

    code = "FQ4064"


class RebuildUnsupported(LogError):
    """A deployment would replace records that brokers do not delete."""

    code = "FQ4049"


class ForwardUnsupported(LogError):
    """A query was to change without a rebuild: many instances run it, or it does not come to rest; not supported."""

    code = "FQ4060"


class PartitionsDiffer(LogError):
    """A project declares another number of partitions than a topic has; not supported."""

    code = "FQ4050"


class PartitionsUneven(LogError):
    """Topics that are read by one task have different numbers of partitions."""


class PartitionsChanged(LogError):
    """A topic has another number of partitions than when a query began: keys may be in other partitions than the state of their tasks.

    partitions: how many it has now.
    """

    code = "FQ4065"

    def __init__(self, message: str, partitions: int = 0) -> None:
        super().__init__(message)
        self.partitions = partitions


class KeysMisplaced(RuntimeFailure):
    """Records of one key are in different partitions of a topic, or of topics that are joined: the tasks of a query cannot bring them together."""

    code = "FQ4066"


class CommitsBlocked(RuntimeFailure):
    """Commits do not get through (no space, brokers away), so nothing can be deployed now."""

    code = "FQ4061"
    retriable = True


class Superseded(RuntimeFailure):
    """A deployment was decided on a record that is not the newest any more; it is decided again."""

    retriable = True


class OtherMode(LogError):
    """An application that ran alone is to be shared, or the other way round."""

    code = "FQ4046"


class NewerVersion(LogError):
    """A newer version of FlowQL wrote a record that this one cannot read."""

    code = "FQ4053"


class StatementFailed(RuntimeFailure):
    """An INSERT, UPDATE or DELETE: a key that exists, NULL where it must not be, a value that fails. Nothing was changed."""

    code = "FQ4062"


class RowFailed(StatementFailed):
    """A row among many that an INSERT was given. row: its number among them, from 0."""

    def __init__(self, title: str, *, row: int) -> None:
        super().__init__(title)
        self.row = row

    def behind(self, rows: int) -> RowFailed:
        """The same error, if `rows` more rows come before."""
        return RowFailed(str(self), row=self.row + rows)


class TableBusy(RuntimeFailure):
    """Another statement, or a producer, wrote to the same table while this one ran. Nothing was changed."""

    code = "FQ4063"
    retriable = True


class StateError(RuntimeFailure):
    """State and log do not fit together."""

    code = "FQ4010"


class StateFull(StateError):
    """There is no space for the state."""

    code = "FQ4004"


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


class HandoverUnfit(RuntimeFailure):
    """A history that another engine has computed is incomplete, or is not that of the query or the topics it was made for; nothing was changed."""

    code = "FQ4052"


class PlanUnsupported(RuntimeFailure):
    """The plan holds what this runtime does not make; the compiler of the same version refuses it first."""

    code = "FQ4024"


class RegistryUnavailable(RuntimeFailure):
    """The schema registry does not answer, or does not take a schema."""

    code = "FQ4028"
    retriable = True


class BadRecord(RuntimeFailure):
    """One record cannot be read; it goes to the dead letters."""

    code = "FQ4020"


class FatalRecord(RuntimeFailure):
    """One record that must stop its query."""

    code = "FQ4021"
