"""What an answer says that combines results which follow their inputs separately."""

from __future__ import annotations

from contextlib import closing

import pytest

from flowql.api.result import Result
from flowql.cli.query import say_apart
from flowql.server.on_runtime import RuntimeEngine
from flowql.server.service import Service
from tests.flowql.query.harness import QueryHarness

SQL = """
CREATE STREAM MOVES (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 'moves', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM OTHERS (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 'others', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE CREDITS AS SELECT K, SUM(V) AS N FROM MOVES WHERE V > 0 GROUP BY K;
CREATE TABLE DEBITS AS SELECT K, SUM(V) AS N FROM MOVES WHERE V < 0 GROUP BY K;
CREATE TABLE BY_OTHERS AS SELECT K, COUNT(*) AS N FROM OTHERS GROUP BY K;
CREATE TABLE LARGE AS SELECT K, N FROM CREDITS WHERE N > 10;
CREATE TABLE BALANCES AS SELECT C.K AS K, C.N + D.N AS N FROM CREDITS C JOIN DEBITS D ON C.K = D.K;
"""
SEPARATELY = "follow their inputs separately; an answer over them may combine states of different moments"
ALL = ("CTAS_CREDITS", "CTAS_DEBITS", "CTAS_BY_OTHERS", "CTAS_LARGE", "CTAS_BALANCES")
MOVES = [(f"k{i % 4}", {"V": 20 if i % 2 else -3}, 0) for i in range(20)]


def said(world: QueryHarness, relations: str) -> str:
    """The note of an answer that reads these relations."""
    joined = " CROSS JOIN ".join(f"(SELECT count(*) FROM {name})" for name in relations.split())
    answer = Service(RuntimeEngine(world.instance)).query(f"SELECT * FROM {joined}").table()
    return Result(answer).note


@pytest.fixture(scope="module")
def behind() -> QueryHarness:
    """Views that have not read all there is."""
    world = QueryHarness(SQL)
    world.feed("moves", MOVES)
    for query in ALL:
        world.instance.manager.hold(query)
    world.send("moves", MOVES)
    return world


@pytest.mark.parametrize(
    ("relations", "note"),
    [
        ("credits", ""),
        ("large", ""),  # one view over one view: as it was a moment ago
        ("credits debits", ""),  # the same topic: they are stopped at the same offsets, or the answer gives these
        ("moves others", ""),  # topics, to their ends
        ("moves by_others", ""),
        ("credits by_others", f"BY_OTHERS and CREDITS {SEPARATELY}"),
        ("credits large", f"CREDITS and LARGE {SEPARATELY}"),
        ("moves credits", f"MOVES and CREDITS {SEPARATELY}"),
        ("balances", f"BALANCES reads CREDITS and DEBITS, which {SEPARATELY}"),
    ],
)
def test_results_that_follow_their_inputs_separately_are_told_of(
    behind: QueryHarness, relations: str, note: str
) -> None:
    assert said(behind, relations) == note


def test_the_command_line_says_so(behind: QueryHarness, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(Service(RuntimeEngine(behind.instance)).query("SELECT * FROM balances")) as answer:
        say_apart(answer)
    assert f"note: BALANCES reads CREDITS and DEBITS, which {SEPARATELY}" in capsys.readouterr().err.replace("\n", " ")


def test_views_that_have_read_all_there_is_need_no_note() -> None:
    world = QueryHarness(SQL)
    world.feed("moves", MOVES)
    assert {said(world, r) for r in ("balances", "credits by_others", "moves credits")} == {""}
