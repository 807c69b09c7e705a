"""Where a log is, as Spark's processes are told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowql.runtime.errors import LogError
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.spark.log_address import KafkaAddress, absolute, address_of_texts, shared_log, texts_of
from flowql.runtime.spark.log_source import ReadOptions
from tests.runtime.spark.logs import open_log

SECRET = {"sasl.mechanism": "PLAIN", "sasl.password": "hunter2"}
KAFKA = KafkaAddress(KafkaSettings("a:1,b:2", SECRET, 3), "shop")
# spark.redaction.regex, as Spark has it without configuration
REDACTED = re.compile(r"(?i)secret|password|token|access[.]?key")


def test_an_address_comes_back_from_options(tmp_path: Path) -> None:
    for address in (KAFKA, KafkaAddress(KafkaSettings("a:1"), "x"), str(tmp_path)):
        assert address_of_texts(texts_of(address)) == address
    assert address_of_texts({"topics": "t"}) is None
    options = ReadOptions(KAFKA, ("t",), max_rows_per_batch=7)
    assert ReadOptions.of(options.texts()) == ReadOptions(KAFKA, ("t",), {}, {}, max_rows_per_batch=7)


def test_what_spark_shows_of_options_holds_no_password() -> None:
    said = texts_of(KAFKA)
    assert [name for name, text in said.items() if "hunter2" in text and not REDACTED.search(name)] == []
    assert any("hunter2" in text for text in said.values())
    assert "hunter2" not in repr(KAFKA)


def test_a_log_is_opened_once_and_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_log(tmp_path, "t").close()
    monkeypatch.chdir(tmp_path)
    assert shared_log(tmp_path / "log") is shared_log("log")
    assert absolute(Path("log")) == str(tmp_path / "log")
    with pytest.raises(LogError, match="there is no log in"):
        shared_log(tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()
    assert shared_log(KAFKA) is shared_log(KAFKA)
    assert shared_log(KAFKA) is not shared_log(KafkaAddress(KAFKA.settings, "another"))
