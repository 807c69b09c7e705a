"""The cost of one view of standard SQL over Nexmark events: events per CPU second, and the split by operator.

    python -m benchmarks.views [--views q3,q8] [--events 50000] [--top 25]

Each view runs alone, in a process of its own and in one thread (`flowql.runtime.app.driver`), with the views that it reads. Events are all
records that it reads of the topics of `--events` bids. CPU time is that of the process, commits included. `--top N` prints the N
functions with most time instead (cProfile, which makes everything slower).
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from flowql.bench.nexmark_input import write_log
from flowql.bench.nexmark_people import SCHEMAS, counts
from flowql.bench.results import wrong
from flowql.compiler.plan.generations import topics_read
from flowql.compiler.plan.topology import Plan
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.deploy.selection import select
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.without_pandas import leave_pandas_out
from flowql.runtime.batch import Batch
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.operators.base import MicroBatchContext, RuntimeOperator
from flowql.runtime.state.rocks import open_rocks

PROJECT = Path(__file__).parents[1] / "pipelines" / "nexmark" / "views"


@dataclass(frozen=True, slots=True)
class Figure:
    """events: records that are read. split: a line per operator."""

    view: str
    events: int
    cpu_s: float
    split: list[str]

    def line(self) -> str:
        rate = int(self.events / self.cpu_s)
        return f"{self.view:8}{self.events:10,} events {self.cpu_s:8.2f} CPU s {rate:10,} events per CPU s"


class ProcessorClock(SystemClock):
    """Time passes with the processor time of this process: slices and commits are those of a machine with nothing else to do."""

    def timer_ms(self) -> int:
        return time.process_time_ns() // 1_000_000

    def cost_ns(self) -> int:
        return time.process_time_ns()


class Costs:
    """Processor time and rows by operator of a program, the decoding of input and the encoding of results beside them."""

    def __init__(self) -> None:
        self.ns: dict[str, int] = defaultdict(int)
        self.rows: dict[str, int] = defaultdict(int)
        self.calls: dict[str, int] = defaultdict(int)

    def watch(self, instance: Instance) -> None:
        """Every operator of every task of an instance, from now on."""
        for query in instance.queries.values():
            for task in query.built.tasks:
                program: Any = task.program
                for n, step in enumerate(program.steps):
                    name = f"{query.built.tasks[0].id.query}/{type(step.operator).__name__}/{step.id}"
                    program.steps[n] = type(step)(step.id, step.inputs, _Timed(step.operator, name, self))
                self._wrap(program, "decode", "decode")
                self._wrap(program, "_exchange", "repartition")
                for sink in program.sinks:
                    self._wrap(sink, "keep", "keep results")
                    self._wrap(sink.encoder, "encode", "encode results")

    def _wrap(self, of: Any, method: str, name: str) -> None:
        inner = getattr(of, method)

        def timed(*arguments: Any) -> Any:
            start = time.thread_time_ns()
            try:
                return inner(*arguments)
            finally:
                self.ns[name] += time.thread_time_ns() - start
                self.calls[name] += 1

        setattr(of, method, timed)

    def table(self, cpu_s: float, events: int) -> list[str]:
        """A line per operator, those of least time left out."""
        out = []
        for name, ns in sorted(self.ns.items(), key=lambda i: -i[1]):
            if ns / 1e9 > cpu_s / 100:
                out.append(
                    f"    {ns / 1e9:7.2f} s {100 * ns / 1e9 / cpu_s:5.1f} % {ns / 1e3 / events:8.2f} us an event"
                    f"{self.calls[name]:9,} calls {self.rows[name]:9,} rows  {name}"
                )
        return out


class _Timed:
    """An operator whose calls are measured."""

    def __init__(self, inner: RuntimeOperator, name: str, costs: Costs) -> None:
        self._inner, self._name, self._costs = inner, name, costs
        self.plan = inner.plan

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        start = time.thread_time_ns()
        try:
            return self._inner.process(inputs, run)
        finally:
            self._costs.ns[self._name] += time.thread_time_ns() - start
            self._costs.rows[self._name] += sum(len(b) for b in inputs if b is not None)
            self._costs.calls[self._name] += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def compiled(project: Path = PROJECT) -> Plan:
    """The project with all views."""
    made = compile_sources(load_project(project))
    assert made.ok, made.diagnostics
    return made.plan


def measure(plan: Plan, view: str, input_: Path, events: int, top: int, split: bool = True, check: str = "") -> Figure:
    """In this process, over a copy of the log in `input_`: see the module. check: a query of `flowql bench` that gives the same rows."""
    leave_pandas_out()
    plan = select(plan, [f"+{view}"])
    read = sum(counts(events)[t] for t in {t for q in plan.queries for t in topics_read(q)} & SCHEMAS.keys())
    costs, profile = Costs(), cProfile.Profile()
    with tempfile.TemporaryDirectory(prefix="flowql-bench-view-") as name:
        folder, config = Path(name), InstanceConfig("views")
        shutil.copytree(input_ / "log", folder / "log")
        blocks, writes = config.budget.block_cache_bytes, config.budget.write_buffer_bytes
        physical = open_rocks(folder / "state", cache_bytes=blocks, write_buffer_bytes=writes)
        instance = Instance(EmbeddedLog(folder / "log"), physical, ProcessorClock(), config)
        driver = Driver(instance)
        start = time.process_time()
        instance.deploy(plan)
        if top:
            profile.enable()
        elif split:
            costs.watch(instance)
        driver.run_until_caught_up()
        profile.disable()
        cpu_s = time.process_time() - start
        if check and (message := wrong(instance.log, check, events)):
            raise SystemExit(message)
        instance.stop()
    if top:
        pstats.Stats(profile).sort_stats("tottime").print_stats(top)
    return Figure(view, read, cpu_s, costs.table(cpu_s, read))


def in_a_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the result of `work`. Forked, so that the project is compiled once; nothing of the engine runs in the process that forks."""
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(work(*arguments)))
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError as error:
        raise SystemExit("the measuring process failed") from error
    finally:
        child.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.views", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--views", default="all")
    parser.add_argument("--events", type=int, default=50_000, help="bids")
    parser.add_argument("--top", type=int, default=0, help="functions of a profile")
    parser.add_argument("--brief", action="store_true", help="no split by operator")
    options = parser.parse_args()
    plan, events, total_s = compiled(), 0, 0.0
    with tempfile.TemporaryDirectory(prefix="flowql-bench-views-") as name:
        in_a_process(write_log, Path(name), options.events)
        for view in [q.sink for q in plan.queries] if options.views == "all" else options.views.split(","):
            figure = in_a_process(measure, plan, view, Path(name), options.events, options.top)
            events, total_s = events + figure.events, total_s + figure.cpu_s
            print(figure.line(), *(() if options.brief else figure.split), sep="\n", flush=True)
    print(Figure("all", events, total_s, []).line())


if __name__ == "__main__":
    main()
