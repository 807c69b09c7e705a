"""A sample of the corpus on Spark. Skipped where the corpus, PySpark or Java is not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from flowql.runtime.spark.session import close_session, open_session
from tests.conformance.__main__ import load, sample
from tests.conformance.on_spark import SHARED, TIMEOUT_S, SparkCaseEngine
from tests.conformance.runner import run_case
from tests.conformance.test_corpus import corpus, passing
from tests.spark_here import skip_without_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES, SEED = 20, 20130101
# Their outcome depends on the order in which records of several topics arrive. A bounded run has all of them at once and merges
# them by time, so it ends as the runtime does when it catches up, and not as one record after the other would.
ORDER_OF_ARRIVAL = {
    "joins::left join - with both join column in projection",
    "joins::left join - with left join column in projection",
    "joins::stream stream left join with out of order and custom grace period [JSON]",
    "joins::stream stream right join with out of order and custom grace period [JSON]",
    "joins::stream stream full outer join with out of order and custom grace period [JSON]",
    "joins::stream-stream value-to-key - key format mismatch",
    "multi-joins::stream-table-stream - left-inner",
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Beside the session of other tests on the same Spark, with a configuration of its own."""
    skip_without_spark()
    session = open_session(SHARED, "conformance", tmp_path_factory.mktemp("spark"))
    yield session
    close_session(session)


@pytest.mark.spark
@pytest.mark.turns("files")
def test_a_sample_ends_on_spark_as_the_corpus_says(spark: SparkSession) -> None:
    folder = corpus()
    known = passing() - ORDER_OF_ARRIVAL
    # Workers of a shared Spark do not know functions that only the corpus needs.
    cases = [c for c in load(folder, "core") if c["id"] in known and "error" not in c and not _own_functions(c)]
    print(f"{CASES} cases of {len(cases)}, seed {SEED}")
    results = [run_case(c, world=SparkCaseEngine(spark=spark), timeout_s=TIMEOUT_S) for c in sample(cases, CASES, SEED)]
    assert {r.id: r.reason for r in results if not r.passed} == {}


def _own_functions(case: dict[str, object]) -> bool:
    return bool(case.get("needs_test_functions"))
