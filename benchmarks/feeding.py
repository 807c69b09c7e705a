"""The process that appends the input of a benchmark while another process is measured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa


@contextmanager
def feeding(module: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `python -m module --feed words` until the end of the block."""
    feed = subprocess.Popen([sys.executable, "-m", module, "--feed", *words])
    try:
        yield feed
    finally:
        feed.terminate()
        feed.wait()


def kafka_bigint(values: pa.Array) -> pa.Array:
    """Whole numbers as Kafka's LongSerializer writes them: 8 bytes, big-endian."""
    data = np.asarray(values).astype(">i8").tobytes()
    offsets = np.arange(0, 8 * len(values) + 1, 8, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
