"""Random histories of two tasks against plain dicts: nothing uncommitted survives, nothing committed is lost."""

import copy
import shutil
import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import StoreSpec
from flowql.compiler.plan.types import STRING
from flowql.runtime.budget import StateLimits
from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import StateError
from flowql.runtime.state import physical as physical_module
from flowql.runtime.state.columns.packed import pack
from flowql.runtime.state.columns.values import RowValues, ValueLayout
from flowql.runtime.state.layout import BEGINNING_MS, store_key_codec
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.state.runs import merging, run, writing
from flowql.runtime.state.state_memory import FIRST_BYTES
from tests.runtime.state.support import Forgetful, publish, table, window

SPECS = [table("T"), window("W"), table("A")]
UNIVERSE = {
    "T": [(k,) for k in (None, "a", "b", "b\0", "c")],
    "A": [(k,) for k in (None, "a", "b", "b\0", "a key of several words")],
    "W": [(k, n * 25_000) for k in "ab" for n in range(-3, 9)],
}
KEYS = {name: st.sampled_from(keys) for name, keys in UNIVERSE.items()}
TASK = st.integers(0, 1)
LAYOUT = ValueLayout((("integer",),))
ANY_KEY = st.one_of(*(KEYS[name].map(lambda k, name=name: (name, k)) for name in UNIVERSE))


# A commit of a handful of rows is several batches, so that crashes fall inside commits, and few rows are a run, of several blocks.
LIMITS = [
    (physical_module, "BATCH_ROWS_MAX", 3),
    (run, "BLOCK_BYTES", 40),
    (merging, "BATCH_ROWS_MAX", 3),
    (merging, "FAN_IN", 2),
    (merging, "ROWS_LEAST", 2),
    (writing, "TAKEN_IN_MIN", 1),
    (merging, "ROWS_MAX", 6),
    (merging, "PART_ROWS", 2),
    (merging, "DELETED_ROWS", 2),
]


class Steps(SystemClock):
    """A clock by which every step takes long."""

    def __init__(self):
        self.cost = 0

    def cost_ns(self):
        self.cost += 1_000_000_000
        return self.cost


def order(key):
    return tuple((p is not None, p or ("" if isinstance(p, str) else 0)) for p in key)


class Layer:
    """Rows (None: deleted), bounds and metadata of one layer of one task."""

    def __init__(self):
        self.rows = {name: {} for name in UNIVERSE}
        self.bound = BEGINNING_MS
        self.meta = None

    def absorb(self, newer):
        for name, rows in newer.rows.items():
            self.rows[name].update(rows)
        self.bound = max(self.bound, newer.bound)
        self.meta = newer.meta if newer.meta is not None else self.meta

    def visible(self, name):
        return {k: v for k, v in self.rows[name].items() if v is not None and (name != "W" or k[-1] >= self.bound)}


def stacked(*layers):
    out = Layer()
    for layer in layers:
        out.absorb(layer)
    return out


class Histories(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.limits = {}
        for module, name, value in LIMITS:
            self.limits[module, name] = getattr(module, name)
            setattr(module, name, value)
        self.physical = self.new_physical()
        self.committed = [Layer(), Layer()]
        self.redo = []
        self.snapshots = []
        self.value, self.folded = 0, False
        self.start()

    def new_physical(self):
        return Forgetful()

    def start(self):
        self.manager = StateManager(self.physical, limits=StateLimits(cache_bytes=4 * FIRST_BYTES, run_rows_min=3))
        for sequence, payload in self.redo:
            self.manager.replay_all([(sequence, payload)])
        self.merger = self.manager.merger(Steps())
        self.sequence = self.manager.applied_sequence
        self.tasks = [self.manager.open_task(f"q/0/{p}", p, SPECS) for p in (0, 1)]
        self.batch, self.active = [Layer(), Layer()], [Layer(), Layer()]
        self.frozen = None

    def below(self, t):
        return [self.committed[t], *([self.frozen[t]] if self.frozen else []), self.active[t]]

    def view(self, t):
        return stacked(*self.below(t), self.batch[t])

    @rule(t=TASK, keys=st.lists(ANY_KEY, min_size=1, max_size=6), delete=st.integers(0, 3), publish=st.booleans())
    def put(self, t, keys, delete, publish):
        for i, (name, key) in enumerate(keys):
            self.value += 1
            value = None if i == delete else (self.value,)
            self.tasks[t].store(name).put(key, value)
            self.batch[t].rows[name][key] = value
        if publish:
            self.publish(t)

    @rule(
        t=TASK,
        name=st.sampled_from(("T", "W")),
        data=st.data(),
        delete=st.integers(0, 3),
        odd=st.integers(0, 3),
        staged=st.booleans(),
    )
    def put_in_columns(self, t, name, data, delete, odd, staged):
        """A value of two parts does not fit the columns, which have one number."""
        keys = data.draw(st.lists(KEYS[name], min_size=1, max_size=6, unique=True))
        store = self.tasks[t].store(name).columns(LAYOUT)
        found = store.find(pack(store_key_codec(store.spec).encode_many(keys)))
        rows = self.view(t).visible(name)
        assert found.values.to_list() == [rows.get(k) for k in keys]
        if not staged:
            return
        self.value += 1
        values = [None if i == delete else (self.value, "odd") if i == odd else (self.value,) for i in range(len(keys))]
        store.stage(found, RowValues.of(LAYOUT, values))
        self.batch[t].rows[name].update(zip(keys, values, strict=True))

    @rule(t=TASK, keys=st.lists(KEYS["A"], min_size=1, max_size=6), delete=st.integers(0, 3), odd=st.integers(0, 3))
    def append(self, t, keys, delete, odd):
        """Keys may come twice."""
        self.value += len(keys)
        values = [(self.value - i, "odd") if i == odd else (self.value - i,) for i in range(len(keys))]
        values = [None if i == delete else v for i, v in enumerate(values)]
        store = self.tasks[t].store("A")
        store.append(pack(store_key_codec(store.spec).encode_many(keys)), RowValues.of(LAYOUT, values))
        self.batch[t].rows["A"].update(zip(keys, values, strict=True))

    @rule(t=TASK, before=st.integers(-3, 9).map(lambda n: n * 25_000 + 1))
    def expire(self, t, before):
        self.tasks[t].store("W").expire(before)
        self.batch[t].bound = max(self.batch[t].bound, before)

    @rule(t=TASK)
    def publish(self, t):
        self.value += 1
        self.batch[t].meta = {"positions": self.value}
        publish(self.manager, self.tasks[t], self.batch[t].meta)
        self.active[t].absorb(self.batch[t])
        self.batch[t] = Layer()

    @rule(t=TASK)
    def discard(self, t):
        self.tasks[t].discard()
        self.batch[t] = Layer()

    @precondition(lambda self: self.frozen is None)
    @rule()
    def cut(self):
        self.cut_epoch = self.manager.cut()
        self.frozen, self.active = self.active, [Layer(), Layer()]

    @rule()
    def commit_and_apply(self):
        if self.frozen is None:
            self.cut()
        self.commit()
        self.manager.apply(self.cut_epoch, self.sequence)
        self.frozen = None

    def commit(self):
        """The log's part: from here on the epoch is true."""
        self.sequence += 1
        self.redo.append((self.sequence, self.cut_epoch.redo()))
        for t in (0, 1):
            self.committed[t].absorb(self.frozen[t])

    @rule()
    def abort(self):
        self.manager.abort()
        self.active, self.frozen = [Layer(), Layer()], None
        for t in (0, 1):
            self.tasks[t].begin_again()
            self.batch[t] = Layer()

    @rule(steps=st.integers(1, 12))
    def merge(self, steps):
        for _ in range(steps):
            self.merger.run_once(0)

    @rule(steps=st.sampled_from((100, 8, 6, 4, 3, 2, 1)), t=TASK, keys=st.lists(ANY_KEY, min_size=1, max_size=6))
    def fold(self, steps, t, keys):
        """Rows in no run become one, or are on their way to."""
        self.put(t, keys, 6, publish=True)
        self.commit_and_apply()
        entries = [(self.tasks[t].store(name).entry, t) for t in (0, 1) for name in UNIVERSE]
        self.manager.writer.to_fold.update(entry.prefix(t) for entry, t in entries)
        self.merge(steps)
        self.folded = True

    @rule()
    def flush(self):
        flushed, self.folded = self.manager.flush(), False
        self.redo = [r for r in self.redo if r[0] > flushed]

    @rule(kept=st.integers(0, 8), committed=st.booleans())
    def crash(self, kept, committed):
        self.keep_folds()
        if committed and self.frozen is not None:
            self.commit()
        self.snapshots = []
        self.physical = self.physical.after_crash(kept)
        self.start()

    def keep_folds(self):
        """Redo comes back here, and it must not meet rows that were folded when it was written: see `merging`."""
        if self.folded:
            self.flush()

    @rule()
    def take_snapshot(self):
        if len(self.snapshots) < 3:
            self.snapshots.append((self.manager.snapshot(), copy.deepcopy(self.committed)))

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def close_snapshot(self, data):
        self.snapshots.pop(data.draw(st.integers(0, len(self.snapshots) - 1)))[0].close()

    @rule(t=TASK)
    def read(self, t):
        self.check_reads(t)

    @rule()
    def read_all(self):
        self.check_reads(0)
        self.check_reads(1)

    def check_reads(self, t):
        for name, keys in UNIVERSE.items():
            rows = self.view(t).visible(name)
            assert self.tasks[t].store(name).get_many(keys) == [rows.get(k) for k in keys]

    @invariant()
    def scans_show_what_is_there(self):
        """Scans pass by the cache, so this does not warm it for `read`."""
        for t in (0, 1):
            for name in UNIVERSE:
                rows = sorted(self.view(t).visible(name).items(), key=lambda r: order(r[0]))
                assert list(self.tasks[t].store(name).scan()) == rows

    @rule(t=TASK, low=ANY_KEY, high=ANY_KEY, prefixes=st.tuples(st.integers(0, 2), st.integers(0, 2)))
    def scan(self, t, low, high, prefixes):
        name = low[0]
        low = low[1][: prefixes[0]] or None
        high = (high[1][: prefixes[1]] or None) if high[0] == name else None
        rows = sorted(self.view(t).visible(name).items(), key=lambda r: order(r[0]))
        if low is not None:
            rows = [r for r in rows if order(r[0]) >= order(low)]
        if high is not None:
            rows = [r for r in rows if order(r[0]) < order(high)]
        assert list(self.tasks[t].store(name).scan(low=low, high=high)) == rows

    @rule(t=TASK, key=ANY_KEY, parts=st.integers(0, 2), after=st.booleans())
    def scan_prefix(self, t, key, parts, after):
        name, whole = key
        if name == "W":
            return
        prefix = whole[:parts]
        rows = sorted(self.view(t).visible(name).items(), key=lambda r: order(r[0]))
        rows = [r for r in rows if r[0][:parts] == prefix and (not after or order(r[0]) > order(whole))]
        found = self.tasks[t].store(name).scan_prefix(prefix, after=whole if after else ())
        assert list(found) == rows

    @invariant()
    def metadata_is_that_of_the_last_published_batch(self):
        for t in (0, 1):
            assert self.tasks[t].metadata == (stacked(*self.below(t)).meta or {})

    @invariant()
    def snapshots_do_not_move(self):
        for snapshot, expected in self.snapshots:
            names = {s.name for s in snapshot.stores()}
            for name in UNIVERSE:
                rows = [r for c in expected for r in sorted(c.visible(name).items(), key=lambda r: order(r[0]))]
                if name in names:
                    assert list(snapshot.scan(name)) == rows
                    assert not rows or snapshot.get(name, rows[-1][0]) in [v for k, v in rows if k == rows[-1][0]]
                else:
                    assert not rows

    def teardown(self):
        for (module, name), value in self.limits.items():
            setattr(module, name, value)


def test_a_prefix_is_not_that_of_longer_texts():
    """A text ends with 00, and an inner 00 is 00 FF: "b" and "b\\0" begin alike."""
    spec = StoreSpec("P", "table", Schema((Field("A", STRING, "key"), Field("B", STRING, "key"))), Schema(()))
    keys = [("b", None), ("b", ""), ("b", "\0"), ("b", "\0\0"), ("b", "a"), ("b\0", "a"), ("c", "")]
    manager = StateManager(MemoryPhysical())
    store = manager.open_task("0_0", 0, [spec]).store("P")
    store.put_many(keys, [(i,) for i in range(len(keys))])
    assert [k for k, _ in store.scan_prefix(("b",))] == keys[:5]
    for i in range(5):
        assert [k for k, _ in store.scan_prefix(("b",), after=keys[i])] == keys[i + 1 : 5]
    assert [k for k, _ in store.scan_prefix(("b", ""))] == [keys[1]]


class RocksHistories(Histories):
    """The same on RocksDB; a crash is a copy of the directory that was there at the last flush, or later."""

    def new_physical(self):
        self.directory = tempfile.mkdtemp(dir="/dev/shm", prefix="flowql-test-")
        self.generation = 0
        return open_rocks(f"{self.directory}/0")

    @rule(kept=st.integers(0, 8), committed=st.booleans())
    def crash(self, kept, committed):
        self.keep_folds()
        if committed and self.frozen is not None:
            self.commit()
        for snapshot, _ in self.snapshots:
            snapshot.close()
        self.snapshots = []
        found = self.copy_as_killed()
        self.manager.close()
        self.physical = found
        self.start()

    def copy_as_killed(self):
        """What is on disk of an open database is what a kill leaves; but a copy takes time, and a compaction may delete
        a file meanwhile: then copy again."""
        source = f"{self.directory}/{self.generation}"
        for _ in range(50):
            self.generation += 1
            copy = f"{self.directory}/{self.generation}"
            try:
                shutil.copytree(source, copy)
                return open_rocks(copy)
            except (StateError, shutil.Error):
                continue
        raise AssertionError("the directory never stood still")

    def teardown(self):
        super().teardown()
        for snapshot, _ in self.snapshots:
            snapshot.close()
        self.manager.close()
        shutil.rmtree(self.directory)


COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck)}
Histories.TestCase.settings = settings(max_examples=600, stateful_step_count=40, **COMMON)
RocksHistories.TestCase.settings = settings(max_examples=5, stateful_step_count=30, **COMMON)
TestHistories = Histories.TestCase
TestRocksHistories = RocksHistories.TestCase
