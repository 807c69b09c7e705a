"""The runtime as an engine behind a target."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flowql.compiler.plan.deployed import AS_BEFORE, DEPLOY, About, Deployed, Entry, Hold
from flowql.compiler.plan.diff import QueryChange
from flowql.compiler.plan.partitions import as_wanted
from flowql.compiler.plan.topology import Plan
from flowql.config.load import shown_path
from flowql.config.storage import check_engine, log_at
from flowql.deploy.engine import config_of, open_on
from flowql.deploy.extents import Extent, extents_of, free_bytes
from flowql.deploy.functions import functions_of
from flowql.deploy.pins import pin_for_backup, unpin_left
from flowql.deploy.settings import UNSUPPORTED_TARGET, Settings
from flowql.deploy.shadow import NOT_YET, NOTHING_BUILT, group_of
from flowql.errors import CommandError
from flowql.query.committed import Commit, queries_behind
from flowql.query.database import QueryDatabase
from flowql.query.difference import Spans, Version, difference
from flowql.query.relations import spans_of
from flowql.runtime.app.beat_file import BeatFile
from flowql.runtime.app.comparing import ComparisonUnavailable
from flowql.runtime.app.delivering import deliver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.member_topic import MemberAddress
from flowql.runtime.app.plan_topic import read_entries
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.app.status import blocked, instance_metrics, statuses
from flowql.runtime.app.uploads import OTHER_HISTORY
from flowql.runtime.backup.place import Place
from flowql.runtime.errors import StateError
from flowql.runtime.functions.metrics import function_metrics
from flowql.runtime.log.appending import Redelivery
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.remote.objects import RemoteError, objects_at
from flowql.runtime.spark.log_append import epochs_topic
from flowql.runtime.state.changelog import metadata_topic
from flowql.runtime.state.computed_history import ComputedHistory
from flowql.runtime.state.copy import copied, copy_of
from flowql.runtime.state.store import Snapshot
from flowql.runtime.ticks.member import MemberTicks
from flowql.runtime.ticks.whole_states import TakenSnapshot
from flowql.runtime.topology.table_statements import carry_out
from flowql.server.at_rest import instance_entry
from flowql.server.engine import Mode
from flowql.server.members import Members
from flowql.server.process import process_metrics

FOLLOWED = "followed"  # among copies: that of the gateway


def copies_in(data_dir: Path) -> Path:
    """Where copies of the state are while interactive queries read them: beside its files, as links need the same file system."""
    return data_dir / "state" / "copies"


def open_runtime(settings: Settings, mode: Mode) -> RuntimeEngine:
    """See `flowql.server.engine.open_engine`."""
    if mode == "bounded":
        title = "this target runs on the runtime, which has no batch mode"
        raise CommandError(title, code=UNSUPPORTED_TARGET, help="--until-caught-up gives the same results")
    app = settings.application_id
    _check_not_lost(settings)
    last = metadata_topic(app) if settings.guarantee == "at_least_once" else None
    log = log_at(settings.log_dir, settings.kafka, app, at_least_once=last)
    if settings.kafka is not None:
        check_engine(log, app, epochs_topic(app), "a target with `engine: spark`")
    engine = RuntimeEngine(open_on(log, settings.state_dir, config_of(settings)))
    unpin_left(settings.data_dir)
    shutil.rmtree(copies_in(settings.data_dir), ignore_errors=True)
    return engine


def _check_not_lost(settings: Settings) -> None:
    """CommandError for an empty directory of an application that has backups in the remote store: it was lost, and would begin from nothing."""
    if not settings.state.remote or settings.kafka is not None or settings.log_dir.exists():
        return
    try:
        lost = Place(objects_at(settings.state.remote), settings.application_id).manifests()
    except (
        RemoteError
    ):  # whoever is here may go on; nothing that the store has will be hidden (`flowql.runtime.app.uploads`)
        return
    if lost:
        title = f"{shown_path(settings.data_dir)} is empty, and {settings.state.remote} has backups of {settings.application_id}"
        help_ = "flowql restore   # or name another place in `state: {remote: ...}`"
        raise CommandError(title, code=OTHER_HISTORY, help=help_)


class RuntimeEngine:
    """Implements `flowql.server.engine.Engine`."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        config = instance.config
        self._members = None
        if config.shared:
            self._members = Members(instance.log, config.application_id, config.process_id, instance.clock)
        self._joined = False

    @property
    def shared(self) -> bool:
        return self._members is not None

    def join(self, member: MemberAddress) -> None:
        assert self._members is not None, "a single instance joins no group"
        self._members.join(member)
        self._joined = True

    @property
    def plan(self) -> Plan:
        return self.instance.plan

    @property
    def deployed(self) -> Deployed:
        return self.instance.deployed

    @property
    def fatal(self) -> BaseException | None:
        return self.instance.fatal

    @property
    def commits(self) -> int:
        return self.instance.metrics.commits

    @property
    def blocked(self) -> str | None:
        return blocked(self.instance)

    def start(self, beats: BeatFile | None = None) -> None:
        self.instance.start(beats)
        self.instance.resume()

    def deploy(
        self,
        plan: Plan,
        *,
        rebuild: bool = False,
        refresh: Collection[str] = (),
        forward: Collection[str] = (),
        seen: Deployed | None = None,
        about: About = DEPLOY,
        swap: Hold = AS_BEFORE,
        backfills: Collection[str] = (),
        dry_run: bool = False,
    ) -> Sequence[QueryChange]:
        """Changed queries are always built anew."""
        del rebuild
        computed = [ComputedHistory(Path(folder)) for folder in backfills]
        histories = {h.manifest.query: h for h in computed}
        return self.instance.deploy(
            plan,
            refresh=refresh,
            forward=forward,
            seen=seen,
            about=about,
            swap=swap,
            histories=histories,
            dry_run=dry_run,
        )

    def carry_out(self, plan: Plan) -> Mapping[str, int]:
        instance = self.instance
        return carry_out(instance.log, plan, instance.config.application_id, instance.clock.wall_ms())

    def catch_up(self) -> Callable[[], bool]:
        ends = source_ends(self.instance)
        return lambda: caught_up(self.instance, ends)

    def topics(self) -> Mapping[str, int]:
        known = {name: info.partitions for name, info in self.instance.admin.topics().items()}
        return as_wanted(self.instance.deployed, known)

    def deployments(self) -> list[Entry]:
        return read_entries(self.instance.log, self.instance.config.application_id)

    def diff(self, name: str, database: QueryDatabase) -> dict[str, Any]:
        instance, deployed = self.instance, self.instance.deployed
        group, query = group_of(deployed, name)
        served, wanted = deployed.serving.source(query.sink), deployed.plan.source(query.sink)
        if served is None or wanted is None:
            title = f"{query.sink} is new: nothing serves that it could be compared with"
            raise CommandError(title, code=NOTHING_BUILT, help="flowql promote")
        built = replace(wanted, topic=group.staging[wanted.topic])
        seen = dict[str, Spans]()

        def look() -> None:
            seen.update({s.topic: spans_of(instance.log, s.topic) for s in (served, built)})

        try:
            ahead = instance.deployer.side_by_side(group, look)
        except ComparisonUnavailable as why:
            title = f"generation {query.generation} of {query.id} cannot be compared yet: {why}"
            raise CommandError(title, code=NOT_YET, help="flowql status") from why
        serving, other = (Version(s, seen[s.topic]) for s in (served, built))
        found = difference(serving, other, instance.log, database)
        return {
            "result": query.sink,
            "query": query.id,
            "generation": query.generation,
            "ahead": ahead,
            **found.to_data(),
        }

    def extents(self, topics: Collection[str], whole: Collection[str] = ()) -> Mapping[str, Extent]:
        return extents_of(self.instance.log, topics, whole)

    def free_bytes(self) -> int | None:
        data_dir = self.instance.config.data_dir
        assert data_dir is not None, "an engine that is opened for a target has one"
        return free_bytes(data_dir) if self.instance.log.supports_redo else None

    def status(self, *, detail: bool = False) -> dict[str, Any]:
        return live_status(self.instance, detail=detail)

    def take(self, relations: Sequence[str]) -> Commit:
        return self._taken(relations, None)

    def take_copied(self, relations: Sequence[str]) -> Commit:
        return self._taken(relations, self._copied)

    def newest(self, relation: str) -> Commit | None:
        instance = self.instance
        config = instance.config
        if self.shared or config.remote_state or instance.state.restoring():
            return None
        taken = instance.ticks.snapshot(queries_behind(instance.plan, [relation]), 0, lambda _: None)
        if taken is None:
            taken = TakenSnapshot(instance.snapshot())
        elif taken.reason:
            taken.snapshot.close()
            return None
        plan, app = instance.plan_at(taken.snapshot.sequence), config.application_id
        return Commit(plan, taken.snapshot, instance.repaired, app, is_whole=taken.is_whole, ends=taken.ends)

    def take_at(self, relations: Sequence[str], tick: int) -> Commit | None:
        instance = self.instance
        if not isinstance(instance.ticks, MemberTicks):
            return None
        queries = queries_behind(instance.plan, relations)
        ends = instance.ticks.ends_at(queries, tick)
        found = None if ends is None else instance.ticks.snapshot_at(queries, tick)
        if found is None or ends is None:
            return None
        app, writer = instance.config.application_id, instance.config.transactional_id
        plan = instance.plan_at(found.sequence)
        return Commit(plan, found, instance.repaired, app, writer=writer, is_whole=True, tick=tick, ends=ends)

    def _copied(self) -> Snapshot:
        """The last commit as a copy; as a snapshot where the state is in memory, or the disk takes no files."""
        data_dir = self.instance.config.data_dir
        if data_dir is None:
            return self.instance.snapshot()
        try:
            return copy_of(self.instance.state, copies_in(data_dir) / secrets.token_hex(8))
        except StateError:
            return self.instance.snapshot()

    def _taken(self, relations: Sequence[str], take: Callable[[], Snapshot] | None) -> Commit:
        """take: gives the last commit otherwise than as a snapshot."""
        instance = self.instance
        queries = queries_behind(instance.plan, relations)
        app, writer = instance.config.application_id, instance.config.transactional_id
        restoring = (
            frozenset(instance.state.restoring()) if self._members is None else frozenset[str]()
        )  # before the snapshot
        taken = instance.snapshot_of(queries, take)
        snapshot = taken.snapshot
        others = self._members.rows if self._members is not None else None
        return Commit(
            instance.plan_at(snapshot.sequence),
            snapshot,
            instance.repaired,
            app,
            taken.reason,
            writer,
            others,
            restoring,
            taken.is_whole,
            taken.tick,
            taken.cut,
            copies=None if others is None else instance.restoration.standbys.snapshot,
            ends=taken.ends,
        )

    def whole_ends(self, *topics: str) -> Mapping[TopicPartition, int] | None:
        return self.instance.ticks.whole_ends(*topics)

    def copied(self) -> Path | None:
        instance = self.instance
        data_dir = instance.config.data_dir
        if data_dir is None or self.shared or instance.config.remote_state or instance.state.restoring():
            return None
        instance.commit.is_followed = True
        folder = copies_in(data_dir) / FOLLOWED
        shutil.rmtree(folder, ignore_errors=True)  # that of a process that was killed
        try:
            copied(instance.state, path := folder / secrets.token_hex(8))
        except StateError:
            return None
        return path

    @property
    def applied(self) -> int:
        return self.instance.state.applied_sequence

    def release_hung(self, ids: Sequence[str]) -> None:
        self.instance.deployer.release_hung(ids)

    def append(self, wanted: Sequence[Redelivery]) -> dict[str, Any]:
        if self.shared:
            title = "--append is not supported with `instances: many`: another instance may have the partition"
            raise CommandError(
                title, code=UNSUPPORTED_TARGET, help="replay without --append, which rebuilds the queries"
            )
        return deliver(self.instance, wanted)

    def pin(self) -> int:
        data_dir = self.instance.config.data_dir
        assert data_dir is not None, "an engine that is opened for a target has one"
        return pin_for_backup(data_dir, self.instance.log, self.instance.state)

    def stop(self) -> None:
        if self._members is not None and self._joined and not self.instance.commit.blocked:
            self._members.leave()
        self.instance.stop()


def live_status(instance: Instance, *, detail: bool = False) -> dict[str, Any]:
    """detail: what the endpoint for Prometheus tells beside it."""
    kafka = not instance.log.supports_redo
    return {
        "instance": instance_entry(
            os.getpid(), instance.config.threads, instance.clients, instance.config.dead_letters, kafka=kafka
        )
        | process_metrics()
        | instance_metrics(instance, detail=detail)
        | {"functions": function_metrics(functions_of(instance.plan))},
        "queries": statuses(instance, detail=detail),
    }
