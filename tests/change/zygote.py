"""`python -m tests.change.zygote`: a process that has imported everything, and forks an instance for each line on its standard input.

An instance is what `flowql deploy` starts (`flowql.server.daemon`), and dies by itself; only its imports are not its own, which take longer
than all else that it does in a story. Beside its HTTP it answers, by files, whether everything is processed.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from flowql.deploy.settings import Settings
from flowql.server import on_runtime
from flowql.server.daemon import main as daemon
from flowql.server.host import Host
from tests.change.engine import swaps
from tests.change.plants import planted

ASKED, ANSWERED, ERRORS = "asked", "answered", "instance.err"
LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Job:
    """What an instance is started with. folder: for interactive queries and answers. near_records, together_ms: see `swaps`. plant: a bug."""

    settings: str
    folder: str
    near_records: int
    together_ms: int
    rows_per_run: int | None = None
    plant: str | None = None


class Zygote:
    """The process, from outside."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.change.zygote"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def fork(self, job: Job) -> int:
        """The number of the new process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the dead
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _live(Job(**json.loads(line)))
        print(pid, flush=True)
    os._exit(0)  # what was imported is not to be taken apart


def _live(job: Job) -> None:
    """In the new process, which ends here."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        _standard_files(job)
        with ExitStack() as around:
            around.enter_context(swaps(near_records=job.near_records, together_ms=job.together_ms))
            around.enter_context(planted(job.plant))
            around.enter_context(_small_runs(job.rows_per_run))
            around.enter_context(_answering(Path(job.folder)))
            code = daemon([str(os.dup(2))])
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        sys.stderr.flush()
        os._exit(code)


def _standard_files(job: Job) -> None:
    """Settings come on standard input; the rest goes to a file."""
    reading, writing = os.pipe()
    os.write(writing, job.settings.encode())
    os.close(writing)
    os.dup2(reading, 0)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    errors = os.open(Path(job.folder) / ERRORS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(errors, 1)
    os.dup2(errors, 2)


@contextmanager
def _small_runs(rows: int | None) -> Iterator[None]:
    original = on_runtime.config_of
    with patch.object(on_runtime, "config_of", lambda s: replace(original(s), rows_per_run=rows)):
        yield


@contextmanager
def _answering(folder: Path) -> Iterator[None]:
    """Interactive queries are answered as soon as the instance runs."""
    original = Host.serve

    def serve(host: Host) -> None:
        threading.Thread(target=_answer, args=(folder, host.engine), daemon=True).start()
        original(host)

    with patch.object(Host, "serve", serve):
        yield


def _answer(folder: Path, engine: Any) -> None:
    """When everything that was there when it was asked is processed, which tasks have no query any more."""
    last = -1
    while True:
        asked = int((folder / ASKED).read_text() or -1) if (folder / ASKED).exists() else -1
        if asked > last:
            caught_up = engine.catch_up()
            while not caught_up():
                time.sleep(LOOK_S)
            known = set(engine.instance.queries)
            tasks = (t for t in engine.instance.state.committed_tasks() if not t.startswith("__"))
            left = [t for t in tasks if t.rpartition("/")[0] not in known]
            put(folder / ANSWERED, json.dumps([asked, left]))
            last = asked
        time.sleep(LOOK_S)


def put(path: Path, text: str) -> None:
    """At once."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def settings_at(data_dir: Path) -> Settings:
    return Settings(data_dir, "change", threads=2, memory_bytes=256 << 20)


if __name__ == "__main__":
    main()
