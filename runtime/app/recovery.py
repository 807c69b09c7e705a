"""Start-up: the physical state is brought to the last commit of the log, by redo or by changelogs (rules R3 and R10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from flowql.runtime.app import exchanges
from flowql.runtime.app.kept_rows import kept_rows
from flowql.runtime.app.plan_topic import PlanReader, read_deployed, topic_name
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogCorrupt, OtherMode, StateError, StateLost
from flowql.runtime.events import WARNING, say
from flowql.runtime.log.base import EARLIEST, Log, TopicPartition
from flowql.runtime.state.changelog import (
    RecordUnreadable,
    WrittenTasks,
    changelog_topic,
    changelogs_of,
    is_complete,
    last_written,
    lost_records,
    metadata_topic,
    read_tasks,
)
from flowql.runtime.state.frozen import RedoUnreadable
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.positions import StorePartition

READ_ROWS, READ_BYTES = 20_000, 16 << 20
UNCOUNTED_MAX = 1  # at least once, a crash in the first commit leaves some of its records without the others


def check_mode(log: Log, config: InstanceConfig) -> None:
    """OtherMode if the application has run with `shared` the other way: what waits in repartitions would be lost."""
    app = config.application_id
    alone = log.last_sequence(app) > 0
    if config.shared and alone:
        raise OtherMode(f"{app} is run by one instance: take another app_id to have many share the work")
    topics = log.admin().topics() if config.changelogs and not config.shared and not alone else {}
    if metadata_topic(app) in topics:
        written = WrittenTasks(log, app)
        written.read_on()
        if written.sequences.keys() - {app}:
            raise OtherMode(f"{app} is shared by many instances: take another app_id to have one do all of it")


def check_records(log: Log, application_id: str, plans: PlanReader) -> None:
    """Reads the plan for the first time. StateLost where the log does not know any more what the members of an application have done, or of which texts."""
    metadata, admin = TopicPartition(metadata_topic(application_id), 0), log.admin()
    deployed = plans.read_first()
    if metadata.topic not in admin.topics():
        return
    for why in lost_records(admin, [metadata]).values():
        way = "give the application another app_id, and it recomputes everything"
        raise StateLost(f"what the members of {application_id} have done is unknown, because {why}; {way}")
    if deployed is None:
        check_deployment_lost(log, application_id)


def check_deployment_lost(log: Log, application_id: str) -> None:
    """StateLost if an application without a deployment on record has tasks: their state may be of other texts than those that are deployed next."""
    if metadata_topic(application_id) not in log.admin().topics():
        return
    if any(task.sequence > UNCOUNTED_MAX for task in read_tasks(log, application_id).values()):
        raise StateLost(
            f"what was deployed as {application_id} is unknown, because its record in the topic {topic_name(application_id)} is gone; "
            "give the application another app_id, and it recomputes everything"
        )


def recover(log: Log, state: StateManager, config: InstanceConfig, now_ms: int) -> str:
    """Brings `state` to the last commit, but for the tasks that `state.restoring` names. No task is open.

    Returns why neither redo nor changelogs bring it there; the state is empty then. now_ms: by the wall clock.
    """
    try:
        _recover(log, state, config, now_ms)
    except StateLost as error:
        state.reset(log.last_sequence(config.application_id))
        return str(error)
    return ""


def _recover(log: Log, state: StateManager, config: InstanceConfig, now_ms: int) -> None:
    app = config.application_id
    last, applied = log.last_sequence(app), state.applied_sequence
    if config.changelogs and not last:
        _check_positions(log, app)
        _check_reset(log, app)
    if applied > last:
        msg = (
            f"the state is at commit {applied}, the log only at {last}: they do not belong together; "
            "put back the log that the state was made from, or move the state away, to recompute it from the inputs"
        )
        raise StateError(msg)
    _redo(log, state, config, last)
    if state.applied_sequence < last:
        _begin_restoration(log, state, config, last, now_ms)
    elif begun := {t: r for t, r in state.restoring().items() if t != exchanges.TASK}:  # by an instance that has ended
        state.rebuild(begun, _kept(log, state, app, begun, last, now_ms))
    if config.changelogs and (restoring := state.restoring()):
        held = (tp for record in restoring.values() for tp in changelogs_of(app, record))
        _check(log, held, f"rows of {min(restoring)} are missing here")
    if exchanges.TASK in state.restoring():
        _restore_exchanges(log, state, app)


def _check_positions(log: Log, application_id: str) -> None:
    """Raises StateError if commits are on record that the log does not count: all input would be processed a second time."""
    with suppress(RecordUnreadable):
        written, _complete = last_written(log, application_id)
        if written > UNCOUNTED_MAX:
            raise StateError(
                f"the committed positions of {application_id} are gone, after commit {written}: Kafka deletes those of a group that was inactive for "
                "offsets.retention.minutes (7 days); give the application another app_id, and it recomputes everything that its topics still have"
            )


def _check_reset(log: Log, application_id: str) -> None:
    """Raises StateLost where a deployment is on record and nothing of what its tasks did: `flowql app reset` leaves it so.

    Before the first commit both are missing, or at least once the topic of the tasks' records exists.
    """
    if metadata_topic(application_id) not in log.admin().topics() and read_deployed(log, application_id) is not None:
        raise StateLost(f"state and positions of {application_id} were removed")


def _redo(log: Log, state: StateManager, config: InstanceConfig, last: int) -> None:
    if not log.supports_redo or state.applied_sequence == last:
        return
    try:
        state.replay_all(log.redo_after(config.application_id, state.applied_sequence))
    except (LogCorrupt, RedoUnreadable) as error:
        problem = str(error) if isinstance(error, LogCorrupt) else _foreign(log, config.application_id, error)
        if not config.changelogs:
            raise StateLost(f"{_missing(state, last)} ({problem})") from error
        say(WARNING, "state.redo", f"{problem}; tasks are restored from changelogs")


def _foreign(log: Log, application_id: str, error: RedoUnreadable) -> str:
    place = "" if error.sequence is None else f"{log.redo_place(application_id, error.sequence)}: "
    return f"{place}{error}; to keep the state, let the version that wrote it run once more and stop: its redo is on disk then"


def _begin_restoration(log: Log, state: StateManager, config: InstanceConfig, last: int, now_ms: int) -> None:
    missing = _missing(state, last)
    if not config.changelogs:
        raise StateLost(missing)
    _check(log, [TopicPartition(metadata_topic(config.application_id), 0)], missing)
    try:
        complete, written = is_complete(log, config.application_id), read_tasks(log, config.application_id)
    except RecordUnreadable as error:
        raise StateLost(f"{missing}, and changelogs cannot be used: {error}") from error
    if not complete:
        raise StateLost(f"{missing}, and changelogs were not written by all commits since the first")
    stale = [task for task, w in written.items() if w.sequence > state.applied_sequence]
    whole = {task: w.record for task, w in written.items()}
    restored = {t: r for t, r in whole.items() if t in stale or state.local_record(t) is None}
    state.begin_restore(whole, stale, last, _kept(log, state, config.application_id, restored, last, now_ms))


def _kept(
    log: Log, state: StateManager, application_id: str, tasks: Mapping[str, TaskRecord], last: int, now_ms: int
) -> set[StorePartition]:
    """Rows that are restored from their position on. Those of exchanges are read at once, from the beginning."""
    tasks = {t: r for t, r in tasks.items() if t != exchanges.TASK}
    sequences = {application_id: last}
    return kept_rows(log.admin(), state, application_id, tasks, sequences=sequences, now_ms=now_ms)


def _check(log: Log, partitions: Iterable[TopicPartition], missing: str) -> None:
    """Raises StateLost where the log does not hold what is missing here."""
    for why in lost_records(log.admin(), partitions).values():
        raise StateLost(f"{missing}, and {why}")


def _missing(state: StateManager, last: int) -> str:
    return f"state commits {state.applied_sequence + 1} to {last} are missing from the log"


def _restore_exchanges(log: Log, state: StateManager, application_id: str) -> None:
    """At once: what waits in repartitions is needed to build any task that reads one, and it is little."""
    topic = changelog_topic(application_id, exchanges.STORE.name)
    reader = log.key_values(TopicPartition(topic, 0), EARLIEST)
    while (batch := reader.read(READ_ROWS, READ_BYTES)) is not None:
        if not exchanges.are_keys(batch.keys):
            raise StateError(
                f"{topic} has rows in the format of an earlier version of FlowQL: take another app_id, or delete the topics of this one"
            )
        state.restored.take(exchanges.STORE, 0, batch.keys, batch.values)
    ended = state.end_restore(exchanges.TASK)
    assert ended, "exchanges have a commit under way, although tasks are opened after the recovery"
