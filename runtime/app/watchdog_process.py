"""The process that starts an instance, and ends and starts it again when its interpreter freezes, or when a micro-batch ends it.

It is the parent of the instance, because the first process of a container can be ended by nothing inside it. It needs 10 MB and
imports the standard library alone, and passes signals and the exit status on, so that `flowql serve` and the background instance are used as if it were
not there. It reads the beat file, which needs no help of the instance (`flowql.runtime.app.freeze`), has the instance's C code write a
traceback, writes down the micro-batch, and kills the process. An instance that dies inside of micro-batches, by an exit, a fault or for
memory, is started again as well, so that it tells the others what it did. It does not start an instance again that ended otherwise.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from flowql.runtime.app.beat_file import STARTING, Snapshot, read
from flowql.runtime.app.freeze import (
    LOOK_S,
    TRACE,
    TRACE_CHARS,
    FreezeWatch,
    Frozen,
    Limits,
    Load,
    culprit,
    innermost,
    note_death,
    write_frozen,
)

FD = "FLOWQL_WATCHDOG"  # in the environment of the instance: the descriptor that it tells its data directory to, and AGAIN after a freeze
AGAIN = "again"
LIMITS = "FLOWQL_WATCHDOG_LIMITS"  # for tests: seconds of processor time, and of time, without a beat
DUMP = signal.SIGUSR2
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_BREAKS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL})
_RESTARTS, _RESTARTS_WITHIN_S = 10, 600.0
_DUMP_S, _MEASURE_S = 2.0, 0.3
_MODULE = "flowql.runtime.app.watchdog_process"


def command_of(program: Sequence[str], report: int | None = None) -> list[str]:
    """The command line of the process, for the command line of an instance.

    report: the descriptor that the instance reports its start to; its settings then come on standard input.
    """
    root = Path(__file__).parents[3]
    code = f"import sys; sys.path.insert(0, {str(root)!r}); from {_MODULE} import main; main()"
    told = [] if report is None else ["--report", str(report)]
    return [sys.executable, "-S", "-c", code, *told, "--", *program]


class Process:
    """One instance, from its start to its end."""

    def __init__(self, program: Sequence[str], settings: bytes | None, limits: Limits, *, again: bool = False) -> None:
        self.data_dir: Path | None = None
        self.oom_kills = _oom_kills()  # before it began
        self._watch = FreezeWatch(limits)
        self._told, tell = os.pipe()
        os.set_blocking(self._told, False)
        os.set_inheritable(tell, True)
        actions: list[tuple[int, int] | tuple[int, int, int]] = []
        if settings is not None:
            theirs, ours = os.pipe()
            actions = [(os.POSIX_SPAWN_DUP2, theirs, 0)]
        environment = {**os.environ, FD: f"{tell} {AGAIN}" if again else str(tell)}
        self.pid = os.posix_spawn(
            program[0], list(program), environment, file_actions=actions, setsigmask=(), setsigdef=_PASSED_ON
        )
        os.close(tell)
        if settings is not None:
            os.close(theirs)
            with suppress(BrokenPipeError), os.fdopen(ours, "wb") as file:
                file.write(settings)

    def look(self) -> tuple[Snapshot, str] | None:
        """Whether it is frozen, and why."""
        if self.data_dir is None:
            self._hear()
            return None
        seen = read(self.data_dir)
        if seen is None or seen.pid != self.pid:
            return None
        why = self._watch.look(seen, time.monotonic())
        return (seen, why) if why and not _waits_for_disk(self.pid) else None

    def end(self, seen: Snapshot, why: str) -> Frozen:
        """Writes down what it does, and kills it."""
        assert self.data_dir is not None, "it was looked at"
        found = culprit(seen, loads_of(self.pid))
        trace = self._trace(self.data_dir)
        batch = found or _NOTHING
        where = innermost(trace, found.thread) if found is not None else ""
        one = Frozen(
            int(time.time() * 1000),
            self.pid,
            why,
            batch.step,
            batch.query,
            batch.id,
            batch.definition,
            batch.task,
            batch.positions,
            where,
            trace[:TRACE_CHARS],
        )
        with suppress(OSError):  # a full disk: it is ended nevertheless
            write_frozen(self.data_dir, one)
        os.kill(self.pid, signal.SIGKILL)
        return one

    def _trace(self, data_dir: Path) -> str:
        """The traceback that the instance's C code writes at a signal, which needs no interpreter lock."""
        path, size, text = data_dir / TRACE, -1, ""
        with suppress(OSError):
            os.kill(self.pid, DUMP)
            limit_s = time.monotonic() + _DUMP_S
            while time.monotonic() < limit_s and (size <= 0 or path.stat().st_size != size):
                size = path.stat().st_size
                time.sleep(0.1)
            text = path.read_text(encoding="utf-8", errors="replace")
        return text

    def died(self) -> str:
        """Writes down the micro-batches in which it died. The state it was in; empty if it was in none. See `note_death`."""
        with suppress(OSError):
            self._hear()
            return "" if self.data_dir is None else note_death(self.data_dir)
        return ""

    def _hear(self) -> None:
        if self.data_dir is None:
            with suppress(BlockingIOError):
                self.data_dir = Path(os.fsdecode(os.read(self._told, 65536))) or None

    def close(self) -> None:
        os.close(self._told)


def loads_of(pid: int) -> Mapping[int, Load]:
    """By thread, what it does during a moment; empty where the system does not tell."""
    before = _threads(pid)
    time.sleep(_MEASURE_S)
    after = _threads(pid)
    found = {n: (*after[n], *before[n]) for n in after.keys() & before.keys()}
    return {n: Load((used - was) / _MEASURE_S, waits - waited) for n, (used, waits, was, waited) in found.items()}


def _waits_for_disk(pid: int) -> bool:
    """Whether a thread is in a call that nothing interrupts: a disk that does not answer is no function that hangs, and a kill would wait for it, too."""
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                if (
                    Path(f"/proc/{pid}/task/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
                    == "D"
                ):
                    return True
    return False


def _threads(pid: int) -> dict[int, tuple[float, int]]:
    found = dict[int, tuple[float, int]]()
    ticks = os.sysconf("SC_CLK_TCK")
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError, ValueError, StopIteration):
                folder = f"/proc/{pid}/task/{name}"
                stat = Path(folder, "stat").read_text(errors="replace").rpartition(")")[2].split()
                lines = Path(folder, "status").read_text(errors="replace").splitlines()
                waits = next(line for line in lines if line.startswith("voluntary_ctxt_switches:"))
                found[int(name)] = ((int(stat[11]) + int(stat[12])) / ticks, int(waits.split()[1]))
    return found


_NOTHING = Frozen(0, 0, "", "", "", "", "", "", {}, "", "")


def main() -> NoReturn:
    """Runs until the instance ends otherwise than by this process, and exits as it does."""
    options, program = _arguments(sys.argv[1:])
    report = options[1] if options else None
    settings = sys.stdin.buffer.read() if report is not None else None
    used_s, silent_s = (float(n) for n in os.environ.get(LIMITS, "5,60").split(","))
    ends_s = list[float]()
    wait, again = _waiting(), False
    while True:
        process = Process(program, settings, Limits(used_s, silent_s), again=again)
        if report is not None and not ends_s:
            os.close(int(report))
            program = [*program[:-1], "-"]  # nobody waits for a report of the next start
        frozen, state = _watch(process, wait)
        kills = _oom_kills()
        _, status = os.waitpid(process.pid, 0)
        if frozen is None:
            state = process.died()
            if not state or not _by_itself(os.waitstatus_to_exitcode(status), killed=kills > process.oom_kills):
                _exit(status)
        process.close()
        ends_s = [s for s in ends_s if time.monotonic() - s < _RESTARTS_WITHIN_S] + [time.monotonic()]
        again = (frozen is None or state != STARTING) and len(ends_s) <= _RESTARTS
        said = f"process {process.pid} died inside a micro-batch" if frozen is None else _frozen(frozen)
        _say(f"{said}; {'it is started again' if again else 'it is not started again'}")
        if not again:
            sys.exit(1) if frozen is not None else _exit(status)


def _frozen(one: Frozen) -> str:
    of = f"in a micro-batch of {one.id}" if one.id else "outside of a micro-batch"
    return f"process {one.pid} froze {of} ({one.why}) and was ended"


def _by_itself(code: int, *, killed: bool) -> bool:
    """Whether a process ended by what it did: code that exits or breaks the process, or more memory than there is.

    killed: the system has ended a process for memory meanwhile. Other signals come from people and other programs, who want it to end.
    """
    return code > 0 or -code in _BREAKS or (code == -signal.SIGKILL and killed)


def _oom_kills() -> int:
    """How many processes the system has ended for memory since it was started; 0 where it does not tell."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _watch(process: Process, wait: Callable[[int], int]) -> tuple[Frozen | None, str]:
    """Until it is ended, or ends. wait: for a signal, which it passes on."""
    while True:
        with suppress(ChildProcessError):
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return None, ""
        if (found := process.look()) is not None:
            seen, why = found
            return process.end(seen, why), seen.state
        wait(process.pid)


def _waiting() -> Callable[[int], int]:
    """Waits for a signal or LOOK_S, and passes the signal on. One from a terminal has reached the instance already."""
    if not hasattr(signal, "sigtimedwait"):  # macOS
        return _waiting_by_handlers()
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED_ON, signal.SIGCHLD))

    def wait(pid: int) -> int:
        info = signal.sigtimedwait((*_PASSED_ON, signal.SIGCHLD), LOOK_S)
        if info is not None and info.si_signo != signal.SIGCHLD and info.si_code <= 0:  # of a process
            with suppress(ProcessLookupError):
                os.kill(pid, info.si_signo)
        return 0

    return wait


def _waiting_by_handlers() -> Callable[[int], int]:
    pids = [0]

    def pass_on(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(pids[0], number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait(pid: int) -> int:
        pids[0] = pid
        time.sleep(LOOK_S)
        return 0

    return wait


def _arguments(given: Sequence[str]) -> tuple[Sequence[str], list[str]]:
    n = given.index("--")
    return given[:n], list(given[n + 1 :])


def _say(text: str) -> None:
    with suppress(OSError):
        print(f"flowql: {text}", file=sys.stderr, flush=True)


def _exit(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
        code = 128 - code  # the first process of a container does not die of it
    sys.exit(code)
