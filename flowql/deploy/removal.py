"""An application's data on its log and this machine, and their removal: `flowql app delete` and `flowql app reset`."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flowql.compiler.plan.deployed import Deployed
from flowql.compiler.plan.generations import topics_read
from flowql.config.storage import log_at
from flowql.deploy.extents import extents_of
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.runtime.app.application_topics import groups_of_application, topics_of
from flowql.runtime.app.plan_topic import read_deployed, read_others
from flowql.runtime.clock import SystemClock
from flowql.runtime.log.base import Log
from flowql.runtime.placement.reading import living
from flowql.runtime.remote.objects import objects_at
from flowql.runtime.state.remote.manifest import application_folder

if TYPE_CHECKING:
    from flowql.runtime.log.kafka.admin import GroupAdmin

RUNS, UNFIT = "FQ5320", "FQ5321"
How = Literal["delete", "reset"]
PartKind = Literal["topic", "group", "folder", "store"]
WRITTEN = "its results would be written once more by a new deployment; --results deletes it"
INSERTED = "its rows of INSERT VALUES would be written once more by a new deployment"


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is removed. records: of a topic. bytes: estimated for a topic, exact for others. A store has checkpoints of tasks."""

    kind: PartKind
    name: str
    records: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """The parts that go. kept: topics of results and of rows of INSERT VALUES that stay, with the reason."""

    parts: tuple[Part, ...]
    kept: Mapping[str, str]

    def named(self, kind: PartKind) -> list[str]:
        return [p.name for p in self.parts if p.kind == kind]


def removal_of(settings: Settings, how: How, *, results: bool = False) -> Removal:
    """The parts that `carry_out` would remove; changes nothing. results: topics that queries write, too.

    CommandError with FQ5321 where the target cannot be reset.
    """
    _check(settings, how)
    folders = [Part("folder", str(f), None, _size(f)) for f in [settings.state_dir] if f.is_dir()]
    if settings.kafka is None and not settings.log_dir.is_dir():
        return Removal(tuple(folders), {})
    with closing(log_at(settings.log_dir, settings.kafka, settings.application_id)) as log:
        app = settings.application_id
        deployed = read_deployed(log, app) or Deployed()
        topics = [t for t, use in topics_of(log, app, deployed).items() if how == "delete" or use == "state"]
        written, kept = _results(log, app, deployed, delete=results) if how == "delete" else ([], {})
        extents = extents_of(log, [*topics, *written], ())
        found = [Part("topic", t, extents[t].records, extents[t].bytes) for t in (*topics, *written)]
        groups = groups_of_application(log, app) if settings.kafka is not None else []
        return Removal((*found, *(Part("group", g) for g in groups), *folders, *_checkpoints(settings)), kept)


def carry_out(settings: Settings, removal: Removal) -> None:
    """Removes it. On Kafka an instance of the application on another machine is fenced first, and ends.

    CommandError with FQ5320, InstanceRunning where an instance runs here, or is a member of the group.
    """
    _refuse_running(settings)
    app = settings.application_id
    if settings.kafka is not None or settings.log_dir.is_dir():
        with closing(log_at(settings.log_dir, settings.kafka, app)) as log:
            log.hold(app)
            log.trim_redo(app, log.last_sequence(app))
            if settings.kafka is None:
                _delete_topics(log, removal)
    if settings.kafka is not None:  # when the producer that holds the place of an instance is closed
        with closing(log_at(settings.log_dir, settings.kafka, app)) as log:
            _groups(settings).delete(removal.named("group"))
            _delete_topics(log, removal)
    for folder in removal.named("folder"):
        shutil.rmtree(folder)
    for _ in removal.named("store"):
        objects = objects_at(settings.state.remote)
        objects.delete([o.name for o in objects.list(application_folder(app))])


def _check(settings: Settings, how: How) -> None:
    if settings.engine == "spark":
        title = "flowql app knows what the runtime keeps, and not what Spark does"
        raise CommandError(title, code=UNFIT, help="remove the target's data_dir and the checkpoints of its queries")
    if how == "reset" and settings.kafka is not None and settings.kafka.shared:
        title = "an application with `instances: many` cannot be reset"
        raise CommandError(title, code=UNFIT, help="flowql deploy --full-refresh QUERY   # of each query")


def _refuse_running(settings: Settings) -> None:
    """FQ5320 where an instance has the state of this folder open, or members run elsewhere."""
    app, stop = settings.application_id, "flowql stop   # on each machine"
    if _is_locked(settings.state_dir / "LOCK"):
        raise CommandError(f"an instance of {app} is running", code=RUNS, help="flowql stop")
    if settings.kafka is not None and settings.kafka.shared:
        with closing(log_at(settings.log_dir, settings.kafka, app)) as log:
            if members := living(log, app, SystemClock().wall_ms()):
                raise CommandError(f"the group {app} has {len(members)} running instances", code=RUNS, help=stop)


def _is_locked(path: Path) -> bool:
    """Whether a process has the lock that RocksDB holds of an open database."""
    try:
        with path.open("r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _groups(settings: Settings) -> GroupAdmin:
    from flowql.runtime.log.kafka.admin import GroupAdmin  # loads a client that other targets do without

    assert settings.kafka is not None, "only brokers have groups with members"
    return GroupAdmin(settings.kafka, settings.application_id)


def _results(log: Log, application_id: str, deployed: Deployed, *, delete: bool) -> tuple[list[str], dict[str, str]]:
    """Topics that queries of the application write or wrote, as far as they are deleted; and those that stay, with the reason."""
    known = log.admin().topics()
    written = [h.topic for h in deployed.histories if h.topic in known]
    kept = {t: INSERTED for t, _ in deployed.rows_inserted() if t in known and t not in written}
    for other, theirs in read_others(log, application_id).items():
        used = {t for q in theirs.plan.queries for t in (*topics_read(q), q.topic)}
        kept |= {t: f"{other} uses it" for t in written if t in used}
    if not delete:
        kept |= {t: WRITTEN for t in written if t not in kept}
    return [t for t in written if t not in kept], kept


def _delete_topics(log: Log, removal: Removal) -> None:
    there = log.admin().topics()
    for topic in removal.named("topic"):
        if topic in there:
            log.admin().delete_topic(topic)


def _checkpoints(settings: Settings) -> list[Part]:
    """Those of tasks, which mean nothing without the changelogs. Backups of the embedded log stay. RemoteError."""
    if settings.kafka is None or not settings.state.remote:
        return []
    folder = application_folder(settings.application_id)
    found = [o.size for o in objects_at(settings.state.remote).list(folder)]
    return [Part("store", f"{settings.state.remote}/{folder}", None, sum(found))] if found else []


def _size(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
