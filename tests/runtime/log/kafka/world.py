"""A Kafka log for tests that were written for logs in one process."""

from __future__ import annotations

import itertools
import time
import uuid

from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog

PATIENCE_S = 60.0


class PatientConsumer:
    """A poll waits until something is there, or everything has been read: what is fetched takes a moment to arrive."""

    def __init__(self, consumer, log):
        self._consumer, self._log = consumer, log
        self._positions, self._paused = {}, set()

    def __getattr__(self, name):
        return getattr(self._consumer, name)

    def assign(self, positions):
        self._consumer.assign(positions)
        self._positions = {tp: self._log.reader(tp, offset).position for tp, offset in positions.items()}
        self._paused.clear()

    def seek(self, tp, offset):
        self._consumer.seek(tp, offset)
        self._positions[tp] = offset

    def pause(self, tps):
        self._consumer.pause(tps)
        self._paused |= set(tps)

    def resume(self, tps):
        self._consumer.resume(tps)
        self._paused -= set(tps)

    def poll(self, max_records, max_bytes):
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit:
            batches = self._consumer.poll(max_records, max_bytes)
            self._positions |= {b.tp: b.next_offset for b in batches}
            with_rows = [b for b in batches if b.records.num_rows]
            if with_rows or not self._behind():
                return with_rows
            time.sleep(0.005)
        raise AssertionError(f"nothing arrives of {self._behind()}")

    def _behind(self):
        ends = self._log.end_offsets(sorted(self._positions))
        return [tp for tp, end in ends.items() if tp not in self._paused and self._positions[tp] < end]

    def poll_all(self):
        """Every poll until nothing is left: [(partition, values)]."""
        out = []
        while batches := self.poll(1000, 1 << 20):
            out += [(b.tp, b.records.column("value").to_pylist()) for b in batches]
        return out


class TestLog(KafkaLog):
    """Groups and transactional ids of each test are its own."""

    __test__ = False
    _numbers = itertools.count()

    def __init__(self, bootstrap, application_id="flowql", **options):
        super().__init__(Connection(bootstrap, options), application_id)
        self.prefix = f"{uuid.uuid4().hex[:8]}-"

    def name(self, text):
        return text if text.startswith(self.prefix) else self.prefix + text

    def consumer(self, client_id):
        return PatientConsumer(super().consumer(client_id), self)

    def producer(self, transactional_id):
        producer = super().producer(self.name(transactional_id))
        send_positions = producer.send_positions
        producer.send_positions = lambda group, *given: send_positions(self.name(group), *given)
        return producer

    def last_sequence(self, transactional_id):
        return super().last_sequence(self.name(transactional_id))

    def committed(self, group):
        return super().committed(self.name(group))

    def groups(self, prefix):
        return [name.removeprefix(self.prefix) for name in super().groups(self.name(prefix))]

    def hold(self, transactional_id):
        super().hold(self.name(transactional_id))

    def topics(self):
        return {name: info for name, info in super().topics().items() if not name.startswith(self.prefix)}

    def clear(self):
        for name in KafkaLog.topics(self):
            self.delete_topic(name)
