"""Loads the modules with user-defined functions from a project's folder."""

from __future__ import annotations

import hashlib
import importlib
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from flowql.compiler.functions import builtin as _builtin  # noqa: F401 - fills the function catalogue
from flowql.compiler.functions.registry import lookup, lookup_aggregate
from flowql.compiler.functions.user import DEFAULT_LIMITS, Entry, UserDefined, UserFunction, entry_of, marked
from flowql.compiler.functions.user_types import DefinitionError
from flowql.compiler.functions.user_vectorized import COLUMN_KINDS, UserVectorFunction
from flowql.compiler.plan.types import SqlType
from flowql.compiler.processors.topology import UserTopology
from flowql.compiler.streams.builder import UserStreams
from flowql.runtime.functions.asked import AskedFunction
from flowql.runtime.functions.shipping import with_calls
from flowql.runtime.functions.workers import Code, Source

VERSION_CHARS = 12
_importing = threading.Lock()  # guards sys.path and sys.modules while modules of one project are imported


class LoadError(Exception):
    """A module that cannot be loaded. module: its name. hint: what to do; line: in `file`, 0 where none is known."""

    def __init__(self, module: str, message: str, hint: str = "", file: Path | None = None, line: int = 0) -> None:
        super().__init__(message)
        self.module, self.hint, self.file, self.line = module, hint, file, line


def load_functions(root: Path, modules: Sequence[str]) -> dict[str, Entry]:
    """The functions, aggregates and topologies of modules in the folder `root`, as they are there now, by the name that SQL calls them. Raises LoadError.

    The version of a function is a hash of the source of its module and of all modules of the folder that this one imports. Modules are
    not left in `sys.modules`: another project, or a later version, may have some of the same name.
    """
    return {user.name: with_calls(entry, user, code) for user, entry, code in _declared(root, modules)}


def load_query_functions(root: Path, modules: Sequence[str]) -> dict[str, AskedFunction]:
    """The scalar functions that interactive queries can call, by their names in SQL: all their types have columns. Raises LoadError."""
    found = {user.name: _to_ask(user, entry.name, code) for user, entry, code in _declared(root, modules)}
    return {name: function for name, function in found.items() if function is not None}


def _declared(root: Path, modules: Sequence[str]) -> Iterator[tuple[UserDefined, Entry, Code]]:
    """What modules declare, with its entry of the catalogue and the code that processes run. Raises LoadError."""
    homes: dict[str, tuple[str, UserDefined]] = {}
    for name in modules:
        with _imported(root, name) as (module, sources):
            users = marked(module)
            code = _code(root, name, sources, users)
        for user in users:
            is_called = not isinstance(user, UserTopology | UserStreams)
            if is_called and (lookup(user.name) is not None or lookup_aggregate(user.name) is not None):
                raise LoadError(name, f"{user.name} is a built-in function", "give it another name:  @udf(name=...)")
            home, same = homes.setdefault(user.name, (name, user))
            if home != name:
                raise LoadError(name, f"{user.name} is in {home}, too", "give one of them another name")
            if same is not user:
                raise LoadError(name, f"{user.name} is there twice", "give one of them another name")
            try:
                entry = entry_of(user, name, code.version)
            except DefinitionError as error:
                raise LoadError(name, str(error), error.hint) from error
            yield user, entry, code


def _to_ask(user: UserDefined, key: str, code: Code) -> AskedFunction | None:
    limits = user.limits or DEFAULT_LIMITS
    if isinstance(user, UserVectorFunction):
        return AskedFunction(user.name, key, user.params, user.result, code, limits)
    if not isinstance(user, UserFunction) or user.table:
        return None
    args = tuple(t for t in user.params if isinstance(t, SqlType) and t.kind in COLUMN_KINDS)
    if not args or len(args) < len(user.params) or user.result.kind not in COLUMN_KINDS:
        return None
    return AskedFunction(user.name, key, args, user.result, code, limits)


@contextmanager
def _imported(root: Path, name: str) -> Iterator[tuple[ModuleType, list[Source]]]:
    """The module, and it and those of the folder that it imports as sources."""
    with _importing:
        before = dict(sys.modules)
        for known in [m for m, module in before.items() if _is_in(root, module)]:
            del sys.modules[known]
        sys.path.insert(0, str(root))
        importlib.invalidate_caches()
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            module = _import(root, name)
            yield module, [_source(n, m) for n, m in _loaded() if _is_in(root, m)]
        finally:
            sys.dont_write_bytecode = writes
            sys.path.remove(str(root))
            for made in [n for n, m in _loaded() if _is_in(root, m)]:
                del sys.modules[made]
            sys.modules.update({m: module for m, module in before.items() if _is_in(root, module)})


def _loaded() -> list[tuple[str, ModuleType]]:
    """A copy of `sys.modules`: another thread may import something while it is read."""
    return list(sys.modules.items())


def _import(root: Path, name: str) -> ModuleType:
    parts = name.split(".")
    if not all(p.isidentifier() for p in parts):
        raise LoadError(name, f"`{name}` is not the name of a module", "a name without .py:  functions: [scoring]")
    place = root.joinpath(*parts)
    if not place.with_suffix(".py").is_file() and not (place / "__init__.py").is_file():
        raise LoadError(
            name, f"there is no {'/'.join(parts)}.py in the project's folder", "modules are beside flowql.yaml"
        )
    try:
        return importlib.import_module(name)
    except DefinitionError as error:
        raise LoadError(name, str(error), error.hint, *_place(root, error)) from error
    except (Exception, SystemExit) as error:
        text = f"{name} cannot be imported: {type(error).__name__}: {error}"
        raise LoadError(name, text, "", *_place(root, error)) from error


def _place(root: Path, error: BaseException) -> tuple[Path | None, int]:
    """Where in the project's files it was raised."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_relative_to(root):
        return Path(error.filename), error.lineno or 0
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(root)]
    return (Path(frames[-1].filename), frames[-1].lineno or 0) if frames else (None, 0)


def _is_in(root: Path, module: ModuleType) -> bool:
    """Whether it is the project's own: not FlowQL, not the program that runs, not what is installed in a folder of the project."""
    file = getattr(module, "__file__", None)
    name = str(getattr(module, "__name__", ""))
    if not isinstance(file, str) or name == "__main__" or name.partition(".")[0] == "flowql":
        return False
    if not Path(file).is_relative_to(root):
        return False
    parts = Path(file).relative_to(root).parts
    return not any(p.startswith(".") or p in ("site-packages", "dist-packages") for p in parts)


def _source(name: str, module: ModuleType) -> Source:
    file = Path(str(module.__file__))
    return Source(name, str(file), file.read_bytes(), hasattr(module, "__path__"))


def _version(root: Path, sources: Sequence[Source]) -> str:
    digest = hashlib.sha256()
    for source in sorted(sources, key=lambda s: Path(s.path)):
        name = Path(source.path).relative_to(root).as_posix()
        digest.update(f"{name} {len(source.text)}\n".encode() + source.text)
    return digest.hexdigest()[:VERSION_CHARS]


def _code(root: Path, name: str, sources: Sequence[Source], users: Sequence[UserDefined]) -> Code:
    """What processes run. They have the most memory that a function of the module asks for."""
    memory_bytes = max([(u.limits or DEFAULT_LIMITS).memory_bytes for u in users], default=0)
    return Code(name, tuple(sources), memory_bytes, version=_version(root, sources))
