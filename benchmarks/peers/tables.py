"""Runs as tables: every run for the terminal, and the figures of the comparison page in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.peers.cases import Case
from benchmarks.peers.measure import Run
from benchmarks.peers.systems import FLOWQL
from flowql.cli.render import table_lines

HEAD = (
    "case",
    "system",
    "records",
    "records/s",
    "records/CPU-s",
    "FlowQL",
    "CPU s",
    "RSS MB",
    "start s",
    "total s",
    "result",
)
WITH_START = "*"


def details(runs: Sequence[Run]) -> Iterator[str]:
    """A line for each run. FlowQL: how many times as many records per CPU-second it reads, in the same round."""
    rows = [_row(run, _partner(run, runs)) for run in runs]
    return table_lines(HEAD, rows, [False, False, *[True] * 8, False])


def summary(runs: Sequence[Run], systems: Sequence[str]) -> Iterator[str]:
    """A Markdown table: thousands of records per CPU-second, with FlowQL's ratio to each peer; medians of rounds."""
    yield f"| query | {' | '.join(systems)} |"
    yield "|---|" + "---:|" * len(systems)
    for case in dict.fromkeys(run.case for run in runs):
        own = [run for run in runs if run.case == case and run.system == FLOWQL]
        yield f"| {case.name} | " + " | ".join(_cell(case, name, runs, own) for name in systems) + " |"


def ratio(flowql: Run, peer: Run) -> float:
    """Records per CPU-second of FlowQL by those of a peer. With the start of both where one was not seen after it."""
    own, other = flowql.figures, peer.figures
    if own.working is None or other.working is None:
        return own.whole.per_cpu_s / max(1, other.whole.per_cpu_s)
    return own.working.per_cpu_s / max(1, other.working.per_cpu_s)


def _cell(case: Case, name: str, runs: Sequence[Run], own: Sequence[Run]) -> str:
    found = [run for run in runs if run.case == case and run.system == name]
    if not found:
        return "failed"
    if any(run.wrong for run in found):
        return "wrong"
    rates = [run.figures.working or run.figures.whole for run in found]
    mark = WITH_START if any(run.figures.working is None for run in found) else ""
    text = f"{median(rate.per_cpu_s for rate in rates) / 1000:,.0f}{mark}"
    if name == FLOWQL or not own:
        return text
    return f"{text} ({median(ratio(*pair) for pair in zip(own, found, strict=False)):.1f}×)"


def _partner(run: Run, runs: Sequence[Run]) -> Run | None:
    """FlowQL's run of the same case in the same round."""
    turn = [r for r in runs if r.case == run.case and r.system == run.system].index(run)
    own = [r for r in runs if r.case == run.case and r.system == FLOWQL]
    return own[turn] if run.system != FLOWQL and turn < len(own) else None


def _row(run: Run, own: Run | None) -> list[str]:
    f = run.figures
    rates, mark = (f.whole, WITH_START) if f.working is None else (f.working, "")
    return [
        run.case.name, run.system, f"{run.records:,}", f"{rates.per_s:,}{mark}", f"{rates.per_cpu_s:,}{mark}",
        "" if own is None else f"{ratio(own, run):.2f}", f"{f.cpu_s:.1f}", f"{run.rss_mb:,}", f"{f.start_s:.1f}",
        f"{f.seconds:.1f}", "wrong" if run.wrong else "right",
    ]  # fmt: skip
