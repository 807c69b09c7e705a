"""A project as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flowql.compiler.analyze.options import QueryOptions
from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import SourceText, Span
from flowql.config.api import ApiSettings
from flowql.config.pg import PgSettings
from flowql.config.sections import (
    InteractiveQuerySettings,
    LogLevel,
    MembersSettings,
    MetricsSettings,
    RemoteSettings,
    StateSettings,
)
from flowql.config.texts import ProjectTexts
from flowql.errors import CommandError
from flowql.runtime.budget import MIB
from flowql.runtime.config import LetterRetention
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.spark.settings import SparkSettings

if TYPE_CHECKING:  # the parser takes half a second, and most commands only want to know where the project is
    from flowql.compiler.driver import DialectName, QueryDefinition

DATA_DIR_DEFAULT = ".flowql/default"
ELSEWHERE = "FQ5310"


@dataclass(frozen=True, slots=True)
class Knobs:
    """The settings of a target that an instance starts with. data_dir: absolute. spark: for `engine: spark`. kafka: brokers of the log;
    None for the embedded log. prefix: put before all names that FlowQL creates on the log.
    """

    data_dir: Path
    _: KW_ONLY
    engine: Literal["runtime", "spark"] = "runtime"
    latency_target_ms: int | None = None
    guarantee: Literal["exactly_once", "at_least_once"] = "exactly_once"
    spark: SparkSettings = field(default_factory=SparkSettings)
    state: StateSettings = field(default_factory=StateSettings)
    kafka: KafkaSettings | None = None
    prefix: str = ""
    metrics: MetricsSettings | None = None
    api: ApiSettings | None = None
    pg: PgSettings | None = None
    log_level: LogLevel = "info"
    members: MembersSettings = field(default_factory=MembersSettings)
    interactive_queries: InteractiveQuerySettings = field(default_factory=InteractiveQuerySettings)
    dead_letters: LetterRetention = field(default_factory=LetterRetention)

    @property
    def log_dir(self) -> Path:
        """The directory of the embedded log."""
        return self.data_dir / "log"

    @property
    def state_dir(self) -> Path:
        """The directory of the instance's state."""
        return self.data_dir / "state"


@dataclass(frozen=True, slots=True)
class Target(Knobs):
    """A place to run. app_id: instead of the project's name. remote: the instance runs on another machine, and other settings have no effect."""

    name: str
    log: Literal["embedded", "kafka"] = "embedded"
    threads: int = 2
    memory_bytes: int = 1024 * MIB
    app_id: str | None = None
    remote: RemoteSettings | None = None
    bucket_spans: Mapping[str, Span] = field(default_factory=dict, compare=False, repr=False)

    def application_id(self, project: str) -> str:
        """The consumer group, the transactional id, and the beginning of the names of internal topics. project: its name."""
        return self.prefix + (self.app_id or project)


def check_here(target: Target) -> None:
    """CommandError for a target whose instance, log and directory are on another machine."""
    if target.remote is not None:
        title = f"the instance, the log and the directory of target `{target.name}` are on another machine"
        raise CommandError(title, code=ELSEWHERE, help="type this command there, or choose another target with -t")


@dataclass(frozen=True, slots=True)
class Project:
    """The content of `flowql.yaml`.

    root: the folder of the file. sources: SQL files, then queries of the file, in order. overrides: by query id or name of
    its result. properties: session properties at the start. partitions: of topics that are made and say nothing.
    variables: what `${name}` means in SQL. modules: Python modules with functions, and where they are named. diagnostics: mistakes in the project's files, before any SQL is read.
    undefined: variables without a value, by the target that names them; such targets are missing in `targets`.
    """

    name: str
    root: Path
    file: Path
    target: Target
    targets: Mapping[str, Target] = field(default_factory=dict)
    dialect: DialectName = "ksql"
    sources: tuple[SourceText | QueryDefinition, ...] = ()
    overrides: Mapping[str, QueryOptions] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    partitions: int = 1
    variables: Mapping[str, str] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    places: ProjectTexts = field(default_factory=ProjectTexts, compare=False, repr=False)
    modules: Mapping[str, Span] = field(default_factory=dict)
    override_spans: Mapping[str, Span] = field(default_factory=dict, compare=False, repr=False)
    undefined: Mapping[str, Sequence[Diagnostic]] = field(default_factory=dict)
