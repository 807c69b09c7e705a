"""Publishing: what a completed micro-batch of a task adds to the epoch (rule R1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowql.compiler.plan.generations import user_id
from flowql.runtime.app.hosts import DeploymentHost
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.events import WARNING, is_a_step, say
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.task_state import ManagedTask
from flowql.runtime.task import dead_letters
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.program import ExchangeRows
from flowql.runtime.task.publisher import MicroBatchResult
from flowql.runtime.task.task import Task


class EpochPublisher:
    """The publisher of all tasks of an instance. staged: names of queries that are being built."""

    def __init__(self, host: DeploymentHost) -> None:
        self._host = host
        self._broken: dict[str, RuntimeFailure] = {}  # queries whose runs are published in part; under the epoch lock
        self.staged: frozenset[str] = frozenset()

    # -- called by tasks

    def lock(self) -> NamedLock:
        return self._host.state.epoch_lock

    def wake(self) -> None:
        """Any thread."""
        self._host.manager.signal()

    def has_room(self, task: Task) -> bool:
        """Whether its partitions take more output before the next cut. Any thread."""
        return not self._host.collector.holds_up(task.id)

    def publish(self, task: Task, result: MicroBatchResult) -> None:
        """Moves a completed run into the epoch. The epoch lock is held."""
        host, m = self._host, self._host.metrics.query(task.id.query)
        m.records_in += result.source_rows
        known = task.take_latency_samples()
        oldest = min((ms for ms, _ in known), default=None)
        if not task.downstream.channels:
            host.commit.latency_samples += [(task.id.query, ms, records) for ms, records in known]
        for output in result.outputs:
            if isinstance(output, ExchangeRows):
                for p, batch in output.parts:
                    host.exchanges.get(output.topic, p, task.id.partition).push(batch, oldest)
            else:
                for p, records in output.parts:
                    m.records_out += 0 if output.internal else records.num_rows
                    host.collector.add(TopicPartition(output.topic, p), records, task.id.query, task.id)
        if result.dead_letters:
            before, m.dead_letters = m.dead_letters, m.dead_letters + dead_letters.records_of(result.dead_letters)
            if is_a_step(before, m.dead_letters):
                first = result.dead_letters[0].letter
                said = {"code": first.code, "total": m.dead_letters}
                say(WARNING, "dead_letters", first.message, query=task.id.query, task=task.id, **said)
            self._add_dead_letters(task.id, result.dead_letters)
        m.late_records += sum(result.late.values())
        for operator, rows in result.by_row.items():
            m.rows_by_row[operator] = m.rows_by_row.get(operator, 0) + rows
        host.commit.dirty = True
        if result.wants_commit or self.awaits_cut:
            host.commit.hurry()

    def broke(self, task: Task, error: BaseException) -> None:
        """A run could be published in part only: its query goes on from the last commit, alone. The epoch lock is held.

        A BaseException that is no Exception ends the thread and the instance. A restart continues from the last commit.
        """
        host = self._host
        said = RuntimeFailure(f"a run of {task.id} could not be published: {type(error).__name__}: {error}")
        if not isinstance(error, Exception):
            host.fatal = host.fatal or said
            host.commit.broken = said
            return
        self._broken.setdefault(task.id.query, said)
        for other in host.queries[task.id.query].built.tasks:
            if isinstance(other.state, ManagedTask):
                other.state.revoke()
        host.commit.dirty = True

    def _add_dead_letters(self, writer: TaskId, letters: Sequence[dead_letters.LocatedDeadLetter]) -> None:
        """Those of a generation that is being built show with its results."""
        host, query = self._host, writer.query
        generation = 1 if (running := host.queries.get(query)) is None else running.plan.generation
        app = host.config.application_id
        topic = dead_letters.staging_topic(app, query) if query in self.staged else dead_letters.topic_name(app)
        bytes_max = host.careful.bytes_max(query, topic)
        encoded = dead_letters.encode(user_id(query, generation), letters, host.clock.wall_ms(), generation, bytes_max)
        host.collector.add(TopicPartition(topic, 0), encoded, query, writer)

    # -- called by the scheduler and the commit step

    def may_run(self) -> bool:
        host = self._host
        return host.fatal is None and not (host.collector.full or host.state.uncommitted.full)

    @property
    def awaits_cut(self) -> bool:
        """Whether a task waits for the room that a commit makes."""
        return self._host.collector.crowded or not self.may_run()

    def has_reserve(self) -> bool:
        """At least half of the room for what is not committed is free."""
        return self._host.collector.has_reserve and self._host.state.uncommitted.has_reserve

    def before_cut(self) -> Mapping[str, Exception]:
        """Adds the rows that wait in repartitions to the epoch. By query, why something could not be added, or must not be committed."""
        failed = self._save_exchanges()  # first: should it raise, the next cut still learns which queries are broken
        broken, self._broken = self._broken, {}
        return {**failed, **broken}

    def _save_exchanges(self) -> dict[str, Exception]:
        failed = self._host.exchanges.save()
        if not failed:
            return {}
        tasks = [(name, task) for name, running in self._host.queries.items() for task in running.built.tasks]
        owners = {x.topic: name for name, task in tasks for x in task.exchanges.values()}
        return {owners[topic]: error for topic, error in failed.items() if topic in owners}
