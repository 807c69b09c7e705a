"""Python, its packages, and the machine they run on."""

from __future__ import annotations

import platform
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import psutil

from flowql.doctor.finding import Finding, failed, ok, warning

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
    """Of the hard limit: `flowql run` and `flowql serve` raise their own up to it."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_LEAST:
        way = "raise the hard limit of open files: LimitNOFILE= of systemd, /etc/security/limits.conf"
        return warning("open files", f"a process may open {hard}", way)
    return ok("open files", "without limit" if hard == resource.RLIM_INFINITY else f"up to {hard:,} in a process")


def _gb(size: int) -> str:
    return f"{size / (1 << 30):.1f} GB"
