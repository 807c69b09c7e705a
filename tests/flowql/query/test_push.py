"""Push queries over a running engine: what they say, against what the engine answers at rest and DuckDB over all rows."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import DialectName, Session
from flowql.compiler.plan.expr import Call, walk
from flowql.compiler.plan.logical import Filter, walk_nodes
from flowql.query import push
from flowql.query.change import Change
from flowql.query.errors import QueryError
from flowql.query.push import Replaced, Start, Subscription, compile_push_query
from flowql.query.tail import Tail
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import TopicPartition
from tests.flowql.query.harness import APPLICATION, QueryHarness, plan_of

STANDARD: DialectName = "standard"
KSQL: DialectName = "ksql"

WAIT_S = 60.0
SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE T (K STRING PRIMARY KEY, V INT) WITH (KAFKA_TOPIC = 't', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE TOTALS AS SELECT K, COUNT(*) AS N, SUM(V) AS TOTAL FROM S GROUP BY K;
CREATE TABLE LARGE AS SELECT K, V FROM T WHERE V >= 50;
CREATE TABLE HOURLY AS SELECT K, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY K;
"""


@pytest.fixture
def world() -> QueryHarness:
    return QueryHarness(SQL)


class Unclosed:
    """The log of the world, which outlives those who read it."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def close(self) -> None:
        pass


@contextmanager
def listening(
    world: QueryHarness, sql: str, start: Start = "earliest", offsets: Mapping[TopicPartition, int] | None = None
) -> Iterator[Subscription]:
    topics = {name: info.partitions for name, info in world.log.topics().items()}
    query = compile_push_query(sql, world.instance.plan, APPLICATION, topics)
    with closing(Subscription(query, Unclosed(world.log), start, offsets)) as subscription:
        yield subscription


def taken(subscription: Subscription) -> list[Change]:
    """All that comes of what is there now."""
    found: list[Change] = []
    limit = time.monotonic() + WAIT_S
    quiet = 0
    while quiet < 3:  # what is committed after a look at the results is there at the next
        assert time.monotonic() < limit
        more = subscription.poll()
        found += more
        quiet = quiet + 1 if subscription.ready and subscription.idle() and not more else 0
        time.sleep(0.005)
    return found


def rows(changes: Sequence[Change]) -> list[dict[str, Any]]:
    return [dict(c.row) for c in changes]


def folded(changes: Sequence[Change], *keys: str) -> list[dict[str, Any]]:
    """The table that changes lead to."""
    table: dict[tuple[Any, ...], dict[str, Any]] = {}
    for c in changes:
        key = tuple(c.row[k] for k in keys)
        if c.op == "delete":
            del table[key]
        else:
            table[key] = dict(c.row)
    return sorted(table.values(), key=str)


def feed(world: QueryHarness, seed: int, count: int = 200) -> None:
    chance = random.Random(seed)
    for _ in range(4):
        times = sorted(chance.randrange(10_000_000) for _ in range(count // 4))
        world.send("s", [(chance.choice("abcde"), {"V": chance.randrange(100)}, t) for t in times])
        values = [(chance.choice("xyz"), chance.choice([None, {"V": chance.randrange(100)}]), t) for t in times]
        world.send("t", values)
    world.driver.run_until_caught_up()


@pytest.mark.parametrize("seed", range(3))
def test_what_comes_is_what_is_there(world: QueryHarness, seed: int) -> None:
    """Half of it before the push query starts and half of it after, each against an interactive query at rest."""
    feed(world, seed)
    with (
        listening(world, "SELECT * FROM S EMIT CHANGES") as stream,
        listening(world, "SELECT * FROM TOTALS EMIT CHANGES") as totals,
        listening(world, "SELECT * FROM LARGE EMIT CHANGES") as large,
        listening(world, "SELECT * FROM HOURLY EMIT CHANGES") as hourly,
        listening(world, "SELECT K, V FROM T WHERE V < 50 EMIT CHANGES") as small,
        listening(world, "SELECT V, COUNT(*) AS N FROM S GROUP BY V EMIT CHANGES") as counts,
    ):
        asked = [stream, totals, large, hourly, small, counts]
        before = [taken(s) for s in asked]
        feed(world, seed + 1000)
        changes = [b + taken(s) for s, b in zip(asked, before, strict=True)]
    come = Counter(tuple(r.values()) for r in rows(changes[0]))
    assert come == Counter((r["K"], r["V"]) for r in world.ask("SELECT K, V FROM s"))

    def at_rest(sql: str) -> list[dict[str, Any]]:
        return sorted(world.ask(sql), key=str)

    assert folded(changes[1], "K") == at_rest("SELECT K, N, TOTAL FROM totals")
    assert folded(changes[2], "K") == at_rest("SELECT K, V FROM large")
    assert folded(changes[3], "K", "WINDOWSTART") == at_rest("SELECT K, WINDOWSTART, WINDOWEND, N FROM hourly")
    assert folded(changes[4], "K") == at_rest("SELECT K, V FROM t WHERE V < 50")
    assert folded(changes[5], "V") == at_rest("SELECT V, COUNT(*) AS N FROM s GROUP BY V")


def test_from_now_on(world: QueryHarness) -> None:
    world.feed("s", [("a", {"V": 1}, 1)])
    world.feed("t", [("x", {"V": 70}, 1)])
    with (
        listening(world, "SELECT * FROM S EMIT CHANGES", "latest") as stream,
        listening(world, "SELECT * FROM TOTALS EMIT CHANGES", "latest") as totals,
        listening(world, "SELECT K, V FROM T WHERE V > 60 EMIT CHANGES", "latest") as large,
    ):
        assert [taken(s) for s in (stream, totals, large)] == [[], [], []]
        world.feed("s", [("a", {"V": 5}, 2)])
        world.feed("t", [("x", {"V": 7}, 2), ("y", {"V": 99}, 3)])
        assert taken(stream) == [Change("insert", 2, {"K": "a", "V": 5})]
        assert taken(totals) == [Change("put", 2, {"K": "a", "N": 2, "TOTAL": 6})]
        # The row that no longer fits is known only because the table was read from its beginning.
        assert sorted(taken(large), key=str) == [
            Change("delete", 2, {"K": "x"}),
            Change("put", 3, {"K": "y", "V": 99}),
        ]


def test_from_now_on_loses_no_change_that_comes_while_existing_rows_are_read(world: QueryHarness) -> None:
    world.feed("s", [(k, {"V": 1}, 1) for k in "abcdef"])
    world.feed("t", [(k, {"V": 70}, 1) for k in "abcdef"])
    with (
        listening(world, "SELECT * FROM TOTALS EMIT CHANGES", "latest") as totals,
        listening(world, "SELECT K, V FROM T WHERE V > 60 EMIT CHANGES", "latest") as large,
        listening(
            world, "SELECT T.K AS K, T.V AS V, N FROM T JOIN TOTALS ON T.K = TOTALS.K EMIT CHANGES", "latest"
        ) as joined,
    ):
        subscriptions = (totals, large, joined)
        for n in range(2):  # before the first look, and between two
            world.feed("s", [("a", {"V": 5 + n}, 2)])
            world.feed("t", [("b", {"V": 7}, 2), ("c", {"V": 90 + n}, 3)])
            found = [[] if n else s.poll() for s in subscriptions]
            assert found == [[], [], []]
        assert folded(taken(totals), "K") == [{"K": "a", "N": 3, "TOTAL": 12}]
        changes = taken(large)
        assert [c for c in changes if c.op == "delete"] == [Change("delete", 2, {"K": "b"})]
        assert [c.row["V"] for c in changes if c.op == "put"] == [90, 91]
        assert {tuple(r.values()) for r in folded(taken(joined), "K")} == {("a", 70, 3), ("b", 7, 1), ("c", 91, 1)}


def test_a_table_can_be_rebuilt_while_its_existing_rows_are_read() -> None:
    big = "CREATE TABLE BIG AS SELECT K, V FROM T WHERE V > {over};\n"
    world = QueryHarness(SQL + big.format(over=5))
    world.feed("t", [("a", {"V": 9}, 1), ("b", {"V": 4}, 1)])
    with listening(world, "SELECT * FROM BIG EMIT CHANGES", "latest") as subscription:
        world.instance.deploy(plan_of(SQL + big.format(over=2)))
        world.driver.run_until_caught_up()
        assert taken(subscription)[-1] == Change("put", 1, {"K": "b", "V": 4})


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT V FROM S EMIT CHANGES", {"V": 5}),
        ("SELECT K FROM S EMIT CHANGES", {"K": "a"}),
        ("SELECT N FROM TOTALS EMIT CHANGES", {"N": 1}),
        ("SELECT COUNT(*) AS N FROM S GROUP BY K, V EMIT CHANGES", {"N": 1}),
        ("SELECT S.V, TOTALS.N FROM S LEFT JOIN TOTALS ON S.K = TOTALS.K EMIT CHANGES", {"V": 5, "N": 1}),
        ("SELECT V AS K FROM S PARTITION BY K EMIT CHANGES", {"K": 5}),
    ],
)
def test_the_key_need_not_be_selected(world: QueryHarness, sql: str, expected: dict[str, Any]) -> None:
    world.feed("t", [("a", {"V": 1}, 0)])
    world.feed("s", [("a", {"V": 5}, 1)])
    with listening(world, sql) as subscription:
        assert rows(taken(subscription)) == [expected]


@pytest.mark.parametrize("is_resumed", [True, False])
def test_changes_of_a_backlog_are_parts_where_a_subscription_is_resumed(
    world: QueryHarness, monkeypatch: pytest.MonkeyPatch, is_resumed: bool
) -> None:
    """It has told whole transactions before. Existing rows of a new one are in no such order."""
    monkeypatch.setattr(push, "GROUP_MAX", 10)
    for n in range(20):
        world.send("s", [(k, {"V": n}, n) for k in "abcdef" * 1_000])
    offsets = {TopicPartition("s", 0): 6, TopicPartition("s", 1): 6} if is_resumed else None
    with listening(world, "SELECT * FROM S EMIT CHANGES", offsets=offsets) as subscription:
        parts = [(len(subscription.poll()), subscription.is_whole, subscription.is_part) for _ in range(1_000)]
    told = [(is_whole, is_part) for count, is_whole, is_part in parts if count]
    assert (False, is_resumed) in told
    assert set(told) <= {(False, is_resumed), (True, False)}


def test_a_subscription_whose_first_tick_does_not_come_closes_its_log(world: QueryHarness) -> None:
    """It looks whether it is stopped while it waits for the tick."""
    closed, waits = list[bool](), list[float]()
    log = Unclosed(world.log)
    log.close = lambda: closed.append(True)  # type: ignore[method-assign]
    query = compile_push_query("SELECT * FROM S EMIT CHANGES", world.instance.plan, APPLICATION, {"s": 2})
    with pytest.raises(QueryError, match="have finished no tick together yet"):
        Subscription(query, log, "earliest", None, lambda *_: None, waits.append, lambda: len(waits) == 3)
    assert (closed, len(waits)) == ([True], 3)


def test_dead_letters_can_be_listened_to(world: QueryHarness) -> None:
    with listening(world, "SELECT TOPIC, CODE FROM DEAD_LETTERS EMIT CHANGES", "latest") as subscription:
        assert taken(subscription) == []
        world.send("s", [("a", {"V": "no number"}, 1)])
        world.driver.run_until_caught_up()
        assert {c.row["TOPIC"] for c in taken(subscription)} == {"s"}


def test_it_leaves_no_trace_in_the_log(world: QueryHarness) -> None:
    world.feed("s", [("a", {"V": 5}, 1)])
    commits, topics = world.instance.metrics.commits, dict(world.log.topics())
    with listening(world, "SELECT V, COUNT(*) AS N FROM S GROUP BY V EMIT CHANGES") as subscription:
        assert taken(subscription)
        own = subscription._log
        for p in range(own.topics()["this query"].partitions):
            tp = TopicPartition("this query", p)
            assert own.begin_offset(tp) == own.end_offset(tp), "rows that were given are forgotten"
            assert len(own._partition(tp).batches) <= 1
    assert (world.instance.metrics.commits, world.log.topics()) == (commits, topics)
    assert world.log.committed("push") == {}


def test_a_source_that_goes_away_ends_it_with_the_reason(world: QueryHarness) -> None:
    world.feed("t", [("a", {"V": 5}, 1)])
    with listening(world, "SELECT * FROM T EMIT CHANGES") as subscription:
        assert taken(subscription)
        world.log.delete_topic("t")
        with pytest.raises(RuntimeFailure, match=r"\bt\b"):
            taken(subscription)


@pytest.mark.parametrize("partitions", [6, 1])
def test_other_partitions_end_it_with_the_reason(world: QueryHarness, partitions: int) -> None:
    """Their records come once more, in other partitions."""
    world.feed("t", [(k, {"V": 7}, 0) for k in "abcdef"])
    with listening(world, "SELECT K, V FROM T EMIT CHANGES") as push:
        assert len(taken(push)) == 6
        tail = Tail(world.instance.plan.source("T"), world.log)
        assert sum(len(changes) for _, changes in tail.poll()) == 6
        old = "(KAFKA_TOPIC = 't', PARTITIONS = 2"
        world.instance.deploy(plan_of(SQL.replace(old, old.replace("2", str(partitions)))))
        with pytest.raises(RuntimeFailure, match=f"topic t has {partitions} partitions now, not 2"):
            taken(push)
    again = [change.row["K"] for _, changes in tail.poll() for change in changes]
    assert sorted(again) == list("abcdef"), "who follows the topic begins again"


def test_a_stream_that_is_rebuilt_ends_it_with_the_reason() -> None:
    """Its new records would be counted beside the old ones."""
    big = "CREATE STREAM BIG AS SELECT K, V FROM S WHERE V > {over};\n"
    world = QueryHarness(SQL + big.format(over=5))
    world.feed("s", [("a", {"V": v}, v) for v in range(10)])
    with listening(world, "SELECT K, COUNT(*) AS N FROM BIG GROUP BY K EMIT CHANGES") as subscription:
        assert taken(subscription)[-1].row["N"] == 4
        world.instance.deploy(plan_of(SQL + big.format(over=2)))
        world.driver.run_until_caught_up()
        with pytest.raises(RuntimeFailure, match="the records of BIG were replaced"):
            taken(subscription)


def test_a_rebuild_between_two_looks_at_a_stream_is_found_at_the_next() -> None:
    """The beginnings of old records and the ends of new ones hid it: new rows followed old ones."""
    copied = "CREATE STREAM COPIED AS SELECT K, V, {version} AS VERSION FROM S;\n"
    world = QueryHarness(SQL + copied.format(version=0))
    world.feed("s", [("a", {"V": v}, v) for v in range(10)])
    with listening(world, "SELECT K, V FROM COPIED EMIT CHANGES") as subscription:
        assert len(taken(subscription)) == 10
        world.feed("s", [("a", {"V": 10}, 10)])

        class RebuiltAfterwards(Unclosed):
            def begin_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
                found: dict[TopicPartition, int] = self._log.begin_offsets(tps)
                subscription.admin = self._log
                world.instance.deploy(plan_of(SQL + copied.format(version=1)))
                world.driver.run_until_caught_up()
                return found

        subscription.admin = RebuiltAfterwards(subscription.admin)  # type: ignore[assignment]
        with pytest.raises(Replaced):
            taken(subscription)


@pytest.mark.parametrize(
    ("sql", "code", "column"),
    [
        ("SELECT NOPE FROM S EMIT CHANGES", "FQ2002", 8),
        ("SELECT * FROM NOPE EMIT CHANGES", "FQ2001", 15),
        ("SELECT * FORM S", "FQ1001", 10),
        ("SELECT K, SUM(K) AS X FROM S GROUP BY K EMIT CHANGES", "FQ2005", 11),
    ],
)
def test_mistakes_have_a_place(world: QueryHarness, sql: str, code: str, column: int) -> None:
    with pytest.raises(CompileError) as found:
        compile_push_query(sql, world.instance.plan, APPLICATION, {})
    (mistake,) = found.value.diagnostics
    assert (mistake.code, mistake.span.line, mistake.span.column) == (code, 1, column)


def test_a_limit_is_for_who_reads(world: QueryHarness) -> None:
    assert compile_push_query("SELECT * FROM S EMIT CHANGES LIMIT 3", world.instance.plan, APPLICATION, {}).limit == 3


def test_expressions_mean_what_the_dialect_says() -> None:
    """They were ksqlDB's in either dialect: `NOT (n = 2)` was true where n is NULL."""
    source = SourceText(
        "", "CREATE STREAM s (k INT KEY, n INT) WITH (kafka_topic = 's', value_format = 'JSON', partitions = 1)"
    )
    for dialect, named in ((STANDARD, "sql_eq"), (KSQL, "eq")):
        session = Session(dialect=dialect)
        session.execute(source)
        (name,) = (s.name for s in session.plan.sources)
        query = compile_push_query(
            f"SELECT * FROM {name} WHERE NOT (n = 2) EMIT CHANGES", session.plan, APPLICATION, {}, dialect
        )
        (running,) = query.plan.queries
        (condition,) = (n.spec.predicate for n in walk_nodes(running.logical) if isinstance(n.spec, Filter))
        assert [e.name for e in walk(condition) if isinstance(e, Call)] == ["not", named]


@pytest.mark.parametrize(
    ("query", "columns", "keys"),
    [
        ("SELECT * FROM t", ("id", "g"), {"id"}),
        ("SELECT g AS h, COUNT(*) AS n FROM t GROUP BY g", ("h", "n"), {"h"}),
        ("SELECT COUNT(*) AS n FROM t GROUP BY g", ("n",), set()),
        ("SELECT g, id, id AS again FROM t WHERE g > 1", ("g", "id", "again"), {"id"}),
        ("SELECT v, k FROM s", ("v", "k"), set()),
    ],
)
def test_a_push_query_of_standard_sql_is_a_view(query: str, columns: tuple[str, ...], keys: set[str]) -> None:
    """Of a deleted row its hidden identity is known, which is shown by the columns that have the same values."""
    session = Session(dialect=STANDARD)
    session.execute(
        SourceText(
            "",
            "CREATE TABLE t (id INT PRIMARY KEY, g INT);"
            "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic = 's', value_format = 'json', partitions = 1);",
        )
    )
    found = compile_push_query(f"{query} EMIT CHANGES LIMIT 2", session.plan, APPLICATION, {}, STANDARD)
    assert (found.columns, set(found.keys.values()), found.limit) == (columns, keys, 2)
