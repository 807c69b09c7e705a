"""`flowql state remote` lists, verifies and cleans up the checkpoints in the store of `state: {remote: URL}`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Annotated, Any

import typer

from flowql.backup.places import answering, shown
from flowql.backup.verify import examined
from flowql.cli.monitoring.amounts import size
from flowql.cli.options import Scope, scoped
from flowql.cli.progress import progress
from flowql.cli.render import note, print_json, print_rows
from flowql.config.project import Project
from flowql.config.storage import open_log
from flowql.errors import CommandError
from flowql.runtime.app.plan_topic import read_deployed
from flowql.runtime.backup.keeping import Keep, superfluous
from flowql.runtime.backup.place import Place
from flowql.runtime.clock import iso_time
from flowql.runtime.remote.objects import Objects, objects_at
from flowql.runtime.state.remote.manifest import (
    KEPT_MS,
    Garbage,
    StoredTask,
    dropped,
    garbage_of,
    problems,
    stored_tasks,
)

app = typer.Typer(help="Checkpoints of the state in an object store.", no_args_is_help=True, rich_markup_mode=None)
NO_STORE = "FQ5708"
_COLUMNS = ("task", "commit", "at", "runs", "objects", "bytes")


@app.command("ls")
@scoped("project target output var")
def list_checkpoints(scope: Scope) -> None:
    """List tasks with commit and time of the newest checkpoint.

    flowql state remote ls -t prod
    """
    project = scope.load()
    objects = _objects(project)
    if project.target.kafka is None:
        _tell_backups(project, objects, as_json=scope.as_json)
        return
    with answering():
        found = stored_tasks(objects, _application(project))
    if scope.as_json:
        print_json([_as_data(task) for task in found])
        return
    print_rows(_COLUMNS, [_row(task) for task in found])
    total = sum(task.size for task in found)
    note(f"{len(found)} tasks in {shown(objects.url)}, {sum(t.objects for t in found):,} objects, {size(total)}")


@app.command("verify")
@scoped("project target output var")
def verify(scope: Scope) -> None:
    """Read every byte of the newest checkpoints and compare checksums. Exit code 1 if something is missing or damaged.

    flowql state remote verify -t prod
    """
    project = scope.load()
    objects = _objects(project)
    if project.target.kafka is None:
        with answering():
            said, summary = examined(Place(objects, _application(project)))
    else:
        said, summary = _verified(objects, _application(project))
    if scope.as_json:
        print_json({"problems": said, "summary": summary})
    else:
        print_rows(("problem",), [(sentence,) for sentence in said]) if said else note(summary)
    if said:
        raise typer.Exit(1)


@app.command("gc")
@scoped("project target output var")
def collect(
    scope: Scope, dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be deleted.")] = False
) -> None:
    """Delete objects that no checkpoint of the last hour needs.

    Objects of tasks that are no longer deployed are deleted too. Instances delete objects of their own tasks every
    five minutes. On the embedded log, the command deletes what `flowql backup` left when it was killed, a day after
    that.

    flowql state remote gc --dry-run -t prod
    """
    project = scope.load()
    objects = _objects(project)
    with answering(), progress("looking for objects that no checkpoint needs") as advance:
        found: list[tuple[str, Garbage]] = []
        for name, garbage in _garbage(project, objects):
            if garbage.names:
                found.append((name, garbage))
                if not dry_run:
                    objects.delete(garbage.names)
            advance(1)
    of = "task" if project.target.kafka is not None else "application"
    if scope.as_json:
        print_json([{of: name, "objects": list(g.names), "bytes": g.size} for name, g in found])
        return
    print_rows((of, "objects", "bytes"), [(name, len(g.names), size(g.size)) for name, g in found])
    total = sum(len(g.names) for _, g in found)
    note(f"{total:,} objects {'would be' if dry_run else 'were'} deleted")


def _garbage(project: Project, objects: Objects) -> Iterator[tuple[str, Garbage]]:
    """By task; on the embedded log all of it. RemoteError."""
    application_id = _application(project)
    if project.target.kafka is None:
        yield application_id, superfluous(Place(objects, application_id), Keep())
        return
    with closing(open_log(project)) as log:
        deployed = read_deployed(log, application_id)
    plans = () if deployed is None else (deployed.serving, deployed.wanted)
    queries = {q.id for plan in plans if plan is not None for q in plan.queries}
    tasks = stored_tasks(objects, application_id)
    now_ms = max((task.modified_ms for task in tasks), default=0)
    for task in tasks:
        gone = deployed is not None and task.task.rpartition("/")[0].partition("@")[0] not in queries
        found = dropped(objects, task.folder, now_ms, KEPT_MS) if gone else garbage_of(objects, task.folder, KEPT_MS)
        yield task.task, found


def _objects(project: Project) -> Objects:
    if not project.target.state.remote:
        title = f"the target {project.target.name} has no remote store"
        raise CommandError(title, code=NO_STORE, help="state: {remote: URL}   # in the target, in flowql.yaml")
    with answering():
        return objects_at(project.target.state.remote)


def _application(project: Project) -> str:
    return project.target.application_id(project.name)


def _verified(objects: Objects, application_id: str) -> tuple[list[str], str]:
    """Problems of the newest checkpoints, and a sentence."""
    said: list[str] = []
    with answering():
        tasks = stored_tasks(objects, application_id)
        with progress("reading checkpoints", len(tasks)) as advance:
            for task in tasks:
                said += [f"{task.task}: {task.problem}"] if task.newest is None else problems(objects, task.newest)
                advance(1)
    total = sum(t.newest.stored_bytes() for t in tasks if t.newest is not None)
    return said, f"the checkpoints of {len(tasks)} tasks are whole, {size(total)}"


def _tell_backups(project: Project, objects: Objects, *, as_json: bool) -> None:
    place = Place(objects, _application(project))
    rows: list[dict[str, Any]] = []
    with answering():
        for name in place.manifests():
            manifest, _ = place.read(name)
            total = sum(piece.length for _, piece in manifest.pieces())
            rows.append({"commit": manifest.commit, "at": manifest.taken_at, "by": name.by, "bytes": total})
    if as_json:
        print_json(rows)
        return
    print_rows(("commit", "at", "by", "bytes"), [(r["commit"], r["at"], r["by"], size(r["bytes"])) for r in rows])


def _as_data(task: StoredTask) -> dict[str, Any]:
    newest = task.newest
    return {
        "task": task.task,
        "commit": None if newest is None else newest.commit,
        "at": None if newest is None else iso_time(newest.as_of_ms, "seconds"),
        "runs": None if newest is None else sum(len(s.runs) for s in newest.stores),
        "objects": task.objects,
        "bytes": task.size,
        "problem": task.problem or None,
    }


def _row(task: StoredTask) -> tuple[Any, ...]:
    found = _as_data(task)
    return tuple(size(found[c]) if c == "bytes" else found[c] for c in _COLUMNS)
