"""The data of a target: whether the log is whole, whether the state fits it, and whether a backup is whole. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from flowql.backup.places import shown, url_of
from flowql.backup.verify import applications_in, examined
from flowql.config.project import Target
from flowql.doctor.finding import Finding, failed, ok, warning
from flowql.errors import CommandError
from flowql.runtime.errors import LogCorrupt, LogHeld, RuntimeFailure, StateDamaged
from flowql.runtime.log.embedded.named import damaged_redo, damages, held_still
from flowql.runtime.log.embedded.state import LogState, ProducerState
from flowql.runtime.log.files import DiskFiles
from flowql.runtime.state.layout import MARKER, RUN, decode_number
from flowql.runtime.state.rocks import damage_in, open_rocks
from flowql.server.running import RunningProcess, process_of

SHOWN = 3
REBUILT = "it is rebuilt from its inputs at the next start"


def examine_stored(name: str, target: Target, application_id: str) -> Iterator[Finding]:
    """For targets on the runtime with the embedded log; nothing where nothing has run yet."""
    if target.log != "embedded" or target.engine != "runtime":
        return
    files, directory, restore = (
        DiskFiles(),
        str(target.log_dir),
        f"flowql restore --from PLACE --replace -t {target.name}",
    )
    try:
        with held_still(files, directory) as log:
            if log is None:
                if (target.state_dir / "CURRENT").exists():
                    yield failed(
                        f"{name}: log",
                        f"{directory} holds no log, and the state beside it was made from one",
                        f"{restore}   # PLACE: where backups are",
                    )
                return
            found = list(islice(damages(files, log, directory), SHOWN + 1))
            if found:
                skip = f"without a backup:  flowql log verify --skip-damaged -t {target.name}   # continues without these records"
                yield failed(f"{name}: log", _listed(found), f"{restore}   # PLACE: where backups are\n  {skip}")
                return
            yield ok(f"{name}: log", f"{len(log.topics)} topics, all committed bytes are there")
            yield _state(f"{name}: state", target, log, application_id, restore)
    except LogCorrupt as error:
        yield failed(f"{name}: log", str(error), f"{restore}   # PLACE: where backups are")
    except LogHeld as error:
        yield _held(f"{name}: log", target, error)
    except (RuntimeFailure, OSError) as error:
        yield failed(f"{name}: log", str(error), "may this user read and write the data directory?")


def _held(check: str, target: Target, error: LogHeld) -> Finding:
    """The log cannot be examined meanwhile. Names the process that commits, and what it does instead."""
    process = process_of(target.data_dir) if error.pid is None else RunningProcess(error.pid, None, None)
    doing = process.doing() if process is not None else ""
    return failed(
        check,
        f"not examined: {error}{f': {doing}' if doing else ''}",
        f"flowql status -t {target.name}   # shows what the instance does;  flowql stop --force -t {target.name}  ends it",
    )


def examine_backups(place: str) -> Iterator[Finding]:
    """Reads every byte of all backups in a directory or at a URL, a finding for each application."""
    check, fix = f"backup {shown(url_of(place))}", f"take another:  flowql backup {place}"
    try:
        applications = applications_in(place)
        if not applications:
            yield failed(check, f"{shown(url_of(place))} holds no backup", fix)
        for application in applications:
            problems, says = examined(application)
            yield failed(check, _listed(problems), fix) if problems else ok(check, says)
    except CommandError as error:
        yield failed(check, error.title, error.help or fix)


def _state(check: str, target: Target, log: LogState, application_id: str, restore: str) -> Finding:
    path, producer = target.state_dir, log.producers.get(application_id, ProducerState())
    run = f"flowql run -t {target.name}   # or flowql deploy"
    alive = process_of(target.data_dir) is not None
    if not (path / "CURRENT").exists():
        return _missing(check, path, producer, run, alive=alive)
    if alive:  # what it has in memory is newer than what a look at its files shows
        return ok(check, "the instance has it open")
    if damage := damage_in(path):
        return warning(check, f"{path} is damaged: {damage}: {REBUILT}", run)
    try:
        applied, run_of = _applied(path)
    except StateDamaged as error:
        return warning(check, f"{path} is damaged: {error.found}: {REBUILT}", run)
    except RuntimeFailure as error:
        return failed(check, str(error), "may this user read and write the data directory?")
    if says := producer.why_foreign(applied, run_of):
        return failed(
            check,
            says,
            f"{restore}   # PLACE: where backups are; or put back the log that the state was made from; or  mv {path} {path}.old  to recompute it",
        )
    if applied < producer.redo_lost:
        says = f"the state is at commit {applied}, older than the log's redo reaches ({producer.redo_lost}): {REBUILT}"
        return warning(check, says, run)
    redo = [r for r in producer.redo if r.sequence > applied]
    found = list(damaged_redo(DiskFiles(), str(target.log_dir), redo))
    if found:
        return warning(check, f"{_listed(found)}: what it leads to is lost, and {REBUILT}", run)
    behind = f"; the log's redo leads from there to {producer.sequence}" if producer.sequence > applied else ""
    return ok(check, f"at commit {applied}{behind}")


def _missing(check: str, path: Path, producer: ProducerState, run: str, *, alive: bool) -> Finding:
    if alive:
        return failed(check, f"{path} was removed while the instance runs", "flowql stop, then flowql deploy")
    if not producer.sequence:
        return ok(check, "none yet: nothing has run")
    if not producer.redo_lost:
        return ok(check, f"{path} is missing; the log's redo covers all of it, and the next start restores it")
    return warning(check, f"{path} is missing, though the log is whole: {REBUILT}", run)


def _applied(path: Path) -> tuple[int, int]:
    """The commit that the state is at, and the start of an instance that has last opened it."""
    physical = open_rocks(path, read_only=True)
    try:
        return decode_number(physical.get(MARKER), 0), decode_number(physical.get(RUN), 0)
    finally:
        physical.close()


def _listed(found: list[str]) -> str:
    more = "; and more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more
