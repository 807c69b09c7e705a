"""Each Nexmark query in both dialects, in turns: ksqlDB's form of `flowql bench` and a view of standard SQL with the same rows.

    python -m benchmarks.forms [--queries q0,q11] [--events 100000] [--rounds 3]

Prints the median processor seconds of a process that runs the query alone in one thread, commits included, and the speed of the view as a
share of the speed of ksqlDB's form. `plain`: the streams have no watermark. `watermark`: they have one of 4 seconds. The results of
each run are compared with the oracle of `flowql bench`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from benchmarks.views import PROJECT, compiled, in_a_process, measure
from flowql.bench.engines import NEXMARK
from flowql.bench.nexmark_input import write_log
from flowql.compiler.plan.topology import Plan

BASE, PLAIN, MARKED = "ksqlDB", "plain", "watermark"
TUMBLE = "TUMBLE({}, \"dateTime\", INTERVAL '10' SECOND)"
HOP = "HOP(bid, \"dateTime\", INTERVAL '2' SECOND, INTERVAL '10' SECOND)"
FIRST = "SELECT {} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY {}) AS place FROM {}) t WHERE place = 1"
VIEWS = {
    "q0": "SELECT * FROM bid",
    "q1": 'SELECT auction, bidder, CAST(price AS DOUBLE PRECISION) * 0.908::DOUBLE PRECISION AS price, "dateTime", extra FROM bid',
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
    "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    "q5_counts": f"SELECT auction, window_start, COUNT(*) AS num FROM {HOP} GROUP BY auction, window_start EMIT ON WINDOW CLOSE",
    "q5": FIRST.format("window_start, auction, num", "num DESC, auction DESC", "q5_counts"),
    "q7": FIRST.format(
        "window_start, auction, bidder, price", "price DESC, auction DESC, bidder DESC", TUMBLE.format("bid")
    ),
    "q8": f"SELECT p.id, p.name, p.window_start FROM (SELECT DISTINCT id, name, window_start FROM {TUMBLE.format('person')}) p "
    f"JOIN (SELECT DISTINCT seller, window_start FROM {TUMBLE.format('auction')}) a "
    "ON p.id = a.seller AND p.window_start = a.window_start",
    "q11": "SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime FROM SESSION(TABLE bid "
    "PARTITION BY bidder, DESCRIPTOR(\"dateTime\"), INTERVAL '10' SECOND) GROUP BY bidder, window_start, window_end",
}
MARKED_ONLY = ("q3", "q5_counts", "q5")  # refused over streams without a watermark


def forms(folder: Path) -> dict[str, Plan]:
    """A plan of all queries for each form. folder: where projects are written."""
    plans = {BASE: compiled(NEXMARK)}
    sources = (
        (PROJECT / "sources.sql")
        .read_text(encoding="utf-8")
        .partition("-- The values")[0]
        .replace("INTERVAL '4' SECOND", "INTERVAL '0' SECOND")
    )
    for form in (PLAIN, MARKED):
        if form == PLAIN:
            sources_of = "".join(_without_watermarks(sources))
            views = {n: v for n, v in VIEWS.items() if n not in MARKED_ONLY}
        else:
            sources_of, views = sources, VIEWS
        (folder / form).mkdir()
        (folder / form / "flowql.yaml").write_text(
            f"name: {form}\ndialect: standard\nsql: [all.sql]\ndefaults: {{partitions: 4}}\n"
        )
        text = "\n".join([sources_of, *(f"CREATE VIEW {n} AS {v};" for n, v in views.items())])
        (folder / form / "all.sql").write_text(text)
        plans[form] = compiled(folder / form)
    return plans


def _without_watermarks(sources: str) -> Iterator[str]:
    for column in sources.splitlines(keepends=True):
        if not column.lstrip().startswith("WATERMARK"):
            yield column


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.forms", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", default="q0,q1,q2,q3,q5,q7,q8,q11")
    parser.add_argument("--events", type=int, default=100_000, help="bids")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flowql-bench-forms-") as name:
        plans, seconds = forms(Path(name)), defaultdict[str, list[float]](list)
        in_a_process(write_log, Path(name), options.events)
        for query in options.queries.split(","):
            seconds.clear()
            for _ in range(options.rounds):
                for form, plan in plans.items():
                    if form != PLAIN or query not in MARKED_ONLY:
                        figure = in_a_process(measure, plan, query, Path(name), options.events, 0, False, query)
                        seconds[form].append(figure.cpu_s)
            base = statistics.median(seconds[BASE])
            found = {form: statistics.median(s) for form, s in seconds.items()}
            print(query, *(f"{form} {s:.2f} s ({base / s:.2f})" for form, s in found.items()), sep="\t", flush=True)


if __name__ == "__main__":
    main()
