"""Which rows of tasks that are to be restored stay: those from whose position in the changelog a restoration can go on."""

from __future__ import annotations

from collections.abc import Mapping

from flowql.runtime.errors import LogUnavailable
from flowql.runtime.events import INFO, WARNING, say
from flowql.runtime.log.base import Admin, TopicPartition
from flowql.runtime.state.changelog import changelog_topic, metadata_topic
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.positions import ChangelogPosition, StorePartition, doubts


def kept_rows(
    admin: Admin,
    state: StateManager,
    application_id: str,
    tasks: Mapping[str, TaskRecord],
    *,
    sequences: Mapping[str, int],
    now_ms: int,
) -> set[StorePartition]:
    """Stores and partitions of these tasks for `StateManager.rebuild`. Says what is read from its beginning although it has a position, and why.

    sequences: of the last commit of each writer that is to be seen. now_ms: by the wall clock. LogUnavailable.
    """
    stores: dict[TopicPartition, StorePartition] = {}
    positions: dict[TopicPartition, ChangelogPosition] = {}
    for record in tasks.values():
        for (store, partition), position in state.positions_of(record.stores, record.partition).items():
            tp = TopicPartition(changelog_topic(application_id, store), partition)
            stores[tp], positions[tp] = (store, partition), position
    found = doubts(admin, positions, sequences=sequences, now_ms=now_ms)
    if any(doubt.ahead for doubt in found.values()):
        _check_visible(admin, application_id)
    for tp, doubt in found.items():
        say(
            WARNING if doubt.ahead else INFO,
            "state.position",
            f"{tp} is restored from its beginning: {doubt.reason}",
            partition=str(tp),
        )
    return {stores[tp] for tp in positions.keys() - found.keys()}


def _check_visible(admin: Admin, application_id: str) -> None:
    """LogUnavailable while a commit of the application is on its way: it may be the one that seems to be lost."""
    tp = TopicPartition(metadata_topic(application_id), 0)
    if admin.end_offset(tp) < admin.written_offset(tp):
        raise LogUnavailable(f"{tp}: the last commits are not to be seen yet")
