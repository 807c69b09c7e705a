"""The physical store on RocksDB: the one door to rocksdict.

Measured on rocksdict 0.3.29:
- one column family only: `flush` flushes just the default one, whatever atomic_flush says;
- `Options` reach a column family that exists only through `column_families`: without it a database that is opened again has RocksDB's
  cache of 8 MB and no Bloom filters, in silence;
- `disable_wal` is a property (the stub shows a method);
- a multi-get releases the interpreter lock, single gets and writes do not;
- `Snapshot.items` and `Snapshot.iter` show what was written after the snapshot; only its look-ups are isolated. An
  iterator, however, is a point in time from its creation on, also over later seeks, so a snapshot here is a pair;
- `items`, `keys` and `values` end without an error where a block is damaged: only the `status` of a raw iterator tells;
- an iterator points into its `ReadOptions`: when these are collected first, its upper bound is whatever is there then;
- a snapshot or iterator keeps the database open (and its LOCK held) after `close`;
- after an I/O error of a flush it takes no more writes, for good (after ENOSPC for some seconds at least), and `close`, which flushes,
  raises and leaves it open: only when the last reference to it is gone is it closed;
- a file of rows costs as much of the interpreter lock as writing them (0.4 us a row) unless another process makes it: to
  take one over costs less than 0.1 us a row, and no flush or compaction where it overlaps with nothing.
"""

from __future__ import annotations

import os
import resource
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from weakref import WeakSet

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    SstFileWriter,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from flowql.runtime.errors import StateDamaged, StateError, StateFull, remedy_when_full
from flowql.runtime.log.files import DiskFiles
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.physical import BATCH_ROWS_MAX, ByteRange, chunk_sizes

MIB = 1 << 20
_BLOOM_BITS = 10  # 1 % false positives: a look-up of an absent key costs 0.6 us instead of 1.5
_BLOCK_BYTES = 4096  # RocksDB's default
_FILES_LEAST, _FILES_MANY = 64, 65_536
_INCOMING = "incoming"
_LOG_BYTES_MAX, _LOG_FILES = 4 * MIB, 2  # RocksDB's own LOG
_REOPEN_WAIT_S = 10.0  # so long a reader waits for a database that is being opened again
_SCAN_FIRST = 8  # rows that a scan takes at once: most find fewer, or want no more than one
_PROBE, _PROBE_BYTES = "probe", 64 << 10
_DAMAGED = "DAMAGED"  # a file with what was found damaged: the next start does not use this database


def open_rocks(
    path: Path | str, *, cache_bytes: int = 64 * MIB, write_buffer_bytes: int = 32 * MIB, read_only: bool = False
) -> RocksPhysical:
    """Open or create a database. Block cache and write buffers together stay near `cache_bytes`.

    read_only: as of the last flush, also beside a process that has it open; StateError if there is none.
    Raises StateDamaged where files are damaged, or were found damaged before.
    """
    if not read_only:
        if found := damage_in(Path(path)):
            raise StateDamaged(str(path), found)
        DiskFiles().makedirs(str(Path(path).absolute()))  # for its owner alone, as RocksDB's files are for everybody
        again = partial(_open, path, cache_bytes, write_buffer_bytes, AccessType.read_write())
        opened = again()
        incoming = Path(path) / _INCOMING
        shutil.rmtree(incoming, ignore_errors=True)  # what a crash has left
        return RocksPhysical(opened, incoming, again)
    if not (Path(path) / "CURRENT").exists():  # rocksdict would leave a file behind in what is no database
        raise StateError(f"there is no state in {path}")
    return RocksPhysical(_open(path, cache_bytes, write_buffer_bytes, AccessType.read_only(False)))


def damage_in(path: Path) -> str:
    """The damage that a reader of this database has found; empty for none."""
    try:
        return (path / _DAMAGED).read_text(errors="replace").strip()
    except OSError:
        return ""


def _open(path: Path | str, cache_bytes: int, write_buffer_bytes: int, access: AccessType) -> tuple[Rdict, Options]:
    """The database, and the options that hold its statistics."""
    try:
        options = _options(cache_bytes, write_buffer_bytes)
        return Rdict(str(path), options, {"default": options}, access_type=access), options
    except Exception as error:  # rocksdict has no error class of its own
        found = _one_line(error)
        if not found.startswith("IO error") or "No such file" in found:
            raise StateDamaged(str(path), found) from error
        raise _failure(f"the state in {path} cannot be opened: {found}") from error


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
    # Cache(bytes) has shards of 1.5 MB, and the filter of a full file has 1.3: each look-up read a whole filter from its file again (119 KB on
    # average among 10 million rows with a cache of 98 MB; 78,000 look-ups/s). With shards of 32 MB: 2 KB, 189,000.
    cache = Cache.new_hyper_clock_cache(cache_bytes, _BLOCK_BYTES)
    table = _table()
    table.set_block_cache(cache)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(max(MIB, write_buffer_bytes // 2))
    options.set_write_buffer_manager(
        WriteBufferManager.new_write_buffer_manager_with_cache(write_buffer_bytes, False, cache)
    )
    options.enable_statistics()
    options.set_compression_type(DBCompressionType.lz4())
    options.set_memtable_whole_key_filtering(True)
    options.set_memtable_prefix_bloom_ratio(0.05)
    options.set_max_open_files(_files_open_max())
    options.set_max_log_file_size(_LOG_BYTES_MAX)
    options.set_keep_log_file_num(_LOG_FILES)
    return options


def _files_open_max() -> int:
    """Half of what the process may open: RocksDB would keep each file of 64 MB open, and fail at the limit; -1 for no limit of its own."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return -1 if limit == resource.RLIM_INFINITY or limit >= _FILES_MANY else max(_FILES_LEAST, limit // 2)


class RocksPhysical:
    """One RocksDB. WAL off: what is not flushed is redone from the log.

    `reopen` exchanges the database under its readers: they ask for it anew with each call, and what lives longer (snapshots and
    scans) is known here, so that it can be made to let go of the old one.
    """

    def __init__(
        self,
        opened: tuple[Rdict, Options],
        incoming: Path | None = None,
        again: Callable[[], tuple[Rdict, Options]] | None = None,
    ) -> None:
        """again: opens it once more; None if nothing is written to it."""
        db, self._options = opened
        self.incoming = incoming
        self._again, self._path = again, Path(db.path())
        self._errors = _Errors(self._path)
        self._opened = threading.Condition()  # guards the four fields below
        self._db: Rdict | None = db  # None while it is being opened again, and when it is closed
        self._next: Rdict | None = None  # the one that is being brought forward, for that thread alone
        self._reopener = 0
        self._closed = False
        self._kept: dict[bytes, bytes] = {}
        self._holders: WeakSet[RocksSnapshot | _Scan] = WeakSet()
        self._holders_lock = NamedLock("rocks holders", guards="which snapshots and scans hold the database open")
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True
        db.set_write_options(self._write_options)

    def get(self, key: bytes) -> bytes | None:
        db = self._current()
        try:
            return db.get(key)
        except Exception as error:  # rocksdict has no error class of its own
            return self._other_than(db, error).get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        db, wanted = self._current(), keys if isinstance(keys, list) else list(keys)
        try:
            return db.get(wanted)
        except Exception as error:  # rocksdict has no error class of its own
            return self._other_than(db, error).get(wanted)

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        options.set_iterate_upper_bound(high)
        db = self._current()
        with self._errors.named("read"):
            iterator = db.iter(options)
            iterator.seek(low)
            rows = _rows(iterator, _SCAN_FIRST)
        if len(rows) < _SCAN_FIRST:  # mostly: nothing is left to be read in another database
            del iterator
            return iter(rows)
        scan = _Scan(self, rows, high, iterator, options)
        self._hold(scan, db)
        return scan.rows()

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
        db = self._current()
        with self._errors.named("written"):
            db.write(batch)

    def keep(self, key: bytes, value: bytes) -> None:
        """Write a row that no redo has; `reopen` writes it again, as it may be lost with what was not flushed."""
        self._kept[key] = value
        self.write_batch([key], [value])

    def ingest(self, path: Path) -> None:
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        db = self._current()
        try:
            db.ingest_external_file([str(path)], options)
        except Exception as error:  # it may be the file that is damaged, and the state is not
            raise StateError(f"the state cannot be written: {_one_line(error)}") from error

    def snapshot(self) -> RocksSnapshot:
        db = self._current()
        with self._errors.named("read"):
            snapshot = RocksSnapshot(db, self._errors)
        self._hold(snapshot, db)
        return snapshot

    def flush(self) -> None:
        db = self._current()
        with self._errors.named("made durable"):
            db.flush(True)

    def checkpoint(self, path: Path) -> None:
        db = self._current()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            Checkpoint(db).create_checkpoint(str(path))
        except Exception as error:  # rocksdict has no error class of its own
            raise _failure(f"no copy of the state could be made in {path}: {error}") from error

    def compact(self, low: bytes, high: bytes) -> None:
        db = self._current()
        with self._errors.named("compacted"):
            db.compact_range(low, high)

    def property(self, name: str) -> int | None:
        return self._current().property_int_value(name)

    def statistics(self) -> str:
        return self._options.get_statistics() or ""

    def close(self) -> None:
        """Flushes and closes. If the flush fails, on a full disk for example, the next start redoes the writes from the log."""
        with self._opened:
            db, self._db, self._next, self._closed = self._db, None, None, True
            self._opened.notify_all()
        if db is not None:
            with suppress(Exception):  # it flushes; with the last reference it is closed anyway
                db.close()

    def reopen(self, roll_forward: Callable[[], None]) -> None:
        assert self._again is not None, "a database that is read only is not opened again"
        with self._opened:
            stale = [db for db in (self._db, self._next) if db is not None]
            self._db = self._next = None
            self._reopener = threading.get_ident()
        with self._holders_lock:
            holders = list(self._holders)
        for holder in holders:
            holder.let_go()
        while stale:  # what is left of its references are calls that are under way
            with suppress(Exception):
                stale.pop().cancel_all_background(False)
        new, self._options = self._again()
        new.set_write_options(self._write_options)
        self._next = new
        self.write_batch(list(self._kept), list(self._kept.values()))
        roll_forward()
        with self._opened:
            if not self._closed:
                self._db = self._next
            self._next, self._reopener = None, 0
            self._opened.notify_all()

    def accepts_files(self) -> bool:
        path = self._path / _PROBE
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                whole = os.write(file, bytes(_PROBE_BYTES)) == _PROBE_BYTES
                os.fsync(file)
                return whole
            finally:
                os.close(file)
        except OSError:
            return False
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _current(self) -> Rdict:
        db = self._db
        return self._awaited() if db is None else db

    def _awaited(self) -> Rdict:
        """The database once it is open again; the thread that opens it has it before all others."""
        with self._opened:
            if self._reopener == threading.get_ident():
                db = self._next
            else:
                self._opened.wait_for(lambda: self._db is not None or self._closed, _REOPEN_WAIT_S)
                db = self._db
            if db is None:
                raise StateError(
                    "the state is closed"
                    if self._closed
                    else "the state is closed after an I/O error, and not open again yet"
                )
            return db

    def _other_than(self, db: Rdict, error: Exception) -> Rdict:
        """The database that took the place of one while it was read. StateError if it is the same."""
        if self._db is db:
            raise self._errors.of("read", error) from error
        return self._current()

    def _hold(self, holder: RocksSnapshot | _Scan, db: Rdict) -> None:
        """db: the one that it was made on, which `reopen` may have closed meanwhile, without knowing of it."""
        with self._holders_lock:
            self._holders.add(holder)
        if db is not self._db and db is not self._next and not self._closed:
            holder.let_go()


class _Errors:
    """StateErrors for what RocksDB raises: rocksdict has no error class of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def named(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self.of(what, error) from error

    def of(self, what: str, error: Exception) -> StateError:
        """Damage is noted beside the files: it may lie where the next start reads nothing."""
        found = _one_line(error)
        if not found.startswith("Corruption"):
            return _failure(f"the state cannot be {what}: {found}")
        with suppress(OSError):
            (self._path / _DAMAGED).write_text(found)
        return StateDamaged(str(self._path), found)


def _failure(said: str) -> StateError:
    remedy = remedy_when_full(said)
    return StateFull(f"{said}; {remedy}") if remedy else StateError(said)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _rows(iterator: RdictIter, count: int) -> list[tuple[bytes, bytes]]:
    """The next rows, fewer at the end. Raises what stopped the iterator if it was not the end."""
    key_of, value_of, advance = iterator.key, iterator.value, iterator.next
    rows: list[tuple[bytes, bytes]] = []
    for _ in range(count):
        key = key_of()  # None behind the last row
        if key is None:
            break
        rows.append((key, value_of()))
        advance()
    if not iterator.valid():
        iterator.status()
    return rows


class _Scan:
    """Rows of a range as of its making, taken some at a time: it goes on in another database with those it has not taken."""

    def __init__(
        self,
        store: RocksPhysical,
        first: list[tuple[bytes, bytes]],
        high: bytes,
        iterator: RdictIter,
        options: ReadOptions,
    ) -> None:
        """first: the rows that were taken from `iterator` so far. options: its own, which must live as long."""
        self._store, self._first, self._high = store, first, high
        self._low = first[-1][0] + b"\0"
        self._lock = threading.Lock()  # guards the two fields below, against `let_go`
        self._iterator: RdictIter | None = iterator
        self._options: ReadOptions | None = options

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        yield from self._first
        for size in chunk_sizes():
            rows = self._take(size)
            yield from rows
            if len(rows) < size:
                return

    def let_go(self) -> None:
        with self._lock:
            self._iterator = self._options = None

    def _take(self, size: int) -> Sequence[tuple[bytes, bytes]]:
        with self._lock:
            if self._iterator is not None:
                with self._store._errors.named("read"):
                    rows = _rows(self._iterator, size)
                if len(rows) < size:
                    self._iterator = self._options = None
                    return rows
            else:
                rows = None
        if rows is None:  # not under the lock: it may have to wait for the database
            rows = list(islice(self._store.scan(self._low, self._high), size))
        if rows:
            self._low = rows[-1][0] + b"\0"
        return rows


class RocksSnapshot:
    """A point in time: a snapshot for look-ups and an iterator made at the same moment for scans.

    The caller sees to it that nothing is written while it is made.
    """

    def __init__(self, db: Rdict, errors: _Errors) -> None:
        self._errors = errors
        self._lookup = db.snapshot()
        self._iterator = db.iter()
        self._ended = "the snapshot is closed"
        self._lock = NamedLock("rocks snapshot", guards="the iterator's position")

    def get(self, key: bytes) -> bytes | None:
        lookup = self._lookup
        if lookup is None:
            raise StateError(self._ended)
        try:
            return lookup[key]
        except Exception as error:  # rocksdict raises a bare Exception for an absent key
            if str(error) == "key not found":
                return None
            raise self._errors.of("read", error) from error

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
        with self._lock:
            self._lookup = self._iterator = None

    def let_go(self) -> None:
        """Its database is closed; later reads raise a StateError."""
        self._ended = "the state was opened again after an I/O error: ask again"
        self.close()

    def _chunk(self, low: bytes, high: bytes, size: int) -> tuple[list[bytes], list[bytes]]:
        keys: list[bytes] = []
        values: list[bytes] = []
        with self._lock:
            iterator = self._iterator
            if iterator is None:
                raise StateError(self._ended)
            with self._errors.named("read"):
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
