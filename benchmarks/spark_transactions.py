"""Micro-batches of a job by hand into a topic of Kafka, each in one transaction, as FlowQL writes them: for `spark_kafka --guarded`.

Spark's sink for Kafka has no transactions. So tasks write the records to Parquet files, which the driver reads and produces with the client that
FlowQL uses, in its settings. The number of the micro-batch is committed with them, as a position of a group: one that comes again after a
crash is left out.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition

# Of a micro-batch: brokers abort a transaction that takes more than a minute.
ROWS_MAX = 500_000
COLUMNS = ("partition", "key", "value", "time")  # partition: -1 for the one that the key tells; time: in ms
_CALL_S = 60.0


class Transactions:
    """What `foreachBatch` calls with frames of COLUMNS. settings: of the producer, with a transactional id."""

    def __init__(self, settings: Mapping[str, Any], topic: str, staging: Path) -> None:
        self._topic, self._staging = topic, staging
        self._producer = Producer(dict(settings))
        self._producer.init_transactions(_CALL_S)
        known = {k: settings[k] for k in ("bootstrap.servers", "client.id")}
        self._group = Consumer({**known, "group.id": settings["transactional.id"]})
        (committed,) = self._group.committed([TopicPartition(topic, 0)], timeout=_CALL_S)
        self._next = max(0, committed.offset)  # below 0: nothing is committed

    def __call__(self, frame: Any, epoch: int) -> None:
        if epoch < self._next:
            return
        folder = self._staging / str(epoch)
        frame.select(*COLUMNS).write.mode("overwrite").option("compression", "none").parquet(str(folder))
        self._producer.begin_transaction()
        for file in sorted(folder.glob("*.parquet")):  # a file of each task, in the order of tasks
            with pq.ParquetFile(file) as rows:
                for batch in rows.iter_batches(columns=list(COLUMNS)):
                    self._send(batch)
        done = TopicPartition(self._topic, 0, epoch + 1)
        self._producer.send_offsets_to_transaction([done], self._group.consumer_group_metadata(), _CALL_S)
        self._producer.commit_transaction(_CALL_S)
        self._next = epoch + 1
        shutil.rmtree(folder)

    def close(self) -> None:
        self._group.close()

    def _send(self, batch: pa.RecordBatch) -> None:
        produce, topic = self._producer.produce, self._topic
        for partition, key, value, time in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            while True:
                try:
                    produce(topic, value, key, partition, None, None, time)
                    break
                except BufferError:
                    self._producer.poll(0.05)
        self._producer.poll(0)
