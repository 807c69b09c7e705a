"""The process behind `RestoreProcess`: reads changelogs and makes files of rows of them.

python -m flowql.runtime.app.restore_worker FILE-DESCRIPTOR
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from flowql.runtime.app.allocator import keep_memory
from flowql.runtime.app.restore_process import ReadRequest, ReadResponse, StartWorker
from flowql.runtime.app.without_pandas import leave_pandas_out
from flowql.runtime.clock import Clock, SystemClock
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import KeyValueReader, Log, TopicPartition
from flowql.runtime.state.layout import entry_from_record
from flowql.runtime.state.restore import RowFile, over_runs, place_records
from flowql.runtime.state.rocks import write_row_file

WAIT_S = 0.002  # between two looks at what arrives from brokers
BYTES_MAX = 16 << 20  # of the records of a file
TIMEOUT_MS = 30_000


@dataclass(slots=True)
class OpenRequest:
    """A request, and the part of it that is read."""

    ask: ReadRequest
    reader: KeyValueReader
    deadline_ms: int
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    size_bytes: int = 0

    def advance(self) -> bool:
        """Reads the records that have arrived. True when the request is complete."""
        while self.reader.arrived():
            batch = self.reader.read(self.ask.max_records, BYTES_MAX)
            if batch is None:
                return True
            self.keys += batch.keys
            self.values += batch.values
            self.size_bytes += batch.size_bytes
            if len(self.keys) >= self.ask.max_records or self.size_bytes >= BYTES_MAX:
                return True
        return False

    def file(self, path: Path) -> RowFile:
        entry = entry_from_record(self.ask.store)
        around, rows = place_records(entry, self.ask.tp.partition, self.keys, self.values)
        if self.ask.over_runs:
            rows = over_runs(rows)
        if rows.keys:
            write_row_file(path, rows.keys, rows.values)
        return RowFile(path if rows.keys else None, around, len(self.keys), self.reader.position)


class RestoreWorker:
    """Serves its parent until that is gone. One reader per partition is kept, and reads ahead."""

    def __init__(self, connection: Connection, log: Log, folder: Path, clock: Clock) -> None:
        self._connection, self._log, self._folder, self._clock = connection, log, folder, clock
        self._readers: dict[TopicPartition, KeyValueReader] = {}
        self._readings: list[OpenRequest] = []

    def run(self) -> None:
        """Ends with the EOFError or OSError of a parent that is gone."""
        while True:
            while self._connection.poll(None if not self._readings else 0):
                self._begin(self._connection.recv())
            open_ = [r for r in self._readings if not self._advance(r)]
            done = len(open_) < len(self._readings)
            self._readings = open_
            if open_ and not done:
                self._connection.poll(WAIT_S)

    def _begin(self, ask: ReadRequest) -> None:
        # The task of an older one was taken away; both would share a reader.
        older = [r for r in self._readings if r.ask.tp == ask.tp]
        self._readings = [r for r in self._readings if r not in older]
        for reading in older:
            self._connection.send(ReadResponse(reading.ask.number, error="it was asked for again"))
        try:
            reader = self._readers.get(ask.tp)
            if reader is None:
                reader = self._readers[ask.tp] = self._log.key_values(ask.tp, ask.offset)
            if reader.position != ask.offset:
                reader.seek(ask.offset)
            self._readings.append(OpenRequest(ask, reader, self._clock.timer_ms() + TIMEOUT_MS))
        except Exception as error:  # the caller decides
            self._refuse(ask, error)

    def _advance(self, reading: OpenRequest) -> bool:
        """True if it is answered."""
        try:
            if not reading.advance():
                if self._clock.timer_ms() > reading.deadline_ms:
                    raise LogUnavailable(f"{reading.ask.tp}: nothing arrives from offset {reading.reader.position} on")
                return False
            file = reading.file(self._folder / f"{os.getpid()}-{reading.ask.number}.sst")
        except Exception as error:  # as above
            self._refuse(reading.ask, error)
        else:
            self._connection.send(ReadResponse(reading.ask.number, file))
        return True

    def _refuse(self, ask: ReadRequest, error: Exception) -> None:
        self._connection.send(ReadResponse(ask.number, error=f"{type(error).__name__}: {error}"))


def main() -> None:
    leave_pandas_out()
    keep_memory()
    connection = Connection(int(sys.argv[1]))
    try:
        begin = connection.recv()
        assert isinstance(begin, StartWorker)
        RestoreWorker(connection, begin.open_log(), begin.folder, SystemClock()).run()
    except (EOFError, OSError):  # the parent has ended or closed its end of the connection
        os._exit(0)


if __name__ == "__main__":
    main()
