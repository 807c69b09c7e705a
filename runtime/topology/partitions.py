"""How many partitions the topics of a change get, before any of them is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flowql.compiler.plan.deployed import Deployed, is_serving
from flowql.compiler.plan.generations import staging_name, topics_read
from flowql.compiler.plan.logical import Sink
from flowql.compiler.plan.partitions import as_wanted, declared_partitions, redeclared, resized_sources
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.errors import PartitionsDiffer
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.repartition import misplaced
from flowql.runtime.topology.log_facts import task_counts

ELSEWHERE = "declare {there}, or another KAFKA_TOPIC and import the records into that"


def planned_partitions(before: Deployed, after: Deployed, known: Mapping[str, int]) -> dict[str, int]:
    """Partitions of all topics once `after.plan` serves. known: those that topics have.

    A result whose topic is created again gets the number that it would get in an empty folder, unless another program has created the topic with
    another number. Raises LogError if joined topics would differ.
    """
    plan, was = after.plan, as_wanted(before, known)
    counts = {**known, **resized_sources(before, plan, known)}
    declared = declared_partitions(plan)
    for source in plan.sources:
        if source.query is None and source.partitions is not None:
            counts.setdefault(source.topic, source.partitions)
    creators = {queries[0].id for queries in plan.writers.values()}
    for query in _readers_last(plan):
        topic, own = query.topic, _of_sink(query, counts)
        if query.id not in creators or (is_serving(after.serving, query) and topic in known):
            continue
        staging = staging_name(topic, query.generation, after.prefix)
        if staging != topic and staging in known:
            counts[topic] = known[staging]
        elif _is_ours(before, plan, topic, was):
            counts[topic] = declared[topic][1] or own
        else:
            counts[topic] = was[topic]
    return counts


def _readers_last(plan: Plan) -> list[QueryPlan]:
    """The queries in the order of the plan, but each behind those that create what it reads: one that leaves with a swap stands last."""
    left, found = list(plan.queries), list[QueryPlan]()
    made = {topic: queries[0].id for topic, queries in plan.writers.items()}
    while left:
        query = next((q for q in left if not made.keys() & topics_read(q)), left[0])
        left.remove(query)
        found.append(query)
        if made.get(query.topic) == query.id:
            del made[query.topic]
    return found


def _is_ours(before: Deployed, plan: Plan, topic: str, was: Mapping[str, int]) -> bool:
    """Whether the number of a topic follows what its queries say. was: the numbers before this change; that of the topic
    itself may be the choice of another program that created it.
    """
    if topic not in was:
        return True
    writers = before.plan.writers.get(topic)
    if writers is None:
        return before.history(topic) is not None
    declared, now = declared_partitions(before.plan)[topic][1], declared_partitions(plan)[topic][1]
    return declared != now or (now is None and was[topic] == _of_sink(writers[0], was))


def _of_sink(query: QueryPlan, counts: Mapping[str, int]) -> int:
    """Partitions of the tasks that write a query's result."""
    own = task_counts(query, counts)
    return next(own[sub.number] for sub in query.subtopologies for op in sub.operators if isinstance(op.spec, Sink))


def check_partitions(before: Deployed, plan: Plan, log: Log, repaired: Collection[str] = ()) -> None:
    """PartitionsDiffer if a declared number of partitions is another than before, and the topic's cannot be made so.

    repaired: topics with records that are read as repairs say, which know them by their partition and offset.
    """
    known = {name: info.partitions for name, info in log.admin().topics().items()}
    changed = {t: n for t, n in redeclared(before.plan, plan).items() if t in known and known[t] != n}
    names, resized = declared_partitions(plan), resized_sources(before, plan, known)
    for topic, n in changed.items():
        said = f"{names[topic][0]} declares {n} partitions and its topic {topic} has {known[topic]}"
        elsewhere = ELSEWHERE.format(there=known[topic])
        if not log.drops_with_commits:
            raise PartitionsDiffer(
                f"{said}, which a broker cannot change with its records: it can only add partitions (kafka-topics --alter --topic "
                f"{topic} --partitions {n}). Records stay where they are, so that those of a key lie in two partitions from then on, and "
                f"neither their order nor their joins hold; {elsewhere}"
            )
        if topic in resized and topic in repaired:
            raise PartitionsDiffer(
                f"{said}; records of it were repaired (flowql dlq), and a repair knows its record by its partition and offset, which would "
                f"change: {elsewhere}"
            )
        if topic in resized:
            wrong = misplaced(log, topic, known[topic])
            if wrong is not None:
                raise PartitionsDiffer(
                    f"{said}; {wrong} holds records whose keys belong into other partitions, so that the order of the records of a key "
                    f"is not known, and they cannot be moved: {elsewhere}"
                )
        elif topic not in plan.writers:
            raise PartitionsDiffer(f"{said}; the topic holds records that queries have written once: {elsewhere}")


def refuse_partitions(before: Plan, plan: Plan, log: Log) -> None:
    """PartitionsDiffer if a declared number is another than before and than the topic's: for an engine that cannot change any."""
    known = log.admin().topics()
    for topic, n in redeclared(before, plan).items():
        if topic in known and known[topic].partitions != n:
            raise PartitionsDiffer(
                f"{declared_partitions(plan)[topic][0]} declares {n} partitions and its topic {topic} has {known[topic].partitions}; "
                f"Spark does not change them: {ELSEWHERE.format(there=known[topic].partitions)}"
            )


def first_offset(log: Log, topic: str, partitions: int) -> int:
    """Where the new partitions of a topic begin: above all the old ones."""
    ends = log.admin().end_offsets([TopicPartition(topic, p) for p in range(partitions)])
    return max(ends.values(), default=0) + 1
