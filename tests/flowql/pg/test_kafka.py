"""A target whose log is Kafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from flowql.kafka.broker import Broker
from flowql.runtime.log.kafka import producer
from flowql.runtime.log.kafka.producer import ProducerClient
from tests.flowql.pg.conftest import SQL, Shop, started
from tests.flowql.pg.inside import served
from tests.flowql.pg.test_transactions import VIEWS
from tests.flowql.pg.wire import Failed, Wire, fields_of, rows_of, tags
from tests.kafka_broker import QUICK

pytestmark = [pytest.mark.kafka, pytest.mark.turns("servers")]
WAIT_S = 120.0


def looked_at(w: Wire, other: Wire, times: int) -> int:
    """How many states transactions show, in which rows are written between two queries."""
    seen, number, limit = set[str | None](), 1, time.monotonic() + WAIT_S
    while len(seen) < times:
        assert time.monotonic() < limit, seen
        w.ask("BEGIN")
        (count,) = w.rows("SELECT c FROM counted")
        other.ask(f"INSERT INTO moves VALUES ({number}, 1)")
        time.sleep(number % 4 * 0.2)
        assert w.rows("SELECT c FROM again") == [count], "one tick"
        w.ask("COMMIT")
        seen, number = {*seen, count[0]}, number + 1
    return len(seen)


@pytest.fixture(scope="module")
def on_kafka(tmp_path_factory: pytest.TempPathFactory, kafka_broker: Broker) -> Iterator[Shop]:
    app, bootstrap = f"pg{uuid.uuid4().hex[:8]}", kafka_broker.start(java_options=QUICK).bootstrap
    pg = f"{{{{port: {{port}}}}}}, log: kafka, kafka: {{{{bootstrap: '{bootstrap}', app_id: {app}}}}}, prefix: {app}_"
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


def test_views_of_a_transaction_fit_together_in_a_group(
    tmp_path_factory: pytest.TempPathFactory, kafka_broker: Broker
) -> None:
    """Each query of a transaction was answered by the instance as of its newest tick."""
    app, bootstrap = f"pg{uuid.uuid4().hex[:8]}", kafka_broker.start(java_options=QUICK).bootstrap
    kafka = f"{{{{bootstrap: '{bootstrap}', app_id: {app}, instances: many}}}}"
    pg = f"{{{{port: {{port}}}}}}, log: kafka, kafka: {kafka}, prefix: {app}_"
    for shop in started(tmp_path_factory.mktemp("group"), pg, VIEWS, "INSERT INTO moves VALUES (0, 1)"):
        with shop.wire() as w, shop.wire() as other:
            assert looked_at(w, other, 6) > 2


def test_transactions(on_kafka: Shop) -> None:
    rows = "SELECT * FROM notes WHERE id >= 100 ORDER BY id"
    with on_kafka.wire() as w, on_kafka.wire() as other:
        w.ask("BEGIN")
        assert rows_of(w.ask("INSERT INTO notes VALUES (100, 'a'), (101, 'b'), (102, 'c') RETURNING id")) == [("100",), ("101",), ("102",)]  # fmt: skip
        assert rows_of(w.ask("UPDATE notes SET note = note || '!' WHERE id = 100 RETURNING note")) == [("a!",)]
        assert tags(w.ask("DELETE FROM notes WHERE id = 102")) == ["DELETE 1"]
        assert other.rows(rows) == []
        assert tags(w.ask("COMMIT")) == ["COMMIT"]
        assert other.rows(rows) == [("100", "a!"), ("101", "b")]

        w.ask("BEGIN; UPDATE notes SET note = 'lost' WHERE id = 100; SAVEPOINT s; DELETE FROM notes WHERE id = 101")
        assert tags(w.ask("ROLLBACK TO s; ROLLBACK")) == ["ROLLBACK", "ROLLBACK"]
        assert other.rows(rows) == [("100", "a!"), ("101", "b")]

        w.ask("BEGIN; UPDATE notes SET note = 'mine' WHERE id = 101")
        other.ask("DELETE FROM notes WHERE id = 101")
        with pytest.raises(Failed, match="40001"):
            w.rows("COMMIT")
        assert other.rows(rows) == [("100", "a!")]

        w.ask("BEGIN; INSERT INTO notes VALUES (103, 'd')")
        with pytest.raises(Failed, match="0A000"):
            w.rows("INSERT INTO orders VALUES (100, 'ada', 1)")
        w.ask("ROLLBACK")
        assert other.rows(rows) == [("100", "a!")]


def test_a_subscription_is_resumed_with_the_upsert_envelope(on_kafka: Shop) -> None:
    def told(options: str) -> list[tuple[str | None, ...]]:
        w.ask(f"ROLLBACK; BEGIN; DECLARE c CURSOR FOR SUBSCRIBE notes ENVELOPE UPSERT WITH (PROGRESS{options})")
        return w.rows("FETCH ALL c")

    with on_kafka.wire() as w, on_kafka.wire() as other:
        other.ask("INSERT INTO notes VALUES (200, 'a'), (201, 'b')")
        at = told("")[-1][2]
        other.ask("UPDATE notes SET note = 'c' WHERE id = 200")
        other.ask("DELETE FROM notes WHERE id = 201")
        assert sorted(r[3:] for r in told(f", RESUME = '{at}'") if r[1] == "f") == [
            ("delete", "201", None),
            ("upsert", "200", "c"),
        ]
        w.ask("ROLLBACK")
        with pytest.raises(Failed, match=r"0A000.*on Kafka"):
            w.rows(f"SUBSCRIBE notes WITH (RESUME = '{at}')")


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_commit_without_an_answer_is_looked_up(
    on_kafka: Shop, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    usual, calls = ProducerClient.commit_transaction, iter([is_committed])

    def unanswered(self: ProducerClient, *given: Any) -> None:
        if next(calls, False):
            usual(self, *given)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    key = 300 + is_committed
    with served(on_kafka) as port, Wire(port) as w:
        with monkeypatch.context() as patch:
            patch.setattr(ProducerClient, "commit_transaction", unanswered)
            patch.setattr(producer, "COMMIT_S", 0.2)
            told = w.ask(f"BEGIN; INSERT INTO notes VALUES ({key}, 'a'); COMMIT")
        errors = [fields_of(b) for k, b in told if k == b"E"]
        assert [(e["C"], "nothing was written" in e["M"]) for e in errors] == [("40001", True)] * (not is_committed)
        assert tags(w.ask(f"INSERT INTO notes VALUES ({key + 10}, 'b')")) == ["INSERT 0 1"], (
            "the next transaction goes on"
        )
        found = w.rows(f"SELECT id FROM notes WHERE id IN ({key}, {key + 10}) ORDER BY id")
        assert found == [(str(key),)] * is_committed + [(str(key + 10),)]


def test_a_fenced_commit_that_was_written_is_not_repeated(on_kafka: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is lost, another process writes to the table, and the broker then says that this producer is fenced."""
    usual, calls = ProducerClient.commit_transaction, iter([True])

    def fenced(self: ProducerClient, *given: Any) -> None:
        usual(self, *given)
        if next(calls, False):
            assert tags(other.ask("UPDATE notes SET note = note || '+other' WHERE id = 400")) == ["UPDATE 1"]
            raise KafkaException(KafkaError(KafkaError._FENCED, None, True))

    with served(on_kafka) as port, Wire(port) as w, on_kafka.wire() as other:
        w.ask("INSERT INTO notes VALUES (400, 'a')")
        with monkeypatch.context() as patch:
            patch.setattr(ProducerClient, "commit_transaction", fenced)
            assert tags(w.ask("UPDATE notes SET note = note || '+mine' WHERE id = 400")) == ["UPDATE 1"]
        assert w.rows("SELECT note FROM notes WHERE id = 400") == [("a+mine+other",)]
