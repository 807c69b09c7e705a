"""`flowql backfill` is killed in each of its steps while records keep coming: `python -m tests.crash.backfill --seed N [--steps part,loading]`.

Steps: Spark computes (`computing`), has written a part (`part`), a manifest (`manifest`); the instance loads the state and commits (`loading`).
In the first three the command is killed with its Spark, in the last one the instance with it. At last it is let through. Results must then be
those of another target that has computed everything by itself. Records are imported while no instance runs: the topics of a join would be
read in the order in which they are imported, and late rows be others than those of the other target.

`tests/runtime/spark/test_handover.py` kills an instance whose generation reads what has come since the hand-over.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.runtime.spark.test_backfill import KINDS, PROJECT, SQL, load, write

STEPS = ("computing", "part", "manifest", "loading")
ROWS, WAIT_S = 120, 240.0
BACKFILL = ("backfill", *KINDS, "-t", "spark", "--then", "default")


class Shop:
    """A project in a folder, and what is run in it."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng, self.portions = folder, rng, 0
        (folder / "flowql.yaml").write_text(PROJECT)
        (folder / "shop.sql").write_text(SQL)
        self._staged = folder / ".flowql" / "default" / "backfill"

    def call(self, *words: str, code: int = 0) -> str:
        done = self._flowql(*words)
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        return said

    def _flowql(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "flowql", *words]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)

    def more(self) -> None:
        """Another portion of records, for both targets. The instance is stopped meanwhile."""
        self._flowql("stop")
        seed = self.rng.randrange(1 << 20)
        write(self.folder, seed, ROWS * self.portions, ROWS)
        load(self.call, seed)
        self.portions += 1
        self.call("deploy")

    def killed_in(self, step: str) -> bool:
        """Whether the step was still under way when it was killed."""
        command = [sys.executable, "-m", "flowql", *BACKFILL]
        with (self.folder / "backfill.log").open("ab") as log:
            running = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)
            reached = self._await(running, {"computing": "spark/run", "part": "*/part-*"}.get(step, "*/manifest.json"))
            if step == "computing":
                time.sleep(self.rng.uniform(0.0, 6.0))
            if step == "loading":
                time.sleep(self.rng.uniform(0.0, 0.6))
                self._kill_instance()
            ended = running.poll() is not None
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        return reached and not ended

    def _await(self, running: subprocess.Popen[bytes], pattern: str) -> bool:
        end = time.monotonic() + WAIT_S
        while running.poll() is None and time.monotonic() < end:
            if self._staged.exists() and next(self._staged.glob(pattern), None) is not None:
                return True
            time.sleep(0.005)
        return False

    def _kill_instance(self) -> None:
        for process in psutil.process_iter(["cwd", "cmdline"]):
            words = process.info["cmdline"] or []
            if process.info["cwd"] == str(self.folder) and "flowql" in " ".join(words) and "backfill" not in words:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.backfill", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--steps", default=",".join(STEPS))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flowql-crash-") as name:
        shop = Shop(Path(name).resolve(), random.Random(args.seed))
        try:
            for step in args.steps.split(","):
                shop.more()
                said = "killed" if shop.killed_in(step) else "had ended before the kill"
                print(f"{time.monotonic() - began:.0f} s: {step}: {said}", flush=True)
            shop.more()
            print(shop.call(*BACKFILL).strip(), flush=True)
            shop.call("run", "-t", "whole", "--until-caught-up")  # of the same history, in the same order
            shop.more()
            shop.call("stop")
            shop.call("run", "--until-caught-up")
            shop.call("run", "-t", "whole", "--until-caught-up")
            print(shop.call("verify", "--held", "--targets", "whole,default").strip(), flush=True)
        finally:
            subprocess.run([sys.executable, "-m", "flowql", "stop"], cwd=name, capture_output=True, check=False)
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
