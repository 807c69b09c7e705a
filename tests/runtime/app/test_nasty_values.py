"""A sample of `python -m tests.nasty_values`, and what the whole of it has found."""

from __future__ import annotations

import functools
import math
import random
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from flowql.runtime.app.query_state import RUNNING
from tests import nasty_values
from tests.nasty_values import COLUMNS, GOOD, NASTY, QUERIES, fits, live, record
from tests.runtime.app.harness import InstanceHarness

SAMPLED = 12
SOURCES = """
CREATE STREAM S (K BIGINT KEY, H DECIMAL(38, 10), D DOUBLE, T STRING)
  WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE TS (K BIGINT PRIMARY KEY, H DECIMAL(38, 10))
  WITH (KAFKA_TOPIC='ts', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
"""
SUM = "CREATE TABLE R AS SELECT 'x' AS X, SUM(H) AS N, COUNT(*) AS C FROM {} GROUP BY 'x' EMIT CHANGES;"
MOST = "9" * 28 + ".5"


@functools.cache
def sample():
    """Not when the tests are collected, which each process does."""
    return nasty_values.sample(QUERIES, COLUMNS, fits, SAMPLED)


def test_the_sweep_has_every_kind_of_column_in_every_operator():
    assert set(COLUMNS) == set(GOOD) == set(NASTY)
    assert [query for query in QUERIES if not any(fits(query, column) for column in COLUMNS)] == []
    assert [column for column in COLUMNS if not any(fits(query, column) for query in QUERIES)] == []


@pytest.mark.parametrize("number", range(SAMPLED))
def test_no_value_stops_its_query_or_another(number):
    query, column = sample()[number]
    assert live(query, column, vector=number % 2 == 0) == [], (query, column)


@pytest.mark.parametrize("column", ["N", "O"])
def test_a_value_too_deep_or_too_long_for_its_message_makes_a_letter(column):
    """The text of the message could not be written, which was taken for a mistake in code."""
    for vector in (False, True):
        assert live("copy", column, vector=vector) == []


def test_the_record_with_which_a_decimal_sum_overflows_makes_a_letter():
    """It stopped its query for good."""
    world = InstanceHarness(SOURCES + SUM.format("S"))
    world.send("s", [(1, b'{"H": %s}' % h.encode(), n) for n, h in enumerate(["1.5", MOST, MOST, "2.25", f"-{MOST}"])])
    world.settle()
    assert world.instance.query_states.of("CTAS_R").state is RUNNING
    assert [x["OFFSET"] for x in world.dead_letters("CTAS_R")] == [1, 2]
    assert world.table("R") == [("x", Decimal("-9999999999999999999999999995.75"), 3)]


def test_of_a_change_whose_new_row_overflows_the_old_row_leaves():
    world = InstanceHarness(SOURCES + SUM.format("TS"))
    for n, (key, h) in enumerate([(1, "1.5"), (2, "2.5"), (1, MOST)]):
        world.send("ts", [(key, b'{"H": %s}' % h.encode(), n)])
        world.settle()
    assert [(x["OFFSET"], x["CODE"]) for x in world.dead_letters("CTAS_R")] == [(2, "FQ4026")]
    assert world.table("R") == [("x", Decimal("2.5"), 1)]


@pytest.mark.parametrize("vector", [False, True])
def test_nan_and_negative_zero_as_keys_of_groups_are_as_duckdb_has_them(vector):
    texts = {"0.0": 0.0, "-0.0": -0.0, '"NaN"': math.nan, "1.5": 1.5, '"-Infinity"': -math.inf, "5e-324": 5e-324}
    chosen = random.Random(3).choices(list(texts), k=400)
    sql = "CREATE TABLE R WITH (KEY_FORMAT='JSON') AS SELECT D, COUNT(*) AS N FROM S GROUP BY D EMIT CHANGES;"
    world = InstanceHarness(SOURCES + sql, vector=vector)
    world.send("s", [(1, b'{"D": %s}' % t.encode(), n) for n, t in enumerate(chosen)])
    world.settle()
    given = pa.table({"d": [texts[t] for t in chosen]})
    with duckdb.connect() as connection:
        connection.register("given", given)
        expected = connection.execute("SELECT d, count(*) FROM given GROUP BY d").fetchall()
    assert sorted(map(repr, world.table("R"))) == sorted(repr((d + 0.0, n)) for d, n in expected)


def test_a_text_of_ten_megabytes_is_a_text():
    text = "x" * 10_000_000
    world = InstanceHarness(SOURCES + "CREATE TABLE R AS SELECT K, MAX(T) AS T FROM S GROUP BY K EMIT CHANGES;")
    world.send("s", [(1, {"T": text}, 1), (2, {"T": "a"}, 2)])
    world.settle()
    assert world.table("R") == [(1, text), (2, "a")]
    assert world.dead_letters("CTAS_R") == []


def test_a_record_is_the_good_one_but_for_a_column():
    assert record("O", "null").count(b"null") == 1
