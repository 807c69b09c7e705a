"""Stores, a physical store that loses unflushed writes, and helpers around a commit."""

import threading

from flowql.compiler.plan import types as T
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical

VALUE = Schema((Field("V", T.BIGINT),))


def table(name="T", *key, value=VALUE):
    types = key or (T.STRING,)
    return StoreSpec(name, "table", Schema(tuple(Field(f"K{i}", t, "key") for i, t in enumerate(types))), value)


def window(name="W", kind="window", retention_ms=180_000):
    key = Schema((Field("K", T.STRING, "key"), Field("WINDOWSTART", T.BIGINT, "window")))
    return StoreSpec(name, kind, key, VALUE, retention_ms)


def publish(manager, task, metadata=None):
    with manager.epoch_lock:
        task.publish({} if metadata is None else metadata)


def commit(manager, sequence=None):
    """Cut and apply; the redo payload."""
    frozen = manager.cut()
    redo = frozen.redo()
    manager.apply(frozen, manager.applied_sequence + 1 if sequence is None else sequence)
    return redo


def put(manager, task, store, rows, metadata=None):
    task.store(store).put_many(list(rows), list(rows.values()))
    publish(manager, task, metadata)


def raised_in_thread(call):
    """The error `call` raises when another thread makes it, or None."""
    errors = []

    def run():
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return errors[0] if errors else None


class Forgetful(MemoryPhysical):
    """Keeps the writes since the last flush apart, so that a crash can lose a suffix of them."""

    def __init__(self):
        super().__init__()
        self.durable = []
        self.since_flush = []

    def write_batch(self, keys, values, ranges=()):
        super().write_batch(keys, values, ranges)
        self.since_flush.append((list(keys), list(values), list(ranges)))

    def flush(self):
        self.durable, self.since_flush = self.durable + self.since_flush, []

    def after_crash(self, kept):
        """What a restart finds when `kept` of the unflushed batches had reached the disk."""
        found = Forgetful()
        for batch in self.durable + self.since_flush[:kept]:
            found.write_batch(*batch)
        found.flush()
        return found


def manager_on(physical=None, **options):
    return StateManager(MemoryPhysical() if physical is None else physical, **options)


def rows(n, start=0):
    return {(f"k{i}",): (i,) for i in range(start, start + n)}
