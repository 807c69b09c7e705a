"""The comparison with Kafka Streams and Flink, as far as it needs no Java: figures, tables, templates, input."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers.build import HERE, version_of
from benchmarks.peers.cases import PAGE, Case
from benchmarks.peers.figures import Rates, Sample, figures
from benchmarks.peers.measure import Run
from benchmarks.peers.systems import FLOWQL, NAMES, SETTINGS, systems
from benchmarks.peers.tables import HEAD, details, ratio, summary
from flowql.bench.nexmark import bids
from flowql.bench.oracle import EXPECTED, columns_of
from flowql.bench.results import result
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from tests.runtime.log.records import produce

WORKING = [Sample(1.0, 2.0, 0, 0), Sample(3.0, 5.0, 200, 9), Sample(7.0, 13.0, 1_000, 50), Sample(9.0, 13.5, 1_000, 50)]


def run(case: Case, system: str, samples: list[Sample], wrong: str = "") -> Run:
    return Run(case, system, 1_000, figures(samples, 1_000), 300, wrong)


def test_figures_leave_out_the_start_and_the_wait_for_the_end() -> None:
    found = figures(WORKING, 1_000)
    assert (found.start_s, found.seconds, found.cpu_s) == (3.0, 7.0, 13.0)
    assert found.whole == Rates(142, 76)
    assert found.working == Rates(200, 100)


@pytest.mark.parametrize(
    "samples", [[Sample(4.0, 8.0, 1_000, 9)], [Sample(1.0, 2.0, 900, 1), Sample(4.0, 8.0, 1_000, 9)]]
)
def test_a_short_run_has_figures_with_the_start_only(samples: list[Sample]) -> None:
    assert figures(samples, 1_000).working is None
    assert figures(samples, 1_000).whole == Rates(250, 125)


def test_ratios_compare_like_with_like() -> None:
    """Figures with the start are compared with figures with the start."""
    short = run(Case("qc"), FLOWQL, [Sample(4.0, 20.0, 1_000, 9)])
    assert ratio(short, run(Case("qc"), "ks-eos", WORKING)) == pytest.approx(50 / 76)
    assert ratio(run(Case("qc"), FLOWQL, WORKING), run(Case("qc"), "ks-eos", WORKING)) == 1.0


def test_the_tables_show_losses_and_failures() -> None:
    slow = [Sample(3.0, 5.0, 200, 9), Sample(7.0, 25.0, 1_000, 50)]
    runs = [
        run(Case("qc"), FLOWQL, slow),
        run(Case("qc"), "ks-eos", WORKING),
        run(Case("q5", partitions=32), FLOWQL, WORKING),
        run(Case("q5", partitions=32), "flink-heap", WORKING, wrong="q5: 1 rows missing"),
    ]
    lines = list(details(runs))
    assert len(lines) == 1 + len(runs)
    assert lines[0].split("  ")[0] == HEAD[0]
    assert re.search(r"qc +ks-eos +1,000 +200 +100 +0.40 +13.0 +300 +3.0 +7.0 +right", lines[2])
    assert lines[4].endswith("wrong")
    assert list(summary(runs, [FLOWQL, "ks-eos", "flink-heap"])) == [
        "| query | flowql | ks-eos | flink-heap |",
        "|---|---:|---:|---:|",
        "| qc | 0 | 0 (0.4\u00d7) | failed |",
        "| q5, 32 partitions | 0 | failed | wrong |",
    ]


def test_flowql_runs_as_its_users_run_it() -> None:
    (flowql,) = systems([FLOWQL])
    fields = {"bootstrap": "host:1", "prefix": "n-", "output": "out", "app_id": "a", "partitions": "4", "query": "q5"}
    words = flowql.argv(fields)
    assert words[:4] == [sys.executable, "-m", "flowql", "run"]
    assert words[words.index("-s") + 1] == "q5"
    assert "prefix=n-" in words
    assert words[-1] == "--until-caught-up"


def test_flink_has_every_query_with_the_columns_of_the_oracle() -> None:
    folder = HERE / "flink_sql" / "queries"
    assert {f.stem for f in folder.glob("*.sql")} == {"sources", *EXPECTED}
    for query in EXPECTED:
        sink = (folder / f"{query}.sql").read_text().split(") WITH")[0]
        assert set(re.findall(r"(\w+)`? (?:BIGINT|STRING|DOUBLE)", sink)) == set(columns_of(query))


def test_kafka_streams_has_every_query() -> None:
    java = (HERE / "kafka_streams" / "src" / "main" / "java" / "Peer.java").read_text()
    assert set(re.findall(r'case "(\w+)"', java)) == set(EXPECTED)
    assert re.fullmatch(r"[\d.]+", version_of("kafka_streams", "kafka.version"))
    assert set(SETTINGS) == set(NAMES)


def test_the_page_has_every_query_with_many_keys_and_with_many_partitions() -> None:
    assert {case.query for case in PAGE} == set(EXPECTED)
    assert {case.name for case in PAGE} > {
        "q11, 1,000,000 keys",
        "qc, 1,000,000 keys",
        "q5, 32 partitions",
        "qc, 32 partitions",
    }
    assert len({case.prefix(10) for case in PAGE}) == 4


def test_spread_bidders_leave_the_other_columns_as_they_are() -> None:
    (plain,), (spread,) = bids(20_000), bids(20_000, spread=1_000_000)
    assert len(np.unique(spread.column("bidder"))) > 19_000
    assert spread.drop_columns("bidder") == plain.drop_columns("bidder")


def test_a_result_is_read_from_any_topic_as_stream_or_table(tmp_path: Path) -> None:
    """Flink appends rows that FlowQL updates."""
    rows = ['{"auction":1,"price":5}', '{"auction":1,"price":6}']
    log = EmbeddedLog(tmp_path / "log")
    log.admin().create_topic("peer.out", 1)
    produce(log, "test", (TopicPartition("peer.out", 0), [(0, b"1", row.encode()) for row in rows]))
    counts = [result(log, "q2", "peer.out", table=table)().read_all().num_rows for table in (False, True)]
    log.close()
    assert counts == [2, 1]
