"""Records for log tests, and what a log holds as plain Python."""

import pyarrow as pa

from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Log, TopicPartition


def batch(rows):
    """A batch from values, or tuples (timestamp, key, value, headers) of any length."""
    full = []
    for i, row in enumerate(rows):
        row = row if isinstance(row, tuple) else (i, b"k%d" % i, row)
        full.append(dict(zip(PRODUCE_SCHEMA.names, (*row, None, None, None)[:4], strict=True)))
    return pa.RecordBatch.from_pylist(full, schema=PRODUCE_SCHEMA)


def numbered(first, count):
    return batch([(i, b"%d" % i, b"value %d" % i) for i in range(first, first + count)])


def read_all(log: Log, tp: TopicPartition, max_records: int = 100_000, max_bytes: int = 1 << 30):
    """Every record of a partition as (offset, timestamp, key, value)."""
    reader = log.reader(tp, EARLIEST)
    rows = []
    while (raw := reader.read(max_records, max_bytes)) is not None:
        raw.records.validate(full=True)
        assert raw.tp == tp
        assert raw.first_offset == raw.records.column(0)[0].as_py()
        assert raw.next_offset == reader.position
        columns = [raw.records.column(i).to_pylist() for i in range(4)]
        rows += list(zip(*columns, strict=True))
    return rows


def values(log: Log, tp: TopicPartition):
    return [r[3] for r in read_all(log, tp)]


def produce(log: Log, transactional_id: str, *sends, positions=None, redo=None, drop=None, sources=None):
    """One transaction by a new producer: sends are (tp, rows); drop: tp -> the offset below which records go; sources: of `append_from`."""
    producer = log.producer(transactional_id)
    producer.begin()
    for tp, offset in (drop or {}).items():
        producer.drop_before(tp, offset)
    for tp, source in (sources or {}).items():
        producer.append_from(tp, source)
    for tp, rows in sends:
        producer.send(tp, batch(rows))
    for group, entries in (positions or {}).items():
        producer.send_positions(group, entries)
    if redo is not None:
        producer.attach_redo(redo)
    return producer.commit()


def reshape(log: Log, topic: str, partitions: int, offset: int, *, keeps: bool, records=None):
    """Another number of partitions. records: by partition, of what comes with them."""
    producer = log.producer("p")
    producer.begin()
    producer.repartition(topic, partitions, offset, keeps=keeps)
    for p, some in (records or {}).items():
        producer.send(TopicPartition(topic, p), batch(some))
    return producer.commit()
