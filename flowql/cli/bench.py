"""`flowql bench`: measure this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from flowql.bench.engines import ENGINES, NEXMARK
from flowql.bench.measuring import BenchFailed, Figure
from flowql.bench.nexmark_input import PARTITIONS, write_log, write_parquet
from flowql.bench.oracle import EXPECTED
from flowql.bench.run import run
from flowql.cli.render import note
from flowql.errors import CommandError

LOGS = ("embedded", "kafka")

TOUCH = "GB of memory to allocate and free before each query, for hosts that supply memory slowly."
EVENTS = "Number of bids; persons and auctions are in proportion."

app = typer.Typer(help="Measure this machine.", no_args_is_help=True)


@app.callback()
def _bench() -> None:
    """Measure this machine."""


@app.command()
def nexmark(
    queries: Annotated[str, typer.Option(help="Queries, separated by commas, or all.")] = "q0,q1,q2,qc",
    events: Annotated[int, typer.Option(help=EVENTS, min=1)] = 1_000_000,
    threads: Annotated[int, typer.Option(help="Processing threads; cores of Spark.", min=1)] = 2,
    partitions: Annotated[int, typer.Option(help="Partitions of each topic.", min=1)] = PARTITIONS,
    engine: Annotated[str, typer.Option(help=" or ".join(ENGINES))] = "runtime",
    log: Annotated[str, typer.Option(help="embedded, or kafka: a separate local broker.")] = "embedded",
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
    bare: Annotated[bool, typer.Option("--bare", help="Also measure DuckDB over the same files.")] = False,
    touch: Annotated[float, typer.Option(help=TOUCH, min=0)] = 0.0,
) -> None:
    """Run Nexmark queries one at a time over generated events. Each result is checked."""
    names = list(EXPECTED) if queries == "all" else [q for q in queries.split(",") if q]
    unknown = [q for q in names if q not in EXPECTED]
    if unknown:
        raise typer.BadParameter(f"no query {', '.join(unknown)} (choose from {', '.join(EXPECTED)})")
    if engine not in ENGINES:
        raise typer.BadParameter(f"no engine {engine} (choose from {', '.join(ENGINES)})")
    if log not in LOGS:
        raise typer.BadParameter(f"no log {log} (choose from {', '.join(LOGS)})")
    if bare and log != "embedded":
        raise typer.BadParameter("--bare reads the files of --log embedded")
    try:
        figures = run(
            NEXMARK,
            names,
            events,
            threads,
            note,
            engine=engine,
            log=log,
            bare=bare,
            touch_gb=touch,
            partitions=partitions,
        )
    except BenchFailed as error:
        raise CommandError(str(error), help="no speed is printed for a wrong result") from error
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(f) for f in figures], indent=1) + "\n")
    _show(figures)


@app.command()
def data(
    events: Annotated[int, typer.Option(help=EVENTS, min=1)] = 1_000_000,
    parquet: Annotated[Path | None, typer.Option(help="Folder for one Parquet file per kind.")] = None,
    log: Annotated[Path | None, typer.Option(help="Folder for a new embedded log (subfolder `log`).")] = None,
) -> None:
    """Write the Nexmark events, identical in every run."""
    if parquet is None and log is None:
        raise typer.BadParameter("say where: --parquet DIR or --log DIR")
    if parquet is not None:
        for topic, file in write_parquet(parquet, events).items():
            note(f"{topic}: {file}")
    if log is not None:
        write_log(log, events)
        note(f"person, auction, bid: topics of {log / 'log'}")


def _show(figures: list[Figure]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("query", "engine", "log"):
        table.add_column(name)
    for name in ("events", "seconds", "events/s", "cpu s", "rss MB"):
        table.add_column(name, justify="right")
    for f in figures:
        table.add_row(
            f.query,
            f.engine,
            f.log,
            f"{f.events:,}",
            f"{f.seconds:.2f}",
            f"{f.events_per_s:,}",
            f"{f.cpu_s:.2f}",
            str(f.rss_mb),
        )
    Console().print(table)
