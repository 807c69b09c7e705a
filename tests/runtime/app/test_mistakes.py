"""What values do makes dead letters; what is a mistake in code fails the query, and no record is lost for it."""

from __future__ import annotations

import decimal
import re
import struct

import pyarrow as pa
import pytest

from flowql.runtime.app.backoff import BACKOFF_MS_MAX
from flowql.runtime.app.query_state import FAILED, RUNNING
from flowql.runtime.errors import BadRecord
from flowql.runtime.state import frozen
from tests.runtime.app.harness import InstanceHarness, function

SOURCES = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE BESIDE AS SELECT K, SUM(V) AS N FROM S GROUP BY K EMIT CHANGES;
"""
SUMS = "CREATE TABLE R AS SELECT K, COUNT(*) AS C, SUM(V) AS N FROM S GROUP BY K EMIT CHANGES;"
COMPUTED = "CREATE STREAM R AS SELECT K, BROKEN(V) AS N FROM S EMIT CHANGES;"
AGGREGATED = "CREATE TABLE R AS SELECT K, MAX(BROKEN(V)) AS N FROM S GROUP BY K EMIT CHANGES;"
COUNTED = "CREATE TABLE R AS SELECT V % 100 AS M, LATEST_BY_OFFSET(V) AS C FROM S GROUP BY V % 100 EMIT CHANGES;"
BAD = 13

# Of operators, encoders and stores.
OF_VALUES = [
    ValueError("a text that is none"),
    OverflowError("too large"),
    decimal.InvalidOperation("more digits than that"),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    pa.ArrowInvalid("does not fit"),
    pa.ArrowTypeError("another type"),
    pa.lib.ArrowCapacityError("more than 2 GB"),
    struct.error("int too large to convert"),
    RecursionError("nested"),
    BadRecord("no key"),
]
OF_CODE = [
    TypeError("'<' not supported between instances of 'int' and 'str'"),
    KeyError("V"),
    AssertionError("rows without a key"),
    IndexError("tuple index out of range"),
    AttributeError("'NoneType' object has no attribute 'plan'"),
    pa.ArrowNotImplementedError("no such kernel"),
    NameError("name 'row' is not defined"),
]
# Functions are plugged in, and what fits none of them may be a value: all but what no value can cause.
OF_FUNCTIONS = [*OF_VALUES, TypeError("None"), KeyError("Mars"), IndexError("7"), re.error("a pattern that is none")]
FUNCTIONS_FAIL = [AssertionError("no"), NameError("x"), ImportError("gone"), NotImplementedError("not yet")]


def name(error):
    return type(error).__name__


def send(world):
    world.send("s", [(n % 3, {"V": n}, n) for n in range(40)])


def raising(execute, error, mended):
    def execute_or_raise(batches, run):
        for batch in batches.values():
            if not mended and BAD in batch.column("V"):
                raise error
        return execute(batches, run)

    return execute_or_raise


def broken_operator(error):
    """A world in which a task of R cannot process one row. mended: becomes true when something is put in."""
    mended = []
    world = InstanceHarness(SOURCES + SUMS)
    for task in world.instance.queries["CTAS_R"].built.tasks:
        task.program.execute = raising(task.program.execute, error, mended)
    send(world)
    world.rest()
    return world, mended


def rows(values):
    return [(k, len(of_k), sum(of_k)) for k in range(3) if (of_k := [v for v in values if v % 3 == k])]


@pytest.mark.parametrize("error", OF_VALUES, ids=name)
def test_an_error_of_values_makes_one_letter(error):
    world, _ = broken_operator(error)
    world.settle()
    assert world.instance.query_states.of("CTAS_R").state is RUNNING
    assert [x["OFFSET"] for x in world.dead_letters("CTAS_R")] == [BAD]
    assert world.table("R") == rows([v for v in range(40) if v != BAD])


@pytest.mark.parametrize("error", OF_CODE, ids=name)
def test_a_mistake_in_code_fails_the_query_which_goes_on_when_it_is_mended(error):
    world, mended = broken_operator(error)
    record = world.instance.query_states.of("CTAS_R")
    assert record.state is FAILED
    assert name(error) in record.reason
    assert record.backoff.retry_at_ms > world.clock.timer_ms(), "it is tried again later"
    assert world.dead_letters("CTAS_R") == []
    assert len(world.table("BESIDE")) == 3
    mended.append(True)
    world.clock.advance(BACKOFF_MS_MAX)
    world.settle()
    assert world.table("R") == rows(range(40))
    assert world.dead_letters("CTAS_R") == []


def with_function(sql, error):
    def broken(value):
        if value == BAD:
            raise error
        return value

    with function("BROKEN", broken):
        world = InstanceHarness(SOURCES + sql)
        send(world)
        world.rest()
    return world, next(q for q in world.instance.queries if q.endswith("_R"))


@pytest.mark.parametrize("sql", [COMPUTED, AGGREGATED])
@pytest.mark.parametrize("error", OF_FUNCTIONS, ids=name)
def test_what_a_function_says_of_a_value_makes_one_letter(error, sql):
    world, query = with_function(sql, error)
    assert world.instance.query_states.of(query).state is RUNNING
    assert [x["OFFSET"] for x in world.dead_letters(query)] == [BAD]


@pytest.mark.parametrize("sql", [COMPUTED, AGGREGATED])
@pytest.mark.parametrize("error", FUNCTIONS_FAIL, ids=name)
def test_a_function_that_is_broken_fails_the_query(error, sql):
    world, query = with_function(sql, error)
    assert world.instance.query_states.of(query).state is FAILED
    assert name(error) in world.instance.query_states.of(query).reason
    assert world.dead_letters(query) == []
    assert len(world.table("BESIDE")) == 3


@pytest.mark.parametrize(
    ("error", "letters"),
    [
        (TypeError("no such type"), 1),
        (pa.ArrowNotImplementedError("too large for one array"), 1),
        (KeyError("a column"), 0),
    ],
    ids=["value", "value of Arrow", "code"],
)
def test_of_what_a_store_cannot_keep_as_well(error, letters, monkeypatch):
    encode = frozen.encode_value

    def encode_or_raise(value):
        if value is not None and BAD in value:
            raise error
        return encode(value)

    monkeypatch.setattr(frozen, "encode_value", encode_or_raise)
    world = InstanceHarness(SOURCES + COUNTED)
    send(world)
    world.settle() if letters else world.rest()
    state = world.instance.query_states.of("CTAS_R")
    assert (state.state is RUNNING, len(world.dead_letters("CTAS_R"))) == (letters == 1, letters)
    assert letters or name(error) in state.reason or "a column" in state.reason
    assert len(world.table("BESIDE")) == 3
