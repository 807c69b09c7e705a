"""What Hadoop's file systems report, as errors that name the address and what to do. No Spark."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from flowql.runtime.spark import storage
from flowql.runtime.spark.engine.causes import cause_of
from flowql.runtime.spark.errors import ConnectorMissing, SettingRefused, StorageFailed
from flowql.runtime.spark.storage import reach, storage_failure, told_of_storage

LAKE = "s3a://lake/orders"
S3 = "software.amazon.awssdk.services.s3.model.S3Exception"
FORBIDDEN = f"java.nio.file.AccessDeniedException: {LAKE}: getFileStatus: {S3}: Forbidden for AKIASECRET (Service: S3, Status Code: 403)"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (FORBIDDEN, "access is refused (403)"),
        (
            f"org.apache.hadoop.fs.s3a.UnknownStoreException: `{LAKE}': no such bucket (Status Code: 404)",
            "no such bucket",
        ),
        (f"java.net.ConnectException: getFileStatus on {LAKE}: Connection refused", "does not answer"),
        (f"AWSServiceThrottledException: {LAKE}: SlowDown (Service: S3, Status Code: 503)", "does not answer (503)"),
        ("java.net.UnknownHostException: getFileStatus on s3a://lake/orders", "does not answer"),
    ],
)
def test_an_error_names_address_reason_and_remedy_and_no_secret(said: str, reason: str) -> None:
    found = storage_failure(Exception(f"An error occurred while calling o1.load.\n: {said}\n\tat java.lang.Thread.run"))
    assert isinstance(found, StorageFailed)
    assert found.title.startswith(LAKE), found.title
    assert reason in found.title
    assert found.help
    assert "AKIASECRET" not in str(found)
    assert cause_of(found).startswith(f"StorageFailed (FQ4120): {LAKE} cannot be used")


def test_a_client_that_spark_lacks_is_named_with_its_jars() -> None:
    found = storage_failure(
        Exception("ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"), LAKE
    )
    assert isinstance(found, ConnectorMissing)
    assert "hadoop-aws" in found.help


def test_credentials_of_an_address_are_in_no_message() -> None:
    found = storage_failure(Exception(FORBIDDEN), "s3a://AKIA:wJalr+@lake/orders")
    assert found is not None
    assert found.title.startswith("s3a://lake/orders cannot")


def test_other_errors_and_folders_of_this_machine_pass() -> None:
    for said, place in ((FORBIDDEN, "/lake/orders"), ("ArithmeticException: / by zero", LAKE)):
        with pytest.raises(ValueError, match="Exception"), told_of_storage(place):
            raise ValueError(said)


def _session(start_timeout: str | None = None) -> Any:
    return SimpleNamespace(_jsparkSession=None, conf=SimpleNamespace(get=lambda *_: start_timeout))


@pytest.mark.parametrize(("said", "seconds"), [(None, 7), ("90", 90), ("90s", 90), ("2 min", 120), ("1h", 3600)])
def test_a_cluster_that_is_slow_may_take_longer(said: str | None, seconds: float) -> None:
    assert storage.answer_s(_session(said), 7) == seconds


@pytest.mark.parametrize("said", ["", "0s", "soon", "-3s", "1.5min"])
def test_a_time_to_start_that_is_no_duration_is_refused(said: str) -> None:
    with pytest.raises(SettingRefused, match=r"startTimeout is .*, which is not a duration\nhelp: write 90s"):
        storage.answer_s(_session(said), 7)


def test_a_file_system_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first query; the others would wait one after the other, for minutes."""
    asked, end = [], threading.Event()

    def exists(path: object) -> bool:
        asked.append(path)
        return end.wait(10)

    monkeypatch.setattr(storage, "ANSWER_S", 0.05)
    monkeypatch.setattr(storage, "hadoop", lambda spark, path: (SimpleNamespace(exists=exists), path))
    session = _session()
    for name in ("orders", "customers"):
        with pytest.raises(StorageFailed, match=f"s3a://silent/{name} cannot be used: its server does not answer"):
            reach(session, f"s3a://silent/{name}")
    end.set()
    assert asked == ["s3a://silent/orders"]


def test_a_pattern_is_asked_for_by_the_folder_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(storage, "hadoop", lambda spark, path: (SimpleNamespace(exists=asked.append), path))
    session = _session()
    reach(session, "s3a://lake/day=*/x.parquet", "/orders", "file:///orders", "")
    assert asked == ["s3a://lake/"]
