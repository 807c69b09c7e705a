"""Small values of a plan: types, event times, numbers of partitions, the record of a deployment while a group swaps in."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from math import inf, isnan, nan

import duckdb
import pyarrow as pa
import pytest

from flowql.compiler.plan import codec
from flowql.compiler.plan.deployed import (
    Deployed,
    Move,
    Moved,
    Swap,
    groups_of,
    moved_in,
    running_plan,
    swapped,
    without,
)
from flowql.compiler.plan.diff import decide_change
from flowql.compiler.plan.event_times import EARLIEST_MS, LATEST_MS, EventTimes
from flowql.compiler.plan.partitions import as_wanted, declared_partitions, redeclared, resized_sources
from flowql.compiler.plan.topology import NO_ROWS, Plan
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    SqlType,
    array,
    arrow_type,
    decimal,
    duckdb_type,
    map_of,
    spark_type,
    struct,
)
from tests.compiler.plan.test_diff import ALL, SOURCE, A, B, C, E, generations, serving
from tests.flowql.query.harness import plan_of

DAY_MS = 86_400_000
NESTED = struct(("a", array(map_of(STRING, decimal(9, 2)))), ('q"x', BIGINT))


@pytest.mark.parametrize(
    "sql_type", [BOOLEAN, INT, BIGINT, DOUBLE, STRING, BYTES, DATE, TIMESTAMP, decimal(38, 0), array(INT), NESTED]
)
def test_a_type_is_the_same_in_arrow_and_duckdb(sql_type: SqlType) -> None:
    (found,) = duckdb.sql(f"SELECT CAST(NULL AS {duckdb_type(sql_type)}) AS c").to_arrow_table().schema.types
    assert found == arrow_type(sql_type)


def test_a_type_of_spark() -> None:
    assert spark_type(NESTED) == 'STRUCT<`a`: ARRAY<MAP<STRING, DECIMAL(9, 2)>>, `q"x`: BIGINT>'
    assert [spark_type(t) for t in (INT, BYTES, TIMESTAMP)] == ["INT", "BINARY", "TIMESTAMP_NTZ"]
    assert arrow_type(map_of(STRING, INT)) == pa.map_(pa.string(), pa.int32())


@pytest.mark.parametrize(
    ("times", "used", "not_used"),
    [
        (EventTimes(), (EARLIEST_MS, -1, 0, LATEST_MS - 1), (EARLIEST_MS - 1, LATEST_MS)),
        (EventTimes(5, 9), (5, 8), (4, 9)),
        (EventTimes(5, 90, ahead_ms=10), (5, 30), (31, 90)),
    ],
)
def test_times_that_are_used_at_20_ms(times: EventTimes, used: tuple[int, ...], not_used: tuple[int, ...]) -> None:
    """The range that kernels take (from `first_ms` to before `end_ms`) is the one whose times have no reason against them."""
    assert [times.why_not(ms, 20, of_column=False) for ms in used] == [""] * len(used)
    assert all(times.why_not(ms, 20, of_column=False) for ms in not_used)
    first, end = times.first_ms(of_column=False), times.end_ms(20)
    assert all(first <= ms < end for ms in used)
    assert not any(first <= ms < end for ms in not_used)


def test_times_of_columns_begin_in_1970_and_messages_name_days() -> None:
    assert EventTimes().first_ms(of_column=True) == 0
    assert EventTimes(-5).first_ms(of_column=True) == -5
    assert EventTimes().why_not(-1, 0, of_column=True) == "-1 is not from 1970-01-01 to 2200-01-01"
    assert (
        EventTimes(DAY_MS, 2 * DAY_MS + 1000)
        .why_not(0, 0, of_column=True)
        .endswith("from 1970-01-02 to 1970-01-03T00:00:01")
    )


def test_the_times_of_two_sources_together() -> None:
    assert EventTimes().hull(EventTimes(latest_ms=5)) == EventTimes()
    assert EventTimes(3, 9, ahead_ms=1).hull(EventTimes(7, 11)) == EventTimes(EARLIEST_MS, 11)
    assert EventTimes(EARLIEST_MS - 1).hull(EventTimes()).earliest_ms == EARLIEST_MS - 1


def test_partitions_that_are_declared_and_change() -> None:
    plan = plan_of(ALL)
    more = plan_of(ALL.replace("PARTITIONS=1", "PARTITIONS=3"))
    assert declared_partitions(more)["s"] == ("S", 3)
    assert declared_partitions(more)["B"] == ("B", None)
    assert redeclared(plan, more) == {"s": 3}
    assert redeclared(plan, plan) == redeclared(Plan(), more) == redeclared(plan, Plan()) == {}
    before = decide_change(Deployed(), plan).deployed
    assert resized_sources(before, more, {"s": 1}) == {"s": 3}
    resized = {c.query: (c.action, c.because) for c in decide_change(before, more, partitions={"s": 1}).changes}
    assert resized["CTAS_A"] == resized["CSAS_B"] == ("change", "s gets 3 partitions")
    assert resized["CTAS_C"] == ("change", "CSAS_B")
    assert resized_sources(before, more, {"s": 3}) == resized_sources(before, more, {"t": 1}) == {}
    declared = SOURCE + SOURCE.replace("STREAM S", "STREAM B").replace("'s', PARTITIONS=1", "'B', PARTITIONS={n}")
    two, four = (plan_of(declared.format(n=n) + "INSERT INTO B SELECT * FROM S;\n") for n in (2, 4))
    assert redeclared(two, four) == {"B": 4}
    change = decide_change(Deployed(two), four)
    assert [(c.query, c.action, c.because) for c in change.changes] == [("INSERT_B_1", "change", "B gets 4 partitions")]
    assert resized_sources(Deployed(two), four, {"B": 2}) == {}
    (group,) = groups_of(change.deployed)
    assert as_wanted(change.deployed, {"s": 1, "B": 2, group.staging["B"]: 4}) == {
        "s": 1,
        "B": 4,
        group.staging["B"]: 4,
    }


def test_a_swap_by_moves_leaves_what_reading_needs_to_know() -> None:
    """Begins of topics whose records were replaced, by partition, and the offsets that were moved, of other groups as before."""
    building = decide_change(
        serving(ALL + E), plan_of((ALL + E).replace("> 0", "> 1").replace("V + 1", "V + 2"))
    ).deployed
    first, _ = groups_of(building)
    move = Move(first.staging["B"], "B", 1, "replace", 20, 9)
    moves = (move, replace(move, partition=0, end=10), Move(first.staging["C"], "C", 0, "difference", 5, 9))
    old = (Moved("B@0", "B", 0, ((1, 2),)), Moved("E@0", "E", 0, ((1, 2),)))
    before = replace(building, swap=Swap(1, first.name, moves), moved=old, begins=(("E", (7,)),))
    places = (Moved(first.staging["B"], "B", 0, ((3, 13),)),)
    after = moved_in(before, first, places)
    assert after.swap is None
    assert [after.begin("B", p) for p in (0, 1, 2)] == [10, 20, 0]
    assert (after.begin("E", 0), after.begin("C", 0)) == (7, 0)
    assert after.moved == (old[1], *places)
    assert [h.topic for h in after.histories if h.mixed] == ["C"]
    assert after.position("B", 0, {"B": 4, first.staging["B"]: 3}) == 4
    assert after.position("B", 0, {first.staging["B"]: 3}) == 13
    assert after.position("B", 1, {first.staging["B"]: 3}) is None


def test_what_runs_and_what_a_swap_leaves_of_lost_and_paused_queries() -> None:
    plan = plan_of(ALL + E)
    paused = replace(plan_of((ALL + E).replace("> 0", "> 1")), paused=("CSAS_B", "CTAS_A"))
    building = replace(decide_change(serving(ALL + E), paused).deployed, lost=(("CTAS_C", "gone"), ("CTAS_A", "gone")))
    running = running_plan(building)
    assert "CTAS_C" not in {q.id for q in running.queries}
    assert "CTAS_C@2" in running.by_id
    assert set(running.paused) == {"CSAS_B", "CSAS_B@2"}
    (group,) = groups_of(building)
    assert swapped(building, group, ()).lost == (("CTAS_A", "gone"),)
    assert without(building, [group]) == building.serving
    two = decide_change(serving(ALL + E), plan_of((ALL + E).replace("> 0", "> 1").replace("V + 1", "V + 2"))).deployed
    first, second = groups_of(two)
    assert generations(without(two, [first])) == {"CTAS_A": 1, "CSAS_B": 1, "CTAS_C": 1, "CTAS_D": 1, "CSAS_E": 2}
    assert generations(without(two, [second])) == {"CTAS_A": 1, "CSAS_B": 2, "CTAS_C": 2, "CTAS_D": 2, "CSAS_E": 1}
    assert dict(two.last)["CSAS_E"] == 2
    assert dict(serving(SOURCE + A).last) == {"CTAS_A": 1}
    assert generations(plan) == {q.id: 1 for q in plan.queries}


def test_a_row_that_is_taken_out_of_a_table_renews_it() -> None:
    row = "INSERT INTO B (K, V) VALUES ('a', {v});\n"
    one, both = (SOURCE + B.format(over=0) + C + "".join(row.format(v=v) for v in vs) for vs in ((1,), (1, 2)))
    assert [c.action for c in decide_change(serving(one), plan_of(both)).changes] == ["none", "none"]
    change = decide_change(serving(both), plan_of(one))
    assert [(c.query, c.because) for c in change.changes] == [
        ("CSAS_B", "a row was taken out of B"),
        ("CTAS_C", "CSAS_B"),
    ]


@pytest.mark.parametrize("value", [1.5, -0.0, inf, -inf, 3, True, None, "x", Decimal("1.50"), b"\x00", (1, (2.5,))])
def test_a_value_of_a_plan_is_read_as_it_was_written(value: object) -> None:
    data = json.loads(json.dumps(codec.to_data(value), allow_nan=False))
    assert repr(codec.from_data(data)) == repr(value)
    assert isnan(codec.from_data(codec.to_data(nan)))  # type: ignore[arg-type]
    assert codec.to_data(1.5) == 1.5
    assert codec.dumps(Plan()).startswith('{\n "$": "Plan"')


def test_what_can_be_seen_of_a_source() -> None:
    plan = plan_of(ALL)
    stream, table = plan.source("S"), plan.source("A")
    assert stream is not None
    assert table is not None
    assert (stream.visible, stream.identity, table.identity) == (("K", "V"), ("K",), ("K",))
    keyless = replace(stream, schema=replace(stream.schema, fields=stream.schema.value))
    assert keyless.identity == ("V",)
    assert replace(stream, columns=("V", "K")).visible == ("V", "K")
    assert (NO_ROWS.visible, NO_ROWS.identity, NO_ROWS.shown.names, NO_ROWS.is_hidden) == ((), (), (), True)
    assert not stream.is_hidden
