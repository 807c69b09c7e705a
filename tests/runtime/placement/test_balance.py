"""Who gets what: even, together, and with few moves."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.placement.balance import Unit, balanced, units_of

MEMBERS = st.sets(st.sampled_from("abcdef"), min_size=1)


@st.composite
def classes(draw: st.DrawFn) -> list[Unit]:
    """Units of some queries: each reads one or two topics with a number of partitions."""
    units: list[Unit] = []
    for n in range(draw(st.integers(1, 6))):
        topics = [f"t{n}"] if draw(st.booleans()) else [f"t{n}", f"u{n}"]
        units += [frozenset(TopicPartition(t, p) for t in topics) for p in range(draw(st.integers(1, 7)))]
    return units


def class_of(unit: Unit) -> tuple[str, ...]:
    return tuple(sorted({tp.topic for tp in unit}))


@given(classes(), MEMBERS, MEMBERS)
def test_each_class_and_all_together_are_even(units: list[Unit], before: set[str], members: set[str]) -> None:
    first = balanced(units, before, {})
    after = balanced(units, members, {u: m for u, m in first.items() if m in members})
    for placed, who in ((first, before), (after, members)):
        assert placed.keys() == set(units)
        total = Counter({m: 0 for m in who})
        of_class: dict[tuple[str, ...], Counter[str]] = {}
        for unit, member in placed.items():
            total[member] += 1
            of_class.setdefault(class_of(unit), Counter({m: 0 for m in who}))[member] += 1
        assert all(max(by.values()) - min(by.values()) <= 1 for by in of_class.values())
        assert max(total.values()) - min(total.values()) <= 1


@given(classes(), MEMBERS)
def test_what_is_even_stays_where_it_is(units: list[Unit], members: set[str]) -> None:
    placed = balanced(units, members, {})
    assert balanced(units, members, placed) == placed


@given(st.integers(1, 40), st.integers(1, 5))
def test_a_member_that_joins_gets_no_more_than_its_share_moved(partitions: int, members: int) -> None:
    units = [frozenset({TopicPartition("t", p)}) for p in range(partitions)]
    before = balanced(units, [f"m{n}" for n in range(members)], {})
    after = balanced(units, [f"m{n}" for n in range(members + 1)], before)
    moved = {u for u in units if before[u] != after[u]}
    assert len(moved) <= partitions // (members + 1)
    assert {after[u] for u in moved} <= {f"m{members}"}


@given(st.lists(st.sets(st.integers(0, 12), min_size=1, max_size=3), max_size=12))
def test_partitions_that_tasks_read_together_stay_together(reads: list[set[int]]) -> None:
    tasks = [{TopicPartition("t", p) for p in of} for of in reads]
    units = units_of(tasks)
    assert sorted(tp for unit in units for tp in unit) == sorted({tp for of in tasks for tp in of})
    assert all(sum(bool(of & unit) for unit in units) == 1 for of in tasks)
