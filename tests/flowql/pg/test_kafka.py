"""A target whose log is Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.flowql.pg.conftest import SQL, Shop, started
from tests.flowql.pg.wire import tags

pytestmark = [pytest.mark.kafka, pytest.mark.turns("servers")]


@pytest.fixture
def on_kafka(tmp_path_factory: pytest.TempPathFactory, kafka: str) -> Iterator[Shop]:
    app = f"pg{uuid.uuid4().hex[:8]}"
    pg = f"{{{{port: {{port}}}}}}, log: kafka, kafka: {{{{bootstrap: '{kafka}', app_id: {app}}}}}, prefix: {app}_"
    yield from started(tmp_path_factory.mktemp("kafka"), pg, SQL, "")


def test_rows_are_written_read_and_subscribed(on_kafka: Shop) -> None:
    with on_kafka.wire() as w, on_kafka.wire() as other:
        assert tags(w.ask("INSERT INTO notes VALUES (1, 'a'), (2, 'b')")) == ["INSERT 0 2"]
        assert w.rows("SELECT * FROM notes ORDER BY id") == [("1", "a"), ("2", "b")]
        w.ask("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE notes")
        assert sorted(r[1:] for r in w.rows("FETCH ALL c WITH (TIMEOUT = '30s')")) == [("1", "1", "a"), ("1", "2", "b")]
        other.ask("UPDATE notes SET note = 'c' WHERE id = 1")
        assert other.rows("SELECT note FROM notes WHERE id = 1") == [("c",)]
        assert [r[1:] for r in w.rows("FETCH ALL c WITH (TIMEOUT = '30s')")] == [("-1", "1", "a"), ("1", "1", "c")]
        w.ask("COMMIT")
        other.ask("INSERT INTO orders VALUES (1, 'ada', 2.5)")
        while not (found := other.rows("SELECT * FROM spent")):
            pass
        assert found == [("ada", "1", "2.50")]
        assert [r[0] for r in other.rows("SELECT relname FROM pg_class WHERE relname = 'spent'")] == ["spent"]
