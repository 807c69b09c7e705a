"""One Spark for all tests of a run: starting one takes seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from flowql.runtime.spark.session import close_session, open_session
from flowql.runtime.spark.settings import SparkSettings
from tests.spark_here import skip_without_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tests that open a session of their own beside `spark` must ask for this master: a process has one.
# Java compiles little code of tests more than once, and collects their garbage in one thread: a third of the processor time.
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m -XX:+UseSerialGC"}
# Exact, so that internal stores can be asked; `test_native_streams.py` and the verbs of the program take the default.
TEST_SETTINGS = SparkSettings(master="local[2]", conf=QUICK, shuffle_partitions=2, streams="exact")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    skip_without_spark()
    session = open_session(TEST_SETTINGS, "tests", tmp_path_factory.mktemp("spark"))
    yield session
    close_session(session)


@pytest.fixture(scope="module", autouse=True)
def _the_common_session_stays_active() -> Iterator[None]:
    """The modules that come next look up `flowql_log` in the active session. Others are made active by `active`, which takes it back."""
    yield
    if "pyspark" not in sys.modules:
        return
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    common = SparkSession._instantiatedSession
    assert active is None or common is None or active is common, "this module leaves another session active"
    if active is not None and common is not None:
        assert (
            common._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession().get().equals(common._jsparkSession)
        )
