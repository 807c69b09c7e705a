"""`instance.beat`: a file that an instance maps and writes to, so that another process can tell whether it runs, and in which step.

Reading needs no help of the instance: `read` works while its interpreter is frozen, stopped by a signal or dead. A thread of the instance
beats every `BEAT_MS`. A thread cannot do so while another one keeps the interpreter lock, so an instance is *frozen* when it uses
processor time without beating. Each thread of a step notes in a slot of its own what it begins, before it begins.

    0     magic, version, number of slots, pid, start of the process (`ProcessTimes.started`), inode: a copy of the file has another one
    64    number of beats, state, time of the last beat, processor time of the process then, number of beats again
    16384 slots of 16384 bytes each: the round, the micro-batch with its positions, the text, and at the end the name of the step

Times are of the monotonic clock in ns, which all processes of a machine share and which stands still while the machine sleeps. The round, the
micro-batch and the text begin and end with their number (a seqlock, but of one call each): a reader tries again while the two numbers differ. A
micro-batch is in progress if its round is that of the thread. The text is JSON: query, id, definition, task, others, inputs. This module is imported by the watchdog process, and imports the standard library alone: nothing that is large.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

FILE = "instance.beat"
BEAT_MS = 200
SILENT_S = (
    2.0  # without a beat: any thread gets the interpreter lock sooner, also on a busy machine with processor time left
)
STARTING, RUNNING, STOPPING, ENDED = "starting", "running", "stopping", "ended"

_MAGIC, _VERSION = b"FLOWQLBT", 4
_STATES = (STARTING, RUNNING, STOPPING, ENDED)
_HEADER = struct.Struct("=8sIIQdQ")
_BEAT_AT, _BEAT = 64, struct.Struct("@QQQQQ")  # beats, state, time, processor time, beats
_PAGE = 16384
_SLOTS = 64  # threads of an instance that run steps
_POSITIONS = 256  # inputs whose positions are noted, as many as a joint micro-batch has
_NAME_CHARS = 200  # of a query or an input that are kept
_ROUND_AT, _ROUND = 0, struct.Struct("@QQQQQ")  # round, its beginning, thread, its number, round
_BATCH_AT = _ROUND.size
_BATCH = [
    struct.Struct(f"@QQQ{n}qQ") for n in range(_POSITIONS + 1)
]  # round, its text, its beginning, positions, round
_COUNTS_AT, _COUNTS = _BATCH_AT + _BATCH[-1].size, struct.Struct("@QIIQ")  # text, positions, bytes, text
_TEXT_AT = _COUNTS_AT + _COUNTS.size
_STEP_BYTES = 64  # the name of the step, at the end of the slot
_TEXT_BYTES = _PAGE - _TEXT_AT - _STEP_BYTES
_TRIES = 100


class ProcessTimes(NamedTuple):
    """A process. started: when, in seconds, by a clock of the system that tells it from a later process with the same number.

    used_s: processor time of all its threads so far. is_stopped: by a signal or a debugger, until it is continued.
    """

    started: float
    used_s: float
    is_stopped: bool


def process_times(pid: int) -> ProcessTimes | None:
    """None if there is no such process, or it is dead and not yet collected."""
    try:
        return _from_proc(pid) if sys.platform.startswith("linux") else _from_ps(pid)
    except (OSError, ValueError, IndexError):
        return None


def _from_proc(pid: int) -> ProcessTimes | None:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    fields = text[text.rindex(")") + 2 :].split()  # its name may have blanks and parentheses
    ticks = os.sysconf("SC_CLK_TCK")
    if fields[0] in "ZX":
        return None
    return ProcessTimes(int(fields[19]) / ticks, (int(fields[11]) + int(fields[12])) / ticks, fields[0] in "Tt")


def _from_ps(pid: int) -> ProcessTimes | None:
    import subprocess

    command = ["ps", "-o", "stat=,time=,lstart=", "-p", str(pid)]
    english = {**os.environ, "LC_ALL": "C"}
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=english)
    state, used, *started = found.stdout.split()
    if state[0] == "Z":
        return None
    seconds = 0.0
    for part in used.replace("-", ":").split(
        ":"
    ):  # minutes:seconds.hundredths, with hours before them where there are any
        seconds = seconds * 60 + float(part)
    began = time.mktime(time.strptime(" ".join(started), "%a %b %d %H:%M:%S %Y"))
    return ProcessTimes(began, seconds, state[0] == "T")


class Text(NamedTuple):
    """The current work of a thread, as stored in the file. inputs: how many positions belong to it."""

    inputs: int
    data: bytes

    @classmethod
    def of(
        cls, *, query: str, id: str, definition: str, task: str, inputs: Sequence[str], others: Sequence[int] = ()
    ) -> Text:
        """inputs: names of the inputs, in the order of the positions. others: partitions of the other tasks of a joint micro-batch. Names of enormous
        length are cut off.
        """
        kept = [name[-_NAME_CHARS:] for name in inputs[:_POSITIONS]]
        what: dict[str, Any] = {"query": query, "id": id, "definition": definition, "task": task}
        what = {name: value[:_NAME_CHARS] for name, value in what.items()} | {"others": list(others)}
        while len(data := json.dumps({**what, "inputs": kept}).encode()) > _TEXT_BYTES:
            kept.pop()
        return cls(len(kept), data)


class Slot:
    """The beat of one thread. Only that thread calls it: `begin_round`, `begin_micro_batch` within a round, `end_round`."""

    def __init__(self, memory: mmap.mmap, at: int, step: str) -> None:
        self._memory, self._at, self._round = memory, at, 0
        self._text, self._texts, self._batch = Text(0, b""), 0, _BATCH[0].pack_into
        self._now_ns = time.monotonic_ns
        name = step.encode()[:_STEP_BYTES]
        memory[at + _PAGE - _STEP_BYTES : at + _PAGE - _STEP_BYTES + len(name)] = name

    def begin_round(self, thread: int, native: int) -> None:
        """thread, native: its identifiers for tracebacks and for the operating system (`threading.get_ident`, `get_native_id`)."""
        self._round = n = self._round + 1
        _ROUND.pack_into(self._memory, self._at, n, self._now_ns(), thread, native, n)

    def begin_micro_batch(self, text: Text, positions: Sequence[int]) -> None:
        """positions: offsets of the next records, in the order of the inputs."""
        if text is not self._text:
            self._describe(text)
        n = self._round
        self._batch(self._memory, self._at + _BATCH_AT, n, self._texts, self._now_ns(), *positions[: text.inputs], n)

    def end_round(self) -> None:
        self._round = n = self._round + 1
        _ROUND.pack_into(self._memory, self._at, n, 0, 0, 0, n)

    def _describe(self, text: Text) -> None:
        self._text, self._texts, self._batch = text, self._texts + 1, _BATCH[text.inputs].pack_into
        memory, at, n = self._memory, self._at + _TEXT_AT, self._texts
        _COUNTS.pack_into(memory, self._at + _COUNTS_AT, n, text.inputs, len(text.data), 0)  # incomplete
        memory[at : at + len(text.data)] = text.data
        _COUNTS.pack_into(memory, self._at + _COUNTS_AT, n, text.inputs, len(text.data), n)


class BeatFile:
    """The file of this process in a data directory. `beat` and `become` are called by one thread at a time."""

    def __init__(self, data_dir: Path) -> None:
        """Replaces what is there, at once. OSError: the disk is full, for example."""
        self._path, self._slots = data_dir / FILE, 0
        self._own = data_dir / f"{FILE}.{os.getpid()}"
        self._beats, self._state = 0, STARTING
        self._own.unlink(missing_ok=True)
        fd = os.open(self._own, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            for _ in range(_SLOTS + 1):  # written, not only sized: a full disk would be a SIGBUS later
                os.write(fd, bytes(_PAGE))
            self._memory = mmap.mmap(fd, (_SLOTS + 1) * _PAGE)
            self._inode = os.fstat(fd).st_ino
        finally:
            os.close(fd)
        times = process_times(os.getpid())
        started = 0.0 if times is None else times.started
        _HEADER.pack_into(self._memory, 0, _MAGIC, _VERSION, _SLOTS, os.getpid(), started, self._inode)
        self.become(STARTING)
        self._own.replace(self._path)

    @property
    def is_published(self) -> bool:
        """Whether the file in the directory is this one: another process that begins there may have replaced it."""
        with suppress(OSError):
            return self._path.stat().st_ino == self._inode
        return False

    def slot(self, step: str) -> Slot | None:
        """The slot of one more thread; None if there are none left."""
        if self._slots == _SLOTS:
            return None
        self._slots += 1
        return Slot(self._memory, self._slots * _PAGE, step)

    def beat(self) -> None:
        self._beats += 1
        used_ns = time.process_time_ns()
        state, n = _STATES.index(self._state), self._beats
        _BEAT.pack_into(self._memory, _BEAT_AT, n, state, time.monotonic_ns(), used_ns, n)

    def become(self, state: str) -> None:
        """starting, running, stopping or ended."""
        self._state = state
        self.beat()


class Activity(NamedTuple):
    """The activity of a thread of a step. for_s: since its round began. batch_s: since its micro-batch began, None outside of one.

    thread: as a traceback names it; native: as the operating system does. query: the name under which its generation runs; id: the one that
    people use. positions: offsets by input, as `topic-partition`. others: the other tasks of a joint micro-batch.
    """

    step: str
    thread: int
    native: int
    for_s: float
    batch_s: float | None
    query: str
    id: str
    definition: str
    task: str
    positions: Mapping[str, int]
    others: tuple[str, ...] = ()


class Snapshot(NamedTuple):
    """An instance as its file and the operating system tell. silent_s: since its last beat, without the time that the machine slept.

    is_alive: the process that wrote the file, which is no copy, exists. is_stopped: by a signal or a debugger. used_s: processor time since its last
    beat. activities: rounds in progress, the longest first.
    """

    pid: int
    started: float
    state: str
    beats: int
    silent_s: float
    used_s: float
    is_alive: bool
    is_stopped: bool
    activities: tuple[Activity, ...]

    @property
    def frozen_s(self) -> float:
        """Processor time (s) that the instance has used without a beat; 0 if it is not frozen."""
        frozen = self.is_alive and not self.is_stopped and self.state != ENDED and self.silent_s >= SILENT_S
        return self.used_s if frozen else 0.0

    @property
    def micro_batches(self) -> list[Activity]:
        """Those in progress, the longest first."""
        found = [a for a in self.activities if a.batch_s is not None]
        return sorted(found, key=lambda a: -(a.batch_s or 0.0))


def read(data_dir: Path) -> Snapshot | None:
    """The current content of a data directory's file; None if it is missing or of another version. Any process may call it."""
    try:
        with (data_dir / FILE).open("rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            inode = os.fstat(file.fileno()).st_ino
    except (OSError, ValueError):  # ValueError: it is empty
        return None
    with memory:
        return read_from(memory, inode)


def read_from(memory: mmap.mmap, inode: int) -> Snapshot | None:
    """As `read`, of a file that is mapped."""
    if len(memory) < _PAGE:
        return None
    magic, version, slots, pid, started, own_inode = _HEADER.unpack_from(memory, 0)
    if magic != _MAGIC or version != _VERSION or len(memory) < (slots + 1) * _PAGE:
        return None
    beats, state, beat_ns, used_ns, _ = _stable(memory, _BEAT, _BEAT_AT)
    times, now_ns = process_times(pid), time.monotonic_ns()
    alive = times is not None and times.started == started and inode == own_inode
    used_s = max(0.0, times.used_s - used_ns / 1e9) if times is not None and alive else 0.0
    found = [_activity(memory, n * _PAGE, now_ns) for n in range(1, slots + 1)]
    activities = sorted((a for a in found if a is not None), key=lambda a: -a.for_s)
    return Snapshot(
        pid,
        started,
        _STATES[state] if state < len(_STATES) else "unknown",
        beats,
        max(0.0, (now_ns - beat_ns) / 1e9),
        used_s,
        alive,
        times is not None and alive and times.is_stopped,
        tuple(activities),
    )


def _stable(memory: mmap.mmap, fields: struct.Struct, at: int) -> tuple[int, ...]:
    """Fields that begin and end with the same number; after many attempts as they are: a writer that died in between leaves them so."""
    found: tuple[int, ...] = ()
    for _ in range(_TRIES):
        found = fields.unpack_from(memory, at)
        if found[0] == found[-1] and found == fields.unpack_from(memory, at):
            break
    return found


def _activity(memory: mmap.mmap, at: int, now_ns: int) -> Activity | None:
    number, began_ns, thread, native, _ = _stable(memory, _ROUND, at + _ROUND_AT)
    if not began_ns:
        return None
    step = memory[at + _PAGE - _STEP_BYTES : at + _PAGE].rstrip(b"\0").decode(errors="replace")
    batch_ns, what, positions = _micro_batch(memory, at, number)
    for_s, batch_s = (now_ns - began_ns) / 1e9, (now_ns - batch_ns) / 1e9 if batch_ns else None
    query, id_, definition, task = (str(what.get(name, "")) for name in ("query", "id", "definition", "task"))
    others = tuple(f"{task[: task.rfind('_')]}_{partition}" for partition in what.get("others", ()))
    return Activity(step, thread, native, for_s, batch_s, query, id_, definition, task, positions, others)


def _micro_batch(memory: mmap.mmap, at: int, number: int) -> tuple[int, dict[str, Any], dict[str, int]]:
    """When that of a round began, what it is of, and its positions; zero and nothing outside of one."""
    for _ in range(_TRIES):
        text, inputs, size, same_text = _COUNTS.unpack_from(memory, at + _COUNTS_AT)
        data = memory[at + _TEXT_AT : at + _TEXT_AT + min(size, _TEXT_BYTES)]
        fields = _BATCH[min(inputs, _POSITIONS)].unpack_from(memory, at + _BATCH_AT)
        if fields[0] != number:
            return 0, {}, {}
        # Both once more: fields are written from the first to the last, so that a writer may be between those that were read.
        if fields != _BATCH[min(inputs, _POSITIONS)].unpack_from(memory, at + _BATCH_AT):
            continue
        if (text, inputs, size, same_text) != _COUNTS.unpack_from(memory, at + _COUNTS_AT):
            continue
        if fields[0] == fields[-1] and fields[1] == text == same_text:
            with suppress(ValueError, KeyError):
                what = json.loads(data)
                return fields[2], what, dict(zip(what["inputs"], fields[3:-1], strict=True))
    return 0, {}, {}
