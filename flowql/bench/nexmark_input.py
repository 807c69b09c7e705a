"""The Nexmark events written where engines read them: topics of the embedded log, or Parquet files; and read for the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from flowql.bench import nexmark
from flowql.bench.nexmark_people import MAKERS, SCHEMAS, counts
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog

PARTITIONS = 4
EVENTS_PER_COMMIT = 200_000
Report = Callable[[int], None]


def write_log(folder: Path, events: int, topics: Iterable[str] = SCHEMAS, report: Report = lambda done: None) -> None:
    """The topics in `folder`/log; see `write_topics`."""
    with closing(EmbeddedLog(folder / "log")) as log:
        write_topics(log, events, topics, report)


def write_topics(
    log: Log,
    events: int,
    topics: Iterable[str] = SCHEMAS,
    report: Report = lambda done: None,
    partitions: int = PARTITIONS,
) -> None:
    """JSON records of the timeline up to bid number `events`, keyed and partitioned by id."""
    done = 0
    for topic in topics:
        log.admin().create_topic(topic, partitions)
        done = produce(log, topic, MAKERS[topic](counts(events)[topic]), done, report, partitions)


def produce(
    log: Log,
    topic: str,
    rows: Iterator[pa.RecordBatch],
    done: int = 0,
    report: Report = lambda done: None,
    partitions: int = PARTITIONS,
) -> int:
    """Rows as records of a topic; how many there are, beside those `done` before."""
    producer = log.producer(f"bench-input-{topic}")
    pending = 0
    producer.begin()
    for partition, records in nexmark.records(rows, partitions):
        producer.send(TopicPartition(topic, partition), records)
        pending += records.num_rows
        if pending >= EVENTS_PER_COMMIT:
            producer.commit()
            producer.begin()
            done, pending = done + pending, 0
            report(done)
    producer.commit()
    producer.close()
    return done + pending


def write_parquet(folder: Path, events: int, topics: Iterable[str] = SCHEMAS) -> dict[str, Path]:
    """`folder`/person.parquet and so on, with the same rows; the files by topic."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {topic: folder / f"{topic}.parquet" for topic in topics}
    for topic, file in files.items():
        with pq.ParquetWriter(file, SCHEMAS[topic]) as writer:
            for batch in MAKERS[topic](counts(events)[topic]):
                writer.write_batch(batch)
    return files


def rows_of(topic: str, events: int) -> Callable[[], pa.RecordBatchReader]:
    """A topic's events, made again each time they are asked for."""

    def read() -> pa.RecordBatchReader:
        batches: Iterator[pa.RecordBatch] = MAKERS[topic](counts(events)[topic])
        return pa.RecordBatchReader.from_batches(SCHEMAS[topic], batches)

    return read
