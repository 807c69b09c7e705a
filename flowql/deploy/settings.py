"""The settings with which an instance starts. Light: commands that only talk to an instance load no engine."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from flowql.config.api import ApiSettings, TokenSettings
from flowql.config.pg import PgSettings, PgUser
from flowql.config.project import Project, check_here
from flowql.config.sections import InteractiveQuerySettings, LogLevel, MembersSettings, MetricsSettings, StateSettings
from flowql.runtime.config import LetterRetention
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.spark.settings import SparkSettings, TopicFiles

UNSUPPORTED_TARGET = "FQ5203"


def writer_here(role: str) -> str:
    """Tells this process apart from others that write, also from those in other containers, whose process ids are the same."""
    return f"{role}-{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings with which an instance starts; travels as JSON to a background process. kafka: where the log is, None for the embedded.
    project_dir: where modules with functions of the project are. api: for programs on other machines; it holds their token. partitions: of
    topics that rows are written to and that do not exist. without: ids of queries that are paused before they begin. prefix: the one that
    deployed plans must have.
    """

    data_dir: Path
    application_id: str
    threads: int
    memory_bytes: int
    guarantee: Literal["exactly_once", "at_least_once"] = "exactly_once"
    engine: Literal["runtime", "spark"] = "runtime"
    spark: SparkSettings = field(default_factory=SparkSettings)
    kafka: KafkaSettings | None = None
    metrics: MetricsSettings | None = None
    log_level: LogLevel = "info"
    latency_target_ms: int | None = None
    members: MembersSettings = field(default_factory=MembersSettings)
    interactive_queries: InteractiveQuerySettings = field(default_factory=InteractiveQuerySettings)
    dead_letters: LetterRetention = field(default_factory=LetterRetention)
    project_dir: str = ""
    api: ApiSettings | None = None
    partitions: int = 1
    pg: PgSettings | None = None
    without: tuple[str, ...] = ()
    prefix: str = ""
    state: StateSettings = field(default_factory=StateSettings)

    def writer(self, role: str) -> str:
        """The transactional id of this process for what it does as `role`."""
        return f"{self.application_id}-{writer_here(role)}"

    def dumps(self) -> str:
        return json.dumps({**asdict(self), "data_dir": str(self.data_dir)})

    def at_start(self) -> str:
        """A digest of all that only a start applies, without what options of a command replace."""
        same = replace(self, data_dir=Path(), project_dir="", log_level="info", without=())
        return sha256(same.dumps().encode()).hexdigest()

    @classmethod
    def loads(cls, text: str) -> Settings:
        data = json.loads(text)
        spark = data.pop("spark")
        files = {topic: TopicFiles.of(f) for topic, f in spark.pop("files").items()}
        data["kafka"] = KafkaSettings(**data["kafka"]) if data["kafka"] is not None else None
        if (metrics := data["metrics"]) is not None:
            data["metrics"] = MetricsSettings(**{**metrics, "names": tuple(metrics["names"])})
        if (api := data["api"]) is not None:
            tokens = {
                n: TokenSettings(t["hash"], tuple(t["roles"]), tuple(t["results"])) for n, t in api["tokens"].items()
            }
            lists = {key: tuple(api[key]) for key in ("names", "origins")}
            data["api"] = ApiSettings(**{**api, **lists, "tokens": tokens})
        if (pg := data["pg"]) is not None:
            users = {n: PgUser(u["password"], tuple(u["roles"]), tuple(u["results"])) for n, u in pg["users"].items()}
            data["pg"] = PgSettings(**{**pg, "users": users})
        data["without"] = tuple(data["without"])
        data["state"] = StateSettings(**data["state"])
        data["members"] = MembersSettings(**data["members"])
        data["interactive_queries"] = InteractiveQuerySettings(**data["interactive_queries"])
        data["dead_letters"] = LetterRetention(**data["dead_letters"])
        return cls(**{**data, "data_dir": Path(data["data_dir"]), "spark": SparkSettings(**spark, files=files)})

    @property
    def log_dir(self) -> Path:
        return self.data_dir / "log"

    @property
    def state_dir(self) -> Path:
        return self.data_dir / "state"


def settings_of(project: Project) -> Settings:
    """Settings of the project's target. CommandError for a target whose instance is on another machine."""
    target = project.target
    check_here(target)
    return Settings(
        target.data_dir,
        target.application_id(project.name),
        target.threads,
        target.memory_bytes,
        target.guarantee,
        target.engine,
        target.spark,
        target.kafka,
        target.metrics,
        target.log_level,
        target.latency_target_ms,
        target.members,
        target.interactive_queries,
        target.dead_letters,
        str(project.root),
        target.api,
        project.partitions,
        target.pg,
        prefix=target.prefix,
        state=target.state,
    )
