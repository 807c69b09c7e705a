"""The runtime as an engine behind a target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any

from compiler.plan.deployed import DEPLOY, About, Deployed, Entry
from compiler.plan.diff import QueryChange
from compiler.plan.topology import Plan
from flowql.config.storage import check_engine, log_at
from flowql.deploy.engine import config_of, deployed_at_rest, open_on
from flowql.deploy.extents import Extent, extents_of, free_bytes
from flowql.deploy.pins import pin, unpin_left
from flowql.deploy.settings import UNSUPPORTED_TARGET, Settings
from flowql.errors import CommandError
from flowql.query.committed import Commit, Take, queries_behind, stopped_commits
from flowql.server.engine import Mode
from flowql.server.status import live_status, stopped_status
from runtime.app.instance import Instance
from runtime.app.plan_topic import read_entries
from runtime.app.progress import caught_up, source_ends
from runtime.app.without_pandas import leave_pandas_out
from runtime.spark.log_append import places_topic
from runtime.state.changelog import metadata_topic


def open_runtime(settings: Settings, mode: Mode) -> RuntimeEngine:
    """See `flowql.server.engine.open_engine`."""
    if mode == "bounded":
        title = "this target runs on the runtime, which has no batch mode"
        raise CommandError(title, code=UNSUPPORTED_TARGET, help="--until-caught-up gives the same results")
    leave_pandas_out()
    app = settings.application_id
    last = metadata_topic(app) if settings.guarantee == "at_least_once" else None
    log = log_at(settings.log_dir, settings.kafka, app, at_least_once=last)
    if settings.kafka is not None:
        check_engine(log, app, places_topic(app), "a target with `engine: spark`")
    engine = RuntimeEngine(open_on(log, settings.state_dir, config_of(settings)))
    unpin_left(settings.data_dir)
    return engine


class RuntimeEngine:
    """Implements `flowql.server.engine.Engine`."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

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

    def start(self) -> None:
        self.instance.start()
        self.instance.resume()

    def deploy(
        self,
        plan: Plan,
        *,
        rebuild: bool = False,
        refresh: Collection[str] = (),
        seen: Deployed | None = None,
        about: About = DEPLOY,
    ) -> Sequence[QueryChange]:
        """Changed queries are always built anew."""
        del rebuild
        return self.instance.deploy(plan, refresh=refresh, seen=seen, about=about)

    def catch_up(self) -> Callable[[], bool]:
        ends = source_ends(self.instance)
        return lambda: caught_up(self.instance, ends)

    def topics(self) -> Mapping[str, int]:
        return {name: info.partitions for name, info in self.instance.admin.topics().items()}

    def deployments(self) -> list[Entry]:
        return read_entries(self.instance.log, self.instance.config.application_id)

    def extents(self, topics: Collection[str]) -> Mapping[str, Extent]:
        return extents_of(self.instance.log, topics)

    def free_bytes(self) -> int | None:
        data_dir = self.instance.config.data_dir
        assert data_dir is not None, "an engine that is opened for a target has one"
        return free_bytes(data_dir) if self.instance.log.supports_redo else None

    def status(self, *, detail: bool = False) -> dict[str, Any]:
        return live_status(self.instance, detail=detail)

    def take(self, relations: Sequence[str]) -> Commit:
        instance = self.instance
        queries = queries_behind(instance.plan, relations)
        app, writer = instance.config.application_id, instance.config.transactional_id
        if len(queries) < 2:
            snapshot = instance.snapshot()
            return Commit(instance.plan_at(snapshot.sequence), snapshot, instance.repaired, app, writer=writer)
        taken = instance.aligned_snapshot(queries)
        plan = instance.plan_at(taken.snapshot.sequence)
        return Commit(plan, taken.snapshot, instance.repaired, app, taken.reason, writer)

    def pin(self) -> int:
        data_dir = self.instance.config.data_dir
        assert data_dir is not None, "an engine that is opened for a target has one"
        return pin(data_dir, self.instance.log, self.instance.state)

    def stop(self) -> None:
        self.instance.stop()


class RuntimeAtRest:
    """Implements `flowql.server.engine.AtRest`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def deployed(self) -> tuple[Deployed, Mapping[str, int]]:
        return deployed_at_rest(self._settings)

    def extents(self, topics: Collection[str]) -> Mapping[str, Extent]:
        s = self._settings
        if s.kafka is None and not s.log_dir.is_dir():
            return {}
        with closing(log_at(s.log_dir, s.kafka, s.application_id)) as log:
            return extents_of(log, topics)

    def deployments(self) -> list[Entry]:
        s = self._settings
        if s.kafka is None and not s.log_dir.is_dir():
            return []
        with closing(log_at(s.log_dir, s.kafka, s.application_id)) as log:
            return read_entries(log, s.application_id)

    def free_bytes(self) -> int | None:
        return free_bytes(self._settings.data_dir) if self._settings.kafka is None else None

    def status(self) -> dict[str, Any]:
        return stopped_status(self._settings)

    def commits(self) -> AbstractContextManager[Take]:
        return stopped_commits(self._settings.data_dir, self._settings.application_id, self._settings.kafka)
