"""The oracle accepts what a query gives, and nothing else."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from flowql.bench.engines import NEXMARK
from flowql.bench.nexmark import bids, json_values
from flowql.bench.nexmark_people import auctions, persons
from flowql.bench.oracle import EXPECTED, columns_of, difference, rows_of_json
from flowql.bench.results import result as written
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.parser import parse_statements
from flowql.runtime.log.embedded.log import EmbeddedLog

pytestmark = pytest.mark.turns("long")

INPUTS = {
    "bid": pa.Table.from_batches(bids(5_000)).combine_chunks(),
    # Sparse in time, so that there are several windows, and sessions that end.
    "person": pa.Table.from_batches(persons(5_000)).combine_chunks(),
    "auction": pa.Table.from_batches(auctions(15_000)).combine_chunks(),
}
STRETCHED = pa.array(1_767_225_600_000 + 37 * i for i in range(5_000))
INPUTS["bid"] = INPUTS["bid"].set_column(5, "dateTime", STRETCHED)
Row = dict[str, Any]


def q3() -> list[Row]:
    people = {p["id"]: p for p in INPUTS["person"].to_pylist() if p["state"] in ("OR", "ID", "CA")}
    sold = [a for a in INPUTS["auction"].to_pylist() if a["category"] == 10 and a["seller"] in people]
    return [{**{n: people[a["seller"]][n] for n in ("name", "city", "state")}, "id": a["id"]} for a in sold]


def q5() -> list[Row]:
    count: Counter[tuple[int, int]] = Counter()
    for b in INPUTS["bid"].to_pylist():
        newest = b["dateTime"] - b["dateTime"] % 2000
        count.update((newest - 2000 * back, b["auction"]) for back in range(5))
    best: dict[int, tuple[int, int]] = {}
    for (start, auction), n in count.items():
        best[start] = max(best.get(start, (0, 0)), (n, auction))
    return [{"window_start": s, "auction": a, "num": n} for s, (n, a) in best.items()]


def q7() -> list[Row]:
    best: dict[int, tuple[int, int, int]] = {}
    for b in INPUTS["bid"].to_pylist():
        start = b["dateTime"] - b["dateTime"] % 10_000
        best[start] = max(best.get(start, (0, 0, 0)), (b["price"], b["auction"], b["bidder"]))
    return [{"window_start": s, "auction": a, "bidder": w, "price": p} for s, (p, a, w) in best.items()]


def q8() -> list[Row]:
    window = {(a["seller"], a["dateTime"] // 10_000) for a in INPUTS["auction"].to_pylist()}
    return [
        {"id": p["id"], "name": p["name"], "window_start": p["dateTime"] // 10_000 * 10_000}
        for p in INPUTS["person"].to_pylist()
        if (p["id"], p["dateTime"] // 10_000) in window
    ]


def q11() -> list[Row]:
    times: defaultdict[int, list[int]] = defaultdict(list)
    for b in INPUTS["bid"].to_pylist():
        times[b["bidder"]].append(b["dateTime"])
    out: list[Row] = []
    for bidder, at in times.items():
        starts = [0, *(i for i in range(1, len(at)) if at[i] - at[i - 1] > 10_000), len(at)]
        for i, j in pairwise(starts):
            out.append({"bidder": bidder, "bid_count": j - i, "starttime": at[i], "endtime": at[j - 1] + 10_000})
    return out


def result(query: str) -> pa.Table:
    """The result of a query, computed in Python or Arrow rather than by DuckDB."""
    given = INPUTS["bid"]
    rows = given.to_pylist()
    if query == "q0":
        return given
    if query == "q1":
        dear = given.set_column(2, "price", pa.array([float(r["price"]) * 0.908 for r in rows]))
        return dear.select(["auction", "bidder", "price", "dateTime", "extra"])
    if query == "q2":
        return given.filter(pa.array([r["auction"] % 123 == 0 for r in rows])).select(["auction", "price"])
    if query == "qc":
        grouped = given.group_by("bidder").aggregate([("price", "count"), ("price", "sum"), ("price", "max")])
        return grouped.rename_columns(["bidder", "bids", "total", "top"])
    made = pa.Table.from_pylist({"q3": q3, "q5": q5, "q7": q7, "q8": q8, "q11": q11}[query]())
    return made.select(list(columns_of(query)))


@pytest.mark.parametrize("query", EXPECTED)
def test_right_results_pass_in_any_order(query: str) -> None:
    right = result(query)
    assert right.num_rows > 5
    assert difference(query, INPUTS, right.take(pa.array(range(right.num_rows - 1, -1, -1)))) == ""


@pytest.mark.parametrize("query", EXPECTED)
@pytest.mark.parametrize("fault", ["lost", "twice", "changed"])
def test_wrong_results_are_shown(query: str, fault: str) -> None:
    right = result(query)
    last = right.num_columns - 1
    number = last if pa.types.is_integer(right.schema.field(last).type) else 0
    wrong = {
        "lost": right.slice(1),
        "twice": pa.concat_tables([right, right.slice(0, 1)]),
        "changed": right.set_column(number, right.column_names[number], pc.add(right.column(number), 1)),
    }[fault]
    message = difference(query, INPUTS, wrong)
    assert ("missing" in message) == (fault != "twice")
    assert ("unexpected" in message) == (fault != "lost")


def test_a_missing_column_is_named() -> None:
    assert difference("q2", INPUTS, INPUTS["bid"].select(["auction"])) == "q2: the result has no column price"


def test_rows_can_be_read_again_from_batches() -> None:
    values = [json_values(b) for b in bids(5_000, chunk=999)]
    schema = next(rows_of_json("q0", values)).schema

    def again() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(schema, rows_of_json("q0", values))

    plain = {"bid": pa.Table.from_batches(bids(5_000))}
    assert difference("q0", plain, again) == ""
    assert "missing" in difference(
        "q0", plain, lambda: pa.RecordBatchReader.from_batches(schema, rows_of_json("q0", values[1:]))
    )


def test_a_result_may_have_no_rows(tmp_path: Path) -> None:
    """`flowql bench nexmark --queries q2 --events 500` said that the result has no column."""
    with closing(EmbeddedLog(tmp_path)) as log:
        log.admin().create_topic("q2", 1)
        assert difference("q2", {"bid": INPUTS["bid"].slice(0, 0)}, written(log, "q2")) == ""
        assert "rows missing" in difference("q2", INPUTS, written(log, "q2"))


@pytest.mark.parametrize("query", EXPECTED)
def test_the_sql_names_the_columns_the_oracle_expects(query: str) -> None:
    path = NEXMARK / f"{query}.sql"
    statements, mistakes = parse_statements(SourceText(str(path), path.read_text()), "ksql")
    assert not mistakes
    names = [item.alias or item.expr.parts[-1] for item in statements[-1].query.select]
    assert set(columns_of(query)) <= set(names)
