"""What surrounds an instance breaks: each is met with an error that names the reason, and afterwards nothing is lost.

    python -m tests.attacks.surroundings [--kinds suspended,descriptors]

A disk that becomes read-only or full is a file with a file system that is mounted (root on Linux). I/O errors at each call: `python -m tests.faults`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from flowql.runtime.errors import LogFull
from flowql.server.address import read_address
from tests.attacks.target import Target

SQL = """
CREATE STREAM PULSE (ID BIGINT) WITH (KAFKA_TOPIC = 'pulse', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE SUMS AS SELECT ID % 10 AS R, COUNT(*) AS N FROM PULSE GROUP BY ID % 10;
"""
MB = 64
ROWS = 100


class Watched:
    """An instance, what it is asked, and what of the answers was not expected."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.target, self.written, self.wrong = Target(folder, SQL), 0, list[str]()

    def at(self, folder: Path) -> Watched:
        """The same project in another folder."""
        other = Watched(folder)
        other.written, other.wrong = self.written, self.wrong
        return other

    @property
    def pid(self) -> int:
        address = read_address(self.target.data_dir)
        assert address is not None
        return address.pid

    def begin(self) -> Watched:
        self.expect("started an instance", "deploy")
        self.feed()
        self.whole()
        return self

    def feed(self) -> None:
        self.target.append("pulse", [{"ID": n} for n in range(ROWS)])
        self.written += ROWS

    def feed_in_vain(self, part: str) -> None:
        try:
            self.target.append("pulse", [{"ID": n} for n in range(ROWS)])
        except Exception as error:
            said = str(error)
        else:
            said = "written"
        self._note("a writer", part, said)

    def expect(self, part: str, *words: str) -> None:
        """Calls a command until its output has this text, a few times: what happens in the background is not seen at once."""
        for _ in range(5):
            done = self.target.call(*words)
            if part in done.stdout + done.stderr:
                break
        self._note(" ".join(words), part, done.stdout + done.stderr)

    def whole(self) -> None:
        """Nothing is lost and nothing counted twice."""
        self.expect(f"\n{self.written}\n", "query", "SELECT SUM(N) AS N FROM SUMS", "-o", "csv")

    def end(self) -> None:
        self.target.call("stop", "--force")
        self.target.close()

    def _note(self, what: str, part: str, said: str) -> None:
        line = next((line.strip() for line in said.splitlines() if part.strip() in line), said.strip()[-300:])
        print(f"    {'ok ' if part in said else 'NOT'} {what}: {line[:180]}", flush=True)
        if part not in said:
            self.wrong.append(f"{what}: {part.strip()!r} is not in {said[-600:]!r}")


def suspended(folder: Path) -> list[str]:
    """SIGSTOP, and SIGCONT."""
    it = Watched(folder).begin()
    pid = it.pid
    os.kill(pid, signal.SIGSTOP)
    for words in (["status"], ["query", "SELECT 1 FROM SUMS"], ["deploy"]):
        it.expect("is suspended by a signal", *words)
    it.feed()
    os.kill(pid, signal.SIGCONT)
    it.whole()
    it.end()
    return it.wrong


def twice(folder: Path) -> list[str]:
    """Two instances on one folder."""
    it = Watched(folder).begin()
    for words in (["serve"], ["run", "--until-caught-up"]):
        it.expect(f"error[FQ4005]: process {it.pid} runs", *words)
    it.whole()
    it.end()
    return it.wrong


def descriptors(folder: Path) -> list[str]:
    """No file descriptor is left, and there are more again."""
    it = Watched(folder).begin()
    process = psutil.Process(it.pid)
    before = process.rlimit(psutil.RLIMIT_NOFILE)
    process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() - 4, before[1]))
    it.feed()
    it.expect("Too many open files", "status")
    process.rlimit(psutil.RLIMIT_NOFILE, before)
    it.whole()
    it.end()
    return it.wrong


def moved(folder: Path) -> list[str]:
    """The folder is moved while an instance runs in it, then while none does; and copied in both ways."""
    it = Watched(folder).begin()
    pid = it.pid
    away = it.at(_renamed(folder, folder.with_name("away")))
    away.feed()
    away.expect("it was moved or removed while this process has it open", "status")
    away.expect(f"stopped process {pid}", "stop")
    again = away.at(_renamed(away.target.folder, folder))
    again.expect("started an instance", "deploy")
    again.whole()
    for running in (True, False):
        copied = folder.with_name(f"copied-{running}")
        shutil.copytree(folder, copied)
        other = again.at(copied)
        other.expect("started an instance", "deploy")
        other.feed()
        other.whole()
        other.end()
        again.whole()
        again.end()
        again.expect("started an instance", "deploy")
    again.end()
    return it.wrong


def read_only(folder: Path) -> list[str]:
    """The file system becomes read-only, as ext4 does at an error of the disk."""
    with _mounted(folder) as image:
        it = Watched(folder / "project").begin()
        os.sync()
        subprocess.run(["mount", "-o", "remount,abort", str(folder)], check=True)
        it.feed_in_vain("Read-only file system")
        it.whole()
        it.end()
        it.expect("Read-only file system", "deploy")
        subprocess.run(["umount", str(folder)], check=True)
        subprocess.run(["e2fsck", "-p", str(image)], stdout=subprocess.DEVNULL, check=False)
        subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
        again = it.at(folder / "project")
        again.expect("started an instance", "deploy")
        again.feed()
        again.whole()
        again.end()
        return it.wrong


def full(folder: Path) -> list[str]:
    """The disk is full, and has space again."""
    with _mounted(folder):
        it = Watched(folder / "project").begin()
        fill = folder / "fill"
        with fill.open("wb") as file, _until_full():
            while True:
                file.write(b"\0" * 65536)
                file.flush()
        with _until_full():
            while True:  # into what blocks have left
                it.feed()
        it.expect("no space left", "status")
        fill.unlink()
        it.whole()
        it.end()
        return it.wrong


def _renamed(folder: Path, to: Path) -> Path:
    folder.rename(to)
    return to


@contextmanager
def _until_full() -> Iterator[None]:
    try:
        yield
    except (OSError, LogFull) as error:
        print(f"    ({error})")


@contextmanager
def _mounted(folder: Path) -> Iterator[Path]:
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(MB << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    folder.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    try:
        yield image
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


KINDS: dict[str, Callable[[Path], list[str]]] = {
    k.__name__: k for k in (suspended, twice, descriptors, moved, read_only, full)
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks.surroundings",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    wrong = []
    for name in options.kinds.split(","):
        print(f"{name}: {KINDS[name].__doc__}", flush=True)
        with tempfile.TemporaryDirectory(prefix="flowql-surroundings-", ignore_cleanup_errors=True) as folder:
            wrong += [f"{name}: {w}" for w in KINDS[name](Path(folder) / "at")]
    print("\n".join(wrong) or "each named its reason, nothing is lost")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
