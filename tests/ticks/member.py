"""One member of a group over the bank, with threads and RocksDB: a process of its own, so that it can be killed.

python -m tests.ticks.member BOOTSTRAP FOLDER NAME [--deploy]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.state.rocks import open_rocks
from tests.ticks.bank import bank_plan

APP, PARTITIONS = "bank-of-members", 4


def main(bootstrap: str, folder: Path, name: str, *, deploys: bool) -> None:
    config = InstanceConfig(
        APP, threads=2, data_dir=folder / name, changelogs=True, shared=True, process_id=name, standbys=0
    )
    log = KafkaLog(Connection(bootstrap), APP)
    instance = Instance(log, open_rocks(folder / name / "state"), SystemClock(), config)
    instance.start()
    if deploys:
        instance.deploy(bank_plan(PARTITIONS))
    else:
        instance.resume()
    print("runs", flush=True)
    for line in sys.stdin:
        if line.strip() == "owned":
            print(len(instance.group._begun) if instance.group is not None else 0, flush=True)
        elif line.strip() == "ends":
            print(json.dumps([[*tp, end] for tp, end in (instance.ticks.whole_ends() or {}).items()]), flush=True)
        elif line.strip() == "stop":
            break
    print(instance.stop(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], deploys="--deploy" in sys.argv)
