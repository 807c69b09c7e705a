"""Diagrams of benchmark results, written as PNG files. Needs matplotlib, the extra `plots`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

DOTS_PER_INCH = 100


@contextmanager
def plotted(file: Path, *, rows: int = 1, size: tuple[float, float] = (7, 4), shared: bool = True) -> Iterator[Any]:
    """Axes to draw on, or an array of `rows` axes; the file is written at the end. size: in inches. shared: the axes share x."""
    import matplotlib

    matplotlib.use("Agg")  # no display
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(rows, 1, figsize=size, sharex=shared)
    yield axes
    figure.tight_layout()
    figure.savefig(file, dpi=DOTS_PER_INCH)
    pyplot.close(figure)


def plot_latency_tails(runs: Iterable[tuple[str, str, npt.NDArray[np.float64]]], file: Path) -> None:
    """For each run (label, line style, latencies in ms) the share of records above a latency; the grey line is p99."""
    with plotted(file) as axes:
        for label, style, latencies_ms in runs:
            x = np.sort(latencies_ms)
            axes.plot(x, 1 - np.arange(len(x)) / len(x), style, label=label)
        axes.axhline(0.01, color="grey", linewidth=0.5)
        axes.set(xscale="log", yscale="log", xlabel="creation to output, ms", ylabel="share of records above")
        axes.legend()
