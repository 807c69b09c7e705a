"""History by Spark and live records on the runtime, beside the runtime alone, for the six kinds of queries that keep state.

    python -m benchmarks.handover [--events 5000000] [--live 100000] [--kinds windowed,sessions] [--master 'local[2]'] [--memory 4096] [--json FILE]

For each kind two targets get the same log with the Nexmark timeline up to bid number --events. One replays it: `flowql run --until-caught-up`. The other one
gets it from Spark: `flowql backfill`, which ends when the instance serves the result. Then both get the next --live bids, with the persons and
auctions between them, while no instance runs, and `flowql run --until-caught-up` goes on with them. At last `flowql verify --held` compares the results of both:
tables by their final rows, streams as multisets. Seconds are those of whole commands, start of processes included; `Spark` is the part of the
hand-over in which Spark computes, and the rest is that of its start, of loading the state and of serving.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark_input import PARTITIONS, produce, write_log
from flowql.bench.nexmark_people import MAKERS, counts
from flowql.runtime.log.embedded.log import EmbeddedLog

_JSON = "KEY_FORMAT='JSON', VALUE_FORMAT='JSON'"
# By topic: what reads it.
SOURCES = {
    "auction": f"""
CREATE STREAM AUCTIONS (ID BIGINT KEY, SELLER BIGINT, CATEGORY BIGINT) WITH (KAFKA_TOPIC='auction', {_JSON});
CREATE TABLE AUCTION (ID BIGINT PRIMARY KEY, SELLER BIGINT, CATEGORY BIGINT) WITH (KAFKA_TOPIC='auction', {_JSON});
""",
    "bid": f"""
CREATE STREAM BIDS (AUCTION BIGINT KEY, BIDDER BIGINT, PRICE BIGINT) WITH (KAFKA_TOPIC='bid', {_JSON});
CREATE TABLE LAST_BID (AUCTION BIGINT PRIMARY KEY, BIDDER BIGINT, PRICE BIGINT) WITH (KAFKA_TOPIC='bid', {_JSON});
""",
}
# By kind: the topics that it reads, and the query.
KINDS = {
    "aggregation": (
        ("bid",),
        "TABLE RESULT AS SELECT BIDDER, COUNT(*) AS N, SUM(PRICE) AS TOTAL FROM BIDS GROUP BY BIDDER",
    ),
    "windowed": (
        ("bid",),
        "TABLE RESULT AS SELECT AUCTION, COUNT(*) AS N, MAX(PRICE) AS HIGHEST FROM BIDS WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 10 SECONDS) GROUP BY AUCTION",
    ),
    "sessions": (
        ("bid",),
        "TABLE RESULT AS SELECT BIDDER, COUNT(*) AS N FROM BIDS WINDOW SESSION (10 SECONDS, GRACE PERIOD 10 SECONDS) GROUP BY BIDDER",
    ),
    "stream-table": (
        ("auction", "bid"),
        "STREAM RESULT AS SELECT B.AUCTION, PRICE, SELLER FROM BIDS B LEFT JOIN AUCTION A ON B.AUCTION = A.ID",
    ),
    "stream-stream": (
        ("auction", "bid"),
        "STREAM RESULT AS SELECT B.AUCTION AS AUCTION, PRICE, SELLER FROM BIDS B JOIN AUCTIONS A WITHIN 10 SECONDS GRACE PERIOD 5 SECONDS ON B.AUCTION = A.ID",
    ),
    "table-table": (
        ("auction", "bid"),
        "TABLE RESULT AS SELECT A.ID, SELLER, PRICE FROM AUCTION A JOIN LAST_BID L ON A.ID = L.AUCTION",
    ),
}
PROJECT = """name: handover
sql: [handover.sql]
defaults: {{partitions: {partitions}}}
targets:
  handed: {{engine: runtime}}
  replayed: {{engine: runtime}}
  spark: {{engine: spark, memory: {memory} MiB, spark: {{master: '{master}'}}}}
"""
HANDED, REPLAYED = "handed", "replayed"


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one kind. Seconds: of the replay, of the hand-over, and of Spark's computation in it. rows: of the result; state_rows: handed over."""

    kind: str
    events: int
    replay_s: float
    handover_s: float
    spark_s: float
    state_rows: int
    rows: int

    def line(self) -> str:
        seconds = f"{self.replay_s:>10.1f}{self.handover_s:>12.1f}{self.spark_s:>9.1f}"
        return f"{self.kind:15}{seconds}{self.handover_s / self.replay_s:>9.2f}{self.state_rows:>13,}{self.rows:>13,}   equal"


HEAD = f"{'kind':15}{'replay s':>10}{'hand-over s':>12}{'Spark s':>9}{'ratio':>9}{'state rows':>13}{'results':>13}"


def measure(folder: Path, kind: str, options: argparse.Namespace) -> Measured:
    """One kind, in a folder of its own. Raises BenchFailed where the results of both targets differ."""
    topics, query = KINDS[kind]
    folder.mkdir()
    (folder / "flowql.yaml").write_text(
        PROJECT.format(partitions=PARTITIONS, memory=options.memory, master=options.master)
    )
    (folder / "handover.sql").write_text(f"{''.join(SOURCES[t] for t in topics)}CREATE {query};\n")
    _tell(f"{kind}: writing the timeline up to bid {options.events:,}")
    write_log(folder / ".flowql" / HANDED, options.events, topics)
    shutil.copytree(folder / ".flowql" / HANDED, folder / ".flowql" / REPLAYED)
    _tell(f"{kind}: replaying")
    replay_s, _ = _called(folder, "run", "-t", REPLAYED, "--until-caught-up")
    _tell(f"{kind}: replayed in {replay_s:.1f} s; handing over")
    handover_s, said = _called(folder, "backfill", "RESULT", "-t", "spark", "--then", HANDED, "-o", "json")
    (history,) = json.loads(said)["histories"]
    _called(folder, "stop", "-t", HANDED)
    _tell(f"{kind}: handed over in {handover_s:.1f} s; {options.live:,} live bids")
    for target in (HANDED, REPLAYED):
        _go_on(folder / ".flowql" / target, topics, options.events, options.live)
        _called(folder, "run", "-t", target, "--until-caught-up")
    _tell(f"{kind}: comparing")
    _, said = _called(folder, "verify", "--held", "--targets", f"{REPLAYED},{HANDED}", "-o", "json")
    (result,) = json.loads(said)["tables"]
    return Measured(
        kind, history["records_in"], replay_s, handover_s, history["seconds"], history["state_rows"], result["rows"]
    )


def _go_on(target: Path, topics: Sequence[str], events: int, live: int) -> None:
    """The records of the timeline that follow the history."""
    with closing(EmbeddedLog(target / "log")) as log:
        for topic in topics:
            before, after = counts(events)[topic], counts(events + live)[topic]
            produce(log, topic, _without_first(MAKERS[topic](after), before), partitions=PARTITIONS)


def _without_first(rows: Iterator[pa.RecordBatch], n: int) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        if n < batch.num_rows:
            yield batch.slice(n)
        n = max(0, n - batch.num_rows)


def _called(folder: Path, *words: str) -> tuple[float, str]:
    """The seconds of a command, and what it has printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    began = time.perf_counter()
    command = [sys.executable, "-m", "flowql", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchFailed(f"flowql {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - began, done.stdout


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=5_000_000, help="bids of the history")
    parser.add_argument("--live", type=int, default=100_000, help="bids after it")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", type=int, default=1024, help="of Spark's Java, MiB")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(words)
    kinds = options.kinds.split(",")
    if unknown := [k for k in kinds if k not in KINDS]:
        parser.error(f"there is no kind {unknown[0]}: {', '.join(KINDS)}")
    measured = []
    print(HEAD, flush=True)
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix="flowql-bench-") as name:
            project = Path(name).resolve() / "project"
            try:
                measured.append(measure(project, kind, options))
                print(measured[-1].line(), flush=True)
            finally:
                for target in (HANDED, REPLAYED):
                    command = [sys.executable, "-m", "flowql", "stop", "-t", target]
                    subprocess.run(command, cwd=project, capture_output=True, check=False)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(m) for m in measured], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
