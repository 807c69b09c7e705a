"""From `flowql.yaml` to a Project: find it, read it, read the files it names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from flowql.compiler.analyze.options import DEFAULT_KEY, DEFAULT_VALUE, QueryOptions
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import NOWHERE, SourceText, Span
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.config.api import api_settings
from flowql.config.pg import pg_settings
from flowql.config.project import DATA_DIR_DEFAULT, Project, Target
from flowql.config.reader import Item, Reader, compose, made, plain, texts, under
from flowql.config.sections import (
    REMOTE,
    InteractiveQuerySettings,
    MembersSettings,
    MetricsSettings,
    kafka_settings,
    remote_settings,
    state_settings,
)
from flowql.config.spark import is_address, spark_settings
from flowql.config.table import FILE_NAME, PROJECT
from flowql.config.texts import ProjectTexts, Taken, Variables
from flowql.errors import ProjectError
from flowql.runtime.budget import MIB
from flowql.runtime.config import LetterRetention

if TYPE_CHECKING:
    from flowql.compiler.driver import DialectName, QueryDefinition

# --- How much memory there is, and how much of it a target takes where nothing is said ---

DEFAULT_MIN, DEFAULT_MAX = 256 * MIB, 1024 * MIB
_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def memory_there_is(groups: Path = _GROUPS, mount: Path = _MOUNT) -> int:
    """The memory of the machine in bytes, or the limit of this process's container or control group, if that is less."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits(groups, mount)])


def default_memory_bytes(there_is: int) -> int:
    """A quarter, as others run on the machine, too; at least 256 MB, and at most 1 GB: more is asked for by name."""
    return max(DEFAULT_MIN, min(DEFAULT_MAX, there_is // 4))


def _limits(groups: Path, mount: Path) -> Iterator[int]:
    """The limits of control groups (both versions): the process's own and those around it."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:  # not on Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):  # of version 1 several may be mounted as one
            continue
        joined = mount / controllers
        of_memory = joined if joined.is_dir() else mount / "memory"
        root, name = (of_memory, "memory.limit_in_bytes") if controllers else (mount, "memory.max")
        inside = Path(path.lstrip("/"))
        for folder in (
            inside,
            *inside.parents,
        ):  # in a container the mount shows the group itself, whatever its path says
            try:
                text = (root / folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdigit():
                yield int(text)


T = TypeVar("T")
_NO_VARIABLES: Mapping[str, str] = {}
_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,99}[._-]")  # ends in a separator: `dev` would also be the beginning of `device`


def load_project(
    start: Path,
    *,
    target: str | None = None,
    variables: Mapping[str, str] = _NO_VARIABLES,
    environment: Mapping[str, str] | None = None,
) -> Project:
    """The project `start` is in, without mistakes. Raises ProjectError with all of them.

    start: a folder in the project, or the file itself. SQL is read and not yet parsed.
    """
    project = read_project(start, target=target, variables=variables, environment=environment)
    if any(d.severity == "error" for d in project.diagnostics):
        raise ProjectError(*project.diagnostics)
    return project


def read_project(
    start: Path,
    *,
    target: str | None = None,
    variables: Mapping[str, str] = _NO_VARIABLES,
    environment: Mapping[str, str] | None = None,
) -> Project:
    """As `load_project`, with mistakes in `diagnostics`. Raises ProjectError only when there is no file to read."""
    file = find_project_file(start)
    return _Loading(file, Variables(variables, os.environ if environment is None else environment)).project(target)


def find_project_file(start: Path) -> Path:
    """`flowql.yaml` in `start` or the nearest folder above it."""
    if start.is_file():
        return start.resolve()
    folder = start.resolve()
    for candidate in (folder, *folder.parents) if folder.is_dir() else ():
        if (candidate / FILE_NAME).is_file():
            return candidate / FILE_NAME
    title = f"no {FILE_NAME} in {start} or a folder above it" if folder.is_dir() else f"{start} does not exist"
    raise ProjectError(
        Diagnostic("FQ3002", title, help="go to a project, name one with -p, or make one:  flowql init my_project")
    )


class _Loading:
    """One reading of one project file."""

    def __init__(self, file: Path, variables: Variables) -> None:
        self._file, self._root, self._path = file, file.parent, shown_path(file)
        self._variables = variables
        self._places = ProjectTexts()
        self._found: list[Diagnostic] = []
        self._sql_variables: dict[str, str] = {}
        self._undefined: Mapping[str, list[Diagnostic]] = {}  # variables without a value, by target

    def project(self, target: str | None) -> Project:
        items = self._items(target)
        name = items["name"].value if "name" in items else self._root.name
        dialect = cast("DialectName", items["dialect"].value if "dialect" in items else "ksql")
        targets = {name: _with_dialect(t, dialect) for name, t in self._targets(items).items()}
        defaults: Mapping[str, Item] = under(items, "defaults")
        properties = texts(under(items, "properties"))
        for key, session in (("key_format", DEFAULT_KEY), ("value_format", DEFAULT_VALUE)):
            if key in defaults:
                properties.setdefault(session, defaults[key].value)
        sources = [*self._files(items), *self._queries(items, dialect)]
        chosen = _with_dialect(self._chosen(items, targets, target), dialect)
        self._found += self._undefined.get(chosen.name, ())
        priorities: Mapping[str, Item] = under(items, "priorities")
        return Project(
            name=name,
            root=self._root,
            file=self._file,
            target=chosen,
            targets={name: t for name, t in targets.items() if name not in self._undefined},
            undefined=self._undefined,
            dialect=dialect,
            sources=tuple(sources),
            overrides={k: _options(i.value) for k, i in priorities.items()},
            properties=properties,
            partitions=defaults["partitions"].value if "partitions" in defaults else 1,
            variables=self._sql_variables,
            diagnostics=tuple(self._found),
            places=self._places,
            modules={str(i.value): i.span for i in under(items, "functions")},
            override_spans={k: i.key for k, i in priorities.items()},
        )

    def _items(self, target: str | None) -> Mapping[str, Item]:
        text = self._text(self._file, NOWHERE)
        if text is None:
            return {}
        self._places.add_file(self._path, text)
        node, problems = compose(self._path, text)
        self._found += problems
        if problems:
            return {}
        if node is None:
            self._error("FQ3006", "this project file is empty", Span(self._path, 1, 1), help_="add  name: my_project")
            return {}
        reader = Reader(self._path, text, self._places, self._variables)
        self._define_variables(reader, node, target)
        item = reader.read(node, PROJECT)
        self._found += reader.diagnostics
        self._undefined = reader.undefined
        return cast(Mapping[str, Item], item.value) if item is not None else {}

    def _define_variables(self, reader: Reader, root: Any, target: str | None) -> None:
        """`vars` come first, then those of the chosen target: everything else may name them, and later ones earlier ones."""
        found = _children(root)
        targets, default = _children(found.get("targets")), getattr(found.get("default_target"), "value", None)
        chosen = targets.get(target or default or next(iter(targets), ""))
        for node in (found.get("vars"), _children(chosen).get("vars")):
            for name, value in _children(node).items():
                item = reader.read(value, PROJECT.keys["vars"].shape.value, name)  # type: ignore[union-attr]
                if item is not None:
                    self._variables.define(name, texts({"": item})[""])
        reader.diagnostics.clear()  # they come again when the whole is read

    # Sources.

    def _files(self, items: Mapping[str, Item]) -> list[SourceText]:
        found: dict[Path, SourceText] = {}
        for item in under(items, "sql"):
            for path in self._matching(item):
                text = self._text(path, item.span)
                if text is not None and path not in found:
                    found[path] = self._sql(path, text)
        return list(found.values())

    def _matching(self, item: Item) -> list[Path]:
        pattern = str(item.value)
        if not any(c in pattern for c in "*?["):
            return [self._root / pattern]
        paths = sorted(p for p in self._root.glob(pattern) if p.is_file())
        if not paths:
            self._error("FQ3007", f"no file matches `{pattern}`", item.span, "nothing there")
        return paths

    def _sql(self, path: Path, text: str) -> SourceText:
        shown = shown_path(path)
        self._places.add_file(shown, text)
        self._sql_variables |= self._variables.for_sql(text)
        if ":-" not in text:
            return SourceText(shown, text)
        taken, _ = self._variables.expand(Taken(text, range(len(text))), defaults_only=True)
        return SourceText(shown, text) if taken.text == text else self._places.source(shown, taken)

    def _queries(self, items: Mapping[str, Item], dialect: DialectName) -> list[SourceText | QueryDefinition]:
        found: list[SourceText | QueryDefinition] = []
        for entry in under(items, "queries"):
            if "sql" in entry.value:
                others = [k for k in entry.value if k != "sql"]
                if others:
                    title = (
                        f"a query is `sql` or structure, and this has `sql` and {listing([f'`{k}`' for k in others])}"
                    )
                    self._error(
                        "FQ3010", title, entry.value[others[0]].key, "beside `sql`", "keep one of the two forms"
                    )
                source = entry.value["sql"].value
                self._sql_variables |= self._variables.for_sql(source.text)
                found.append(source)
                continue
            from flowql.config.structured import structured_query  # loads the parser, which few commands need

            definition, problems = structured_query(entry.value, entry.span, dialect)
            self._found += self._places.placed(problems)
            if definition is not None:
                found.append(definition)
        return found

    def _text(self, path: Path, span: Span) -> str | None:
        try:
            return path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            near = did_you_mean(path.name, [p.name for p in path.parent.glob("*.sql")] if path.parent.is_dir() else [])
            self._error("FQ3007", f"file {shown_path(path)} does not exist", span, "not there", near)
        except IsADirectoryError:
            self._error(
                "FQ3007", f"{shown_path(path)} is a folder", span, "not a file", "name its files, or write *.sql"
            )
        except OSError as e:
            self._error("FQ3007", f"file {shown_path(path)} cannot be read: {e.strerror}", span, "not readable")
        except UnicodeDecodeError as e:
            self._error("FQ3007", f"file {shown_path(path)} is not UTF-8 text (byte {e.start})", span, "not text")
        return None

    # Targets.

    def _targets(self, items: Mapping[str, Item]) -> dict[str, Target]:
        given: Mapping[str, Item] = under(items, "targets")
        return {name: self._target(name, item.value) for name, item in given.items()}

    def _target(self, name: str, given: Mapping[str, Item]) -> Target:
        remote = self._noted(remote_settings(name, given))
        values = {k: i.value for k, i in given.items() if k not in (*REMOTE, "vars")}
        folder = values.pop("data_dir", DATA_DIR_DEFAULT if name == "default" else f".flowql/{name}")
        if is_address(folder):  # a path of that text would be a folder beside this file
            title = f"`data_dir` is a folder of this machine, and {folder} is an address"
            help_ = "write a path without `file:`; checkpoints and files of Spark may have addresses:  spark: {checkpoint: ..., files: ...}"
            self._error("FQ3004", title, given["data_dir"].span, "an address", help_)
        self._check_prefix(given)
        for key, field in (("memory", "memory_bytes"), ("latency_target", "latency_target_ms")):
            if key in values:
                values[field] = values.pop(key)
        spark: Mapping[str, Item] = values.pop("spark", {})
        if spark and values.get("engine") != "spark":
            title = f"`spark` is for targets that run on Spark, and target `{name}` runs on the runtime"
            self._error("FQ3003", title, given["spark"].key, "no meaning here", "add  engine: spark")
        if "hash_buckets" in spark:
            values["bucket_spans"] = {query: item.key for query, item in spark["hash_buckets"].value.items()}
        values["spark"] = self._noted(spark_settings(spark, self._root, values))
        values.setdefault("memory_bytes", default_memory_bytes(memory_there_is()))
        metrics = values.pop("metrics", {})
        values["metrics"] = made(MetricsSettings, metrics) if "port" in metrics else None
        values["api"] = self._noted(api_settings(values.pop("api", {})))
        values["pg"] = self._noted(pg_settings(values.pop("pg", {})))
        letters, asked = values.pop("dead_letters", {}), values.pop("interactive_queries", {})
        values["dead_letters"] = made(LetterRetention, letters, keep="age_ms", size="size_bytes")
        values["interactive_queries"] = made(InteractiveQuerySettings, asked, time="time_ms", spill="spill_bytes")
        values["state"] = self._noted(state_settings(values.pop("state", {}), self._root))
        values["members"] = made(MembersSettings, values.pop("members", {}))
        kafka: Mapping[str, Item] = values.pop("kafka", {})
        if values.get("log") == "kafka":
            values["kafka"] = self._noted(kafka_settings(kafka, self._root))
            values["app_id"] = kafka["app_id"].value if "app_id" in kafka else None
            if values["kafka"].shared and values.get("guarantee") == "at_least_once":
                title = "`at_least_once` is for one instance, and `instances: many` share this application"
                self._error("FQ5507", title, given["guarantee"].key, "exactly once, here", "remove it")
        elif kafka:
            title = f"`kafka` is for targets whose log is Kafka, and target `{name}` has the embedded one"
            self._error("FQ3003", title, given["kafka"].key, "no meaning here", "add  log: kafka")
        return Target((self._root / Path(folder).expanduser()).resolve(), name, remote=remote, **values)

    def _noted(self, settings: tuple[T, list[Diagnostic]]) -> T:
        """The settings; their mistakes are kept."""
        self._found += settings[1]
        return settings[0]

    def _check_prefix(self, given: Mapping[str, Item]) -> None:
        if "prefix" in given and not _PREFIX.fullmatch(given["prefix"].value):
            title = f"`prefix` cannot be {given['prefix'].value!r}: expected at most 100 letters, digits, `.`, `_` or `-`, ending in `.`, `_` or `-`"
            self._error("FQ3004", title, given["prefix"].span, "not a prefix", "write  prefix: dev_anna_")

    def _chosen(self, items: Mapping[str, Item], targets: Mapping[str, Target], chosen: str | None) -> Target:
        default = items.get("default_target")
        if default is not None and targets and default.value not in targets:
            hint = did_you_mean(default.value, targets) or f"targets are {listing(targets)}"
            self._error("FQ3009", f"default_target `{default.value}` is not a target", default.span, "unknown", hint)
        name = chosen or (default.value if default is not None else next(iter(targets), "default"))
        if name in targets:
            return targets[name]
        if chosen is not None and (targets or chosen != "default"):
            known = listing(targets) or "default"
            hint = did_you_mean(chosen, targets) or f"{shown_path(self._file)} has {known}"
            self._error("FQ3009", f"there is no target `{chosen}`", NOWHERE, "", hint)
        return self._target(name, {})

    def _error(self, code: str, title: str, span: Span, label: str = "", help_: str = "") -> None:
        self._found.append(Diagnostic(code, title, span, label, help=help_))


def _children(node: Any) -> dict[str, Any]:
    """The nodes of a mapping by key; none of anything else."""
    pairs = getattr(node, "value", None)
    pairs = [pair for pair in pairs if isinstance(pair, tuple)] if isinstance(pairs, list) else []
    return {str(key.value): value for key, value in pairs if isinstance(key.value, str)}


def _with_dialect(target: Target, dialect: DialectName) -> Target:
    """Interactive queries are written in the dialect of the project."""
    return replace(target, interactive_queries=replace(target.interactive_queries, dialect=dialect))


def _options(given: Mapping[str, Item]) -> QueryOptions:
    values = plain(given)
    return QueryOptions(values.get("priority"), values.get("weight"), values.get("latency_target"))


def shown_path(path: Path) -> str:
    """A path as messages show it: from the working directory when it is below it."""
    try:
        return path.absolute().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)
