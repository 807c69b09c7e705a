"""The history of queries, computed on Spark for a target on the runtime: what is refused, which offsets, and the computation."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flowql.compiler.plan.deployed import Deployed
from flowql.compiler.plan.generations import at_generation, topics_read
from flowql.compiler.plan.logical import (
    Aggregate,
    Explode,
    Filter,
    Join,
    Materialise,
    Project,
    Rekey,
    Scan,
    Sink,
    Union,
)
from flowql.compiler.plan.topology import ExchangeSink, ExchangeSource, QueryPlan
from flowql.deploy.decision import Deployment
from flowql.deploy.settings import UNSUPPORTED_TARGET, Settings
from flowql.errors import CommandError
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.files import DiskFiles
from flowql.runtime.log.repairs import Repairs
from flowql.runtime.topology.partitions import planned_partitions

REFUSED, BUSY = "FQ5221", "FQ5222"
FOLDER = "backfill"  # in the data directory of the target that goes on
_EXACT = (
    Scan,
    Project,
    Filter,
    Explode,
    Rekey,
    Aggregate,
    Join,
    Materialise,
    Union,
    Sink,
    ExchangeSink,
    ExchangeSource,
)
Spans = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The history of one query, [starts, ends) of each topic that it reads. query: at generation 1. partitions: of these topics and of its result."""

    query: QueryPlan
    starts: Spans
    ends: Spans
    partitions: dict[str, int]

    @property
    def records(self) -> int:
        return sum(end - self.starts[t][p] for t, at in self.ends.items() for p, end in at.items())


@dataclass(frozen=True, slots=True)
class Computed:
    """A history in its folder. seconds: that its computation took."""

    wanted: Wanted
    folder: Path
    records: int
    letters: int
    state_rows: int
    seconds: float

    def to_data(self) -> dict[str, Any]:
        """The public JSON of it."""
        return {
            "query": self.wanted.query.id,
            "ends": self.wanted.ends,
            "records_in": self.wanted.records,
            "records_out": self.records,
            "dead_letters": self.letters,
            "state_rows": self.state_rows,
            "seconds": round(self.seconds, 1),
        }


def check_targets(spark: Settings, then: Settings) -> None:
    """CommandError unless one target can compute what the other goes on with."""
    title = help_ = ""
    if spark.engine != "spark":
        title, help_ = (
            "the target of -t computes the history, and has `engine: runtime`",
            "-t a target with `engine: spark`",
        )
    elif then.engine != "runtime":
        title, help_ = (
            "the target of --then continues with the history, and has `engine: spark`",
            "--then a target with `engine: runtime`",
        )
    elif then.kafka is not None:
        title = "the target of --then is on Kafka, where state is restored from changelog topics: a history cannot be handed over there"
        help_ = "flowql deploy --full-refresh QUERY -t TARGET  computes it on the runtime"
    elif not spark.spark.is_local:
        title = (
            f"workers of {spark.spark.master} cannot read the embedded log in {then.log_dir}, which is on this machine"
        )
        help_ = "compute the history with  master: local[N]"
    if title:
        raise CommandError(title, code=UNSUPPORTED_TARGET, help=help_)


def wanted_histories(settings: Settings, before: Deployed, decision: Deployment, ids: Sequence[str]) -> list[Wanted]:
    """Which histories are to be computed, up to the log's end as of now. Raises CommandError for what would not be exact.

    before, decision: of the target that goes on; the decision rebuilds or adds the queries `ids`.
    """
    if not settings.log_dir.is_dir():
        raise _refused(ids[0], f"there is no log in {settings.log_dir}", "flowql topic import  fills its topics")
    after, renewed = (
        decision.change.deployed,
        {q.topic for q in decision.plan.queries if q.id in decision.begun},
    )
    with closing(EmbeddedLog(settings.log_dir)) as log:
        known = {name: info.partitions for name, info in log.admin().topics().items()}
        counts = {**known, **planned_partitions(before, after, known)}
        repaired = set(Repairs(log, settings.application_id).topics())
        found = []
        for query in (q for q in after.plan.queries if q.id in ids):
            _check(query, known, renewed, repaired)
            found.append(_wanted(log, after, query, counts))
        return found


def _check(query: QueryPlan, known: dict[str, int], renewed: set[str], repaired: set[str]) -> None:
    for sub in query.subtopologies:
        for op in sub.operators:
            if not isinstance(op.spec, _EXACT):
                why = f"it has an operator {type(op.spec).__name__}, whose state is not handed over"
                raise _refused(query.id, why, f"flowql deploy --full-refresh {query.id}  computes it on the runtime")
    for topic in topics_read(query):
        if topic not in known:
            raise _refused(query.id, f"there is no topic {topic}", "flowql deploy  starts it: there is no history")
        if topic in renewed:
            why = f"{topic} is itself rebuilt with it"
            raise _refused(
                query.id, why, "backfill the query that writes it: the runtime rebuilds its readers from the new result"
            )
        if topic in repaired:
            why = f"records of {topic} were repaired (flowql dlq), which Spark does not read"
            raise _refused(query.id, why, f"flowql deploy --full-refresh {query.id}  computes it on the runtime")


def _refused(query: str, why: str, help_: str) -> CommandError:
    return CommandError(f"the history of {query} cannot be computed on Spark: {why}", code=REFUSED, help=help_)


def _wanted(log: Log, after: Deployed, query: QueryPlan, counts: dict[str, int]) -> Wanted:
    topics = sorted(topics_read(query))
    tps = [TopicPartition(t, p) for t in topics for p in range(counts[t])]
    begins, ends = log.admin().begin_offsets(tps), log.admin().end_offsets(tps)
    starts: Spans = {t: {} for t in topics}
    stops: Spans = {t: {} for t in topics}
    for tp in tps:
        first = max(begins[tp], after.begin(*tp))
        starts[tp.topic][str(tp.partition)] = first
        stops[tp.topic][str(tp.partition)] = max(first, ends[tp])
    partitions = {t: counts[t] for t in (*topics, query.topic) if t in counts}
    return Wanted(at_generation(query, 1), starts, stops, partitions)


@contextmanager
def folder_of(then: Settings) -> Iterator[Path]:
    """The folder for the histories of one call, empty, and removed afterwards. CommandError while another call has it."""
    folder = then.data_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = DiskFiles().lock(str(folder.with_name(f"{FOLDER}.lock")), wait=False)
    if lock is None:
        raise CommandError(f"another  flowql backfill  is under way in {folder}", code=BUSY, help="wait for its end")
    try:
        _empty(folder)  # of a call that was killed
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path)


def compute(
    spark: Settings, then: Settings, decision: Deployment, histories: Sequence[Wanted], folder: Path
) -> list[Computed]:
    """Compute histories on a Spark session of this process. Raises SparkFailure."""
    from flowql.runtime.spark.backfill import History, compute_history  # an extra that need not be installed
    from flowql.runtime.spark.session import close_session, open_session

    session = open_session(spark.spark, then.application_id, folder)
    try:
        found = []
        for w in histories:
            begun, into = time.monotonic(), folder / quote(w.query.id, safe="")
            history = History(str(then.log_dir.absolute()), decision.plan, w.query, w.partitions, w.starts, w.ends)
            m = compute_history(session, history, into)
            found.append(Computed(w, into, m.records, m.letters, m.state_rows, time.monotonic() - begun))
        return found
    finally:
        close_session(session)
