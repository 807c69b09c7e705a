"""`flowql bench nexmark`: each query alone over the same events on the embedded log, checked before a speed is printed.

Input is written first; each query has a process of its own; the oracle runs after it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flowql.bench.bare import STATEMENTS, bare_loop
from flowql.bench.engines import ENGINES, Job
from flowql.bench.measuring import BenchFailed, Figure
from flowql.bench.nexmark_input import PARTITIONS, write_log
from flowql.bench.nexmark_people import SCHEMAS, counts
from flowql.bench.oracle import EXPECTED


def run(
    project: Path,
    queries: list[str],
    events: int,
    threads: int,
    report: Callable[[str], None],
    *,
    engine: str = "runtime",
    bare: bool = False,
) -> list[Figure]:
    """Measure each query over input written once. bare: a DuckDB loop over the same files beside it."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="flowql-bench-") as name:
        folder = Path(name)
        topics = [t for t in SCHEMAS if any(t in EXPECTED[q].reads for q in queries)]
        report(f"writing {sum(counts(events)[t] for t in topics):,} events")
        write_log(folder, events, topics)
        for query in queries:
            report(f"running {query}")
            figures.append(_measured(engine, Job(folder, project, query, events, threads)))
            if bare and query in STATEMENTS:
                seconds, cpu_s = bare_loop(folder, "bid", PARTITIONS, query, threads)
                rate = int(events / seconds)
                figures.append(
                    Figure(query, "duckdb loop", "embedded", events, round(seconds, 3), rate, round(cpu_s, 2), 0)
                )
    return figures


def _measured(engine: str, job: Job) -> Figure:
    """In a process of its own."""
    words = [engine, str(job.folder), str(job.project), job.query, str(job.events), str(job.threads)]
    command = [sys.executable, "-m", "flowql.bench.run", *words]
    return Figure(**_outcome(subprocess.run(command, capture_output=True, text=True, check=False)))


def _outcome(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a child printed. Its last line is the outcome, whatever libraries say when the process ends."""
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise BenchFailed(f"the measuring process ended with {done.returncode} and said nothing: {done.stderr[-2000:]}")
    outcome: dict[str, Any] = json.loads(lines[-1])
    if "failed" in outcome:
        raise BenchFailed(outcome["failed"])
    return outcome


def _main() -> None:
    engine, folder, project, query, events, threads = sys.argv[1:]
    try:
        outcome = asdict(ENGINES[engine](Job(Path(folder), Path(project), query, int(events), int(threads))))
    except Exception as error:  # the process that measures ends here: whatever it was, the parent is to say it
        text = str(error) if isinstance(error, BenchFailed) else f"{query}: {type(error).__name__}: {error}"
        print(json.dumps({"failed": text}))
        raise
    print(json.dumps(outcome))


if __name__ == "__main__":
    _main()
