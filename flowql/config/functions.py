"""Loads the modules with user-defined functions from a project's folder."""

from __future__ import annotations

import ast
import hashlib
import importlib
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Literal

from flowql.compiler.diagnostics.source import Span
from flowql.compiler.functions import builtin as _builtin  # noqa: F401 - fills the function catalogue
from flowql.compiler.functions.registry import lookup, lookup_aggregate
from flowql.compiler.functions.user import Entry, UserDefined, UserFunction, entry_of, marked
from flowql.compiler.functions.user_aggregates import UserAggregate
from flowql.compiler.functions.user_columns import column_types, decimals_of
from flowql.compiler.functions.user_types import DefinitionError
from flowql.compiler.functions.user_vectorized import UserVectorFunction
from flowql.compiler.processors.topology import UserTopology
from flowql.compiler.streams.builder import UserStreams
from flowql.config.load import shown_path
from flowql.runtime.functions.interactive import InteractiveFunction
from flowql.runtime.functions.shipping import with_calls
from flowql.runtime.functions.workers import Code, DataFile, Source, digest_of

VERSION_CHARS = 12
_importing = threading.Lock()  # guards sys.path and sys.modules while modules of one project are imported

_by_modules: dict[tuple[Path, tuple[str, ...]], _Loaded] = {}  # by folder and modules


class LoadError(Exception):
    """A module that cannot be loaded. module: its name. hint: what to do; place: in a file of the project, where one is known."""

    def __init__(self, module: str, message: str, hint: str = "", place: Span | None = None) -> None:
        super().__init__(message)
        self.module, self.hint, self.place = module, hint, place


def load_functions(root: Path, modules: Sequence[str]) -> dict[str, Entry]:
    """The functions, aggregates and topologies of modules in the folder `root`, as they are there now, by the name that SQL calls them. Raises LoadError.

    The version of a function is a hash of the source of its module, of all modules of the folder that this one imports, and of the files
    there that they read while they are imported. Modules are not left in `sys.modules`: another project, or a later version, may have some of the same name.
    """
    return {user.name: with_calls(entry, user, code) for user, entry, code in _declared(root, modules)}


def load_query_functions(root: Path, modules: Sequence[str]) -> Mapping[str, InteractiveFunction]:
    """The functions as interactive queries call them, by their names in SQL. Raises LoadError.

    Modules are imported again only when a file has changed that they were imported from, or a folder of one.
    """
    key = (root, tuple(modules))
    known = _by_modules.get(key)
    if known is not None and known.is_current():
        return known.functions
    sources: list[Source] = []
    files: list[DataFile] = []
    found = {
        user.name: _to_ask(user, entry.name, code) for user, entry, code in _declared(root, modules, sources, files)
    }
    functions = {name: function for name, function in found.items() if function is not None}
    folders = {Path(s.path).parent for s in sources} | {root}
    _by_modules[key] = _Loaded(tuple(sources), tuple(files), {folder: _names(folder) for folder in folders}, functions)
    return functions


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The result of `load_query_functions`. folders: with the names in them, as a new file may hide one of the sources."""

    sources: tuple[Source, ...]
    files: tuple[DataFile, ...]
    folders: Mapping[Path, frozenset[str]]
    functions: Mapping[str, InteractiveFunction]

    def is_current(self) -> bool:
        try:
            return (
                all(_names(folder) == names for folder, names in self.folders.items())
                and all(Path(s.path).read_bytes() == s.text for s in self.sources)
                and all(f.is_same for f in self.files)
            )
        except OSError:
            return False


def _names(folder: Path) -> frozenset[str]:
    """Times of files and folders are no substitute: two changes within some milliseconds have the same."""
    return frozenset(os.listdir(folder))


def _declared(
    root: Path, modules: Sequence[str], seen: list[Source] | None = None, read: list[DataFile] | None = None
) -> Iterator[tuple[UserDefined, Entry, Code]]:
    """The functions that modules declare, each with its entry of the catalogue and the code that processes run. Raises LoadError.

    seen, read: get the sources of all modules, and the files that they read.
    """
    homes: dict[str, tuple[str, UserDefined]] = {}
    for name in modules:
        with _imported(root, name) as (module, sources, files):
            users = marked(module)
            code = _code(root, name, sources, files, users)
            if seen is not None:
                seen += sources
            if read is not None:
                read += files
        for user in users:
            is_called = not isinstance(user, UserTopology | UserStreams)
            if is_called and (lookup(user.name) is not None or lookup_aggregate(user.name) is not None):
                place = part_in_file(root, user.call.__code__, "") if hasattr(user, "call") else None
                raise LoadError(
                    name, f"{user.name} is a built-in function", "give it another name:  @udf(name=...)", place
                )
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


def _to_ask(user: UserDefined, key: str, code: Code) -> InteractiveFunction | None:
    """The function as interactive queries call it; None if SQL does not call it."""
    if isinstance(user, UserVectorFunction):
        return InteractiveFunction(user.name, key, user.params, user.result, code, user.limits)
    if isinstance(user, UserAggregate):
        kind: Literal["scalar", "table", "aggregate"] = "aggregate"
    elif isinstance(user, UserFunction):
        kind = "table" if user.table else "scalar"
    else:
        return None
    return InteractiveFunction(
        user.name, key, column_types(user), user.result, code, user.limits, kind, decimals_of(user)
    )


@contextmanager
def _imported(root: Path, name: str) -> Iterator[tuple[ModuleType, list[Source], tuple[DataFile, ...]]]:
    """The module, it and those of the folder that it imports as sources, and the files there that they read meanwhile."""
    with _importing:
        before = dict(sys.modules)
        for known in [m for m, module in before.items() if _is_in(root, module)]:
            del sys.modules[known]
        sys.path.insert(0, str(root))
        importlib.invalidate_caches()
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            with opened_files() as opened:
                module = _import(root, name)
            sources = [_source(n, m) for n, m in _loaded() if _is_in(root, m) and _file(m)]
            yield module, sources, data_files(root, opened)
        finally:
            sys.dont_write_bytecode = writes
            with suppress(ValueError):  # the module may have taken it out
                sys.path.remove(str(root))
            for made in [n for n, m in _loaded() if _is_in(root, m)]:
                del sys.modules[made]
            sys.modules.update({m: module for m, module in before.items() if _is_in(root, module)})


def _loaded() -> list[tuple[str, ModuleType]]:
    """A copy of `sys.modules`: another thread may import something while it is read."""
    return list(sys.modules.items())


def _where(parts: Sequence[str]) -> str:
    if len(parts) > 1 and parts[-1] == "py":
        return f"a name without .py:  functions: [{'.'.join(parts[:-1])}]"
    return "modules are beside flowql.yaml"


def _import(root: Path, name: str) -> ModuleType:
    parts = name.split(".")
    if not all(p.isidentifier() for p in parts):
        raise LoadError(name, f"`{name}` is not the name of a module", "a name without .py:  functions: [scoring]")
    place = root.joinpath(*parts)
    if not place.with_suffix(".py").is_file() and not (place / "__init__.py").is_file():
        title = (
            f"`{name}` is the name of a file"
            if parts[-1] == "py"
            else f"there is no {'/'.join(parts)}.py in the project's folder"
        )
        raise LoadError(name, title, _where(parts))
    try:
        return importlib.import_module(name)
    except DefinitionError as error:
        part = None if error.code is None else part_in_file(root, error.code, error.part)
        raise LoadError(name, str(error), error.hint, part or raised_in(root, error)) from error
    except (Exception, SystemExit) as error:
        text = f"{name} cannot be imported: {type(error).__name__}: {error}"
        raise LoadError(name, text, "", raised_in(root, error)) from error


def _is_in(root: Path, module: ModuleType) -> bool:
    """Whether it is the project's own: not FlowQL, not the program that runs, not what is installed in a folder of the project."""
    name = str(getattr(module, "__name__", ""))
    places = [Path(_file(module))] if _file(module) else [Path(p) for p in _folders(module)]
    if name == "__main__" or name.partition(".")[0] == "flowql" or not places:
        return False
    if not places[0].is_relative_to(root):
        return False
    parts = places[0].relative_to(root).parts
    return not any(p.startswith(".") or p in ("site-packages", "dist-packages") for p in parts)


def _file(module: ModuleType) -> str:
    """Empty for folders that are packages without a file."""
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else ""


def _folders(module: ModuleType) -> list[str]:
    """The folders of a package without a file. The other entries of `sys.modules` may be of any kind."""
    try:
        return [p for p in getattr(module, "__path__", ()) if isinstance(p, str)]
    except Exception:  # attributes of modules that are loaded when they are used
        return []


def _source(name: str, module: ModuleType) -> Source:
    file = Path(str(module.__file__))
    return Source(name, str(file), file.read_bytes(), "__path__" in vars(module))


def _version(root: Path, sources: Sequence[Source], files: Sequence[DataFile]) -> str:
    digest = hashlib.sha256()
    for source in sorted(sources, key=lambda s: Path(s.path)):
        name = Path(source.path).relative_to(root).as_posix()
        digest.update(f"{name} {len(source.text)}\n".encode() + source.text)
    for file in files:
        digest.update(f"{Path(file.path).relative_to(root).as_posix()} {file.digest}\n".encode())
    return digest.hexdigest()[:VERSION_CHARS]


def _code(
    root: Path, name: str, sources: Sequence[Source], files: Sequence[DataFile], users: Sequence[UserDefined]
) -> Code:
    """The code that processes run. They have the most memory that a function of the module asks for.

    Where a function says its version itself, an edit changes nothing, of a file neither.
    """
    memory_bytes = max([u.limits.memory_bytes for u in users], default=0)
    checked = () if users and all(u.version for u in users) else tuple(files)
    return Code(name, tuple(sources), memory_bytes, version=_version(root, sources, files), files=checked)


# Which files of a project its modules open to read while they are imported: what a function computes depends on them as on its source.

_CODE = (".py", ".pyc", ".so")
_lock = threading.Lock()  # guards _installed and _watched
_installed = False
_watched: tuple[int, set[str]] | None = None  # a thread, and the paths that it has opened


@contextmanager
def opened_files() -> Iterator[set[str]]:
    """Within, the paths that this thread opens to read, as they were said. One thread at a time. Python has no way to take its hook back."""
    global _installed, _watched
    paths: set[str] = set()
    with _lock:
        if not _installed:
            sys.addaudithook(_note)
            _installed = True
        _watched = threading.get_ident(), paths
    try:
        yield paths
    finally:
        _watched = None


def _note(event: str, args: tuple[object, ...]) -> None:
    watched = _watched
    if watched is None or event != "open" or watched[0] != threading.get_ident():
        return
    path, _, flags = args
    if isinstance(path, str | bytes) and isinstance(flags, int) and flags & os.O_ACCMODE == os.O_RDONLY:
        watched[1].add(os.path.abspath(os.fsdecode(path)))


def data_files(root: Path, paths: set[str]) -> tuple[DataFile, ...]:
    """Those in the project's folder that are no code, with what is in them now. One that does not exist counts too: it may come."""
    folder = os.path.abspath(root)
    return tuple(DataFile(p, digest_of(p)) for p in sorted(paths) if _is_data(folder, p))


def _is_data(root: str, path: str) -> bool:
    if not path.startswith(root + os.sep) or path.endswith(_CODE) or os.path.isdir(path):
        return False
    parts = path[len(root) + 1 :].split(os.sep)
    return not any(p.startswith(".") or p in ("site-packages", "dist-packages", "__pycache__") for p in parts)


# Spans of mistakes in modules of a project.

_Def = ast.FunctionDef | ast.AsyncFunctionDef


def raised_in(root: Path, error: BaseException) -> Span | None:
    """The line in a file below `root` that raised the error; for a SyntaxError, the line that has it."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_relative_to(root):
        return _line(Path(error.filename), error.lineno or 0)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(root)]
    return _line(Path(frames[-1].filename), frames[-1].lineno or 0) if frames else None


def part_in_file(root: Path, code: CodeType, part: str) -> Span | None:
    """part: a parameter of the function with that code, "return" for the type of its result, "" for its name. None outside of `root`."""
    file = Path(code.co_filename)
    if not file.is_relative_to(root):
        return None
    lines = file.read_text("utf-8", "replace").splitlines()
    found = next((n for n in ast.walk(ast.parse("\n".join(lines))) if isinstance(n, _Def) and _is_of(n, code)), None)
    if found is None:
        return None
    node = _part(found, part)
    if node is None:
        text = lines[found.lineno - 1]
        start = text.find(found.name, text.find("def", found.col_offset) + len("def"))
        if start < 0:  # a backslash parts `def` from the name
            return _line(file, found.lineno)
        return Span(shown_path(file), found.lineno, start + 1, len(found.name), text)
    text = lines[node.lineno - 1]
    start = _characters(text, node.col_offset)
    end = _characters(text, node.end_col_offset or 0) if node.end_lineno == node.lineno else len(text)
    return Span(shown_path(file), node.lineno, start + 1, max(1, end - start), text)


def _is_of(node: _Def, code: CodeType) -> bool:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return node.name == code.co_name and first == code.co_firstlineno


def _part(node: _Def, part: str) -> ast.arg | ast.expr | None:
    if part == "return":
        return node.returns
    args = node.args
    return next((a for a in (*args.posonlyargs, *args.args, *args.kwonlyargs) if a.arg == part), None)


def _characters(text: str, octets: int) -> int:
    """Positions in syntax trees count bytes."""
    return len(text.encode()[:octets].decode(errors="replace"))


def _line(file: Path, number: int) -> Span:
    lines = file.read_text("utf-8", "replace").splitlines()
    text = lines[number - 1] if 0 < number <= len(lines) else ""
    indent = len(text) - len(text.lstrip())
    return Span(shown_path(file), number, indent + 1, max(1, len(text.strip())), text)
