"""The process that appends the input of a benchmark while another process is measured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def feeding(module: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `python -m module --feed words` until the end of the block."""
    feed = subprocess.Popen([sys.executable, "-m", module, "--feed", *words])
    try:
        yield feed
    finally:
        feed.terminate()
        feed.wait()
