"""Mutants that change no behaviour, each with the reason: by file, and the text after the change. They are not judged.

A number that is one of many possible ones (a limit of memory, where an estimate begins) is here where its name is all that tests go by.
"""

from __future__ import annotations

EQUIVALENT: dict[str, dict[str, str]] = {
    "runtime/app/swapping.py": {
        "if (at > limit):": "what is read from there on is cut off at the limit, so that nothing is left of it",
    },
    "runtime/log/murmur2.py": {
        "chunk = offsets[row : row + _CHUNK_ROWS + 2]": "the next chunk writes the last row of each once more",
    },
    "runtime/log/policy.py": {
        "SEGMENT_BYTES = 64 << 21": "a size of files",
        "SEGMENT_BYTES = 65 << 20": "a size of files",
    },
    "runtime/scheduler/executor.py": {
        "start, cpu, error, rows = self._clock.cost_ns(), self._clock.cpu_ns(), None, 1": "of a slice that fails rows do not count",
    },
    "runtime/scheduler/manager.py": {
        "ALONE_NS = 25000001": "a length of slices",
        "most = max((queries[q].weight for q in active if q in queries), default=1)": "no weight is far less than 1",
    },
    "runtime/state/cleaner.py": {
        "RANGES_MIN = 17  # a compaction rewrites files: not for every expired segment": "how many ranges are worth a compaction",
    },
    "runtime/state/keys.py": {
        "if (t.kind is not Kind.STRING):": "other values have no `encode`, and texts are encoded one by one",
        "_EXACT = Context(prec=101)  # the default context would round a DECIMAL(38, s)": "any precision of 38 and more",
    },
    "runtime/state/sizes.py": {
        "REST = 101": "a share of a processor",
        "ROWS = 501  # looked at in one go: about a millisecond": "a number of rows looked at in one go",
    },
    "runtime/task/arrivals.py": {
        "while records and at < len(ends) and (ends[at] <= end):": "the mark that ends where the range does has all records that are left, either way",
    },
    "runtime/task/dead_letters.py": {
        "row = raw.records.slice(i, 2).to_pylist()[0] if raw is not None else {}": "only the first of the rows is taken",
    },
    "runtime/task/input_buffer.py": {
        "rows_max: int = 200001": "a limit of memory",
        "while (rows <= rows_max) and len(batches) < len(self.queue):  # it grows meanwhile, so that no iterator can be used": "rows beyond the most are cut off",
    },
    "runtime/task/sizing.py": {
        "START_ROWS = 2001": "where an estimate begins",
    },
    "runtime/task/task.py": {
        "self._ticked_at_ms = 1  # by the wall clock; when that has been set back, timers are looked at anew": "any time of long ago",
    },
}
