"""Spreads units over members: even for each class of units and over all, and with as few moves as that allows.

A *unit* is what has to be at one member: partitions that tasks read together. Its *class* is the set of its topics: each query's partitions are
spread evenly, not only their sum, since queries differ in cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from flowql.runtime.log.base import TopicPartition

Unit = frozenset[TopicPartition]


def units_of(reads: Iterable[Collection[TopicPartition]]) -> list[Unit]:
    """Partitions that a task reads are in one unit, sorted by their first partition.

    >>> a, b, c = (TopicPartition(t, 0) for t in "ABC")
    >>> [sorted(tp.topic for tp in unit) for unit in units_of([[a, b], [b], [c]])]
    [['A', 'B'], ['C']]
    """
    root: dict[TopicPartition, TopicPartition] = {}

    def find(tp: TopicPartition) -> TopicPartition:
        while root[tp] != tp:
            root[tp] = root[root[tp]]
            tp = root[tp]
        return tp

    for together in reads:
        first = None
        for tp in together:
            root.setdefault(tp, tp)
            first = tp if first is None else first
            root[find(tp)] = find(first)
    found: dict[TopicPartition, set[TopicPartition]] = {}
    for tp in root:
        found.setdefault(find(tp), set()).add(tp)
    return sorted((frozenset(tps) for tps in found.values()), key=min)


def balanced(units: Collection[Unit], members: Collection[str], current: Mapping[Unit, str]) -> dict[Unit, str]:
    """The member of each unit. current: where units are, of those that are at a member of `members`.

    In each class the numbers of two members differ by one at most, and so do their sums if classes allow it.
    """
    assert members, "units need a member"
    classes: dict[tuple[str, ...], list[Unit]] = {}
    for unit in sorted(units, key=min):
        classes.setdefault(tuple(sorted({tp.topic for tp in unit})), []).append(unit)
    held = {name: {m: [u for u in of if current.get(u) == m] for m in sorted(members)} for name, of in classes.items()}
    total = Counter({m: sum(len(by[m]) for by in held.values()) for m in sorted(members)})
    for name, of in classes.items():
        _even(of, held[name], total)
    _level(held, total)
    return {unit: member for by in held.values() for member, of in by.items() for unit in of}


def _even(units: list[Unit], held: dict[str, list[Unit]], total: Counter[str]) -> None:
    """Within a class. Those that have most may keep the remainder; what is too much or nowhere goes to those that have least."""
    least, more = divmod(len(units), len(held))
    by_size = sorted(held, key=lambda m: (-len(held[m]), total[m], m))
    most = {m: least + (n < more) for n, m in enumerate(by_size)}
    placed = {u for m, of in held.items() for u in of[: most[m]]}
    for member, of in held.items():
        total[member] -= max(0, len(of) - most[member])
        del of[most[member] :]
    for unit in units:
        if unit not in placed:
            member = min((m for m in held if len(held[m]) < most[m]), key=lambda m: (total[m], m))
            held[member].append(unit)
            total[member] += 1


def _level(held: Mapping[tuple[str, ...], dict[str, list[Unit]]], total: Counter[str]) -> None:
    """Over all classes: remainders move from those that have most in sum to those that have least."""
    while True:
        full, free = max(total, key=lambda m: (total[m], m)), min(total, key=lambda m: (total[m], m))
        if total[full] - total[free] <= 1:
            return
        movable = [by for by in held.values() if len(by[full]) > len(by[free])]
        if not movable:
            return
        movable[0][free].append(movable[0][full].pop())
        total[full] -= 1
        total[free] += 1
