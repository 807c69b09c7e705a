"""Subscriptions to several views, of which a query does not go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from flowql.query.push import Subscription, compile_push_query
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.ticks.whole_states import STALE_MS
from tests.flowql.query.test_push import Unclosed
from tests.ticks.bank import Bank
from tests.ticks.test_ticks import go_on

BOTH = "SELECT c.acc, c.v AS given, {other} FROM credits c JOIN {view} o ON c.acc = o.acc EMIT CHANGES"


@contextmanager
def subscribed(bank: Bank, sql: str) -> Iterator[Subscription]:
    topics = {name: info.partitions for name, info in bank.log.topics().items()}
    query = compile_push_query(sql, bank.instance.plan, bank.config.application_id, topics, "standard")
    log, ends = Unclosed(bank.log), bank.instance.ticks.whole_ends
    with closing(Subscription(query, log, "earliest", whole_ends=ends)) as subscription:
        yield subscription


def polled(subscription: Subscription, rounds: int = 100) -> list[dict[str, object]]:
    return [dict(c.row) for _ in range(rounds) for c in subscription.poll()]


def stop(bank: Bank, query: str) -> None:
    bank.instance.query_states.stop(query, RuntimeFailure("its topic is gone"))


@pytest.mark.parametrize("view", ["debits", "balance"])
@pytest.mark.parametrize("is_stopped", [False, True], ids=["paused", "stopped"])
def test_changes_of_a_view_come_while_another_one_does_not_go_on(view: str, is_stopped: bool) -> None:
    bank = Bank(4)
    sql = BOTH.format(view=view, other="o.v AS taken" if view == "debits" else "o.bal AS bal")
    go_on(bank, 500)
    with subscribed(bank, sql) as subscription:
        assert polled(subscription)
        if is_stopped:
            stop(bank, "CTAS_debits")
        else:
            bank.pause("CTAS_debits")
        go_on(bank, 200)
        bank.clock.advance(STALE_MS + 1)
        go_on(bank, 200)
        polled(subscription)
        go_on(bank, 200)
        assert polled(subscription), "changes of credits"
        with subscribed(bank, sql) as later:
            assert polled(later), "a new one begins"
        if not is_stopped:
            bank.pause()
            bank.driver.run_until_caught_up()
            assert all(r["given"] == r.get("taken", r["given"]) for r in polled(subscription)[-5:])
    bank.instance.close()
