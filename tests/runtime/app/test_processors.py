"""Processors in an instance: what KIP-28 names, and what becomes of it when something fails, changes or starts again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import orjson
import pyarrow as pa
import pytest

from flowql.compiler.functions.registry import QueryFailure
from flowql.compiler.processors.processor import BatchProcessor, Processor, ProcessorContext
from flowql.compiler.processors.stores import KeyValueStore, SessionStore, WindowStore
from flowql.compiler.processors.topology import Topology
from flowql.runtime.app.query_state import FAILED
from flowql.runtime.clock import VirtualClock
from flowql.runtime.functions.failures import described
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.state.memory import MemoryPhysical
from tests.registries import forget_projects
from tests.runtime.app.topologies import SQL, Topologies, topology

Calls = list[Any]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget_projects()


class Sum(Processor):
    """The program of KIP-28: sums by key in a store, forwards all of them in each punctuation, and asks for a commit for each record."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.sums = context.store("local-state")
        context.schedule(1000)

    def process(self, key: Any, value: Any) -> None:
        before = self.sums.get(key)
        self.sums.put(key, value["N"] if before is None else before + value["N"])
        self.context.commit()

    def punctuate(self, timestamp: int) -> None:
        for key, total in self.sums.all():
            self.context.forward(key, {"N": total})


SUMS = KeyValueStore("local-state", key=int, value=int)


def test_the_program_of_kip_28() -> None:
    world = Topologies(topology(Sum, SUMS))
    world.rows((1, 5, 100), (2, 1, 200), (1, 6, 300))
    assert world.out() == []
    world.rows((2, 1, 1500), (1, 1, 1700), (1, 1, 4200))
    assert world.out() == [(1, 11, 1500), (2, 2, 1500), (1, 13, 4200), (2, 2, 4200)]


def test_commit_asks_for_a_commit_before_the_interval_ends() -> None:
    world = Topologies(topology(Sum, SUMS))
    world.rows((1, 1, 100))
    sequence = world.instance.commit._sequence
    world.send("in", [(1, {"N": 1}, 200)])
    assert isinstance(world.clock, VirtualClock)
    world.clock.advance(10)  # of an interval of 100
    assert world.driver is not None
    for _ in range(5):
        world.driver.round()
    assert world.instance.commit._sequence == sequence + 1


def test_state_and_schedules_go_on_after_a_restart() -> None:
    physical = MemoryPhysical()
    world = Topologies(topology(Sum, SUMS), physical=physical)
    world.rows((1, 5, 100), (1, 5, 1200))
    world.instance.stop()
    again = Topologies(topology(Sum, SUMS), physical=physical, log=world.log)
    again.rows((1, 1, 1900))
    assert again.out() == [(1, 10, 1200)], "the next is due at 2000, not 1000 after the first record of this life"
    again.rows((1, 1, 2000))
    assert again.out()[1:] == [(1, 12, 2000)]


@dataclass
class Seen(Processor):
    """Notes what it is given."""

    calls: Calls = field(default_factory=list)
    clock: Any = None

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.calls.append("init")
        if self.clock:
            context.schedule(timedelta(seconds=1), self.tick, clock=self.clock)

    def process(self, key: Any, value: Any) -> None:
        c = self.context
        self.calls.append((key, value, c.source, c.topic, c.partition, c.offset, c.timestamp, c.previous))

    def tick(self, timestamp: int) -> None:
        c = self.context
        self.calls.append(("tick", timestamp, c.topic, c.offset, c.timestamp))
        c.forward(0, {"N": timestamp})

    def close(self) -> None:
        self.calls.append("close")


def test_a_record_has_topic_partition_offset_and_time() -> None:
    seen = Seen()
    world = Topologies(topology(lambda: seen))
    world.rows((7, 1, 100), (None, 2, 150))
    assert seen.calls == [
        "init",
        (7, {"N": 1}, "IN_", "in", 0, 0, 100, None),
        (None, {"N": 2}, "IN_", "in", 0, 1, 150, None),
    ]


def test_a_table_gives_the_row_before_and_none_for_a_deletion() -> None:
    seen = Seen()
    world = Topologies(topology(lambda: seen, source="ROWS_"))
    world.send("rows", [(1, {"N": 1}, 10), (1, {"N": 2}, 20), (1, b"", 30)])
    world.send("rows", [(2, {"N": 5}, 40)])
    world.settle()
    assert [(c[0], c[1], c[7]) for c in seen.calls[1:] if c[0] == 1][:2] == [
        (1, {"N": 1}, None),
        (1, {"N": 2}, {"N": 1}),
    ]
    assert seen.calls[-1][:2] == (2, {"N": 5})


def test_wall_clock_punctuations_come_without_records_and_are_committed() -> None:
    seen = Seen(clock="wall")
    world = Topologies(topology(lambda: seen), tick_ms=10)
    began = world.clock.wall_ms()
    assert world.driver is not None
    for _ in range(450):
        world.driver.round()
    ticks = [c[1] - began for c in seen.calls if c[0] == "tick"]
    assert len(ticks) == 4, ticks
    assert all(1000 <= b - a <= 1020 for a, b in pairwise(ticks)), ticks
    assert [c[2:4] for c in seen.calls if c[0] == "tick"] == [(None, None)] * 4
    world.settle()
    assert [n - began for _, n, _ in world.out()] == ticks


def test_a_wall_clock_that_is_set_back_keeps_no_punctuation_waiting() -> None:
    seen = Seen(clock="wall")
    world = Topologies(topology(lambda: seen), tick_ms=10)
    assert world.driver is not None
    assert isinstance(world.clock, VirtualClock)
    for _ in range(120):
        world.driver.round()
    world.clock.set_wall(world.clock.wall_ms() - 3_600_000)
    world.rows((1, 1, 5))
    for _ in range(120):
        world.driver.round()
    assert len([c for c in seen.calls if c[0] == "tick"]) == 2


def test_objects_are_closed_when_the_instance_stops() -> None:
    seen = Seen()
    with Topologies(topology(lambda: seen), live=True) as world:
        world.rows((1, 1, 10))
    assert seen.calls[-1] == "close"


class Fan(Processor):
    def process(self, key: Any, value: Any) -> None:
        if value["N"] % 2:
            self.context.forward(key, value, to="odd")
        else:
            self.context.forward(key, value)
        if value["N"] == 4:
            self.context.send("OUT", key, {"S": "four"}, timestamp=44, headers=(("h", b"1"),))


@dataclass
class Add(Processor):
    text: str

    def process(self, key: Any, value: Any) -> None:
        self.context.forward(key, {"S": f"{value['N']} {self.text}"})


def test_records_go_to_named_children_and_to_all_in_order() -> None:
    made = (
        Topology("FANNING")
        .add_source("s", "IN_")
        .add_processor("fan", Fan, "s")
        .add_processor("odd", lambda: Add("odd"), "fan")
        .add_processor("all", lambda: Add("all"), "fan")
        .add_sink("out", "OUT", "odd", "all")
    )
    world = Topologies(made)
    world.rows((1, 3, 10), (1, 4, 20))
    assert world.out() == [(1, "3 odd", 10), (1, "4 odd", 20), (1, "4 all", 20), (1, "four", 44)]


class Checked(Processor):
    """Keeps what it has seen in a store and, as a cache, in an attribute."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.sums, self.cache = context.store("local-state"), dict[int, int]()

    def process(self, key: Any, value: Any) -> None:
        self.cache[key] = self.cache.get(key, self.sums.get(key, 0)) + value["N"]
        self.sums.put(key, self.cache[key])
        self.context.forward(key, {"N": self.cache[key]})
        if value["N"] == 0:
            raise ZeroDivisionError("nothing to divide by")


def test_a_record_that_fails_leaves_no_trace_but_a_dead_letter() -> None:
    def refuse(_: object, outputs: Any) -> None:
        """As the commit would: after the processors have seen the whole run."""
        if b'"N":14' in str(outputs[0].parts[0][1].to_pydict()).encode():
            raise ValueError("14 cannot be written")

    world = Topologies(topology(Checked, SUMS))
    (task,) = world.instance.queries["MINE"].built.tasks
    task.check = refuse
    world.rows((1, 1, 10), (1, 0, 20), (1, 13, 30), (1, 2, 40))
    assert [n for _, n, _ in world.out()] == [1, 3]
    letters = world.dead_letters("MINE")
    assert [letter["OFFSET"] for letter in letters] == [1, 2]
    assert "ZeroDivisionError: nothing to divide by (test_processors.py:" in letters[0]["MESSAGE"]


class Broken(Processor):
    def process(self, key: Any, value: Any) -> None:
        undefined_name  # type: ignore[name-defined]  # noqa: B018, F821


def test_code_that_is_broken_for_all_records_fails_the_query_and_loses_none() -> None:
    world = Topologies(topology(Broken))
    world.send("in", [(1, {"N": 1}, 10)])
    world.rest()
    record = world.instance.query_states.of("MINE")
    assert record.state is FAILED
    assert "processor p: NameError: name 'undefined_name' is not defined (test_processors.py:" in record.reason
    assert world.dead_letters("MINE") == []


class BadTimer(Processor):
    def init(self, context: ProcessorContext) -> None:
        context.schedule(10)

    def process(self, key: Any, value: Any) -> None:
        self.context.forward(key, value)

    def punctuate(self, timestamp: int) -> None:
        raise ValueError("no")


def test_a_punctuation_that_fails_makes_no_record_a_dead_letter() -> None:
    world = Topologies(topology(BadTimer))
    world.send("in", [(1, {"N": 1}, 10), (1, {"N": 2}, 30)])
    world.rest()
    assert "punctuate of processor p: ValueError: no" in world.instance.query_states.of("MINE").reason
    assert world.dead_letters("MINE") == []


def test_a_table_is_kept_and_rows_deleted() -> None:
    class Keep(Processor):
        def process(self, key: Any, value: Any) -> None:
            self.context.forward(key, None if value["N"] < 0 else value)

    sql = SQL + "CREATE TABLE BIG AS SELECT K, N FROM KEPT WHERE N > 1;"
    world = Topologies(topology(Keep, sink="KEPT"), sql=sql)
    world.rows((1, 1, 10), (2, 2, 20), (3, 3, 30), (2, -1, 40))
    assert world.table("KEPT") == [(1, 1), (3, 3)]
    assert world.table("BIG") == [(3, 3)]


class Windows(Processor):
    """Counts per key and window of 100 ms, and gives closed ones out."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.windows = context.store("windows")
        context.schedule(100)

    def process(self, key: Any, value: Any) -> None:
        start = self.context.timestamp // 100 * 100
        self.windows.put(key, self.windows.get(key, start, 0) + 1, start)

    def punctuate(self, timestamp: int) -> None:
        for key, start, n in list(self.windows.all()):
            if start + 100 <= timestamp:
                self.context.forward(key, {"N": n, "S": str(start)}, timestamp=start + 99)
                self.windows.put(key, None, start)


def test_windows_by_punctuation() -> None:
    store = WindowStore("windows", key=int, value=int, retention=timedelta(seconds=1))
    world = Topologies(topology(Windows, store))
    world.rows((1, 1, 10), (1, 1, 90), (2, 1, 110), (1, 1, 350))
    assert world.out() == [(1, 2, 99), (2, 1, 199)]
    assert [r for r in world.table("MINE-process-1-windows")] == [(1, 300, 1)]


@dataclass
class Visit:
    pages: int
    last: str


class Sessions(Processor):
    """Sessions of clicks: merged while they are at most 100 ms apart."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.sessions = context.store("sessions")

    def process(self, key: Any, value: Any) -> None:
        now = self.context.timestamp
        start, end, pages = now, now, 1
        for s, e, visit in list(self.sessions.find(key, now - 100, now + 100)):
            start, end, pages = min(start, s), max(end, e), pages + visit.pages
            self.sessions.remove(key, s, e)
        self.sessions.put(key, start, end, Visit(pages, str(value["N"])))
        self.context.forward(key, {"N": pages, "S": f"{start}-{end}"})


def test_sessions_of_clicks() -> None:
    store = SessionStore("sessions", key=int, value=Visit, retention=timedelta(milliseconds=500))
    world = Topologies(topology(Sessions, store))
    world.rows((1, 1, 0), (1, 2, 100), (1, 3, 250), (1, 4, 180), (2, 1, 260))
    values = [(v["N"], v["S"]) for v in world.values("out")]
    assert values == [(1, "0-0"), (2, "0-100"), (1, "250-250"), (4, "0-250"), (1, "260-260")]
    world.rows((2, 1, 900))
    assert [k[:2] for k in world.table("MINE-process-1-sessions")] == [(2, 900)], "older than the retention"


class Batches(BatchProcessor):
    def process_batch(self, batch: pa.RecordBatch) -> None:
        if 13 in batch.column("N").to_pylist():
            raise ValueError("13")
        kept = batch.filter(pa.compute.greater(batch.column("N"), 1)).drop_columns(["ROWOP"])
        self.context.forward_batch(kept)


def test_batches_go_through_as_columns() -> None:
    world = Topologies(topology(Batches))
    world.rows((1, 1, 10), (1, 2, 20), (1, 13, 25), (2, 3, 30))
    assert world.out() == [(1, 2, 20), (2, 3, 30)]
    assert [letter["OFFSET"] for letter in world.dead_letters("MINE")] == [2]


def test_batches_go_to_several_streams() -> None:
    class Both(BatchProcessor):
        def process_batch(self, batch: pa.RecordBatch) -> None:
            self.context.send("OUT", 0, {"S": "first"})
            for sink in ("to", "more"):
                self.context.forward_batch(batch.drop_columns(["ROWOP"]), to=sink)

    more = "CREATE STREAM MORE (K BIGINT KEY, N BIGINT) WITH (KAFKA_TOPIC='more', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');"
    world = Topologies(topology(Both).add_sink("more", "MORE", "p"), sql=SQL + more)
    world.rows((1, 1, 10), (2, 2, 20))
    assert world.out() == [(0, "first", 20), (1, 1, 10), (2, 2, 20)]
    assert world.out("more") == [(1, 1, 10), (2, 2, 20)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"K": [1], "M": [1]}, "KEPT has no column M"),
        ({"K": [None], "N": [1]}, "a row of a table needs a key"),
        ({"K": [1], "N": ["x"]}, "ArrowInvalid"),
        ({"K": [1], "ROWTIME": [1 << 60]}, "outside of 1900 to 2200"),
    ],
)
def test_what_sinks_do_not_take_in_batches(columns: dict[str, list[Any]], message: str) -> None:
    class Wrong(BatchProcessor):
        def process_batch(self, batch: pa.RecordBatch) -> None:
            self.context.forward_batch(pa.RecordBatch.from_pydict(columns))

    world = Topologies(topology(Wrong, sink="KEPT"))
    world.rows((1, 1, 10))
    (letter,) = world.dead_letters("MINE")
    assert message in letter["MESSAGE"]


def test_the_users_lines_are_shown_wherever_the_project_lies() -> None:
    code = compile("1 / 0", "of-ada/flowql/totals.py", "exec")
    with pytest.raises(ZeroDivisionError) as caught:
        exec(code, {})
    assert "totals.py:1 <module>" in described(caught.value)


class Aliasing(Processor):
    """Changes what it has put and got in place, without putting it again."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.lists = context.store("lists")

    def process(self, key: Any, value: Any) -> None:
        got = self.lists.get(key, [])
        got.append(value["N"])
        if value["N"] < 10:
            self.lists.put(key, got)
            got.append(99)
        self.context.forward(key, {"S": str(self.lists.get(key))})


def test_values_are_copies() -> None:
    world = Topologies(topology(Aliasing, KeyValueStore("lists", key=int, value=list[int])))
    world.rows((1, 1, 10), (1, 10, 20), (1, 2, 30))
    assert [v["S"] for v in world.values("out")] == ["[1]", "[1]", "[1, 2]"]


def test_an_edit_rebuilds_and_with_on_change_forward_goes_on() -> None:
    class Tenfold(Sum):
        def process(self, key: Any, value: Any) -> None:
            super().process(key, {"N": 10 * value["N"]})

    for on_change, expected in (("rebuild", [110]), ("forward", [20])):
        world = Topologies(topology(Sum, SUMS, on_change=on_change))
        world.rows((1, 10, 100))
        world.topologies = (topology(Tenfold, SUMS, on_change=on_change, version="2"),)
        world.deploy(SQL)
        world.settle()
        world.rows((1, 1, 500))
        world.rows((1, 0, 1100))
        assert [n for _, n, _ in world.out()] == expected, on_change
        world.instance.stop()


def test_a_schedule_that_an_edit_removes_ends() -> None:
    class Quiet(Sum):
        def init(self, context: ProcessorContext) -> None:
            self.context, self.sums = context, context.store("local-state")

    world = Topologies(topology(Sum, SUMS, on_change="forward"))
    world.rows((1, 10, 100))
    world.topologies = (topology(Quiet, SUMS, on_change="forward", version="2"),)
    world.deploy(SQL)
    world.settle()
    world.rows((1, 1, 1500), (1, 1, 2500))
    assert world.out() == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.forward(1, {"M": 1}), "OUT has no column M"),
        (lambda c: c.forward(1, {"N": "x"}), "column N is BIGINT, and got str"),
        (lambda c: c.forward(1, 5), "int is sent to OUT, which takes a dict of columns"),
        (lambda c: c.forward("x", {}), "column K is BIGINT, and got str"),
        (lambda c: c.forward((1, 2), {}), "column K is BIGINT, and got tuple"),
        (lambda c: c.forward(1, {}, to="q"), "q is not a child of p: to"),
        (lambda c: c.send("ELSE", 1, {}), "ELSE is not a sink of the topology: OUT, to"),
        (lambda c: c.forward(1, {}, timestamp=1 << 60), "outside of 1900 to 2200"),
        (lambda c: c.store("other"), "processor p was not given the store other: local-state"),
        (lambda c: c.store("local-state").put(1, "x"), "store local-state: its value is BIGINT, and got str"),
        (lambda c: c.store("local-state").get("x"), "store local-state: its key is BIGINT, and got str"),
        (lambda c: c.schedule(0), "0 is not a duration"),
        (lambda c: c.schedule(5, clock="sun"), "clock='sun': it is 'stream' or 'wall'"),
        (lambda c: c.schedule(5, lambda ms: None), "is not a method of processor p"),
    ],
)
def test_what_a_context_does_not_take(call: Callable[[ProcessorContext], Any], message: str) -> None:
    class Wrong(Processor):
        def process(self, key: Any, value: Any) -> None:
            call(self.context)

    world = Topologies(topology(Wrong, SUMS))
    world.rows((1, 1, 10))
    (letter,) = world.dead_letters("MINE")
    assert message in letter["MESSAGE"]


def test_a_factory_that_makes_no_processor_fails_the_query() -> None:
    world = Topologies(topology(lambda: object()))  # type: ignore[arg-type, return-value]
    world.send("in", [(1, {"N": 1}, 10)])
    world.rest()
    assert "processor p is made as object" in world.instance.query_states.of("MINE").reason


def test_several_inputs_are_read_in_the_order_of_time() -> None:
    seen = Seen()
    made = (
        Topology("BOTH").add_source("s", "IN_", "ROWS_").add_processor("p", lambda: seen, "s").add_sink("o", "OUT", "p")
    )
    world = Topologies(made)
    world.send("rows", [(1, {"N": 1}, 10), (1, {"N": 2}, 30)])
    world.rows((1, 5, 20))
    assert [(c[2], c[1]["N"]) for c in seen.calls[1:]] == [("ROWS_", 1), ("IN_", 5), ("ROWS_", 2)]


def test_query_failures_of_a_users_own_fail_the_query() -> None:
    class Stop(Processor):
        def process(self, key: Any, value: Any) -> None:
            raise QueryFailure("the service is down")

    world = Topologies(topology(Stop))
    world.send("in", [(1, {"N": 1}, 10)])
    world.rest()
    assert "the service is down" in world.instance.query_states.of("MINE").reason


class Branches(Processor):
    """The second program of KIP-28: values above ten to one topic, all others to another."""

    def process(self, key: Any, value: Any) -> None:
        if value["N"] > 10:
            self.context.forward(key, {"N": value["N"]}, to="large", headers=(("h", b"1"),))
        elif value["N"] == 0:
            self.context.send("REST", None, None)
        else:
            self.context.send(
                "REST", "k", {"D": Decimal(value["N"]) / 4, "B": b"\0", "A": [date(2026, 1, 1)]}, timestamp=77
            )


def test_a_topology_writes_several_streams() -> None:
    rest = """CREATE STREAM REST (S STRING KEY, D DECIMAL(6, 2), B BYTES, A ARRAY<DATE>)
      WITH (KAFKA_TOPIC='rest', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');"""
    made = (
        Topology("BRANCHING", priority="high")
        .add_source("s", "IN_")
        .add_processor("p", Branches, "s")
        .add_sink("large", "OUT", "p")
        .add_sink("rest", "REST", "p")
    )
    world = Topologies(made, sql=SQL + rest)
    world.rows((1, 11, 10), (2, 5, 20), (3, 12, 30), (4, 0, 40))
    assert world.out() == [(1, 11, 10), (3, 12, 30)]
    (record,) = world.records("rest")
    assert record[2:] == (b"k", {"D": 1.25, "B": "AA==", "A": [20454]}, 77)
    (letter,) = world.dead_letters("BRANCHING")
    assert "records without a value are for topologies that write one stream or table" in letter["MESSAGE"]
    assert [q.priority for q in world.instance.plan.queries] == ["high"] * 3
    assert [q.id for q in world.instance.plan.queries] == ["BRANCHING", "BRANCHING_TO_OUT", "BRANCHING_TO_REST"]


def test_every_type_goes_in_and_comes_out() -> None:
    types = {
        "B": "BOOLEAN", "I": "INT", "L": "BIGINT", "F": "DOUBLE", "D": "DECIMAL(6, 2)", "S": "STRING", "Y": "BYTES", "DA": "DATE", "TI": "TIME",
        "TS": "TIMESTAMP", "AR": "ARRAY<DATE>", "MA": "MAP<STRING, TIME>", "ST": "STRUCT<A INT, B STRUCT<C DATE>>",
    }  # fmt: skip
    columns = ", ".join(f"{name} {t}" for name, t in types.items())
    sql = "".join(
        f"CREATE STREAM {name} (K INT KEY, {columns}) WITH (KAFKA_TOPIC='{name}', PARTITIONS=1, KEY_FORMAT='JSON', VALUE_FORMAT='JSON');"
        for name in ("ALL_IN", "ALL_OUT")
    )
    seen: Calls = []

    class Pass(Processor):
        def process(self, key: Any, value: Any) -> None:
            seen.append((key, value))
            self.context.forward(key, value)

    world = Topologies(topology(Pass, source="ALL_IN", sink="ALL_OUT"), sql=sql)
    row = {"B": True, "I": 1, "L": 2, "F": 0.5, "D": 1.25, "S": "é", "Y": "AA==", "DA": 20454, "TI": 1000, "TS": 5}
    row |= {"AR": [1, None], "MA": {"x": 2000}, "ST": {"A": 7, "B": {"C": 3}}}
    world.producer.begin()
    records = [{"timestamp": 5, "key": b"3", "value": orjson.dumps(v), "headers": None} for v in (row, {})]
    world.producer.send(TopicPartition("ALL_IN", 0), pa.RecordBatch.from_pylist(records, PRODUCE_SCHEMA))
    world.producer.commit()
    world.settle()
    assert [(k, v) for _, _, k, v, _ in world.records("ALL_OUT")] == [(b"3", row), (b"3", dict.fromkeys(row))]
    key, value = seen[0]
    assert (key, value["DA"], value["TI"], value["TS"]) == (
        3,
        date(2026, 1, 1),
        time(0, 0, 1),
        datetime(1970, 1, 1, microsecond=5000),
    )
    assert value["ST"] == {"A": 7, "B": {"C": date(1970, 1, 4)}}
    assert (value["AR"], value["MA"], value["D"]) == ([date(1970, 1, 2), None], {"x": time(0, 0, 2)}, Decimal("1.25"))
