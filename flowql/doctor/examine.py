"""All checks, in the order in which a mistake would show."""

from __future__ import annotations

import platform
import re
import resource
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from importlib import metadata
from pathlib import Path

import psutil

from flowql.compiler.plan.topology import Plan
from flowql.config.compile import compile_sources
from flowql.config.load import read_project
from flowql.config.project import Project, Target
from flowql.doctor.finding import Finding, failed, ok, warning
from flowql.doctor.target import examine_target
from flowql.errors import CompileError
from flowql.runtime.errors import RuntimeFailure, StateDamaged
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.rocks import MIB, damage_in, open_rocks
from flowql.server.running import process_of

NO_PROJECT = "FQ3002"


def examine(
    start: Path,
    target: str | None,
    variables: Mapping[str, str],
    environment: Mapping[str, str],
    deep: Bar | None = None,
) -> Iterator[Finding]:
    """The machine, the project at `start` if there is one, and its targets (or the one that is named).

    deep: shows the progress of reading all data of the targets; without it only sizes and numbers are compared.
    """
    yield from examine_machine()
    try:
        project = read_project(start, target=target, variables=variables)
    except CompileError as error:
        nothing_here = start.exists() and [d.code for d in error.diagnostics] == [NO_PROJECT]
        yield ok("project", "none here: `flowql init` makes one") if nothing_here else _mistakes(len(error.diagnostics))
        return
    compiled, finding = _compiles(project)
    yield finding
    for name, missing in project.undefined.items():
        if target in (None, name):
            yield warning(f"target {name}", f"not examined: {missing[0].title}", missing[0].help)
    named = () if target in project.undefined else (project.target,)
    for each in named if target else project.targets.values():
        yield from examine_target(each, each.application_id(project.name), dict(environment), compiled)
        if deep is not None:
            yield from examine_deep(f"target {each.name}", each, deep)


def _compiles(project: Project) -> tuple[Plan | None, Finding]:
    """Its plan, if it has no mistakes."""
    try:
        compiled = compile_sources(project)
    except RuntimeFailure as error:  # a schema registry that does not answer
        return None, failed("project", str(error), "flowql validate")
    if not compiled.ok:
        return None, _mistakes(len(compiled.diagnostics))
    return compiled.plan, ok("project", f"{project.name}: {len(compiled.plan.queries)} queries, no mistakes")


def _mistakes(count: int) -> Finding:
    return failed("project", f"{count} mistake{'s' * (count != 1)}", "flowql validate   # shows them all")


# `flowql doctor --deep`: reads every record of the embedded log and every row of the state, and compares their checksums.

# A progress bar: its title and its total; gives a function that advances it.
Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
SHOWN = 3
_CACHE_BYTES = 8 * MIB  # each block is read once
_LOW, _HIGH = b"", b"\xff" * 16  # below and above all keys


def examine_deep(name: str, target: Target, bar: Bar) -> Iterator[Finding]:
    """For targets on the runtime; nothing of a log on brokers, which verify it themselves."""
    if target.engine != "runtime":
        return
    try:
        if target.log == "embedded" and target.log_dir.is_dir():
            yield _log(f"{name}: records", target, bar)
        if (target.state_dir / "CURRENT").exists():
            yield _state(f"{name}: rows", target, bar)
    except (RuntimeFailure, OSError) as error:
        yield failed(f"{name}: data", str(error), "may this user read the data directory?")


def _log(check: str, target: Target, bar: Bar) -> Finding:
    with (
        closing(EmbeddedLog(target.log_dir, damaged=True)) as log,
        bar("reading the log", log.stored_bytes()) as advance,
    ):
        found = log.verify(advance)
    new = [f"{d.tp} offsets {d.first} to {d.end - 1}: {d.problem}" for d in found.damages if not d.skipped]
    if problems := [*new, *found.other]:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        return failed(
            check,
            "; ".join(problems[:SHOWN]) + more,
            f"flowql log verify -t {target.name}   # names all, and the ways out",
        )
    left = len(found.damages) - len(new)
    out = f"; {left} damaged before are left out" if left else ""
    return ok(
        check,
        f"{found.batches:,} batches of {found.segments:,} segments, {found.bytes:,} bytes: all as they were written{out}",
    )


def _state(check: str, target: Target, bar: Bar) -> Finding:
    """As of its last flush, also beside an instance that has it open."""
    path, alive = target.state_dir, process_of(target.data_dir) is not None
    try:
        with closing(open_rocks(path, cache_bytes=_CACHE_BYTES, read_only=True)) as physical:
            size = 0
            about = physical.property("rocksdb.estimate-num-keys") or 0
            with bar("reading the state", about) as advance, closing(physical.snapshot()) as snapshot:
                for keys, values in snapshot.chunks(_LOW, _HIGH):
                    size += sum(map(len, keys)) + sum(map(len, values))
                    advance(len(keys))
    except StateDamaged as error:
        return warning(
            check,
            f"{path} is damaged: {error.found}: it is rebuilt from its inputs at the next start",
            _remedy(target, path, alive=alive),
        )
    return ok(check, f"{size:,} bytes: all can be read")


def _remedy(target: Target, path: Path, *, alive: bool) -> str:
    """The next start sets a state aside in which damage was noted; where it could not be, the user does."""
    stop = f"flowql stop -t {target.name}, then  " if alive else ""
    aside = "" if damage_in(path) else f"mv {path} {path}.damaged, then  "
    return f"{stop}{aside}flowql run -t {target.name}   # or flowql deploy"


# Python, its packages, and the machine they run on.

PYTHON_LEAST = (3, 11)
FILES_LEAST = 1024  # segments, RocksDB's tables and connections are open at the same time
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:>=\s*([0-9.]+))?")


def examine_machine() -> Iterator[Finding]:
    yield _python()
    yield _packages()
    yield _command()
    yield _open_files()
    memory = psutil.virtual_memory()
    yield ok(
        "machine",
        f"{platform.system()} {platform.machine()}, {psutil.cpu_count() or '?'} cores, "
        f"{_gb(memory.total)} memory, {_gb(memory.available)} of it free",
    )


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    says = f"{platform.python_implementation()} {version} in {sys.prefix}"
    if sys.version_info < PYTHON_LEAST:
        return failed("python", says, f"FlowQL needs {'.'.join(map(str, PYTHON_LEAST))} or newer")
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        return ok("python", says)
    return warning(
        "python", f"{says}, without the interpreter lock", "take the usual build: RocksDB has none for this one"
    )


def _packages() -> Finding:
    """Whether the requirements of the package itself are met, without extras."""
    wrong = []
    for text in metadata.requires("flowql") or ():
        found = _REQUIREMENT.match(text)
        if found is None or "extra ==" in text:
            continue
        name, least = found.groups()
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        if least and _parts(version) < _parts(least):
            wrong.append(f"{name} {version} is older than {least}")
    if wrong:
        return failed("packages", "; ".join(wrong), "pip install --upgrade flowql")
    names = ("flowql", "duckdb", "pyarrow", "rocksdict", "confluent-kafka")
    return ok("packages", ", ".join(f"{n} {metadata.version(n)}" for n in names))


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(p) for p in re.findall(r"\d+", version)[:3])


def _command() -> Finding:
    """A `flowql` of another environment on the path is a usual cause of riddles."""
    own, found = Path(sys.prefix).resolve(), shutil.which("flowql")
    if found is None:
        return warning("command", "`flowql` is not on the path", f". {own / 'bin' / 'activate'}")
    if own not in Path(found).resolve().parents and own not in Path(found).absolute().parents:
        return warning("command", f"the path gives {found}, of another environment", f". {own / 'bin' / 'activate'}")
    return ok("command", found)


def _open_files() -> Finding:
    """Looks at the hard limit: `flowql run` and `flowql serve` raise their own up to it."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_LEAST:
        way = "raise the hard limit of open files: LimitNOFILE= of systemd, /etc/security/limits.conf"
        return warning("open files", f"a process may open {hard}", way)
    return ok("open files", "without limit" if hard == resource.RLIM_INFINITY else f"up to {hard:,} in a process")


def _gb(size: int) -> str:
    return f"{size / (1 << 30):.1f} GB"
