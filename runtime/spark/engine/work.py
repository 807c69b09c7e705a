"""The work of Spark for one query: from its topics to emitted rows, natively or by the runtime's own tasks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from flowql.compiler.plan.event_times import USUAL_TIMES
from flowql.compiler.plan.logical import Scan, Sink, walk_nodes
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.spark.engine.checkpoints import positions_after
from flowql.runtime.spark.engine.deployed import Record
from flowql.runtime.spark.engine.feeders import is_feeder
from flowql.runtime.spark.engine.order import topics_read
from flowql.runtime.spark.engine.over_files import FileHistory
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.engine.supervisor import Pace
from flowql.runtime.spark.files import file_rows
from flowql.runtime.spark.files_sink import final_rows, rows_of_topic, topic_frame, write_epoch_files, write_files
from flowql.runtime.spark.function_counts import functions_in, taken
from flowql.runtime.spark.history import topics_written
from flowql.runtime.spark.key_places import PlacesOfKeys
from flowql.runtime.spark.lake import Epoch
from flowql.runtime.spark.log_append import EmittedRecords, Writer
from flowql.runtime.spark.log_letters import FolderLetters, Letters, TopicLetters
from flowql.runtime.spark.log_offsets import Offsets, partition_offsets
from flowql.runtime.spark.log_sink import SinkOptions, results_of, write_epoch
from flowql.runtime.spark.log_source import ReadOptions, read_log, stream_log
from flowql.runtime.spark.log_staging import Staging
from flowql.runtime.spark.log_staging import staging_of as staged_of
from flowql.runtime.spark.native.topics import Reading, encode, told
from flowql.runtime.spark.over_topics import native_bounded, native_streaming, output_mode
from flowql.runtime.spark.shapes import Emit, Emitting
from flowql.runtime.spark.stage.exact import exact_bounded, exact_streaming
from flowql.runtime.spark.stage.layout import layout_of
from flowql.runtime.spark.storage import reach
from flowql.runtime.topology.upstream import merges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flowql.runtime.spark.engine.streams import Stream

# A micro-batch is in memory at once, as records and as their Arrow copies in Python workers.
ROWS_PER_BATCH_MAX = 500_000
# A micro-batch of more input goes through files of the workers, where they see the driver's folders: as Arrow in Java's memory 2 million bids from a
# file of 107 MB ended a driver of 1 GiB. Below, a job of Python workers more would cost a large part of the time that it takes.
GATHERED_ROWS_MAX = 5_000
# An address costs more: files are written there, listed, copied and deleted.
GATHERED_ROWS_MAX_APART = 50_000
# How often a stream looks for new records. A query with a latency target looks twice as often as that.
LOOK_MS_DEFAULT, LOOK_MS_MIN = 200, 20


def run_batch(
    spark: SparkSession, site: Site, plan: Plan, query: QueryPlan, record: Record, span: tuple[Offsets, Offsets]
) -> None:
    """Compute a query over exactly the records between two positions, and commit its results as epoch 0 of the run."""
    if is_feeder(query):
        fed = _fed(spark, site, plan, query, streaming=False)
        write_epoch(fed.rows, _sink(site, query, record), 0, site.log, emit=fed.emit)
        return
    topics, sink = topics_read(query), _sink(site, query, record)
    starting, ending = (_of(topics, at) for at in span)
    options = ReadOptions(site.address, tuple(sorted(topics)), starting=starting, ending=ending)
    if record.how == "native":
        letters, ends = _letters_of(site, query.id), partition_offsets(ending)
        made = native_bounded(
            plan, query, partial(_reading, spark, options, read_log), site.partitions(), letters.place
        )
        found = partial(letters.between, partition_offsets(starting), ends)
        sink = replace(sink, records_in=_size(span, topics))
        write_epoch(made.rows, sink, 0, site.log, emit=made.emit, letters=found)
        letters.drop(ends)
    else:
        layout = layout_of(plan, query, site.partitions())
        records = read_log(spark, replace(options, layout=layout.dumps()))
        write_epoch(exact_bounded(layout, records), sink, 0, site.log)
    for topic in topics_written(query):
        if topic in site.settings.files:
            _write_files(spark, site, plan, topic)


def run_over_files(history: FileHistory, site: Site, query: QueryPlan, record: Record) -> None:
    """The same of a query over complete history: its result as an epoch in the log, and in files where they stand for its topic."""
    sink, plan = query.logical.spec, history.plan
    assert isinstance(sink, Sink)
    rows, has_files = history.rows(query), sink.topic in site.settings.files
    alone = has_files and not [q for q in plan.queries if q.id != query.id and sink.topic in topics_written(q)]
    if alone:
        rows = history.kept(rows)
    bad = history.bad(query)
    made = encode(query, rows, site.partitions()).beside([told(letters, query.id) for letters in bad])
    options = replace(_sink(site, query, record), records_in=history.rows_in(query), ties=history.ties(query))
    appended = write_epoch(made.rows, options, 0, site.log, emit=made.emit)
    history.written(query, appended.records)
    if alone:
        history.to_files(query, rows)
    elif has_files:  # those of all that write the topic, of which the last one to be computed sees all
        _write_files(history.spark, site, plan, sink.topic)


def _size(span: tuple[Offsets, Offsets], topics: Collection[str]) -> int:
    """Records between two positions."""
    starts = partition_offsets(_of(topics, span[0]))
    return sum(end - starts[tp] for tp, end in partition_offsets(_of(topics, span[1])).items())


def _of(topics: Collection[str], positions: Offsets) -> Offsets:
    return {topic: at for topic, at in positions.items() if topic in topics}


def _write_files(spark: SparkSession, site: Site, plan: Plan, topic: str) -> None:
    """The results there are in a topic, in place of what is in its files."""
    source = next(s for s in plan.sources if s.topic == topic)
    rows = rows_of_topic(read_log(spark, ReadOptions(site.address, (topic,))), source)
    last = final_rows(rows, source) if source.kind == "table" else rows
    write_files(topic_frame(last, source), source, site.settings.files[topic])


def _fed(spark: SparkSession, site: Site, plan: Plan, query: QueryPlan, *, streaming: bool) -> Emitting:
    """The rows of the files that a feeder reads, as records of its topic."""
    source = plan.source(query.sink)
    assert source is not None, f"{query.id} feeds {query.sink}, which is not in the plan"
    files, partitions = site.settings.files[source.topic], site.partitions()[source.topic]
    return file_rows(spark, source, files, partitions, query=query.id, streaming=streaming)


def start_stream(
    spark: SparkSession, site: Site, plan: Plan, query: QueryPlan, record: Record, pace: Pace, ends: Offsets
) -> Stream:
    """Start the stream of a query, on its checkpoint. ends: where one that ends stops reading these topics."""
    letters: Letters | None = None
    if is_feeder(query):
        made = _fed(spark, site, plan, query, streaming=True)
    else:
        options = _read_by_stream(site, query, record, ends)
        if record.how == "native":
            read = partial(_reading, spark, options, stream_log)
            letters, semantics = _letters_of(site, query.id), site.settings.semantics
            made = native_streaming(plan, query, read, site.partitions(), letters.place, semantics)
        else:
            layout = layout_of(plan, query, site.partitions(), buckets=record.buckets)
            made = Emitting(exact_streaming(layout, stream_log(spark, replace(options, layout=layout.dumps()))))
    into = [s for s in plan.sources if s.topic in topics_written(query) and s.topic in site.settings.files]
    to_files = [] if is_feeder(query) else list({s.topic: s for s in into}.values())
    reach(spark, *(site.settings.files[s.topic].path for s in to_files))
    writer_of = site.writer(site.target(query.id, record.run))
    functions = functions_in(query)
    commit = _Commit(site, writer_of, to_files, letters=letters, emit=made.emit, functions=functions)
    writer = made.rows.writeStream.foreachBatch(commit).queryName(query.id)
    writer = writer.outputMode(output_mode(query) if record.how == "native" else "update")
    writer = writer.option("checkpointLocation", str(site.checkpoint(query.id)))
    if pace == "available now":
        return writer.trigger(availableNow=True).start()
    target = query.latency_target_ms
    every = max(LOOK_MS_MIN, target // 2) if target else LOOK_MS_DEFAULT
    return writer.trigger(processingTime=f"{every} milliseconds").start()


def _read_by_stream(site: Site, query: QueryPlan, record: Record, ends: Offsets) -> ReadOptions:
    """Where tasks merge partitions by time, a micro-batch reads all of them up to one time: rows between the ends of its parts would not meet, or be late.
    A join whose times are columns, which records do not tell, reads all that there is at once.
    """
    topics, rows, aligned = topics_read(query), ROWS_PER_BATCH_MAX, False
    if record.how == "exact" and (merges(query) or len(query.subtopologies) > 1):
        scans = [n.spec for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)]
        aligned = all(s.timestamp is None and s.times == USUAL_TIMES for s in scans)
        rows = 0 if merges(query) and not aligned else rows
    first = site.bounds(topics, record)[0] if record.starts else {}
    starts = {t: at for t, at in first.items() if t in record.starts}
    stop_at = {t: at for t, at in ends.items() if t in topics}
    return ReadOptions(site.address, topics, starting=starts, max_rows_per_batch=rows, stop_at=stop_at, aligned=aligned)


def _reading(
    spark: SparkSession,
    options: ReadOptions,
    open_topic: Callable[[SparkSession, ReadOptions], DataFrame],
    reading: Reading,
) -> DataFrame:
    """Rows of a topic, decoded where its records are read; of a table the records that its log holds when a micro-batch is planned."""
    topic, starts = reading.source.topic, options.starting
    starting, ending = ({t: at for t, at in given.items() if t == topic} for given in (starts, options.ending))
    options = replace(options, topics=(topic,), starting=starting, ending=ending, reading=reading.dumps())
    if reading.beside == "table":
        return read_log(spark, replace(options, growing=True))
    return open_topic(spark, options)


class _Commit:
    """A micro-batch into the log and into files, from the driver. letters: of a native stream. emit: makes its EMITTED rows of the rows of a native stream, or of files, which are as large as they are.

    (A Python data source cannot be written in output mode update, and starts workers for each commit.)
    """

    def __init__(
        self,
        site: Site,
        writer: Writer,
        to_files: Sequence[SourceDef],
        *,
        letters: Letters | None = None,
        emit: Emit | None = None,
        functions: frozenset[str] = frozenset(),
    ) -> None:
        self._functions, self._places = functions, PlacesOfKeys(writer.target.query)
        self._known: dict[
            int, dict[TopicPartition, int]
        ] = {}  # positions after the last epochs, as a file of the checkpoint has them
        self._site, self._writer, self._to_files, self._letters, self._emit = site, writer, to_files, letters, emit

    def __call__(self, emitted: DataFrame, epoch: int) -> None:
        target = self._writer.target
        staging = self._site.staging
        staged = self._is_large(epoch, staging)
        with results_of(emitted, staging, target.query, staged=staged, emit=self._emit) as found:
            self._append(found.pieces, found.notes, epoch)
            # After the log: what is not there yet after a crash is written when Spark gives the epoch again.
            for source in self._to_files:
                number = Epoch(f"{target.group}/{target.run}/{source.topic}", epoch)
                write_epoch_files(emitted.sparkSession, found, source, self._site.settings.files[source.topic], number)

    def _is_large(self, epoch: int, staging: Staging) -> bool:
        limit = GATHERED_ROWS_MAX if staging.at is None else GATHERED_ROWS_MAX_APART
        of_files = self._emit is not None and self._letters is None
        return of_files or self._records_in(self._after(epoch - 1), self._after(epoch)) > limit

    def _append(self, pieces: Sequence[EmittedRecords], notes: Sequence[Mapping[str, Any]], epoch: int) -> None:
        positions = self._after(epoch)
        self._places.check(notes)
        if self._letters is None:
            self._writer.append(epoch, pieces, notes, positions)
            return
        before = self._after(epoch - 1)
        letters = self._letters.between(before, positions)
        # Spark's operators count nothing for us.
        counted = {"records_in": self._records_in(before, positions), **taken(self._functions)}
        self._writer.append(epoch, [*pieces, *letters], [counted], positions)
        self._letters.drop(positions)

    def _after(self, epoch: int) -> dict[TopicPartition, int]:
        if epoch not in self._known:
            self._known = {e: at for e, at in self._known.items() if e == epoch - 1}
            found = positions_after(self._site.checkpoint(self._writer.target.query), epoch)
            self._known[epoch] = partition_offsets(found)
        return self._known[epoch]

    def _records_in(self, before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]) -> int:
        """Offsets between two positions."""
        starts = {tp: before[tp] if tp in before else self._site.log.admin().begin_offset(tp) for tp in after}
        return sum(offset - starts[tp] for tp, offset in after.items())


def _letters_of(site: Site, query: str) -> Letters:
    if site.writes_letters_to_topic:
        return TopicLetters(site.log, site.application_id, query)
    return FolderLetters(staged_of(site.staging.folder, query) / "letters", query)


def _sink(site: Site, query: QueryPlan, record: Record) -> SinkOptions:
    target = site.target(query.id, record.run)
    functions = functions_in(query)
    return SinkOptions(site.address, site.staging, target, record.replaces, functions=functions)
