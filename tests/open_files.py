"""A process with more open files than select(2) takes, as one with much state has."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

MORE = 1_100


@contextmanager
def many_open_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * MORE)), hard))
    files: list[int] = []
    try:
        files += [os.open(os.devnull, os.O_RDONLY) for _ in range(MORE)]
        yield
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
