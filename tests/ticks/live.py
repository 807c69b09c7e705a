"""The bank with threads, the embedded log and RocksDB: prints a line for each look. A process of its own, so that it can be killed.

python -m tests.ticks.live FOLDER [LOOKS]
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import Log
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.rocks import open_rocks
from tests.ticks.bank import Bank

VIEWS = ("credits", "debits", "balance", "total")


class LiveBank(Bank):
    """What was written before it was opened is not in `sums`."""

    partitions_of_table = 2

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.is_new = folder, not (folder / "state").exists()
        super().__init__(seed, self.partitions_of_table)

    def config_of(self) -> InstanceConfig:
        return InstanceConfig(threads=2, data_dir=self.folder)

    def new_log(self) -> Log:
        return EmbeddedLog(self.folder / "log")

    def _deploy(self) -> None:
        if self.is_new:
            super()._deploy()
        else:
            self.instance.resume()

    def _open(self) -> None:
        self.clock = SystemClock()
        self.instance = Instance(self.log, open_rocks(self.folder / "state"), self.clock, self.config_of())
        self.instance.start()


def main(folder: Path, looks: int) -> None:
    bank = LiveBank(folder, seed=looks)
    ended = threading.Event()

    def feed() -> None:
        while not ended.wait(0.002):
            bank.transact()

    threading.Thread(target=feed, daemon=True).start()
    shown = set()
    while len(shown) < looks:
        rows, reason = bank.rows(*VIEWS)
        paid = {v: sum(r[-1] or 0 for r in rows[v]) for v in VIEWS}
        if not reason and paid["credits"] not in shown:
            shown.add(paid["credits"])
            print(paid["credits"], paid["debits"], paid["balance"], paid["total"], flush=True)
    ended.set()
    bank.instance.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
