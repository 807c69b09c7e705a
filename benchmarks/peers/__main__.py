"""Nexmark on FlowQL, Kafka Streams and Flink SQL: the same queries over the same Kafka topics, in turns on one broker.

    python -m benchmarks.peers [--events 1000000] [--rounds 1] [--json FILE]
    python -m benchmarks.peers --queries q11,qc --spread 1000000
    python -m benchmarks.peers --queries q5,qc --input-partitions 32 --systems flowql,flink-heap

Needs Java and Maven. The first run builds the programs in Java into FlowQL's cache. Each run is a process that is measured
from outside: commits and results as the broker shows them, processor time and memory of the process and its children.
DuckDB checks every result. Input has `--events` bids; q3 and q8 read the persons and auctions of a timeline ten times as long.

records/s and records/CPU-s count from the first commit, which leaves out the start; with * they include the start, as the
run was too short. FlowQL: how many times as many records per CPU-second FlowQL reads; below 1 it loses. Compare figures of
one run of this program only.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from confluent_kafka.admin import AdminClient

from benchmarks.peers.cases import PAGE, Case
from benchmarks.peers.measure import Bench, Run
from benchmarks.peers.systems import COMMIT_MS, HEAP_MB, NAMES, SETTINGS, THREADS, systems, versions
from benchmarks.peers.tables import details, summary
from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark_input import PARTITIONS
from flowql.bench.oracle import EXPECTED
from flowql.config.storage import log_at
from flowql.kafka.broker import Broker
from flowql.runtime.log.kafka.settings import KafkaSettings


def main() -> None:
    options = _options()
    names = options.systems.split(",")
    about = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "events": options.events,
        "threads": THREADS,
        "commit_ms": COMMIT_MS,
        "java_heap_mb": HEAP_MB,
        "versions": versions(),
        "systems": {name: SETTINGS[name] for name in names},
    }
    print(json.dumps(about, indent=2))
    runs, failed = compare(_cases(options), names, options.events, options.rounds)
    print("\n".join(["", *details(runs), "", *summary(runs, names)]))
    if options.json is not None:
        options.json.write_text(
            json.dumps({**about, "failed": failed, "runs": [asdict(run) for run in runs]}, indent=1)
        )
    failed += [run.wrong for run in runs if run.wrong]
    if failed:
        sys.exit("\n".join(failed))


def compare(cases: Sequence[Case], names: Sequence[str], events: int, rounds: int) -> tuple[list[Run], list[str]]:
    """Every case on every system, in turns within a case; and the messages of runs that failed."""
    runs: list[Run] = []
    failed: list[str] = []
    found = systems(names)
    with tempfile.TemporaryDirectory(prefix="flowql-peers-") as scratch:
        folder = Path(scratch)
        broker = Broker(folder / "broker")
        try:
            running = broker.start(port=0, memory_mb=HEAP_MB)
            with closing(log_at(folder, KafkaSettings(running.bootstrap), "peers")) as log:
                admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 2})
                bench = Bench(log, admin, running.bootstrap, folder, events)
                for case in cases:
                    case.write(log, events)
                    inputs = case.inputs(events)
                    for number in range(rounds * len(found)):
                        try:
                            runs.append(bench.run(found[number % len(found)], case, inputs))
                        except BenchFailed as error:
                            failed.append(f"{case.name}: {error}")
                            print(failed[-1], file=sys.stderr)
                            continue
                        print(list(details(runs))[-1], file=sys.stderr)
        finally:
            broker.kill()  # its records are not needed any more
    return runs, failed


def _cases(options: argparse.Namespace) -> Sequence[Case]:
    if options.queries is None and not options.spread and options.input_partitions == PARTITIONS:
        return PAGE
    queries = EXPECTED if options.queries is None else options.queries.split(",")
    return [Case(query, options.spread, options.input_partitions) for query in queries]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000, help="bids of the input")
    parser.add_argument(
        "--queries", help="names, with commas between; by default the cases of docs/guide/comparison.md"
    )
    parser.add_argument("--systems", default=",".join(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("--spread", type=int, default=0, help="draw bidders evenly from this many ids")
    parser.add_argument("--input-partitions", type=int, default=PARTITIONS, help="of inputs and results")
    parser.add_argument("--rounds", type=int, default=1, help="of all systems, for each case; tables show medians")
    parser.add_argument("--json", type=Path, help="write settings and figures to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
