"""The object store of a target: whether it answers, and how old what it has is. Reads only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

from flowql.backup.places import shown
from flowql.config.project import Target
from flowql.doctor.finding import Finding, failed, ok, warning
from flowql.runtime.backup.place import Place
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.remote.objects import Objects, RemoteError, RemoteRefused, objects_at
from flowql.runtime.state.remote.manifest import stored_tasks

OLD_S = 600.0  # a running instance uploads every ten seconds what is new


def examine_remote_store(name: str, target: Target, application_id: str, *, running: bool) -> Iterator[Finding]:
    """Nothing for a target without one. running: whether an instance of the target runs here."""
    url = target.state.remote
    if not url:
        return
    check, place = f"{name}: remote store", shown(url)
    try:
        newest_s, says = _newest(objects_at(url), application_id, kafka=target.kafka is not None)
    except RemoteRefused as error:
        yield failed(check, str(error), "flowql explain FQ4092")
    except RemoteError as error:
        yield failed(check, str(error), "does the store answer, and is the URL right?  flowql explain FQ4091")
    except RuntimeFailure as error:
        yield failed(check, str(error), f"flowql state remote verify -t {target.name}")
    else:
        if newest_s is None:
            says = f"{place} has nothing of {application_id}"
            fix = f"flowql status -t {target.name}   # what is behind, and why"
            yield warning(check, says, fix) if running else ok(check, says)
        elif running and newest_s > OLD_S:
            yield warning(check, f"{place}: {says}", f"flowql status -t {target.name}   # what is behind, and why")
        else:
            yield ok(check, f"{place}: {says}")


def _newest(objects: Objects, application_id: str, *, kafka: bool) -> tuple[float | None, str]:
    """Seconds since the newest checkpoint, and a sentence. RemoteError, ManifestUnreadable."""
    if kafka:
        tasks = [task for task in stored_tasks(objects, application_id) if task.newest is not None]
        if not tasks:
            return None, ""
        ages = [time.time() - task.newest.as_of_ms / 1000 for task in tasks if task.newest is not None]
        return min(
            ages
        ), f"checkpoints of {len(tasks)} tasks, the newest {_age(min(ages))} old, the oldest {_age(max(ages))}"
    place = Place(objects, application_id)
    for manifest_name in place.manifests()[:1]:
        manifest, _ = place.read(manifest_name)
        age = time.time() - datetime.fromisoformat(manifest.taken_at).timestamp()
        return age, f"a backup of commit {manifest.commit}, {_age(age)} old"
    return None, ""


def _age(seconds: float) -> str:
    """In the unit that people would use.

    >>> [_age(s) for s in (4.2, 600, 90_000)]
    ['4 s', '10 minutes', '25 hours']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7_200 else f"{seconds / 3600:.0f} hours"
