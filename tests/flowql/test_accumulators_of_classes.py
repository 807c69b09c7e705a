"""Aggregates that keep dataclasses and `msgspec.Struct`s: as data in the state, whose fields are part of the query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowql.compiler.functions.registry import AggregateFunction
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.user import plain_names
from flowql.compiler.plan.types import DOUBLE
from flowql.config.functions import load_functions
from flowql.errors import CommandError
from flowql.runtime.state.values import decode_value, encode_value
from tests.flowql.projects_with_modules import made, resumed, running, until

pytestmark = pytest.mark.turns("long")

YAML = "name: trips\nfunctions: [trips]\nsql: [shop.sql]\n"
SQL = """
CREATE STREAM S (K BIGINT KEY, V DOUBLE, W STRING)
  WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE TRIPS AS SELECT K, TRIP(W, V) AS T, COUNT(*) AS N FROM S GROUP BY K;
CREATE TABLE VISITS AS SELECT K, TRIP(W, V) AS T FROM S WINDOW SESSION (1 MINUTE) GROUP BY K;
"""
TRIPS = """
from dataclasses import dataclass, field
from msgspec import Struct
from flowql import udaf

class Stop(Struct):
    place: str
    distance: float = 0.0

@dataclass
class Seen:
    stops: list[Stop] = field(default_factory=list)
    by_place: dict[str, Stop] = field(default_factory=dict)
    last: Stop | None = None

@udaf(OPTIONS)
class Trip:
    '''Changes what it is given wherever it can, and fails after that.'''

    def init(self) -> Seen:
        return Seen()

    def add(self, seen: Seen, place: str, distance: float) -> None:
        seen.stops.append(Stop(place, distance))
        seen.by_place.setdefault(place, Stop(place)).distance += distance
        seen.last = seen.stops[-1]
        if distance == 13:
            raise ValueError("13 is not a distance")

    def undo(self, seen: Seen, place: str, distance: float) -> None:
        seen.stops.remove(Stop(place, distance))

    def merge(self, seen: Seen, other: Seen) -> None:
        for stop in other.stops:
            self.add(seen, stop.place, stop.distance)
        other.stops.clear()

    def result(self, seen: Seen) -> dict[str, float]:
        found = {place: stop.distance for place, stop in seen.by_place.items()}
        last = seen.last
        seen.stops.clear()
        seen.by_place.clear()
        return {**found, "last": last.distance if last else -1.0}
"""
SENT = [
    {"K": i % 3, "V": float(v), "W": "abc"[i % 2], "AT": i * 1_000}
    for i, v in enumerate((1, 2, 3, 13, 5, 6, 13, 8, 9, 10, 11, 12))
]


def trips(sent: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for row in sent:
        if row["V"] != 13:
            group = found.setdefault(row["K"], {})
            group[row["W"]] = group.get(row["W"], 0.0) + row["V"]
            group["last"] = row["V"]
    return found


def written(options: str = "", text: str = TRIPS) -> str:
    return text.replace("(OPTIONS)", f"({options})")


def shown(connection: Any, table: str) -> dict[int, dict[str, float]]:
    return {r["K"]: dict(r["T"]) for r in connection.sql(f"SELECT K, T FROM {table}").arrow().to_pylist()}


def aggregate(folder: Path, text: str, name: str = "TRIP") -> AggregateFunction:
    (folder / "trips.py").write_text(text)
    found = load_functions(folder, ["trips"])[name]
    assert isinstance(found, AggregateFunction)
    return found


@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_objects_are_kept_over_a_restart_and_failures_leave_them_as_they_were(tmp_path: Path, isolation: str) -> None:
    made(tmp_path, YAML, SQL, trips=written(f"isolation={isolation!r}"))
    with running(tmp_path) as instance:
        instance.produce("S", SENT[:7], timestamp="AT")
        until(lambda: shown(instance, "TRIPS"), trips(SENT[:7]))
    with resumed(tmp_path) as instance:
        instance.produce("S", SENT[7:], timestamp="AT")
        until(lambda: shown(instance, "TRIPS"), trips(SENT))
        until(lambda: shown(instance, "VISITS"), trips(SENT))
        letters = str(instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist())
        assert "13 is not a distance" in letters


def test_other_fields_are_another_query_even_if_the_version_is_the_same(tmp_path: Path) -> None:
    """A tuple of old fields is never read as one of new ones: the query is rebuilt, and refused where its state would have to go on."""
    made(tmp_path, YAML, SQL, trips=written('version="1"'))
    edited = written('version="1"').replace("    place: str\n", "    at: int = 0\n    place: str = ''\n")
    edited = edited.replace("Stop(place, distance)", "Stop(1, place, distance)").replace(
        "Stop(place)", "Stop(2, place)"
    )
    with running(tmp_path) as instance:
        instance.produce("S", SENT, timestamp="AT")
        until(lambda: shown(instance, "TRIPS"), trips(SENT))
        (tmp_path / "trips.py").write_text(written('version="1"').replace("-1.0", "-2.0"))
        assert {c["class"] for c in instance.deploy(dry_run=True)["changes"]} == {"unchanged"}, "as its version says"
        (tmp_path / "trips.py").write_text(edited)
        with pytest.raises(CommandError) as caught:
            instance.deploy(forward=True)
        assert "its aggregates" in str(caught.value)
        done = instance.deploy()
        assert {c["class"] for c in done["changes"]} == {"rebuilt"}
        until(lambda: shown(instance, "TRIPS"), trips(SENT))
        until(lambda: shown(instance, "VISITS"), trips(SENT))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("last: Stop | None", "newest: Stop | None"),
        ("last: Stop | None", "last: Stop | str | None"),
        ("place: str\n    distance: float = 0.0", "distance: float\n    place: str = ''"),
        ("    distance: float = 0.0\n", "    distance: float = 0.0\n    at: int = 0\n"),
    ],
)
def test_every_change_of_the_fields_is_in_the_name_of_the_plan(tmp_path: Path, old: str, new: str) -> None:
    before, after = written('version="1"'), written('version="1"').replace(old, new)
    assert before != after
    names = [aggregate(tmp_path, text).name for text in (before, after, before.replace("Stop", "Halt"))]
    assert names[0] != names[1]
    assert names[0] == names[2], "the name of a class is not in the state"
    assert {plain_names(n) for n in names} == {"TRIP"}


def test_what_is_kept_is_data_that_no_method_can_reach(tmp_path: Path) -> None:
    trip, bound = aggregate(tmp_path, written()), Resolution((), DOUBLE)
    add, result = trip.add(bound, ()), trip.result(bound, ())
    first = trip.initial(bound, ())
    one = add(first, "a", 1.0)
    assert (first, one) == (([], {}, None), ([("a", 1.0)], {"a": ("a", 1.0)}, ("a", 1.0)))
    with pytest.raises(ValueError, match="13 is not a distance"):
        add(one, "b", 13.0)
    assert (result(one), result(one)) == ({"a": 1.0, "last": 1.0},) * 2
    assert trip.merge is not None
    two = add(first, "b", 2.0)
    assert trip.merge(bound, ())(one, two)[0] == [("a", 1.0), ("b", 2.0)]
    assert (one, two) == (([("a", 1.0)], {"a": ("a", 1.0)}, ("a", 1.0)), ([("b", 2.0)], {"b": ("b", 2.0)}, ("b", 2.0)))
    assert decode_value(encode_value((one, 7))) == (one, 7)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("seen.stops.append('a')", "TRIP.add made an accumulator with a str, but Stop is declared"),
        ("seen.last = 1", "TRIP.add made an accumulator with Seen.last of int, but Stop or NoneType is declared"),
        ("seen.total = 1", "TRIP.add made an accumulator with Seen.total, which is not a field of the class"),
        ("seen.last = type('Big', (Stop,), {})(place)", "with a Big, but Stop is declared"),
        ("return Stop(place)", "TRIP.add made an accumulator of Stop, but Seen is declared"),
        ("return type('More', (Seen,), {})()", "with a More, but Seen is declared"),
    ],
)
def test_what_would_be_lost_is_an_error(tmp_path: Path, body: str, error: str) -> None:
    trip, bound = (
        aggregate(
            tmp_path,
            written().replace(
                "if distance == 13:\n            raise", f"{body}\n        if distance == 13:\n            raise"
            ),
        ),
        Resolution((), DOUBLE),
    )
    with pytest.raises(TypeError, match=error):
        trip.add(bound, ())(trip.initial(bound, ()), "a", 1.0)
    assert trip.add_runs is not None
    with pytest.raises(TypeError, match=error):
        trip.add_runs(bound)([trip.initial(bound, ())], [0, 1], [["a"], [1.0]])


ODD = """
from dataclasses import dataclass, field, KW_ONLY
from flowql import udaf

@dataclass(slots=True, frozen=True)
class Base:
    n: int

@dataclass(slots=True, frozen=True)
class Sums(Base):
    _: KW_ONLY
    total: float
    calls: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "calls", self.calls + 1)

@udaf
class Total:
    def init(self) -> Sums | None:
        return None

    def add(self, sums: Sums | None, value: float) -> Sums | None:
        if value < 0:
            sums.total = value
        return Sums(1, total=value) if sums is None else Sums(sums.n + 1, total=sums.total + value)

    def result(self, sums: Sums | None) -> list[float] | None:
        return sums and [sums.n, sums.total, sums.calls]
"""


def test_frozen_classes_with_slots_and_fields_without_init_come_back_as_they_were(tmp_path: Path) -> None:
    total, bound = aggregate(tmp_path, ODD, "TOTAL"), Resolution((), DOUBLE)
    add, result = total.add(bound, ()), total.result(bound, ())
    acc = add(add(total.initial(bound, ()), 1.0), 2.5)
    assert acc == (2, 3.5, 1)
    assert result(acc) == [2.0, 3.5, 1.0], "__post_init__ is called when an object is made, and not when it is read"
    with pytest.raises(AttributeError, match="cannot assign to field"):
        add(acc, -1.0)
