"""The settings with which an instance starts. Light: commands that only talk to an instance load no engine."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path

from flowql.config.project import Knobs, Project, check_here
from flowql.runtime.budget import MemoryBudget

UNSUPPORTED_TARGET = "FQ5203"


def writer_here(role: str) -> str:
    """Tells this process apart from others that write, also from those in other containers, whose process ids are the same."""
    return f"{role}-{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class Settings(Knobs):
    """The settings with which an instance starts; travels as JSON to a background process. project_dir: the folder of modules with functions.
    partitions: of new topics that rows are written to. without: ids of queries that are paused before they begin. prefix: the one that
    deployed plans must have.
    """

    application_id: str
    threads: int
    memory_bytes: int
    project_dir: str = ""
    partitions: int = 1
    without: tuple[str, ...] = ()

    @property
    def has_gateway(self) -> bool:
        """Whether a process serves the ports of `api` and `pg`."""
        return self.api is not None or self.pg is not None

    @property
    def budget(self) -> MemoryBudget:
        return MemoryBudget(self.memory_bytes, self.has_gateway)

    def writer(self, role: str) -> str:
        """The transactional id of this process for what it does as `role`."""
        return f"{self.application_id}-{writer_here(role)}"

    def dumps(self) -> str:
        import msgspec  # 7 ms that no command spends which starts nothing

        return msgspec.json.encode(self, enc_hook=str).decode()

    def at_start(self) -> str:
        """A digest of all that only a start applies, without what options of a command replace."""
        same = replace(self, data_dir=Path(), project_dir="", log_level="info", without=())
        return sha256(same.dumps().encode()).hexdigest()

    @classmethod
    def loads(cls, text: str) -> Settings:
        import msgspec

        return msgspec.json.decode(text, type=cls, dec_hook=lambda path, value: path(value))


def settings_of(project: Project) -> Settings:
    """Settings of the project's target. CommandError for a target whose instance is on another machine."""
    target = project.target
    check_here(target)
    return Settings(
        target.data_dir,
        target.application_id(project.name),
        target.threads,
        target.memory_bytes,
        str(project.root),
        project.partitions,
        **{f.name: getattr(target, f.name) for f in fields(Knobs) if f.kw_only},
    )
