"""Facts about a data directory, read without an engine."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

from flowql.compiler.plan.deployed import Deployed
from flowql.config.storage import log_at
from flowql.deploy.settings import Settings
from flowql.runtime.app.plan_topic import read_deployed
from flowql.runtime.app.unrecorded import unrecorded

PROCESS_ID = "process-id"


def process_id(data_dir: Path) -> str:
    """Which member of its group the instance of a data directory is: made once, and beside the state, which may be deleted."""
    path = data_dir / PROCESS_ID
    if not path.exists():
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = path.with_suffix(".new")
        new.write_text(uuid.uuid4().hex[:12])
        new.replace(path)
    return path.read_text().strip()


def deployed_at_rest(settings: Settings) -> tuple[Deployed, Mapping[str, int]]:
    """The deployment recorded in a directory, and the partitions of its topics, without an instance."""
    if settings.kafka is None and not settings.log_dir.is_dir():
        return Deployed(), {}
    log = log_at(settings.log_dir, settings.kafka, settings.application_id)
    try:
        deployed = read_deployed(log, settings.application_id) or Deployed()
        left = unrecorded(log, settings.application_id, deployed)
        partitions = {name: info.partitions for name, info in log.admin().topics().items() if name not in left}
        return deployed, partitions
    finally:
        log.close()
