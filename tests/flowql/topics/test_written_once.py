"""If several instances get requests with one idempotency key at the same time, one of them writes the rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.errors import CommandError
from flowql.runtime.app.written_keys import WrittenKeys, WrittenRequest
from flowql.runtime.log.base import EARLIEST, Log, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.topics.producing import Once, TopicWriter

KEY, OTHER = Once(b"k" * 16, "digest"), Once(b"o" * 16, "digest")
ROWS = [{"K": "a", "V": 1}, {"K": "b", "V": 2}]


def at_the_same_time(open_log: Callable[[], Log], topic: str, app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that the first writer has looked for the key, and before it writes, the second one gets the request, or another one."""
    text = (
        f"CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = '{topic}', PARTITIONS = 1, VALUE_FORMAT = 'JSON');"
    )
    plan = compile_project([SourceText("s.sql", text)]).plan
    first, second = TopicWriter(open_log, f"{app}-first", app), TopicWriter(open_log, f"{app}-second", app)
    find = WrittenKeys.find
    meanwhile: list[Once] = []

    def finding(self: WrittenKeys, key: bytes, now_ms: int) -> WrittenRequest | None:
        found = find(self, key, now_ms)
        if self is first._keys and meanwhile:
            assert second.produce("S", plan, ROWS, None, 1, meanwhile.pop()).rows == 2
        return found

    monkeypatch.setattr(WrittenKeys, "find", finding)
    with closing(first), closing(second), closing(open_log()) as log:

        def rows() -> int:
            reader, count = log.reader(TopicPartition(topic, 0), EARLIEST), 0
            while (batch := reader.read(1_000, 1 << 20)) is not None:
                count += batch.rows
            return count

        meanwhile.append(KEY)
        assert first.produce("S", plan, ROWS, None, 1, KEY).rows == 2
        assert rows() == 2, "one of them"
        meanwhile.append(OTHER)
        assert first.produce("S", plan, ROWS, None, 1, Once(b"n" * 16, "digest")).rows == 2
        assert rows() == 6, "both, as they are different requests"
        again = first.produce("S", plan, ROWS, None, 1, KEY), second.produce("S", plan, ROWS, None, 1, OTHER)
        assert [(w.rows, w.ends[TopicPartition(topic, 0)] >= 6) for w in again] == [(2, True)] * 2, (
            "a tick that shows them"
        )
        assert rows() == 6
        with pytest.raises(CommandError) as refused:
            second.produce("S", plan, ROWS, None, 1, Once(KEY.key, "of another body"))
        assert refused.value.code == "FQ5316"


def test_on_the_embedded_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_the_same_time(lambda: EmbeddedLog(tmp_path), "s", "app", monkeypatch)


@pytest.mark.turns("kafka")
@pytest.mark.kafka
def test_on_kafka(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = f"app-{tmp_path.name}"
    at_the_same_time(lambda: KafkaLog(Connection.to(KafkaSettings(kafka)), app), f"{app}-s", app, monkeypatch)
