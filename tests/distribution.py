"""The wheel of this checkout, and its installation without a package index: in place of downloads, links to what is installed here."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email import message_from_bytes
from importlib import metadata
from pathlib import Path, PurePath

from packaging.requirements import Requirement

from tests.tidy.tree import ROOT, own_files

BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


def copy_files(folder: Path) -> None:
    """The files of the project and nothing else, as a fresh checkout has them."""
    for path in [*own_files(), Path("flowql/compiler"), Path("flowql/runtime")]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / path, follow_symlinks=False)


def build_wheel(folder: Path) -> Path:
    """A wheel that is built from the source distribution, as an index serves it, by the setuptools of this environment."""
    tree, sdist = folder / "tree", folder / "sdist"
    copy_files(tree)
    _build("build_sdist", sdist, tree)
    shutil.unpack_archive(next(sdist.glob("*.tar.gz")), sdist)
    _build("build_wheel", folder, next(p for p in sdist.iterdir() if p.is_dir()))
    return next(folder.glob("*.whl"))


def _build(step: str, result: Path, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, step, str(result)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def link_dependencies(wheel: Path, environment: Path) -> None:
    """Links the packages that a wheel depends on, directly or not, into an environment of the same Python. No other packages."""
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment), "platbase": str(environment)}))
    for name in sorted(dependencies(wheel)):
        installed = metadata.distribution(name)
        origin = Path(str(installed.locate_file("")))
        for file in installed.files or ():
            if ".." not in file.parts:  # programs lie outside
                _link(origin, file, site)


def dependencies(wheel: Path) -> set[str]:
    """Names of the distributions that pip installs with a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        file = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        described = message_from_bytes(archive.read(file))
    waiting = _required(described.get_all("Requires-Dist", []), frozenset())
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        if (found := waiting.pop()) not in seen:
            seen.add(found)
            waiting |= _required(metadata.distribution(found[0]).requires or [], found[1])
    return {name for name, _ in seen}


def _required(lines: list[str], extras: frozenset[str]) -> set[tuple[str, frozenset[str]]]:
    """(name, extras) of the requirements that apply to this Python on this system."""
    return {
        (wanted.name, frozenset(wanted.extras))
        for wanted in map(Requirement, lines)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in {"", *extras})
    }


def _link(origin: Path, file: PurePath, site: Path) -> None:
    """Links a package, or a folder of metadata, as a whole. Other folders may belong to several distributions, as `google` does."""
    for folder in reversed(file.parents[:-1]):
        if (origin / folder / "__init__.py").exists() or folder.suffix == ".dist-info":
            file = folder
            break
    (site / file.parent).mkdir(parents=True, exist_ok=True)
    if not (site / file).is_symlink():
        (site / file).symlink_to(origin / file)
