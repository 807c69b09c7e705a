"""When an instance counts as frozen, which thread is to blame, and the file that tells the next start. Imports the standard library alone.

An instance is frozen if it uses processor time without a beat (`flowql.runtime.app.beat_file`), or if it has neither beaten nor been
stopped for far longer: a function that blocks with the interpreter lock held uses no processor time. A process that a signal, a
debugger or a sleeping machine stops is not frozen, and neither is one that gets no processor.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from flowql.runtime.app.beat_file import ENDED, RUNNING, Activity, Snapshot, read
from flowql.runtime.app.beat_file import FILE as BEAT_FILE

FILE, TRACE = "instance.hung", "instance.trace"
LOOK_S = 0.5
KEPT_MAX = 80
TRACE_CHARS = 30_000
_GAP_S = 3.0  # between two looks: the watchdog itself did not run
_SHARED_USED = (
    0.6  # of `used_s` where silence lasts for `shared_s`: no call of ours keeps the lock for 3 s of processor time
)
_BUSY = 0.3  # of a processor: a thread that works
_STARTS_TIMES = 6  # a start and an end may load and write for longer with the lock held


class Limits(NamedTuple):
    """used_s: processor time without a beat. silent_s: time without a beat, and without processor time.

    shared_s: time without a beat on a machine that gives the instance a share of a processor alone, in which it used three fifths of `used_s`.
    """

    used_s: float = 5.0
    silent_s: float = 60.0
    shared_s: float = 9.0


class FreezeWatch:
    """Looks at one instance again and again."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._beats = -1
        self._silent_s = 0.0  # as it was seen, look by look
        self._looked_s: float | None = None

    def look(self, seen: Snapshot, now_s: float) -> str:
        """Why it counts as frozen; empty if it does not. now_s: of a monotonic clock."""
        gap_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        if seen.beats != self._beats or seen.is_stopped or gap_s > _GAP_S:
            self._beats, self._silent_s = seen.beats, 0.0
        else:
            self._silent_s += gap_s
        times = 1 if seen.state == RUNNING else _STARTS_TIMES
        shared = self._silent_s >= times * self._limits.shared_s
        if seen.frozen_s >= times * self._limits.used_s * (_SHARED_USED if shared else 1.0):
            return f"it used {seen.frozen_s:.1f} s of processor time while no other thread could run"
        if seen.is_alive and self._silent_s >= times * self._limits.silent_s:
            return f"no thread could run for {self._silent_s:.0f} s, and it was not stopped"
        return ""


class Load(NamedTuple):
    """The activity of a thread during an interval. busy: share of a processor. waits: how often it began to wait."""

    busy: float
    waits: int


def culprit(seen: Snapshot, loads: Mapping[int, Load]) -> Activity | None:
    """The micro-batch whose thread keeps the interpreter lock; None if the thread is in none.

    loads: by number of the operating system. A thread with the lock works, or waits once; those that want the lock wait again and again.
    """
    known = [a for a in seen.micro_batches if a.native in loads]
    if not loads:  # no /proc: the oldest one, probably
        return next(iter(seen.micro_batches), None)
    if any(load.busy >= _BUSY for load in loads.values()):
        known = [a for a in known if loads[a.native].busy >= _BUSY]
    else:
        known = [a for a in known if loads[a.native].waits == 0]
    return next(iter(known), None)


class Frozen(NamedTuple):
    """An instance that was ended because it was frozen. at_ms: wall clock. step, query and what follows are empty outside of a micro-batch.

    why: how it was noticed. where: the innermost code of the thread. positions: offsets by input. trace: of all threads.
    died: it was not ended by its watchdog process but died, and this is one of the micro-batches that were in progress.
    """

    at_ms: int
    pid: int
    why: str
    step: str
    query: str
    id: str
    definition: str
    task: str
    positions: Mapping[str, int]
    where: str
    trace: str
    died: bool = False

    @property
    def position(self) -> str:
        """For status and the log."""
        return ", ".join(f"{name} offset {offset}" for name, offset in self.positions.items() if offset >= 0)


def write_frozen(data_dir: Path, one: Frozen) -> None:
    """Adds a record, durably."""
    kept = [*read_frozen(data_dir), one][-KEPT_MAX:]
    new = data_dir / f"{FILE}.new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump([f._asdict() for f in kept], file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(data_dir / FILE)


def note_death(data_dir: Path) -> str:
    """Adds records of the micro-batches in which the last instance of a directory died, unless that is on record. The state in which it
    died; empty if it lives, has ended properly, was in no micro-batch, or went down with its machine.
    """
    seen = read(data_dir)
    if seen is None or seen.is_alive or seen.state == ENDED or not seen.micro_batches or _is_before_boot(data_dir):
        return ""
    if all(f.pid != seen.pid for f in read_frozen(data_dir)):
        now_ms = int(time.time() * 1000)
        for a in seen.micro_batches:
            for task in (a.task, *a.others):
                own = {
                    name: at for name, at in a.positions.items() if name.rpartition("-")[2] == task.rpartition("_")[2]
                }
                what = (a.step, a.query, a.id, a.definition, task, own if a.others else a.positions)
                write_frozen(data_dir, Frozen(now_ms, seen.pid, "it died", *what, "", "", died=True))
    return seen.state


def _is_before_boot(data_dir: Path) -> bool:
    """Whether the machine has started since the instance wrote its beat file."""
    if not hasattr(time, "CLOCK_BOOTTIME"):  # macOS
        return False
    with suppress(OSError):
        return (data_dir / BEAT_FILE).stat().st_mtime < time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return True


def read_frozen(data_dir: Path) -> list[Frozen]:
    """Records that no start has taken over yet, the newest last."""
    found: list[Frozen] = []
    with suppress(OSError, ValueError, TypeError):
        data: list[dict[str, Any]] = json.loads((data_dir / FILE).read_text(encoding="utf-8"))
        found = [Frozen(**one) for one in data]
    return found


def forget_frozen(data_dir: Path) -> None:
    (data_dir / FILE).unlink(missing_ok=True)


def innermost(trace: str, thread: int) -> str:
    """The code that a thread was in, as `functions.py:12 parse`, from a traceback of `faulthandler`; empty if it is not there."""
    lines = trace.splitlines()
    for n, line in enumerate(lines[:-1]):
        if f"0x{thread:016x}" in line:
            text = lines[n + 1].strip()  # File "/project/functions.py", line 12 in parse
            with suppress(ValueError):
                path, _, rest = text.removeprefix('File "').partition('", line ')
                number, _, name = rest.partition(" in ")
                return f"{os.path.basename(path)}:{int(number)} {name}"
    return ""
