"""Imports modules of a project from the texts that were loaded when its queries were deployed, whatever its files say now."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Any

from flowql.runtime.functions.workers import Code, Source

_importing = threading.Lock()  # guards sys.meta_path and sys.modules while modules of one version are imported


class _Texts(importlib.abc.SourceLoader):
    """Loads modules of a project as they were, whatever their files say now."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = {s.name: s for s in sources}
        self._texts = {s.path: s.text for s in sources}

    def get_data(self, path: str | bytes) -> bytes:
        with suppress(KeyError):
            return self._texts[str(path)]
        raise OSError(f"{path!r} was not loaded")

    def get_filename(self, name: str) -> str:
        return self.sources[name].path


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, loader: _Texts) -> None:
        self._loader = loader
        parts = [name.split(".") for name in loader.sources]
        self._folders = frozenset(".".join(p[:n]) for p in parts for n in range(1, len(p)))

    @property
    def names(self) -> frozenset[str]:
        """The names of modules, and of folders that are packages without a file."""
        return frozenset(self._loader.sources) | self._folders

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        found = self._loader.sources.get(name)
        if found is None:
            return importlib.machinery.ModuleSpec(name, None, is_package=True) if name in self._folders else None
        inside = [str(Path(found.path).parent)] if found.is_package else None
        return importlib.util.spec_from_file_location(
            name, found.path, loader=self._loader, submodule_search_locations=inside
        )


class FileChanged(Exception):
    """A file of the project has changed that a module reads: its functions would give other values from now on."""


def imported(code: Code) -> ModuleType:
    """The module, for a process that runs no other: what it imports later comes from the texts, too. Raises FileChanged."""
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, _finder(code))
    module = importlib.import_module(code.module)
    for file in code.files:
        if not file.is_same:
            title = f"{Path(file.path).name}, which it reads while it is imported, is not as it was when its functions were deployed"
            raise FileChanged(f"{title}: flowql deploy")
    return module


@contextmanager
def importing(code: Code) -> Iterator[ModuleType]:
    """The module, for a process that may have other versions of it: nothing is left in `sys.modules`."""
    finder = _finder(code)
    names = finder.names
    with _importing:
        before = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
        sys.meta_path.insert(0, finder)
        try:
            yield importlib.import_module(code.module)
        finally:
            sys.meta_path.remove(finder)
            for name in names & sys.modules.keys():
                del sys.modules[name]
            sys.modules.update(before)


def _finder(code: Code) -> _Finder:
    for source in code.sources:  # for the lines in tracebacks; None: they are not compared with the file
        linecache.cache[source.path] = len(source.text), None, decode_source(source.text).splitlines(True), source.path
    return _Finder(_Texts(code.sources))
