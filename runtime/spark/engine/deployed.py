"""`plan.json`: what a Spark target runs, and which checkpoint of which definition each query has. No pyspark."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import quote

from flowql.compiler.plan import codec
from flowql.compiler.plan.topology import Plan
from flowql.runtime.errors import InstanceRunning, StateError
from flowql.runtime.log.files import DiskFiles, Lock
from flowql.runtime.spark.folders import Folder
from flowql.runtime.spark.history import complete_queries
from flowql.runtime.spark.log_offsets import Offsets
from flowql.runtime.spark.settings import SparkSettings

FILE = "plan.json"
_FORMAT = 1
F = TypeVar("F", bound=Folder)
How = Literal["exact", "native"]
Form = Literal["stream", "batch"]


@dataclass(frozen=True, slots=True)
class Record:
    """The origin of a query's results in the log.

    definition: of the query when they were begun. run: identity of their checkpoint, or of the batch run. how: pinned with the
    checkpoint, for what one way keeps the other cannot read. replaces: of a batch run, where earlier results end in the topics it
    writes: its one epoch takes their place. topic_ids: of the topics that a stream reads and no query writes, where the log tells them. buckets: of a stream whose state is kept so (`SparkSettings.hash_buckets`); pinned, for keys are found by it.
    starts: where it begins in topics whose earlier results were taken away: see `Deployed.begins`.
    """

    definition: str
    run: str
    form: Form
    how: How = "exact"
    replaces: Offsets = field(default_factory=dict)
    buckets: int = 0
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deployed:
    """The plan and, by query id, what its results came from; a query that never ran has no record.

    topics: to which queries of this target have written results, also queries that were removed. begins: of topics whose results were taken away,
    where the new ones begin: what is before them is void, and for a reader that begins there the tombstones of a table would come
    at the last times of its old rows, before all of its new ones.
    """

    plan: Plan = field(default_factory=Plan)
    records: Mapping[str, Record] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    begins: Offsets = field(default_factory=dict)

    def direct(self, settings: SparkSettings) -> frozenset[str]:
        """The queries that read files themselves where files stand for topics: batches over complete history."""
        batches = {q for q, r in self.records.items() if r.form == "batch"}
        return complete_queries(self.plan, settings) & batches

    def recorded(self, query: str, record: Record | None) -> Deployed:
        """The same with another record of a query, or none."""
        others = {k: v for k, v in self.records.items() if k != query}
        return replace(self, records=others if record is None else {**others, query: record})


def new_run() -> str:
    """An identity that no other checkpoint has."""
    return os.urandom(8).hex()


def checkpoint_of(root: F, query: str) -> F:
    """The folder of a query's checkpoint."""
    return root / "queries" / quote(query, safe="")


def staging_of(root: F) -> F:
    """Where results wait for their commit; nothing in it outlives a run."""
    return root / "staged"


def hold_folder(state_dir: Path, application_id: str) -> Lock:
    """Be the one instance of a folder of checkpoints, until the lock is released. InstanceRunning if another process is."""
    state_dir.mkdir(parents=True, exist_ok=True)
    path = str(state_dir / "instance.lock")
    lock = DiskFiles().lock(path, wait=False)
    if lock is None:
        holder = Path(path).read_text(encoding="utf-8", errors="replace").partition(" ")
        raise InstanceRunning(f"process {holder[0] or 'unknown'} runs {holder[2]} on {state_dir}")
    lock.write(f"{os.getpid()} {application_id}")
    return lock


def load(state_dir: Path) -> Deployed:
    """The deployment here; an empty plan before the first one. StateError for a file that is not ours."""
    return load_from(state_dir) or Deployed()


def load_from(root: Folder) -> Deployed | None:
    """The same of any folder; None for nothing."""
    file = root / FILE
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StateError(f"{file} is damaged: {error}") from error
    if said.get("format") != _FORMAT:
        raise StateError(f"{file} is of another FlowQL (format {said.get('format')}, not {_FORMAT})")
    plan, records = codec.loads(json.dumps(said["plan"])), {k: Record(**v) for k, v in said["queries"].items()}
    return Deployed(plan, records, tuple(said.get("topics", ())), said.get("begins", {}))


def dumps(deployed: Deployed) -> str:
    """The text that `load` reads."""
    data = {
        "format": _FORMAT,
        "plan": json.loads(codec.dumps(deployed.plan)),
        "queries": {k: asdict(r) for k, r in sorted(deployed.records.items())},
        "topics": sorted(deployed.topics),
        "begins": deployed.begins,
    }
    return json.dumps(data, indent=1)


def save(state_dir: Path, deployed: Deployed) -> None:
    """Durably, at once: after a crash it is the old file or the new one."""
    state_dir.mkdir(parents=True, exist_ok=True)
    path = state_dir / f"{FILE}.new"
    with path.open("w", encoding="utf-8") as file:
        file.write(dumps(deployed))
        file.flush()
        os.fsync(file.fileno())
    path.replace(state_dir / FILE)
    DiskFiles().fsync_dir(str(state_dir))
