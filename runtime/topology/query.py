"""Topology to tasks: partitions, programs, shared scans. Turns a `QueryPlan` into what the task manager runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from flowql.compiler.plan.generations import topics_read, user_id
from flowql.compiler.plan.logical import Scan, Sink
from flowql.compiler.plan.partitions import NONE_KNOWN
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import (
    ExchangeSink,
    ExchangeSource,
    InsertValues,
    Plan,
    QueryPlan,
    SourceDef,
    SubTopology,
)
from flowql.compiler.plan.versions import topics_read_by_version
from flowql.runtime.clock import Clock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import (
    LogError,
    PartitionsChanged,
    TimesReplaced,
    TopicMissing,
    TopicReplaced,
)
from flowql.runtime.log.base import EARLIEST, Admin, Log, NewTopic, TopicInfo, TopicPartition
from flowql.runtime.output.partitioner import split
from flowql.runtime.placement.step import PlacementStep
from flowql.runtime.state.changelog import CHANGELOG, changelog_topic
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.store import TaskState
from flowql.runtime.task.channels import ConsumerChannels, ExchangeInput, Upstream
from flowql.runtime.task.deletions import KEPT_MS, Deletions
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.key_places import SEEN_MAX
from flowql.runtime.task.position_names import positions_of_input
from flowql.runtime.task.producer_channels import ProducerChannels
from flowql.runtime.task.publisher import Publisher
from flowql.runtime.task.repartition import KEPT, channel_key, topic_of
from flowql.runtime.task.sizing import MicroBatchSizer
from flowql.runtime.task.task import Task
from flowql.runtime.topology.grouping import GROUPER
from flowql.runtime.topology.log_facts import LogFacts, scanned, task_counts
from flowql.runtime.topology.program import TaskProgram
from flowql.runtime.topology.row_store import encode_insert
from flowql.runtime.topology.scans import Scans
from flowql.runtime.topology.table_writer import POLICY as TABLE_POLICY

# In the metadata of a task, as of when its query began: how many tasks its sub-topology had, if the query is partitioned by key, and how many
# partitions the table had that it writes.
TASKS, RESULTS = "tasks", "results"
# A new task looks at so many keys of a partition in advance, at least, and so many bytes of their records.
LOOKED_AT, LOOKED_AT_BYTES = 16, 1 << 20
NO_TOPICS: Mapping[str, NewTopic] = {}


class Exchanges(Protocol):
    """Where the reading and writing ends of repartitions meet."""

    def open(self, operator: str, topic: str, partition: int, source: int, schema: Schema) -> ExchangeInput: ...


class TaskServices(Protocol):
    """The services of an instance that its tasks use."""

    log: Log
    admin: Admin
    clock: Clock
    config: InstanceConfig
    state: StateManager
    scans: Scans
    placement: PlacementStep

    def position(self, tp: TopicPartition, positions: Mapping[str, int], begin: Callable[[TopicPartition], int]) -> int:
        """Where a task with these positions, by topic, goes on; who has read nothing of a partition, at its beginning."""
        ...

    def known_ms(self, task: TaskId, position: str, metadata: Mapping[str, Any]) -> int:
        """When a task that is made had read everything of an input, at the latest: ms since the epoch. position: its name in the metadata of the task."""
        ...

    @property
    def publisher(self) -> Publisher: ...

    @property
    def exchanges(self) -> Exchanges: ...


@dataclass(frozen=True, slots=True)
class BuiltQuery:
    """The tasks of a query, replaced as a whole: ticks keep those of a stage until a query has others."""

    tasks: tuple[Task, ...] = ()


def ensure_sources(plan: Plan, admin: Admin) -> dict[str, TopicInfo]:
    """Create the topics of local tables, and those declared with PARTITIONS; TopicMissing names what else is missing.

    Returns all topics that exist then.
    """
    known = admin.topics()
    return known | admin.create_topics(_missing_sources(plan, known))


def _missing_sources(plan: Plan, known: Mapping[str, TopicInfo]) -> dict[str, NewTopic]:
    missing, wanted = [], dict[str, NewTopic]()
    written = {s.topic for s in plan.sources if s.query is not None}
    for source in plan.sources:
        if source.is_own_table and source.topic in known:
            _check_own(source, known[source.topic])
        if source.topic in known or source.topic in written or source.topic in wanted:
            continue
        if source.is_own_table:
            wanted[source.topic] = NewTopic(source.partitions or 1, TABLE_POLICY)
        elif source.partitions is None:
            missing.append(f"{source.topic} (of {source.name})")
        else:
            wanted[source.topic] = NewTopic(source.partitions)
    if missing:
        msg = f"topics that do not exist: {', '.join(missing)}; import data into them, or declare PARTITIONS to create them"
        raise TopicMissing(msg)
    return wanted


def _check_own(source: SourceDef, info: TopicInfo) -> None:
    """LogError for a topic that is not that of a table: it holds records of others."""
    if "compact" not in info.config.get("cleanup.policy", ""):
        title = (
            f"the table {source.name} would hold its rows in the topic {info.name}, which exists and is not compacted"
        )
        raise LogError(
            f"{title}: give the table another name, or read the topic:  WITH (KAFKA_TOPIC='{info.name}', ...)"
        )


def ensure_topics(
    plan: Plan, admin: Admin, planned: Mapping[str, int] = NONE_KNOWN, options: Mapping[str, str] | None = None
) -> None:
    """As `ensure_sources`, and the topics that queries write. One request creates all of them.

    planned: partitions of results, where a change decides them. options: for the config of topics of results.
    """
    topics = admin.topics()
    wanted = _missing_sources(plan, topics)
    known = {name: t.partitions for name, t in topics.items()} | {name: new.partitions for name, new in wanted.items()}
    creators = {queries[0].id for queries in plan.writers.values()}
    for query in (q for q in plan.queries if q.id in creators):
        unlisted = [] if planned else [t for t in scanned(query) if t not in known]
        known |= admin.partition_counts(unlisted) if unlisted else {}
        counts = {} if planned else task_counts(query, known)
        for sub in query.subtopologies:
            for op in sub.operators:
                if isinstance(op.spec, Sink) and op.spec.topic not in known:
                    config = {"cleanup.policy": "compact"} if op.spec.kind == "table" else {}
                    n = planned.get(op.spec.topic) or op.spec.partitions or counts[sub.number]
                    wanted[op.spec.topic] = NewTopic(n, {**config, **(options or {})})
                    known[op.spec.topic] = n
    admin.create_topics(wanted)


def check_outputs(query: QueryPlan, known: Collection[str]) -> None:
    """TopicMissing if a topic that it writes is gone: made at deploy, and not again, for its records would not come back."""
    written = [op.spec.topic for sub in query.subtopologies for op in sub.operators if isinstance(op.spec, Sink)]
    missing = [t for t in written if t not in known]
    if missing:
        raise TopicMissing(f"{query.id} writes to {', '.join(missing)}, which does not exist")


def check_times(query: QueryPlan, facts: LogFacts) -> None:
    """TimesReplaced if brokers would give what it writes other times than those of the events."""
    if found := facts.replaced_times(query):
        raise TimesReplaced(
            f"{query.id} writes to {', '.join(found)}, where brokers replace the times of events (message.timestamp.type=LogAppendTime); to keep them:  "
            f"kafka-configs.sh --bootstrap-server BROKER --alter --topic {found[0]} --add-config message.timestamp.type=CreateTime"
        )


def ensure_changelogs(
    queries: Iterable[QueryPlan], env: TaskServices, facts: LogFacts, others: Mapping[str, NewTopic] = NO_TOPICS
) -> None:
    """A compacted topic for each store, with a partition per task. One of other size is left from a query that is gone.

    others: topics that the same request creates.
    """
    wanted: dict[str, int] = {}
    for query in queries:
        counts = facts.counts(query)
        for sub in query.subtopologies:
            names = [store.name for op in sub.operators for store in op.stores]
            wanted |= {changelog_topic(env.config.application_id, name): counts[sub.number] for name in names}
    known = env.admin.partition_counts(wanted)
    for topic in (topic for topic, n in wanted.items() if known.get(topic, n) != n):
        env.admin.delete_topic(topic)
    new = {t: NewTopic(n, CHANGELOG) for t, n in wanted.items() if known.get(t) != n}
    env.admin.create_topics({**new, **others})


def repartitions(
    queries: Iterable[QueryPlan], application_id: str, facts: LogFacts, runs: Collection[str]
) -> dict[str, NewTopic]:
    """The topics of repartitions, where they are topics. runs: queries whose topics, if they exist, are their own, whatever their inputs have become since they began."""
    wanted: dict[str, NewTopic] = {}
    for query in queries:
        counts = facts.counts(query)
        for sub in query.subtopologies:
            for topic in repartition_topics(sub, application_id):
                if query.id not in runs or topic not in facts.topics:
                    wanted[topic] = NewTopic(counts[sub.number], KEPT)
    return wanted


def repartition_topics(sub: SubTopology, application_id: str) -> list[str]:
    """Repartitions that a sub-topology reads, as topics."""
    return [topic_of(application_id, op.spec.topic) for op in sub.operators if isinstance(op.spec, ExchangeSource)]


def input_topics(sub: SubTopology, application_id: str) -> list[str]:
    """All topics a sub-topology reads where repartitions are topics; equally partitioned."""
    scans = [op.spec.topic for op in sub.operators if isinstance(op.spec, Scan)]
    return sorted({*scans, *repartition_topics(sub, application_id)})


def readers(plan: Plan, topic: str, application_id: str) -> frozenset[str]:
    """Queries that read a topic, wherever their tasks are."""
    reads = {q.id: [input_topics(sub, application_id) for sub in q.subtopologies] for q in plan.queries}
    return frozenset(q for q, topics in reads.items() if any(topic in of_sub for of_sub in topics))


def build_query(
    query: QueryPlan,
    plan: Plan,
    env: TaskServices,
    facts: LogFacts,
    wanted: Callable[[TaskId], bool] = lambda _task: True,
) -> BuiltQuery:
    """Tasks of a query, with their state opened and positions restored (new ones start at the earliest record).

    wanted: which of the tasks; others run elsewhere. If it fails, nothing stays open: it may be tried again. PartitionsChanged where the state of a task
    was one of another number.
    """
    built: list[Task] = []
    counts = facts.counts(query)
    exchange_counts = {
        op.spec.topic: counts[sub.number]
        for sub in query.subtopologies
        for op in sub.operators
        if isinstance(op.spec, ExchangeSource)
    }
    writers = {
        op.spec.topic: sub.number
        for sub in query.subtopologies
        for op in sub.operators
        if isinstance(op.spec, ExchangeSink)
    }
    partitions = {**{name: info.partitions for name, info in facts.topics.items()}, **exchange_counts}
    sources = {t: range(counts[w]) for t, w in writers.items()}
    # Not of topics that queries write: a deployment may make these anew, with positions in them.
    topic_ids = facts.ids(set(topics_read(query)) - plan.writers.keys())
    kept = _deletions_kept(query, plan, facts.topics) if env.config.changelogs else {}
    opened: list[TaskId] = []
    try:
        for sub in query.subtopologies:
            stores = [s for op in sub.operators for s in op.stores]
            read_here = {op.spec.topic for op in sub.operators if isinstance(op.spec, Scan)}
            partitions_read = {topic: partitions[topic] for topic in read_here}
            groups, sizer = GROUPER.group(partitions_read), MicroBatchSizer()
            for task_id in (TaskId(query.id, sub.number, p) for p in range(counts[sub.number])):
                if wanted(task_id):
                    state = env.state.open_task(str(task_id), task_id.partition, stores)
                    opened.append(task_id)
                    before = state.metadata
                    check_tasks(query, sub.number, before, counts[sub.number])
                    check_results(query, sub, before, partitions)
                    read = {tp.topic: tp for tp in groups[task_id.partition]} if partitions_read else {}
                    task = _task(task_id, query, sub, state, read, partitions, sources, topic_ids, env, facts, sizer)
                    _look_for_deletions(task, sub, kept, env)
                    for i in (i for i in task.logs.values() if i.channel is None):
                        i.partitions = counts[sub.number]
                    task.marks |= partition_marks(query, sub, counts[sub.number], partitions)
                    built.append(task)
            _look_ahead([t for t in built if t.id.subtopology == sub.number], partitions_read, env)
    except Exception:  # brokers may be away for a moment
        for task_id in opened:
            env.state.close_task(str(task_id))
        raise
    _connect(built, writers)
    return BuiltQuery(tuple(built))


def _task(
    task_id: TaskId,
    query: QueryPlan,
    sub: SubTopology,
    state: TaskState,
    read: Mapping[str, TopicPartition],
    partitions: Mapping[str, int],
    sources: Mapping[str, range],
    topic_ids: Mapping[str, str],
    env: TaskServices,
    facts: LogFacts,
    sizer: MicroBatchSizer,
) -> Task:
    """read: the partitions that it reads, by their topics."""
    partition = task_id.partition
    program = TaskProgram(query.id, sub.operators, partition, partitions, env.scans, env.config, env.placement.written)
    task = Task(task_id, program, state, env.publisher, env.clock, env.config, sizer)
    if env.config.shared:
        task.marks = {"query": query.definition}
    known = state.metadata
    positions, within = known.get("positions", {}), known.get("within", {})
    ids = {**topic_ids, **known.get("topics", {})}  # of those that the positions are of
    if ids := {t: ids[t] for t in read if t in ids}:
        task.marks["topics"] = ids
    scans = Counter[TopicPartition]()
    for op in sub.operators:
        if isinstance(op.spec, Scan):
            tp = read[op.spec.topic]
            ordinal, scans[tp] = scans[tp], scans[tp] + 1
            topic_id = ids.get(tp.topic, "")
            if topic_id != topic_ids.get(tp.topic, topic_id):
                raise replaced(tp, topic_ids[tp.topic])
            at = env.position(tp, positions_of_input(positions, ordinal), facts.begin)
            task.logs[op.id] = LogInput(op.id, tp, at, ordinal=ordinal, topic_id=topic_id)
        elif isinstance(op.spec, ExchangeSource) and env.config.shared:
            tp = TopicPartition(topic_of(env.config.application_id, op.spec.topic), partition)
            for source in sources[op.spec.topic]:
                channel = LogInput(op.id, tp, 0, channel=channel_key(source), source=source)
                at = positions[channel.name] if channel.name in positions else facts.begin(tp)
                channel.position = channel.next_fetch = at
                channel.within = within.get(channel.name, 0)
                task.logs[f"{op.id}#{source}"] = channel
        elif isinstance(op.spec, ExchangeSource):
            for source in sources[op.spec.topic]:
                exchange = env.exchanges.open(op.id, op.spec.topic, partition, source, op.schema)
                task.exchanges[f"{op.id}#{source}"] = exchange
    return task


def _deletions_kept(query: QueryPlan, plan: Plan, known: Mapping[str, TopicInfo]) -> dict[str, int]:
    """For how many ms the compacted topics that a query reads keep deletions, but for those that queries write."""
    infos = [known[t] for t in topics_read(query) if t in known and t not in plan.writers]
    compacted = [i for i in infos if "compact" in i.config.get("cleanup.policy", "")]
    return {i.name: int(i.config.get("delete.retention.ms", KEPT_MS)) for i in compacted}


def _look_for_deletions(task: Task, sub: SubTopology, kept: Mapping[str, int], env: TaskServices) -> None:
    """Inputs of tables notice when deletions may be missed. One that has read nothing has no row that could stay."""
    metadata = task.state.metadata
    for op in sub.operators:
        if isinstance(op.spec, Scan) and op.spec.kind == "table" and op.spec.topic in kept:
            i = task.logs[op.id]
            has_begun = i.tp.topic in metadata.get("positions", {})
            known_ms = env.known_ms(task.id, i.name, metadata) if has_begun else env.clock.wall_ms()
            i.deletions = Deletions(kept[op.spec.topic], known_ms, env.clock.wall_ms)


def _look_ahead(tasks: Sequence[Task], partitions: Mapping[str, int], env: TaskServices) -> None:
    """The first keys of all partitions that tasks of a sub-topology begin with, before one of them commits: topics that are not placed alike are
    then found out by the first micro-batch. Tasks that have begun go on with what they know.
    """
    new = [t for t in tasks if not t.state.metadata.get("positions")]
    if not new:
        return
    begins = {i.tp: i.position for t in new for i in t.logs.values()}
    program = new[0].program
    assert isinstance(program, TaskProgram)
    for topic, places in program.key_places.items():
        n, room = partitions[topic], max(LOOKED_AT, SEEN_MAX // partitions[topic])
        for tp in (TopicPartition(topic, p) for p in range(n)):
            if n < 2 or places.is_certain:
                break
            # Topics that cannot be read are told of by the fetches.
            with suppress(LogError), closing(env.log.reader(tp, begins.get(tp, EARLIEST))) as reader:
                if (raw := reader.read(room, LOOKED_AT_BYTES)) is not None:
                    places.look(raw.records.column("key"), tp.partition, n)


def is_partitioned_by_key(query: QueryPlan) -> bool:
    """Whether its results depend on which task reads the records of a key: it has state, or hands rows on to other tasks."""
    operators = [op for sub in query.subtopologies for op in sub.operators]
    return any(op.stores or isinstance(op.spec, ExchangeSink) for op in operators)


def partition_marks(query: QueryPlan, sub: SubTopology, tasks: int, partitions: Mapping[str, int]) -> dict[str, int]:
    """The metadata of a task for `check_tasks` and `check_results`: how many tasks its sub-topology has as it begins, and partitions its table."""
    marks = {TASKS: tasks} if is_partitioned_by_key(query) else {}
    topic = _table_written(sub)
    return marks if topic is None else {**marks, RESULTS: partitions[topic]}


def _table_written(sub: SubTopology) -> str | None:
    return next((op.spec.topic for op in sub.operators if isinstance(op.spec, Sink) and op.spec.kind == "table"), None)


def check_results(
    query: QueryPlan, sub: SubTopology, metadata: Mapping[str, Any], partitions: Mapping[str, int]
) -> None:
    """PartitionsChanged if the topic of a table had another number when the query began: an update of a row would go to another partition than the row."""
    topic = _table_written(sub)
    if topic is None or (before := metadata.get(RESULTS, partitions[topic])) == partitions[topic]:
        return
    name = user_id(query.id, query.generation)
    raise PartitionsChanged(
        f"{topic} has {partitions[topic]} partitions, and had {before} when {name} began: updates of a row would go to another partition than "
        f"the row;  flowql deploy --full-refresh {name}  rewrites all rows",
        partitions[topic],
    )


def check_tasks(query: QueryPlan, number: int, metadata: Mapping[str, Any], now: int) -> None:
    """PartitionsChanged if a task of this sub-topology was one of another number, as its metadata tells: since a version that wrote it."""
    before = metadata.get(TASKS, now)
    if before != now:
        sub = next(s for s in query.subtopologies if s.number == number)
        read = [op.spec.topic for op in sub.operators if isinstance(op.spec, Scan)] or topics_read(query)
        raise partitions_changed(query, ", ".join(read), before, now)


def partitions_changed(query: QueryPlan, topic: str, before: int, now: int) -> PartitionsChanged:
    name = user_id(query.id, query.generation)
    return PartitionsChanged(
        f"{topic} has {now} partitions, and had {before} when {name} began: keys may be in other partitions than their state;  flowql deploy "
        f"--full-refresh {name}  recomputes it, which is right if no key of {topic} has records in two partitions, or does not matter to the query",
        now,
    )


def replaced(tp: TopicPartition, topic_id: str) -> TopicReplaced:
    """topic_id: of the topic that is in the log."""
    return TopicReplaced(
        f"{tp}: the topic was deleted and created again: the next records are not those that follow what was read",
        topic_id,
    )


def _connect(tasks: Sequence[Task], writers: Mapping[str, int]) -> None:
    """Tell writers of repartitions about their channels, and channels about their writers."""
    by_id = {(t.id.subtopology, t.id.partition): t for t in tasks}
    filled: dict[TaskId, list[ExchangeInput]] = {t.id: [] for t in tasks}
    upstream: dict[int, Upstream] = {}
    for task in tasks:
        task.channels = ConsumerChannels.joined(list(task.exchanges.values()))
        task.channels.upstream = upstream.setdefault(task.id.subtopology, task.channels.upstream)
        for channel in task.channels.channels:
            writer = by_id[writers[channel.topic], channel.source]
            filled[writer.id].append(channel)
            channel.upstream_idle = writer.idle_with
    for task in tasks:
        task.downstream = ProducerChannels.joined(filled[task.id])


def upsert_topics(plan: Plan) -> set[str]:
    """Topics of tables of which no query of the plan needs every version: updates of a key may be merged (rule R13)."""
    specs = [op.spec for q in plan.queries for sub in q.subtopologies for op in sub.operators]
    tables = {s.topic for s in specs if isinstance(s, Sink) and s.kind == "table"}
    streams = {s.topic for s in specs if isinstance(s, Scan | Sink) and s.kind == "stream"}
    versions = {t for q in plan.queries for t in topics_read_by_version(q)}
    return tables - streams - versions - {s.topic for s in plan.sources if s.kind == "stream"}


def build_inserts(
    plan: Plan, inserts: Sequence[InsertValues], admin: Admin, now_ms: int, planned: Mapping[str, int] = NONE_KNOWN
) -> list[tuple[TopicPartition, pa.RecordBatch]]:
    """INSERT INTO ... VALUES as records of their topics. planned: partitions that topics are about to get."""
    out = []
    for insert in inserts:
        source = plan.source(insert.target)
        assert source is not None
        records = encode_insert(source, insert, now_ms)
        n = planned.get(source.topic) or admin.topics()[source.topic].partitions
        out += [(TopicPartition(source.topic, p), part) for p, part in split(records, n, 0)]
    return out
