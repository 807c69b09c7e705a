"""The physical store on RocksDB: the one door to rocksdict.

Measured on rocksdict 0.3.29:
- one column family only: `flush` flushes just the default one, whatever atomic_flush says;
- `disable_wal` is a property (the stub shows a method);
- a multi-get releases the interpreter lock, single gets and writes do not;
- `Snapshot.items` and `Snapshot.iter` show what was written after the snapshot; only its look-ups are isolated. An
  iterator, however, is a point in time from its creation on, also over later seeks, so a snapshot here is a pair;
- an iterator points into its `ReadOptions`: when these are collected first, its upper bound is whatever is there then;
- a snapshot or iterator keeps the database open (and its LOCK held) after `close`;
- a file of rows costs as much of the interpreter lock as writing them (0.4 us a row) unless another process makes it: to
  take one over costs less than 0.1 us a row, and no flush or compaction where it overlaps with nothing.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    ReadOptions,
    SstFileWriter,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from runtime.errors import StateError
from runtime.state.chunks import chunk_sizes
from runtime.state.locks import NamedLock
from runtime.state.physical import BATCH_ROWS_MAX, ByteRange

MIB = 1 << 20
_BLOOM_BITS = 10  # 1 % false positives: a look-up of an absent key costs 0.6 us instead of 1.5
_INCOMING = "incoming"
_LOG_BYTES_MAX, _LOG_FILES = 4 * MIB, 2  # RocksDB's own LOG


def open_rocks(
    path: Path | str, *, cache_bytes: int = 64 * MIB, write_buffer_bytes: int = 32 * MIB, read_only: bool = False
) -> RocksPhysical:
    """Open or create a database. Block cache and write buffers together stay near `cache_bytes`.

    read_only: as of the last flush, also beside a process that has it open; StateError if there is none.
    """
    options = _options(cache_bytes, write_buffer_bytes)
    if not read_only:
        Path(path).mkdir(parents=True, exist_ok=True)
        db = _open(path, options, AccessType.read_write())
        incoming = Path(path) / _INCOMING
        shutil.rmtree(incoming, ignore_errors=True)  # what a crash has left
        return RocksPhysical(db, incoming)
    if not (Path(path) / "CURRENT").exists():  # rocksdict would leave a file behind in what is no database
        raise StateError(f"there is no state in {path}")
    return RocksPhysical(_open(path, options, AccessType.read_only(False)))


def _open(path: Path | str, options: Options, access: AccessType) -> Rdict:
    try:
        return Rdict(str(path), options, access_type=access)
    except Exception as error:  # rocksdict has no error class of its own
        raise StateError(f"the state in {path} cannot be opened: {error}") from error


def write_row_file(path: Path, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
    """Rows for `RocksPhysical.ingest`, which may be that of another process. The keys rise."""
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(_table())
    options.set_compression_type(DBCompressionType.lz4())
    writer = SstFileWriter(options)
    writer.open(str(path))
    if None not in values:
        deque(map(writer.__setitem__, keys, values), maxlen=0)
    else:
        for key, value in zip(keys, values, strict=True):
            if value is None:
                del writer[key]
            else:
                writer[key] = value
    writer.finish()


def _table() -> BlockBasedOptions:
    table = BlockBasedOptions()
    table.set_bloom_filter(_BLOOM_BITS, False)
    return table


def _options(cache_bytes: int, write_buffer_bytes: int) -> Options:
    cache = Cache(cache_bytes)
    table = _table()
    table.set_block_cache(cache)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(max(MIB, write_buffer_bytes // 2))
    options.set_write_buffer_manager(
        WriteBufferManager.new_write_buffer_manager_with_cache(write_buffer_bytes, False, cache)
    )
    options.set_compression_type(DBCompressionType.lz4())
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_memtable_whole_key_filtering(True)
    options.set_memtable_prefix_bloom_ratio(0.05)
    options.set_max_log_file_size(_LOG_BYTES_MAX)
    options.set_keep_log_file_num(_LOG_FILES)
    return options


class RocksPhysical:
    """One RocksDB. WAL off: what is not flushed is redone from the log."""

    def __init__(self, db: Rdict, incoming: Path | None = None) -> None:
        self._db, self.incoming = db, incoming
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True
        db.set_write_options(self._write_options)

    def get(self, key: bytes) -> bytes | None:
        return self._db.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._db.get(keys if isinstance(keys, list) else list(keys))

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        options.set_iterate_upper_bound(high)
        return _bounded(self._db.items(from_key=low, read_opt=options), options)

    def write_batch(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], ranges: Sequence[ByteRange] = ()
    ) -> None:
        assert len(keys) <= BATCH_ROWS_MAX
        batch = WriteBatch(raw_mode=True)
        for low, high in ranges:
            batch.delete_range(low, high)
        if all(values):  # mostly: nothing is deleted, and no row is empty
            assert len(keys) == len(values)
            deque(map(batch.put, keys, values), maxlen=0)
        else:
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
        with _named("written"):
            self._db.write(batch)

    def delete_range(self, low: bytes, high: bytes) -> None:
        self.write_batch((), (), [(low, high)])

    def ingest(self, path: Path) -> None:
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        self._db.ingest_external_file([str(path)], options)

    def snapshot(self) -> RocksSnapshot:
        return RocksSnapshot(self._db)

    def flush(self) -> None:
        with _named("made durable"):
            self._db.flush(True)

    def checkpoint(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            Checkpoint(self._db).create_checkpoint(str(path))
        except Exception as error:  # rocksdict has no error class of its own
            raise StateError(f"no copy of the state could be made in {path}: {error}") from error

    def compact(self, low: bytes, high: bytes) -> None:
        with _named("compacted"):
            self._db.compact_range(low, high)

    def property(self, name: str) -> int | None:
        return self._db.property_int_value(name)

    def close(self) -> None:
        self._db.close()


@contextmanager
def _named(what: str) -> Iterator[None]:
    """StateError for what RocksDB raises: rocksdict has no error class of its own."""
    try:
        yield
    except Exception as error:
        raise StateError(f"the state cannot be {what}: {error}") from error


def _bounded(rows: Iterator[tuple[bytes, bytes]], options: ReadOptions) -> Iterator[tuple[bytes, bytes]]:
    """The rows; keeps `options` alive as long as they are read."""
    yield from rows
    del rows, options


class RocksSnapshot:
    """A point in time: a snapshot for look-ups and an iterator made at the same moment for scans.

    The caller sees to it that nothing is written while it is made.
    """

    def __init__(self, db: Rdict) -> None:
        self._lookup = db.snapshot()
        self._iterator = db.iter()
        self._lock = NamedLock("rocks snapshot", guards="the iterator's position")

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._lookup[key]
        except Exception as error:  # rocksdict raises a bare Exception for an absent key
            if str(error) == "key not found":
                return None
            raise

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self.get, keys))

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        for keys, values in self.chunks(low, high):
            yield from zip(keys, values, strict=True)

    def chunks(self, low: bytes, high: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
        for size in chunk_sizes():
            keys, values = self._chunk(low, high, size)
            if keys:
                yield keys, values
            if len(keys) < size:
                return
            low = keys[-1] + b"\0"

    def close(self) -> None:
        """Let RocksDB drop the old versions."""
        del self._lookup, self._iterator

    def _chunk(self, low: bytes, high: bytes, size: int) -> tuple[list[bytes], list[bytes]]:
        keys: list[bytes] = []
        values: list[bytes] = []
        with self._lock:
            iterator = self._iterator
            iterator.seek(low)
            key_of, value_of, advance = iterator.key, iterator.value, iterator.next
            for _ in range(size):
                key = key_of()  # None behind the last row
                if key is None or key >= high:
                    break
                keys.append(key)
                values.append(value_of())
                advance()
            if not iterator.valid():
                iterator.status()  # raises what stopped it, if it was not the end
        return keys, values
