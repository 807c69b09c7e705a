"""The plan of a project as its files are at a commit of Git."""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import SourceText, Span
from flowql.compiler.plan.topology import Plan
from flowql.config.compile import compile_sources
from flowql.config.load import read_project, shown_path
from flowql.config.project import Project
from flowql.errors import CommandError, CompileError

NO_VERSION = "FQ5223"


def plan_at(ref: str, project: Project, variables: Mapping[str, str]) -> Plan:
    """The plan at a commit, branch or tag, for the same target; an empty one if the project did not exist.

    Files outside the project's folder are found if its present version lists them. Raises CommandError if Git does not know the commit,
    CompileError with the mistakes of the project there.
    """
    why = "the project is not in a Git repository"
    root = Path(_git(project.root, "rev-parse", "--show-toplevel", why=why).decode().strip())
    why = f"Git knows no commit `{ref}` here"
    name = f"{ref}^{{commit}}"
    commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", name, why=why).decode().strip()
    file = _within(root, project.file)
    if not _git(root, "ls-tree", "--name-only", commit, "--", file, why=why):
        return Plan()
    archive = _git(root, "archive", "--format=tar", commit, "--", _within(root, _folder_of(project, root)), why=why)
    with tempfile.TemporaryDirectory() as made:
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            # Python 3.11.3 has no filters yet. Git has made the archive of its own tree, whose names stay below it.
            files.extraction_filter = getattr(tarfile, "tar_filter", None)
            files.extractall(made)
        there = read_project(Path(made) / file, target=project.target.name, variables=variables)
        compiled = compile_sources(there)
        if not compiled.ok:
            raise CompileError(*(_placed(d, ref, Path(made).resolve()) for d in compiled.diagnostics))
    return compiled.plan


def _folder_of(project: Project, root: Path) -> Path:
    """The folder with all files of the project. root: that of the repository."""
    files = [Path(s.path).resolve() for s in project.sources if isinstance(s, SourceText)]
    return Path(os.path.commonpath([project.root.resolve(), *(f.parent for f in files if f.is_relative_to(root))]))


def _placed(diagnostic: Diagnostic, ref: str, folder: Path) -> Diagnostic:
    """Files as Git names them: main:shop/queries.sql."""
    return replace(diagnostic, span=_named(diagnostic.span, ref, shown_path(folder)))


def _named(span: Span, ref: str, folder: str) -> Span:
    inside = span.path.removeprefix(f"{folder}/")
    return span if inside == span.path else replace(span, path=f"{ref}:{inside}")


def _within(root: Path, path: Path) -> str:
    return path.resolve().relative_to(root.resolve()).as_posix()


def _git(folder: Path, *arguments: str, why: str) -> bytes:
    """The output of Git. why: the title of the error where it fails."""
    help_ = "git fetch origin main   (GitHub Actions: actions/checkout with  fetch-depth: 0)"
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False)
    except OSError as error:
        raise CommandError(f"Git cannot be started: {error.strerror}", code=NO_VERSION, help="install git") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise CommandError(f"{why}{f': {said}' if said else ''}", code=NO_VERSION, help=help_)
    return done.stdout
